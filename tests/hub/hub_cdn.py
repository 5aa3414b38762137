"""The CDN of the stand-in: signed URLs, ranges, and most of the faults.

Signer owns the tickets behind the signed URLs: each redirect of the Hub writes
one, and the CDN serves nothing without a live one.
"""

import hashlib
import hmac
import itertools
import threading
import time
from urllib.parse import parse_qs, quote, urlencode

from standin_wire import Cut, Handler, parse_range

MAX_UNRANGED = 50_000_000_000


class Ticket:
    """What one signed URL allows."""

    def __init__(self, repo, entry, path, expires, uses):
        self.repo = repo
        self.entry = entry
        self.path = path
        self.expires = expires
        self.uses = uses  # left, or None


class Signer:
    """Writes and checks signed URLs."""

    def __init__(self, ttl):
        self.ttl = ttl
        self.lock = threading.Lock()  # guards tickets
        self.tickets = {}
        self.serial = itertools.count(1)

    def sign(self, base, repo, entry, expired=False, uses=None):
        expires = int(time.time()) + (-60 if expired else self.ttl)
        if entry.xet_hash:
            path = f"/xet-bridge-us/{repo.uid}/{entry.xet_hash}"
        else:
            path = f"/repos/{repo.uid[:2]}/{repo.uid}/{entry.sha256}"
        text = f"{path} {expires} {next(self.serial)}"
        signature = hmac.new(b"stand-in", text.encode(), hashlib.sha256).hexdigest()
        with self.lock:
            self.tickets[signature] = Ticket(repo, entry, path, expires, uses)
        name = quote(entry.path.rsplit("/", 1)[-1])
        query = urlencode({
            "response-content-disposition": f"inline; filename*=UTF-8''{name};",
            "Expires": expires, "Signature": signature, "Key-Pair-Id": "STANDIN"})
        return f"{base}{path}?{query}"

    def expire_all(self):
        """Every URL handed out so far is refused from now on."""
        with self.lock:
            for ticket in self.tickets.values():
                ticket.expires = 0

    def look_up(self, query):
        with self.lock:
            return self.tickets.get(query.get("Signature", [""])[0])

    def use(self, ticket, path, query):
        """None, or why this URL is refused."""
        with self.lock:
            if ticket is None or ticket.path != path:
                return "bad signature"
            if ticket.expires == 0 or ticket.expires <= time.time():
                return "expired"
            if query.get("Expires", [""])[0] != str(ticket.expires):
                return "bad signature"
            if ticket.uses is not None:
                if ticket.uses <= 0:
                    return "used up"
                ticket.uses -= 1
            return None


class CdnHandler(Handler):
    """GET and HEAD of signed URLs."""

    host = "cdn"

    @property
    def hub(self):
        return self.standin

    def serve(self):
        path, _, query = self.path.partition("?")
        query = parse_qs(query)
        ticket = self.hub.signer.look_up(query)
        self.record.kind = "cas" if path.startswith("/cas/") else "cdn"
        if ticket:
            self.record.repo = ticket.repo.id
            self.record.path = ticket.entry.path
        self.hub.log.start(self.record)
        if self.take("cdn_drop"):
            raise Cut()
        if self.command not in ("GET", "HEAD"):
            return self.fail(405, "MethodNotAllowed", "Only GET and HEAD")
        if "authorization" in self.record.headers:
            return self.fail(400, "InvalidArgument", "Only one auth mechanism allowed")
        fault = self.take("cdn_status")
        if fault:
            return self.fail(int(fault["status"]), "SwitchedOn", "A fault was switched on",
                             list(fault.get("headers", {}).items()), fault["body"])
        if self.record.kind == "cas":
            return self.fail(404, "NotFound", "There is no CAS here")
        refused = self.hub.signer.use(ticket, path, query)
        if refused:
            return self.fail(403, "AccessDenied", f"Access denied: {refused}")
        return self.send_entry(ticket.entry)

    def fail(self, status, code, message, headers=(), body=None):
        if body is None:
            body = ('<?xml version="1.0" encoding="UTF-8"?>\n'
                    f"<Error><Code>{code}</Code><Message>{message}</Message></Error>")
        body = body.encode()
        self.start_answer(status, self.edit_headers("cdn_headers", [
            ("Content-Type", "application/xml"), ("Content-Length", str(len(body))),
            *headers]), body)

    def send_entry(self, entry):
        size, source = entry.size, entry.source
        etag = f'"{entry.xet_hash or entry.sha256}"'
        wanted = self.record.headers.get("range")
        if_range = self.record.headers.get("if-range")
        if wanted and if_range and if_range != etag:
            wanted = None
        if wanted and self.take("cdn_ignore_range"):
            wanted = None
        span = parse_range(wanted, size)
        base = [("Date", self.date_time_string()),
                ("Content-Type", "application/octet-stream"), ("ETag", etag),
                ("Accept-Ranges", "bytes"), ("Cache-Control", "public, max-age=31536000"),
                ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")]
        if span is False and size == 0:
            span = None
        if span is False:
            return self.start_answer(416, self.edit_headers("cdn_headers", base + [
                ("Content-Range", f"bytes */{size}"), ("Content-Length", "0")]))
        if span is None and size > MAX_UNRANGED and self.command == "GET":
            return self.fail(400, "InvalidRequest",
                             "Files over 50 GB are served by Range requests only")
        status = 200 if span is None else 206
        start, last = span or (0, size - 1)
        length = last - start + 1
        plan = self.make_plan(start, length, size, "cdn_")
        total = size
        shown = start
        if status == 206:
            fault = self.take("cdn_total")
            if fault:
                total = fault["total"] if fault["total"] is not None else \
                    size + int(fault.get("delta", 1))
            fault = self.take("cdn_range_start")
            if fault:
                shown = max(0, start + int(fault["delta"]))
                if fault.get("body", "shifted") == "shifted":
                    start = min(shown, size - 1)
                    length = min(length, size - start)
            base.append(("Content-Range", f"bytes {shown}-{shown + length - 1}/{total}"))
        declared = length
        fault = self.take("cdn_length")
        if fault:
            declared = max(0, length + int(fault["delta"]))
            self.close_connection = True
        base.append(("Content-Length", str(declared)))
        hold = self.take("cdn_hold", when=lambda f: f["before"])
        if hold:
            self.wait_at(hold)
        self.start_answer(status, self.edit_headers("cdn_headers", base))
        self.send_body(source, start, length, plan)
        return None
