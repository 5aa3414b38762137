"""What the tests of the Hub's own API share: a server in front of a stand-in Hub, asked the way the
Hub's clients ask, and the rules that each answer has to keep."""

import collections
import json
import os
import re
import sys
import tempfile
import threading
from urllib.parse import urlsplit

from harness import ROOT, EndToEnd, Weighbridge, REPORTS

sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))

from hub import File, Sparse, StandInHub, git_blob_id  # noqa: E402
from hub_world import OTHER_TOKEN, TOKEN, World  # noqa: E402
from standin_client import send  # noqa: E402

HEX40, HEX64 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
LIMITS = {"connect_timeout": "2s", "stall_timeout": "2s", "revalidate_timeout": "2s", "retries": 1}
# Where the test itself keeps the Hub from answering, for as long as a loaded machine needs.
PATIENT = {**LIMITS, "connect_timeout": "60s", "stall_timeout": "60s"}
MOST_HOPS = 6

Answer = collections.namedtuple("Answer", "status headers body")


def upstream(hub, **settings):
    """None takes a setting out."""
    wanted = {"prefix": "hf", "kind": "huggingface", "url": hub.url, **LIMITS, **settings}
    return {key: value for key, value in wanted.items() if value is not None}


def end_server(wb):
    """For a server of a whole class: it has to end well."""
    try:
        code = wb.stop()
        if code or REPORTS.search(wb.log):
            raise AssertionError(f"the server ended with {code}; its log:\n{wb.log[-20000:]}")
    finally:
        wb.clean()


def end_hub(hub):
    hub.stop()
    if hub.errors:
        raise AssertionError(f"the stand-in Hub itself failed: {hub.errors}")


def bearer(token):
    return {"Authorization": f"Bearer {token}"} if token else {}


class Truth:
    """What a Hub says in the end: all redirects followed as the clients do."""

    def __init__(self, hub):
        self.hub = hub

    def ask(self, method, path, headers=None, body=None):
        """An Answer whose headers are what counts of all hops together, in lower case."""
        url, headers = self.hub.url + path, dict(headers or {})
        said = {}
        for _ in range(MOST_HOPS):
            answer = send(url, method, body, **{k.replace("-", "_"): v for k, v in headers.items()})
            for name, value in answer.headers.items():
                name = name.lower()
                if name.startswith(("x-repo-", "x-linked-", "x-error-", "x-total-")) or \
                        answer.status not in (301, 302, 307, 308):
                    said.setdefault(name, value)
            if answer.status not in (301, 302, 307, 308):
                break
            to = answer["Location"]
            if urlsplit(to).netloc:
                headers.pop("Authorization", None)
                url = to
            else:
                url = self.hub.url + to
        if "x-linked-etag" in said:
            said["etag"] = said["x-linked-etag"]
        return Answer(answer.status, said, answer.body)

    def rows(self, path, headers=None):
        """All pages of a listing."""
        rows, at = [], path
        while at:
            answer = self.ask("GET", at, headers)
            if answer.status != 200:
                return answer, None
            rows += json.loads(answer.body)
            following = re.search(r'<([^>]+)>; rel="next"', answer.headers.get("link", ""))
            at = following and following[1].replace(self.hub.url, "")
        return answer, rows


