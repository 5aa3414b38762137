"""The CDN of the stand-in registry: signed URLs as S3 has them, on an origin of its own.

Signer owns the tickets behind the signed URLs: each redirect of the registry writes one, and the
CDN serves nothing without a live one.
"""

import hashlib
import hmac
import itertools
import threading
import time
from urllib.parse import parse_qs, urlencode

from registry_answer import Answerer
from standin_sources import Memory


class Ticket:
    """What one signed URL allows."""

    def __init__(self, repo, blob, method, path, expires, uses):
        self.repo = repo
        self.blob = blob
        self.method = method
        self.path = path
        self.expires = expires
        self.uses = uses  # left, or None


class Signer:
    """Writes and checks signed URLs."""

    def __init__(self):
        self.lock = threading.Lock()  # guards tickets
        self.tickets = {}
        self.serial = itertools.count(1)

    def sign(self, repo, blob, method, ttl, uses=None):
        """The path and query; a ttl of 0 or less has run out already."""
        algorithm, _, value = blob.digest.partition(":")
        path = f"/docker/registry/v2/blobs/{algorithm}/{value[:2]}/{value}/data"
        text = f"{method} {path} {next(self.serial)}"
        signature = hmac.new(b"stand-in", text.encode(), hashlib.sha256).hexdigest()
        now = time.time()
        with self.lock:
            self.tickets[signature] = Ticket(repo, blob, method, path, now + ttl, uses)
        query = urlencode({
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": "STANDIN/20240101/us-east-1/s3/aws4_request",
            "X-Amz-Date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)),
            "X-Amz-Expires": max(1, int(ttl)), "X-Amz-SignedHeaders": "host",
            "X-Amz-Signature": signature})
        return f"{path}?{query}"

    def expire_all(self):
        """Every URL handed out so far is refused from now on."""
        with self.lock:
            for ticket in self.tickets.values():
                ticket.expires = 0

    def look_up(self, query):
        with self.lock:
            return self.tickets.get(query.get("X-Amz-Signature", [""])[0])

    def use(self, ticket, method, path):
        """None, or the (code, message) that refuse it."""
        with self.lock:
            if ticket is None or ticket.path != path or ticket.method != method:
                return "SignatureDoesNotMatch", "The signature is not that of this request"
            if ticket.expires <= time.time():
                return "AccessDenied", "Request has expired"
            if ticket.uses is not None:
                if ticket.uses <= 0:
                    return "AccessDenied", "Used up"
                ticket.uses -= 1
            return None


class CdnHandler(Answerer):
    """GET and HEAD of signed URLs, each for the method it was signed for."""

    host = "cdn"

    def serve(self):
        path, _, query = self.path.partition("?")
        self.ticket = self.standin.signer.look_up(parse_qs(query))
        self.hop = path.startswith("/hop/")
        if self.ticket:
            self.record.repo = self.ticket.repo.name
            self.record.path = self.ticket.blob.digest
        self.record.kind = "redirect" if self.hop else "blob"
        self.standin.log.start(self.record)
        self.answer_with(self.dispatch)

    def respond_error(self, status, code, message, headers=()):
        body = ('<?xml version="1.0" encoding="UTF-8"?>\n'
                f"<Error><Code>{code}</Code><Message>{message}</Message></Error>")
        self.respond(status, [("Content-Type", "application/xml"), *headers],
                     Memory(body.encode()))

    def dispatch(self):
        if self.hop:
            return self.next_hop()
        if self.command not in ("GET", "HEAD"):
            return self.respond_error(405, "MethodNotAllowed", "GET and HEAD only")
        if "authorization" in self.record.headers:
            return self.respond_error(400, "InvalidArgument", "More than one way to authenticate")
        refused = self.standin.signer.use(
            self.ticket, self.command, self.path.partition("?")[0])
        if refused:
            return self.respond_error(403, *refused)
        blob = self.ticket.blob
        wanted = self.record.headers.get("range")
        if self.record.headers.get("if-range", blob.cdn_etag) != blob.cdn_etag:
            wanted = None
        return self.respond_range([
            ("Content-Type", "application/octet-stream"), ("ETag", blob.cdn_etag),
            ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")], blob.source, wanted)

    def next_hop(self):
        """/hop/N/PATH: N more redirects, then PATH."""
        count, _, rest = self.path[len("/hop/"):].partition("/")
        to = f"/hop/{int(count) - 1}/{rest}" if int(count) > 1 else f"/{rest}"
        self.respond(307, [("Location", to)], Memory(b""))
