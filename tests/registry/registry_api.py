"""The registry host: /v2/ as the distribution specification and the real registries have it."""

import re
from urllib.parse import parse_qs, quote, unquote

from registry_content import OCI_INDEX, to_json
from registry_token import TokenAnswers, basic_of
from standin_sources import Memory

ROUTE = re.compile(r"/v2/(?P<name>.+)/(?P<what>manifests|blobs|tags|referrers)/(?P<rest>.*)")
KINDS = {"manifests": "manifest", "blobs": "blob", "tags": "tags", "referrers": "referrers"}
DIGEST = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[a-zA-Z0-9=_-]+")
NOT_FOUND = b"404 page not found\n"  # what Go's router says
WINDOW_S = 21600


def number_of(text):
    """A page size, None without one. Raises ValueError."""
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]+", text):
        raise ValueError(text)
    return int(text)


class RegistryHandler(TokenAnswers):
    """Everything on the registry's port, the control endpoints included."""

    host = "registry"

    def serve(self):
        raw, _, query = self.path.partition("?")
        if raw.startswith("/_"):
            return self.standin.control(self, raw)
        self.query = {k: v[0] for k, v in parse_qs(query, keep_blank_values=True).items()}
        self.repo = None
        self.classify(raw)
        self.standin.log.start(self.record)
        return self.answer_with(self.dispatch)

    def classify(self, raw):
        """Sets the record's kind, repo and path, and the repository if there is one."""
        record = self.record
        if raw == "/token" and self.standin.options["realm_host"] == "registry":
            record.kind = "token"
        elif raw in ("/v2/", "/v2"):
            record.kind = "ping"
        elif raw == "/v2/_catalog":
            record.kind = "catalog"
        match = ROUTE.fullmatch(raw)
        if not match:
            return
        record.kind = KINDS[match["what"]]
        record.repo, record.path = unquote(match["name"]), unquote(match["rest"])
        self.repo = self.standin.repos.get(record.repo)
        if record.kind == "blob" and record.path.startswith("uploads/"):
            record.kind = "upload"
        elif record.kind == "blob" and self.redirects():
            record.kind = "redirect"

    def redirects(self):
        """Whether the CDN sends this blob."""
        options = self.standin.options
        blob = self.repo and self.repo.blobs.get(self.record.path)
        if not blob or options["redirect_blobs"] is False:
            return False
        if self.command == "HEAD" and not options["redirect_head"]:
            return False
        return blob.size >= int(options["redirect_blobs"])

    # --- who may ---

    def scope(self):
        record = self.record
        if record.kind == "catalog":
            return "registry", "catalog", "*"
        if record.repo is None:
            return None
        return "repository", record.repo, "push" if record.kind == "upload" else "pull"

    def fault_headers(self, status):
        return self.challenge() if status == 401 and self.standin.options["auth"] != "none" \
            else []

    def challenge(self, error=None):
        scope = self.scope() if self.standin.options["challenge_scope"] else None
        return [("WWW-Authenticate", value)
                for value in self.standin.challenges(
                    self.standin.realm_for(self.called()), scope and ":".join(scope), error)]

    def called(self):
        """The name that the client knows this host by."""
        name = self.record.headers.get("host", "").rpartition(":")[0]
        return name if name == "localhost" else "127.0.0.1"

    def unauthorized(self, error=None):
        self.respond_error(401, "UNAUTHORIZED", "authentication required",
                           self.challenge(error))
        return False

    def authorized(self):
        """False when it has been refused."""
        options = self.standin.options
        scope = self.scope()
        if options["auth"] == "none" or (scope is None and not options["ping_challenge"]):
            return True
        header = self.record.headers.get("authorization", "")
        if options["auth"] == "basic":
            user = self.standin.tokens.user_of(basic_of(header))
            if not user:
                return self.unauthorized()
            if scope and not self.standin.allows(user, *scope):
                self.respond_error(403, "DENIED", "access is denied")
                return False
            return True
        scheme, _, text = header.partition(" ")
        token = self.standin.tokens.look_up(text) if scheme.lower() == "bearer" else None
        if not token:
            return self.unauthorized("invalid_token" if header else None)
        if scope and not token.grants(*scope):
            if options["insufficient"] == 401:
                return self.unauthorized("insufficient_scope")
            self.respond_error(403, "DENIED", "access is denied")
            return False
        return True

    # --- answers ---

    def respond(self, status, headers, source, start=0, length=None):
        headers = [("Docker-Distribution-Api-Version", "registry/2.0"), *headers]
        super().respond(status, headers, source, start, length)

    def not_found(self):
        self.respond(404, [("Content-Type", "text/plain; charset=utf-8")], Memory(NOT_FOUND))

    def dispatch(self):
        kind = self.record.kind
        if kind == "token":
            return self.give()
        if kind == "other":
            return self.not_found()
        if not self.authorized():
            return None
        if kind == "upload" or self.command not in ("GET", "HEAD"):
            return self.respond_error(405, "UNSUPPORTED", "nothing can be pushed here")
        if self.switched_redirect():
            return None
        if kind not in ("ping", "catalog") and self.repo is None:
            return self.respond_error(404, "NAME_UNKNOWN",
                                      "repository name not known to registry")
        return getattr(self, "send_" + kind)()

    def switched_redirect(self):
        if self.record.kind not in ("redirect", "blob", "manifest"):
            return False
        to, status = None, 307
        fault = self.take("redirect_loop")
        if fault:
            to, status = self.standin.url + self.path, int(fault.get("status", 307))
        fault = self.take("location")
        if fault:
            to, status = fault["url"], int(fault.get("status", 307))
        if to:
            self.respond(status, [("Location", to)], Memory(b""))
        return to is not None

    def send_ping(self):
        status = self.standin.options["ping"]
        if status != 200:
            return self.not_found()
        return self.respond(200, [("Content-Type", "application/json")], Memory(b"{}"))

    # --- manifests ---

    def send_manifest(self):
        options = self.standin.options
        if self.command == "HEAD" and not options["head_manifests"]:
            return self.respond_error(405, "UNSUPPORTED", "no HEAD here")
        reference = self.record.path
        if ":" in reference and not DIGEST.fullmatch(reference):
            return self.respond_error(400, "DIGEST_INVALID", "malformed digest")
        limits = self.standin.spend_pull(counted=self.command == "GET")
        if limits is None:
            return self.respond_error(429, "TOOMANYREQUESTS", "too many pulls", [
                ("RateLimit-Limit", f"{options['pull_limit']};w={WINDOW_S}"),
                ("RateLimit-Remaining", f"0;w={WINDOW_S}")])
        manifest = self.repo.find(reference)
        if manifest is None or not self.accepts(manifest.media_type):
            return self.respond_error(404, "MANIFEST_UNKNOWN", "manifest unknown", limits)
        headers = [("Content-Type", manifest.media_type)]
        if options["content_digest"]:
            headers.append(("Docker-Content-Digest", manifest.digest))
        if options["etag"]:
            etag = f'"{manifest.digest}"'
            headers.append(("ETag", etag))
            if self.record.headers.get("if-none-match") in (etag, manifest.digest):
                return self.start_answer(304, self.edit_headers("headers", headers))
        return self.respond(200, headers + limits, Memory(manifest.body))

    def accepts(self, media_type):
        if self.standin.options["accept"] == "any":
            return True
        accept = self.record.headers.get("accept", "")
        return media_type in [part.partition(";")[0].strip() for part in accept.split(",")]

    # --- blobs ---

    def send_blob(self):
        digest = self.record.path
        if not DIGEST.fullmatch(digest):
            return self.respond_error(400, "DIGEST_INVALID", "malformed digest")
        blob = self.repo.blobs.get(digest)
        if blob is None:
            return self.respond_error(404, "BLOB_UNKNOWN", "blob unknown to registry")
        headers = [("Content-Type", "application/octet-stream"),
                   ("Cache-Control", "max-age=31536000")]
        if self.standin.options["content_digest"]:
            headers.append(("Docker-Content-Digest", digest))
        etag = f'"{digest}"'
        headers.append(("ETag", etag))
        wanted = self.record.headers.get("range")
        if self.record.headers.get("if-range", etag) != etag:
            wanted = None
        return self.respond_range(headers, blob.source, wanted)

    def send_redirect(self):
        options = self.standin.options
        ttl, uses = options["url_ttl"], None
        if self.take("url_expired"):
            ttl = -60
        fault = self.take("url_uses")
        if fault:
            uses = int(fault["uses"])
        to = self.standin.signer.sign(self.repo, self.repo.blobs[self.record.path],
                                      self.command, ttl, uses)
        fault = self.take("redirect_chain")
        if fault:
            to = f"/hop/{int(fault['hops'])}{to}"
        url = self.standin.cdn_for(self.called()) + to
        body = f'<a href="{url.replace("&", "&amp;")}">Temporary Redirect</a>.\n\n'.encode()
        return self.respond(options["redirect_status"], [
            ("Content-Type", "text/html; charset=utf-8"), ("Location", url)], Memory(body))

    # --- listings ---

    def page(self, names, limit):
        """The names after ?last=, at most n or the limit of them; and the Link header."""
        try:
            n = number_of(self.query.get("n"))
        except ValueError:
            self.respond_error(400, "PAGINATION_NUMBER_INVALID", "n is no number")
            return None
        last = self.query.get("last")
        left = [name for name in names if last is None or name > last]
        size = min(x for x in (n, limit, len(left)) if x is not None)
        more = size < len(left) and size > 0
        query = {"last": left[size - 1], "n": size} if more else None
        return left[:size], self.link(query)

    def link(self, query):
        """The Link header to the next page, or none."""
        path = self.path.partition("?")[0]
        to = None
        if query:
            to = path + "?" + "&".join(f"{k}={quote(str(v), safe='')}" for k, v in query.items())
        if self.take("page_loop"):
            to = self.path
        fault = self.take("page_next")
        if fault:
            to = fault["url"]
        return [("Link", f'<{to}>; rel="next"')] if to else []

    def send_tags(self):
        if self.record.path != "list":
            return self.not_found()
        found = self.page(self.repo.tag_names(), self.standin.options["page_size"])
        if found is None:
            return None
        return self.respond_json(200, {"name": self.record.repo, "tags": found[0]}, found[1])

    def send_catalog(self):
        if not self.standin.options["catalog"]:
            return self.not_found()
        found = self.page(sorted(self.standin.repos), self.standin.options["page_size"])
        if found is None:
            return None
        return self.respond_json(200, {"repositories": found[0]}, found[1])

    def send_referrers(self):
        options = self.standin.options
        if not options["referrers"]:
            return self.not_found()
        if not DIGEST.fullmatch(self.record.path):
            return self.respond_error(400, "DIGEST_INVALID", "malformed digest")
        rows = self.repo.referrers(self.record.path)
        headers = []
        wanted = self.query.get("artifactType")
        if wanted and options["referrers_filter"]:
            rows = [row for row in rows if row.get("artifactType") == wanted]
            headers.append(("OCI-Filters-Applied", "artifactType"))
        start, size = int(self.query.get("from", "0")), options["page_size"] or len(rows)
        query = {"from": start + size} if start + size < len(rows) else None
        if query and wanted:
            query["artifactType"] = wanted
        headers += self.link(query)
        return self.respond(200, [("Content-Type", OCI_INDEX), *headers], Memory(to_json({
            "schemaVersion": 2, "mediaType": OCI_INDEX,
            "manifests": rows[start:start + size]})))