class HubApiCase(EndToEnd):
    """Questions to self.wb, under PREFIX, and the rules for what it says."""

    PREFIX = ""

    def make_server(self, hub, env=None, data=None, root=None, **settings):
        return self.make_weighbridge(config={"upstreams": [upstream(hub, **settings)],
                                             **(root or {})}, env=env, data=data)

    def token_file(self, token):
        """For the configuration; each in a folder of its own."""
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "token")
        with open(path, "w", encoding="ascii") as f:
            f.write(token + "\n")
        return path

    def ask(self, method, path, headers=None, body=None, wb=None, timeout=60):
        """An Answer that keeps the rules for all answers."""
        wb = wb or self.wb
        answer = Answer(*wb.request(method, self.PREFIX + path, headers, body, timeout))
        self.keeps_rules(method, path, answer)
        return answer

    def get(self, path, headers=None, **more):
        return self.ask("GET", path, headers, **more)

    def head(self, path, headers=None, **more):
        return self.ask("HEAD", path, headers, **more)

    def json(self, path, headers=None, status=200, **more):
        answer = self.get(path, headers, **more)
        self.assertEqual(answer.status, status, f"{path}: {answer.body[:2000]}")
        return json.loads(answer.body)

    def keeps_rules(self, method, path, answer):
        """Nothing leads to Xet or elsewhere, lengths are told, errors say what they are."""
        status, headers, body = answer
        where = f"{method} {path}: {status} {dict(headers)}"
        for name, value in headers.items():
            self.assertNotIn("xet", f"{name}: {value}".lower(), where)
        if "/resolve/" not in path and "/raw/" not in path:
            self.assertNotIn(b"xet", body.lower(), where)
        self.assertFalse(300 <= status < 400 and status != 304, f"a redirect: {where}")
        self.assertIsNone(headers["Content-Encoding"], where)
        self.assertIsNone(headers["Link"], f"listings are whole: {where}")
        if status != 304:
            self.assertRegex(headers["Content-Length"] or "", r"^\d+$", where)
        if method == "HEAD" or status == 304:
            self.assertEqual(body, b"", where)
        else:
            self.assertEqual(int(headers["Content-Length"]), len(body), where)
        if status >= 400:
            self.check_error(method, where, answer)

    def check_error(self, method, where, answer):
        message = answer.headers["X-Error-Message"]
        if answer.status == 416:
            return
        self.assertTrue(message, f"no X-Error-Message: {where}")
        self.assertNotIn("\n", message, where)
        # This one text has a meaning for the clients of Python, which the reason has not.
        if method != "HEAD" and message != "Invalid credentials in Authorization header":
            self.assertEqual(json.loads(answer.body)["error"], message, where)

    def check_file(self, where, answer, size=None, data=None):
        """The headers of a file, whole or in part."""
        headers = answer.headers
        self.assertIn(answer.status, (200, 206, 304), f"{where}: {answer.body[:500]}")
        self.assertRegex(headers["X-Repo-Commit"] or "", HEX40.pattern + "$", where)
        self.assertRegex(headers["ETag"] or "", r'^"([0-9a-f]{40}|[0-9a-f]{64})"$', where)
        if answer.status == 304:
            return
        self.assertEqual(headers["Accept-Ranges"], "bytes", where)
        self.assertTrue(headers["Content-Type"], where)
        if size is not None:
            self.assertEqual(int(headers["Content-Length"]), size, where)
        if data is not None:
            self.assertEqual(len(answer.body), len(data), where)
            self.assertTrue(answer.body == data, f"other bytes: {where}")

    def refused(self, answer, statuses, code=None, says=None):
        """The text of an error that must be so."""
        self.assertIn(answer.status, statuses if isinstance(statuses, tuple) else (statuses,),
                      answer.body[:1000])
        if code:
            self.assertEqual(answer.headers["X-Error-Code"], code, dict(answer.headers))
        message = answer.headers["X-Error-Message"]
        if says:
            self.assertRegex(message, says)
        return message

    def together(self, count, ask):
        """What ask(i) returned of as many threads."""
        got = [None] * count

        def run(i):
            try:
                got[i] = ask(i)
            except Exception as error:  # shown by whoever looks at it
                got[i] = error
        threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        return got, threads

    def wait_connected(self, wb, count):
        """Until the server has taken that many connections."""
        port = int(wb.host.rsplit(":", 1)[1])

        def connected():
            with open("/proc/net/tcp", encoding="ascii") as f:
                rows = [line.split() for line in f][1:]
            return sum(r[1].endswith(f":{port:04X}") and r[3] == "01" for r in rows) >= count
        self.until(f"{count} connections", connected)

    def holds_no(self, secret, wb):
        """The secret is neither in the log nor in anything that is stored."""
        self.assertNotIn(secret, wb.log)
        for folder, _, names in os.walk(wb.data):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    self.assertFalse(secret.encode() in f.read(), f"a token is in {path}")


__all__ = ["Answer", "File", "HEX40", "HEX64", "HubApiCase", "LIMITS", "OTHER_TOKEN", "Sparse",
           "PATIENT", "StandInHub", "TOKEN", "Truth", "Weighbridge", "World", "bearer", "end_hub",
           "end_server", "git_blob_id", "send", "upstream"]
