"""The Hub host: its API and resolve, with the real Hub's shapes and errors.

HubHandler turns a request into (repository, endpoint kind, revision, path),
applies the switches, checks who may read, and answers.
"""

import gzip
import json
import time
from urllib.parse import parse_qs, quote, unquote

import hub_json
from hub_repos import read_all
from standin_wire import Cut, Handler, parse_range, position_of

PLURALS = {"models": "model", "datasets": "dataset", "spaces": "space",
           "kernels": "kernel"}
ACTIONS = {"tree", "revision", "paths-info", "refs", "commits", "auth-check",
           "discussions", "xet-read-token", "resolve", "raw"}
EXPOSE = ("X-Repo-Commit,X-Request-Id,X-Error-Code,X-Error-Message,X-Total-Count,ETag,"
          "Link,Accept-Ranges,Content-Range,X-Linked-Size,X-Linked-ETag,X-Xet-Hash")
TYPES = {".json": "application/json", ".md": "text/markdown", ".txt": "text/plain",
         ".py": "text/x-python", ".jinja": "text/plain"}
MESSAGES = {
    "RepoNotFound": "Repository not found",
    "GatedRepo": "Access to model {repo} is restricted. You must have access to it and "
                 "be authenticated to access it. Please log in.",
    "RevisionNotFound": "Invalid rev id: {rev}",
    "EntryNotFound": "Entry not found",
}


class Refuse(Exception):
    """Ends a request with an error answer of section 4's kinds."""

    def __init__(self, status, code=None, message=None, headers=()):
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = list(headers)


def flag(query, name):
    return query.get(name, ["false"])[0].lower() in ("true", "1")


class HubHandler(Handler):
    """Everything on the Hub's port, the control endpoints included."""

    host = "hub"

    @property
    def hub(self):
        return self.standin

    def serve(self):
        raw, _, query = self.path.partition("?")
        if raw.startswith("/_"):
            return self.hub.control(self, raw)
        self.raw, self.raw_query = raw, query
        self.query = parse_qs(query, keep_blank_values=True)
        self.segments = raw[1:].split("/")
        self.repo = self.how = self.commit = None
        self.rest = []
        self.classify()
        if self.repo:
            self.record.repo = self.repo.id
        self.hub.log.start(self.record)
        self.bucket = "api" if self.segments[0] == "api" and self.action != "resolve-cache" else \
            "resolvers" if self.action else "pages"
        left, reset, over = self.hub.spend(self.bucket)
        self.limit_shown = left, reset
        try:
            self.general_faults()
            if over:
                raise Refuse(429, None, "We had to rate limit you")
            return self.dispatch()
        except Refuse as refuse:
            return self.send_refusal(refuse)

    # --- what is asked ---

    def classify(self):
        """Set record.kind, repo, how, wanted (the name asked) and rest (the raw
        segments after the action)."""
        segs = self.segments
        self.record.kind, self.repo_type, self.wanted = "other", "model", None
        self.action = None
        if segs[0] == "api":
            if len(segs) > 2 and segs[1] == "resolve-cache" and segs[2] in PLURALS:
                self.repo_type = PLURALS[segs[2]]
                self.name_at, self.name_end = 3, 5
                self.action, self.rest = "resolve-cache", segs[5:]
                self.record.kind = "small"
            elif len(segs) > 2 and segs[1] in PLURALS:
                self.repo_type = PLURALS[segs[1]]
                self.split_api_name(2)
                self.record.kind = {None: "info", "revision": "info",
                                    "xet-read-token": "xet-token"}.get(
                                        self.action, self.action)
            elif segs[1:] == ["whoami-v2"]:
                self.record.kind = "whoami"
                return
            else:
                return
        else:
            at = 1 if segs[0] in PLURALS and segs[0] != "models" else 0
            if at:
                self.repo_type = PLURALS[segs[0]]
            for end in (at + 2, at + 1):
                if len(segs) > end + 1 and segs[end] in ("resolve", "raw"):
                    self.name_at, self.name_end = at, end
                    self.action, self.rest = segs[end], segs[end + 1:]
                    self.record.kind = segs[end]
                    break
            else:
                return
        self.wanted = "/".join(unquote(s) for s in segs[self.name_at:self.name_end])
        self.record.repo = self.wanted
        self.repo, self.how = self.hub.store.find(self.repo_type, self.wanted)
        if self.repo and self.action in ("resolve", "raw", "resolve-cache"):
            self.split_revision()

    def split_api_name(self, at):
        segs = self.segments
        two = "/".join(unquote(s) for s in segs[at:at + 2])
        bare = len(segs) <= at + 1 or (
            segs[at + 1] in ACTIONS
            and self.hub.store.find(self.repo_type, two)[0] is None)
        self.name_at, self.name_end = at, at + 1 if bare else at + 2
        left = segs[self.name_end:]
        self.action = left[0] if left else None
        self.rest = left[1:]

    def split_revision(self):
        """For resolve: the revision asked for, its commit, and the file's path."""
        plain = [unquote(s) for s in self.rest]
        n = self.repo.longest_ref(plain[:-1]) or 1
        self.revision = "/".join(plain[:n])
        self.file_path = "/".join(plain[n:])
        self.record.path = self.file_path
        self.commit = self.repo.commits.get(self.repo.resolve(self.revision))

    def token(self):
        value = self.record.headers.get("authorization", "")
        return value[7:].strip() if value.lower().startswith("bearer ") else None

    # --- switches that apply to any answer ---

    def general_faults(self):
        if self.take("hub_drop"):
            raise Cut()
        for fault in self.take_all("hub_stall"):
            self.pause(float(fault["seconds"]))
        for fault in self.take_all("hub_hold"):
            fault.pass_through()
            if self.hub.stopping.is_set():
                raise Cut()
        fault = self.take("hub_status")
        if not fault:
            return
        status = int(fault["status"])
        code = fault["code"]
        if code is None:
            code = {401: "RepoNotFound", 403: "GatedRepo", 404: (
                "EntryNotFound" if self.record.kind in ("resolve", "small")
                else "RepoNotFound")}.get(status)
        headers = list(fault.get("headers", {}).items())
        if status == 429 or fault["retry_after"] is not None:
            headers.append(("Retry-After", str(fault.get("retry_after", 1))))
        if status == 429:
            self.limit_shown = (0, int(fault.get("reset", fault.get("retry_after", 1))))
        message = fault.get("message", MESSAGES.get(code, f"Switched on: {status}"))
        refuse = Refuse(status, code or None, message, headers)
        refuse.raw = fault["body"]
        raise refuse

    # --- who may read ---

    def check_reader(self, content):
        """Raise Refuse unless this request may read the repository (its content:
        the files, which a gated repository keeps back)."""
        token = self.token()
        user = self.hub.store.user_of(token) if token else None
        if token and not user:
            raise Refuse(401, None, "Invalid credentials in Authorization header")
        repo = self.repo
        if repo is None or (repo.private and token not in repo.tokens):
            raise Refuse(404 if user else 401, "RepoNotFound", MESSAGES["RepoNotFound"])
        if self.how == "case" and not self.hub.options["case_redirect"]:
            raise Refuse(404 if user else 401, "RepoNotFound", MESSAGES["RepoNotFound"])
        if repo.disabled:
            raise Refuse(403, None, "Access to this resource is disabled.")
        if content and repo.gated and token not in repo.tokens:
            raise Refuse(403 if user else 401, "GatedRepo",
                         MESSAGES["GatedRepo"].format(repo=repo.id))

    @property
    def masked(self):
        return bool(self.repo.gated) and self.token() not in self.repo.tokens

    # --- routing ---

    def dispatch(self):
        if self.record.kind == "whoami":
            return self.serve_whoami()
        if self.wanted is None:
            if self.segments == ["api", "models"]:
                return self.send_value([{"id": r.id, "_id": r.uid} for r in
                                        self.hub.store.repos.values()
                                        if r.kind == "model" and not r.private])
            raise Refuse(404, None, "Sorry, we can't find the page you are looking for.")
        self.check_reader(content=self.action in ("resolve", "raw", "resolve-cache",
                                                  "auth-check", "xet-read-token"))
        if self.how != "exact":
            return self.send_canonical()
        if self.action in ("resolve", "raw", "resolve-cache"):
            return self.serve_file()
        serve = {None: self.serve_info, "revision": self.serve_info,
                 "tree": self.serve_tree, "paths-info": self.serve_paths,
                 "refs": self.serve_refs, "commits": self.serve_commits,
                 "auth-check": lambda: self.send_value({}),
                 "discussions": lambda: self.send_value(
                     {"discussions": [], "count": 0, "start": 0}),
                 "xet-read-token": self.serve_xet_token}.get(self.action)
        if not serve:
            raise Refuse(404, None, "Not found")
        return serve()

    def send_canonical(self):
        """307 to the same request under the repository's present name."""
        segs = list(self.segments)
        segs[self.name_at:self.name_end] = [quote(self.repo.id)]
        location = "/" + "/".join(segs) + (f"?{self.raw_query}" if self.raw_query else "")
        return self.send_plain(307, f"Temporary Redirect. Redirecting to {location}",
                               [("Location", location)])

    def at_revision(self, revision):
        self.commit = self.repo.commits.get(self.repo.resolve(revision))
        if self.commit is None:
            raise Refuse(404, "RevisionNotFound",
                         MESSAGES["RevisionNotFound"].format(rev=revision))
        return self.commit

    # --- API ---

    def serve_whoami(self):
        user = self.hub.store.user_of(self.token())
        if not user:
            raise Refuse(401, None, "Invalid credentials in Authorization header"
                         if self.token() else "Invalid username or password.")
        return self.send_value({
            "type": "user", "id": "0" * 24, "name": user, "fullname": user, "orgs": [],
            "auth": {"type": "access_token",
                     "accessToken": {"displayName": "test", "role": "read"}}})

    def serve_info(self):
        revision = "/".join(unquote(s) for s in self.rest) or \
            self.query.get("revision", [self.repo.default_branch])[0]
        commit = self.at_revision(revision)
        expand = self.query.get("expand", []) + self.query.get("expand[]", [])
        value = hub_json.repo_info(
            self.repo, commit, self.hub.options["xet"], blobs=flag(self.query, "blobs"),
            security=flag(self.query, "securityStatus"), expand=expand)
        if "siblings" in value:
            value["siblings"] = hub_json.spoil_rows(value["siblings"], self.take_all,
                                                    key="rfilename")
        return self.send_value(value)

    def rows(self, listing, expand):
        xet = self.hub.options["xet"]
        rows = [hub_json.file_row(e, self.commit, xet, self.masked, expand) if e
                else hub_json.folder_row(p, self.commit, expand) for p, e in listing]
        return hub_json.spoil_rows(rows, self.take_all)

    def serve_tree(self):
        plain = [unquote(s) for s in self.rest]
        n = self.repo.longest_ref(plain) or 1
        folder = "/".join(plain[n:]).strip("/")
        commit = self.at_revision("/".join(plain[:n]))
        self.record.path = folder or None
        commit_header = ("X-Repo-Commit", commit.id)
        if folder not in commit.dirs:
            raise Refuse(404, "EntryNotFound", f"{folder} does not exist on "
                         f'"{"/".join(plain[:n])}"', [commit_header])
        expand = flag(self.query, "expand")
        rows = self.rows(commit.listing(folder, flag(self.query, "recursive")), expand)
        most = self.hub.options["expand_page_size" if expand else "page_size"]
        asked = self.query.get("limit", [""])[0]
        page = min(most, int(asked)) if asked.isdigit() and int(asked) else most
        cursor = self.query.get("cursor", [None])[0]
        start = hub_json.index_of(cursor) if cursor else 0
        if start is None:
            raise Refuse(400, None, "Invalid cursor")
        headers = [commit_header]
        base = f"http://{self.record.headers.get('host', 'localhost')}{self.raw}"
        if self.take("tree_loop"):
            query = f"?{self.raw_query}" if self.raw_query else ""
            headers.append(("Link", f'<{base}{query}>; rel="next"'))
        elif fault := self.take("tree_next"):
            headers.append(("Link", f'<{fault["url"]}>; rel="next"'))
        elif start + page < len(rows):
            kept = [p for p in self.raw_query.split("&")
                    if p and not p.startswith(("cursor=", "limit="))]
            query = "&".join(kept + [f"limit={page}",
                                     f"cursor={hub_json.cursor_of(start + page)}"])
            headers.append(("Link", f'<{base}?{query}>; rel="next"'))
        return self.send_value(rows[start:start + page], headers)

    def serve_paths(self):
        if self.command != "POST":
            raise Refuse(404, None, "Not found")
        commit = self.at_revision("/".join(unquote(s) for s in self.rest))
        try:
            if "json" in self.record.headers.get("content-type", ""):
                asked = json.loads(self.body)
                paths, expand = asked.get("paths", []), bool(asked.get("expand"))
            else:
                form = parse_qs(self.body.decode())
                paths, expand = form.get("paths", []), flag(form, "expand")
        except ValueError:
            raise Refuse(400, None, "Invalid body") from None
        paths = [paths] if isinstance(paths, str) else paths
        if len(paths) > 1000:
            raise Refuse(400, None, "Too many paths")
        listing = [(p.strip("/"), commit.files.get(p.strip("/"))) for p in paths
                   if p.strip("/") in commit.files or (p.strip("/") in commit.dirs
                                                       and p.strip("/"))]
        return self.send_value(self.rows(listing, expand))

    def serve_refs(self):
        return self.send_value(hub_json.refs(self.repo, flag(self.query, "include_prs")))

    def serve_commits(self):
        commit = self.at_revision("/".join(unquote(s) for s in self.rest))
        rows = hub_json.commits(self.repo, commit)
        asked = self.query.get("p", ["0"])[0]
        page = int(asked) if asked.isdigit() else 0
        return self.send_value(rows[page * 50:page * 50 + 50],
                               [("X-Total-Count", str(len(rows)))])

    def serve_xet_token(self):
        self.at_revision("/".join(unquote(s) for s in self.rest))
        if not self.hub.options["xet"]:
            raise Refuse(404, None, "Not found")
        cas, expires = f"{self.hub.cdn_url}/cas", int(time.time()) + 900
        return self.send_value(
            {"accessToken": "xet-token", "casUrl": cas, "exp": expires},
            [("X-Xet-Cas-Url", cas), ("X-Xet-Access-Token", "xet-token"),
             ("X-Xet-Token-Expiration", str(expires))])

    # --- files ---

    def serve_file(self):
        commit = self.commit
        if commit is None:
            raise Refuse(404, "RevisionNotFound",
                         MESSAGES["RevisionNotFound"].format(rev=self.revision))
        entry = commit.files.get(self.file_path)
        if entry is None:
            raise Refuse(404, "EntryNotFound", MESSAGES["EntryNotFound"],
                         [("X-Repo-Commit", commit.id)])
        if self.command not in ("GET", "HEAD"):
            raise Refuse(404, None, "Not found")
        fault = self.take("redirect_loop")
        if fault:
            hop = int(self.query.get("hop", ["0"])[0]) + 1
            return self.send_plain(int(fault.get("status", 307)), "Redirecting", [
                ("Location", f"{self.raw}?hop={hop}"), ("X-Repo-Commit", commit.id)])
        etag = f'"{entry.etag}"'
        if etag in self.record.headers.get("if-none-match", "") and self.action != "raw":
            return self.send_head(304, [("X-Repo-Commit", commit.id), ("ETag", etag)])
        if self.action == "raw":
            body = entry.pointer or read_all(entry.source)
            return self.send_head(200, [("X-Repo-Commit", commit.id),
                                        ("Content-Type", "text/plain"),
                                        ("Content-Length", str(len(body)))], body)
        if entry.lfs:
            return self.send_lfs(entry)
        if self.action == "resolve" and not (
                self.repo.bare or self.repo.private or self.repo.gated or entry.size == 0):
            return self.send_resolve_cache(entry, etag)
        return self.send_small(entry, etag)

    def send_lfs(self, entry):
        headers = [("X-Repo-Commit", self.commit.id), ("Accept-Ranges", "bytes"),
                   ("X-Linked-Size", str(entry.size)),
                   ("X-Linked-ETag", f'"{entry.sha256}"')]
        xet = self.hub.options["xet"] and entry.xet_hash
        if xet:
            base = f"http://{self.record.headers.get('host', 'localhost')}"
            plural = self.repo_type + "s"
            headers += [
                ("X-Xet-Hash", entry.xet_hash),
                ("Link", f"<{base}/api/{plural}/{quote(self.repo.id)}/xet-read-token/"
                         f'{self.commit.id}>; rel="xet-auth", <{self.hub.cdn_url}/cas/v1/'
                         f'reconstructions/{entry.xet_hash}>; '
                         f'rel="xet-reconstruction-info"')]
            if "application/vnd.xet-fileinfo+json" in self.record.headers.get("accept", ""):
                body = json.dumps({"hash": entry.xet_hash}).encode()
                return self.send_head(200, headers + [
                    ("Content-Type", "application/vnd.xet-fileinfo+json"),
                    ("ETag", f'"{entry.sha256}"'),
                    ("Content-Length", str(len(body)))], body)
        status = 302
        fault = self.take("resolve_location")
        if fault:
            location, status = fault["url"], int(fault.get("status", 302))
        else:
            location = self.hub.sign(
                self.repo, entry, expired=bool(self.take("url_expired")),
                uses=next((f["uses"] for f in self.take_all("url_uses")), None))
        return self.send_plain(status, f"Found. Redirecting to {location}",
                               headers + [("Location", location)])

    def send_resolve_cache(self, entry, etag):
        location = (f"/api/resolve-cache/{self.repo_type}s/{quote(self.repo.id)}/"
                    f"{self.commit.id}/{quote(self.file_path)}"
                    f"?{quote(unquote(self.raw), safe='')}=&etag={quote(etag, safe='')}")
        status = 307
        fault = self.take("resolve_location")
        if fault:
            location, status = fault["url"], int(fault.get("status", 302))
        return self.send_plain(status, f"Temporary Redirect. Redirecting to {location}",
                               [("Location", location)])

    def send_small(self, entry, etag):
        body = bytearray(read_all(entry.source))
        for fault in self.take_all("small_flip", when=lambda f: body):
            body[int(fault.get("offset", 0))] ^= 0xFF
        dot = self.file_path.rfind(".")
        kind = TYPES.get(self.file_path[dot:], "application/octet-stream") if dot >= 0 \
            else "text/plain"
        headers = [("X-Repo-Commit", self.commit.id), ("Accept-Ranges", "bytes"),
                   ("Content-Type", f"{kind}; charset=utf-8")]
        asked = self.record.headers.get("range")
        span = parse_range(asked, len(body))
        status = 200
        if not body:
            mode = self.hub.options["empty_range"] if asked else "200"
            status = 416 if mode == "416" else 200
            if mode != "200":
                headers.append(("Content-Range", "bytes */0"))
        elif span is False:
            return self.send_head(416, headers + [
                ("Content-Range", f"bytes */{len(body)}"), ("Content-Length", "0")])
        elif span:
            a, b = span
            headers.append(("Content-Range", f"bytes {a}-{b}/{len(body)}"))
            body, status = body[a:b + 1], 206
        elif self.wants_gzip():
            return self.send_gzip(bytes(body), etag, headers)
        headers += [("ETag", etag), ("Content-Length", str(len(body)))]
        cut = self.take("small_cut", when=lambda f: body)
        if cut:
            keep = position_of(cut, 0, len(body)) or 0
            self.close_connection = True
            self.send_head(status, headers, bytes(body[:keep]))
            raise Cut()
        return self.send_head(status, headers, bytes(body))

    def wants_gzip(self):
        mode = self.hub.options["gzip"]
        accepted = self.record.headers.get("accept-encoding", "").lower()
        if mode == "always":
            return True
        return mode == "auto" and ("gzip" in accepted or "*" in accepted)

    def send_gzip(self, body, etag, headers):
        packed = gzip.compress(body, mtime=0)
        self.send_head(200, headers + [
            ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked"),
            ("Vary", "Accept-Encoding"), ("ETag", f"W/{etag}")])
        if self.command != "HEAD":
            frame = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
            self.send_counted(frame, len(packed))

    # --- answers ---

    def common_headers(self):
        bucket, (left, reset) = self.bucket, self.limit_shown
        quota = self.hub.options["rate_limits"].get(bucket, 100)
        window = self.hub.options["rate_window"]
        return [("Date", self.date_time_string()), ("X-Powered-By", "huggingface-moon"),
                ("X-Request-Id", f"Root=1-{self.hub.next_request():08x}"),
                ("RateLimit", f'"{bucket}";r={left};t={reset}'),
                ("RateLimit-Policy", f'"fixed window";"{bucket}";q={quota};w={window}'),
                ("Access-Control-Expose-Headers", EXPOSE)]

    def send_head(self, status, headers, body=b""):
        headers = self.common_headers() + list(headers)
        self.start_answer(status, self.edit_headers("hub_headers", headers), body)

    def send_plain(self, status, text, headers):
        body = text.encode()
        self.send_head(status, [("Content-Type", "text/plain; charset=utf-8"),
                                ("Content-Length", str(len(body))), *headers], body)

    def send_value(self, value, headers=()):
        body = json.dumps(value, separators=(",", ":")).encode()
        kind, cut = "application/json; charset=utf-8", None
        fault = self.take("hub_body")
        if fault:
            mode = fault["mode"]
            if mode == "malformed":
                body = body[:-1] + b',"' if len(body) > 2 else b"{"
            elif mode == "empty":
                body = b""
            elif mode == "html":
                body, kind = b"<!doctype html><title>502</title>", "text/html"
            elif mode == "raw":
                body = fault["raw"].encode()
            elif mode == "truncated":
                cut = len(body) // 2
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *headers]
        if cut is not None:
            self.close_connection = True
            self.send_head(200, headers, body[:cut])
            raise Cut()
        return self.send_head(200, headers, body)

    def send_refusal(self, refuse):
        body = getattr(refuse, "raw", None)
        if body is None:
            body = json.dumps({"error": refuse.message})
        body = body.encode()
        headers = [("Content-Type", "application/json; charset=utf-8"),
                   ("Content-Length", str(len(body)))]
        if refuse.code:
            headers.append(("X-Error-Code", refuse.code))
        if refuse.message:
            headers.append(("X-Error-Message", refuse.message))
        if refuse.status == 401:
            headers.append(("WWW-Authenticate", 'Bearer realm="Authentication required"'))
        self.send_head(refuse.status, headers + refuse.headers, body)
