"""Blobs that clients push: every way there is, over a real server, byte by byte where a client
library would hide what happens; broken, slow and taken over connections, restarts, expiry."""

import errno
import hashlib
import os
import random
import socket
import subprocess
import threading
import time
import unittest
import urllib.parse

from harness import sha256
from test_http import Http, Raw

REPO = "team/model"
UPLOADS = f"/v2/{REPO}/blobs/uploads/"
MIB = 1 << 20
HUGE = 50 * MIB
NONE = f"{UPLOADS}{'0' * 31}9"  # a session that never was


def sha512(data):
    return "sha512:" + hashlib.sha512(data).hexdigest()


def bytes_of(size, seed=1):
    return random.Random(seed).randbytes(size)


def chunked(data, piece=65536):
    return b"".join(b"%x\r\n" % len(data[i:i + piece]) + data[i:i + piece] + b"\r\n"
                    for i in range(0, len(data), piece)) + b"0\r\n\r\n"


def until(condition, what, timeout=60):
    """Waits for a condition, however long it takes within the time limit."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what}")
        time.sleep(0.02)
    return value


class Uploads(Http):
    def session(self, wb, query="", repository=REPO):
        """The path of a new session."""
        status, headers, body = wb.request("POST", f"/v2/{repository}/blobs/uploads/{query}")
        self.assertEqual((status, body), (202, b""))
        self.check_session(wb, headers, 0)
        location = urllib.parse.urlsplit(headers["Location"])
        self.assertRegex(location.path, rf"^/v2/{repository}/blobs/uploads/[0-9a-f]{{32}}$")
        self.assertEqual(location.query, "")
        return location.path

    def check_session(self, wb, headers, size, path=None):
        self.check_common(headers)
        self.assertEqual(headers["Range"], f"0-{max(size - 1, 0)}")
        self.assertTrue(headers["Location"].startswith(f"http://{wb.host}/v2/"))
        self.assertTrue(headers["Location"].endswith(headers["Docker-Upload-UUID"]))
        self.assertNotIn("OCI-Chunk-Min-Length", headers)
        if path:
            self.assertEqual(headers["Location"], f"http://{wb.host}{path}")

    def patch(self, wb, path, data, start=None, headers=None):
        headers = {"Content-Type": "application/octet-stream", **(headers or {})}
        if start is not None:
            headers["Content-Range"] = f"{start}-{start + len(data) - 1}"
        return wb.request("PATCH", path, headers, data)

    def check_patch(self, wb, path, data, size, **how):
        status, headers, body = self.patch(wb, path, data, **how)
        self.assertEqual((status, body), (202, b""))
        self.check_session(wb, headers, size, path)

    def put(self, wb, path, digest, data=b"", headers=None):
        return wb.request("PUT", f"{path}?digest={digest}", headers, data)

    def check_created(self, wb, answer, data, digest=None, repository=REPO):
        digest = digest or sha256(data)
        status, headers, body = answer
        self.assertEqual((status, body), (201, b""), body)
        self.check_common(headers)
        self.assertEqual(headers["Docker-Content-Digest"], digest)
        self.assertEqual(headers["Location"], f"http://{wb.host}/v2/{repository}/blobs/{digest}")
        self.check_blob(wb, data, digest, repository)

    def check_blob(self, wb, data, digest=None, repository=REPO):
        digest = digest or sha256(data)
        status, headers, body = wb.blob(repository, digest)
        self.assertEqual((status, len(body), body == data), (200, len(data), True))
        status, headers, _ = wb.head(f"/v2/{repository}/blobs/{digest}")
        self.assertEqual((status, headers["Content-Length"]), (200, str(len(data))))

    def check_status(self, wb, path, size):
        for method in ("GET", "HEAD"):
            status, headers, body = wb.request(method, path)
            self.assertEqual((status, body), (204, b""))
            self.check_session(wb, headers, size, path)

    def offset(self, wb, path):
        """By the files, which does not acknowledge anything as asking would."""
        folder = os.path.join(wb.data, "incoming")
        return max((os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)),
                   default=0)

    def check_empty(self, wb):
        self.assertEqual(os.listdir(os.path.join(wb.data, "incoming")), [])


class Ways(Uploads):
    def test_post_then_put(self):
        wb = self.make_weighbridge()
        for size in (0, 1, 65536, 3 * MIB + 5):
            with self.subTest(size=size):
                data = bytes_of(size, size)
                self.check_created(wb, self.put(wb, self.session(wb), sha256(data), data), data)
        self.check_empty(wb)

    def test_one_post(self):
        wb = self.make_weighbridge()
        for size in (0, 2, 2 * MIB):
            for digest_of in (sha256, sha512):
                data = bytes_of(size, size)
                answer = wb.request("POST", f"{UPLOADS}?digest={digest_of(data)}", None, data)
                self.check_created(wb, answer, data, digest_of(data))
        digest = urllib.parse.quote(sha256(b"escaped"), safe="")
        self.check_created(wb, wb.request("POST", f"{UPLOADS}?digest={digest}", None, b"escaped"),
                           b"escaped")
        self.check_empty(wb)

    def test_pieces(self):
        wb = self.make_weighbridge()
        data = bytes_of(3 * MIB + 100)
        for last_in_put in (False, True):
            path = self.session(wb)
            for at in range(0, 3 * MIB, MIB):
                self.check_patch(wb, path, data[at:at + MIB], at + MIB, start=at)
                self.check_status(wb, path, at + MIB)
            rest = data[3 * MIB:]
            if last_in_put:
                answer = self.put(wb, path, sha256(data), rest,
                                  {"Content-Range": f"{3 * MIB}-{len(data) - 1}"})
            else:
                self.check_patch(wb, path, rest, len(data), start=3 * MIB)
                answer = self.put(wb, path, sha256(data))
            self.check_created(wb, answer, data)
            self.check_error(wb.get(path), 404, "BLOB_UPLOAD_UNKNOWN")

    def test_streamed(self):
        """As docker and podman push: one PATCH of unknown length, then an empty PUT."""
        wb = self.make_weighbridge()
        data = bytes_of(5 * MIB + 3)
        path = self.session(wb)
        with Raw(wb) as raw:
            raw.send(f"PATCH {path} HTTP/1.1\r\nHost: {wb.host}\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n")
            raw.send(chunked(data))
            status, headers = raw.head()
            self.assertEqual((status, headers["range"]), (202, f"0-{len(data) - 1}"))
            raw.send(f"PUT {path}?digest={sha256(data)} HTTP/1.1\r\nHost: {wb.host}\r\n"
                     "Content-Length: 0\r\n\r\n")
            status, headers, _ = raw.answer()
            self.assertEqual((status, headers["docker-content-digest"]), (201, sha256(data)))
        self.check_blob(wb, data)

    def test_appended_without_ranges(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        self.check_patch(wb, path, b"hello ", 6)
        self.check_patch(wb, path, b"", 6)
        self.check_patch(wb, path, b"wor", 9)
        self.check_created(wb, self.put(wb, path, sha256(b"hello world"), b"ld"), b"hello world")

    def test_other_algorithms(self):
        wb = self.make_weighbridge()
        data = bytes_of(2 * MIB)
        for query in ("", "?digest-algorithm=sha512", "?digest-algorithm=sha256"):
            path = self.session(wb, query)
            self.check_patch(wb, path, data[:MIB], MIB, start=0)
            self.check_created(wb, self.put(wb, path, sha512(data), data[MIB:]), data, sha512(data))
        for name in ("md5", "SHA512", "", "x" * 100):
            self.check_error(wb.request("POST", f"{UPLOADS}?digest-algorithm={name}"), 400,
                             "DIGEST_INVALID")

    def test_names_as_given(self):
        wb = self.make_weighbridge()
        status, headers, _ = wb.request("POST", "/v2/Team/Model/blobs/uploads/")
        self.assertEqual(status, 202)
        self.assertIn("/v2/Team/Model/blobs/uploads/", headers["Location"])
        path = urllib.parse.urlsplit(headers["Location"]).path
        answer = self.put(wb, path, sha256(b"x"), b"x")
        self.check_created(wb, answer, b"x", repository="Team/Model")
        self.check_blob(wb, b"x")

    def test_external_url(self):
        wb = self.make_weighbridge(config={"external_url": "https://models.example/"})
        status, headers, _ = wb.request("POST", UPLOADS)
        self.assertEqual(status, 202)
        self.assertTrue(headers["Location"].startswith(f"https://models.example{UPLOADS}"))

    def test_cancel(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        self.check_patch(wb, path, b"hello", 5)
        status, headers, body = wb.request("DELETE", path)
        self.assertEqual((status, body), (204, b""))
        self.check_common(headers)
        for answer in (wb.request("DELETE", path), wb.get(path), self.patch(wb, path, b"x"),
                       self.put(wb, path, sha256(b"hello"))):
            self.check_error(answer, 404, "BLOB_UPLOAD_UNKNOWN")
        self.check_empty(wb)

    def test_a_session_belongs_to_its_repository(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        other = path.replace(REPO, "team/other")
        for answer in (wb.get(other), wb.request("DELETE", other), self.patch(wb, other, b"x"),
                       self.put(wb, other, sha256(b""))):
            self.check_error(answer, 404, "BLOB_UPLOAD_UNKNOWN")
        self.check_status(wb, path, 0)

    def test_the_same_blob_by_many_at_once(self):
        wb = self.make_weighbridge()
        data = bytes_of(4 * MIB)
        answers = []

        def push(i):
            repository = f"team/r{i % 3}"
            path = self.session(wb, repository=repository)
            answers.append(self.put(wb, path, sha256(data), data)[0])

        threads = [threading.Thread(target=push, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(answers, [201] * 8)
        for i in range(3):
            self.check_blob(wb, data, repository=f"team/r{i}")
        self.check_empty(wb)


class Refusals(Uploads):
    def test_out_of_order(self):
        wb = self.make_weighbridge()
        data = bytes_of(3000)
        path = self.session(wb)
        self.check_patch(wb, path, data[:1000], 1000, start=0)
        for start in (0, 999, 1001, 2000):
            for answer in (self.patch(wb, path, data[start:start + 500], start),
                           self.put(wb, path, sha256(data), data[start:],
                                    {"Content-Range": f"{start}-2999"})):
                message = self.check_error(answer, 416, "BLOB_UPLOAD_INVALID")
                self.assertIn("1000", message)
                self.assertIn(b'"error":"invalid"', answer[2])  # as in the log
                self.check_session(wb, answer[1], 1000, path)
        status, _, _ = wb.get(f"{path}?digest={sha256(data)}")  # as the conformance suite asks
        self.assertEqual(status, 204)
        self.check_status(wb, path, 1000)
        answer = self.put(wb, path, sha256(data), data[1000:], {"Content-Range": "1000-2999"})
        self.check_created(wb, answer, data)

    def test_ranges_that_are_none(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        for text in ("x", "4-0", "0-3", "0-5", "0", "-4", "0-4,5-6", "0-4/3", "0 - 4",
                     "0-99999999999999999999"):
            with self.subTest(text=text):
                answer = self.patch(wb, path, b"hello", headers={"Content-Range": text})
                self.check_error(answer, 400, "BLOB_UPLOAD_INVALID")
        self.check_status(wb, path, 0)
        self.check_patch(wb, path, b"hello", 5, headers={"Content-Range": "bytes 0-4/10"})
        self.check_patch(wb, path, b"world", 10, headers={"Content-Range": "bytes 5-9/*"})

    def test_a_body_shorter_or_longer_than_its_range(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        self.check_patch(wb, path, b"ab", 2, start=0)
        for body in (b"cde", b"cdefg", bytes_of(2 * MIB)):
            with Raw(wb) as raw:
                raw.send(f"PATCH {path} HTTP/1.1\r\nHost: h\r\nContent-Range: 2-5\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n")
                raw.send(chunked(body))
                status, _, answer = raw.answer()
                self.assertEqual(status, 400)
                self.assertIn(b"BLOB_UPLOAD_INVALID", answer)
            self.check_status(wb, path, 2)
        self.check_patch(wb, path, b"cdef", 6, start=2)

    def test_digests(self):
        wb = self.make_weighbridge()
        bad = ("sha256:" + "0" * 63, "sha256:" + "G" * 64, "md5:" + "0" * 32, "x", "",
               "sha256:" + "A" * 64, "sha256:" + "0" * 300, "%zz")
        for digest in bad:
            with self.subTest(digest=digest):
                path = self.session(wb)
                self.check_error(self.put(wb, path, digest, b"x"), 400, "DIGEST_INVALID")
                self.check_error(wb.request("POST", f"{UPLOADS}?digest={digest}", None, b"x"), 400,
                                 "DIGEST_INVALID")
        path = self.session(wb)
        self.check_error(wb.request("PUT", path, None, b"x"), 400, "DIGEST_INVALID")
        for digest in (sha256(b"other"), sha512(b"other")):
            self.check_patch(wb, path, b"", 0)
            self.check_error(self.put(wb, path, digest, b"x"), 400, "DIGEST_INVALID")
            self.check_error(wb.request("POST", f"{UPLOADS}?digest={digest}", None, b"x"), 400,
                             "DIGEST_INVALID")
            self.check_error(wb.blob(REPO, digest), 404, "BLOB_UNKNOWN")

    def test_after_a_mismatch_the_session_goes_on(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        self.check_patch(wb, path, b"hello ", 6)
        self.check_error(self.put(wb, path, sha256(b"hello world"), b"wurld"), 400,
                         "DIGEST_INVALID")
        self.check_status(wb, path, 6)
        self.check_created(wb, self.put(wb, path, sha256(b"hello world"), b"world"), b"hello world")

    def test_unknown_sessions(self):
        wb = self.make_weighbridge()
        for path in (NONE, f"{UPLOADS}x", f"{UPLOADS}{'A' * 32}", f"{UPLOADS}..%2f"):
            for answer in (wb.get(path), wb.head(path), wb.request("DELETE", path),
                           self.patch(wb, path, b"x"), self.put(wb, path, sha256(b"x"), b"x")):
                self.assertEqual(answer[0], 404)

    def test_methods(self):
        wb = self.make_weighbridge()
        for method, path, allow in (("GET", UPLOADS, "POST"), ("PUT", UPLOADS, "POST"),
                                    ("POST", NONE, "PATCH, PUT, GET, HEAD, DELETE")):
            answer = wb.request(method, path)
            self.check_error(answer, 405, "UNSUPPORTED")
            self.assertEqual(answer[1]["Allow"], allow)

    def test_access(self):
        wb = self.make_weighbridge(config={"access": [
            {"repositories": "team/*", "allow": ["pull", "push"]},
            {"repositories": "readable/*", "allow": ["pull"]}]})
        path = self.session(wb)
        for repository in ("readable/x", "hidden/x"):
            closed = f"/v2/{repository}/blobs/uploads/"
            for method, target in (("POST", closed), ("POST", f"{closed}?digest={sha256(b'')}"),
                                   ("PATCH", path.replace(REPO, repository)),
                                   ("PUT", path.replace(REPO, repository)),
                                   ("GET", path.replace(REPO, repository)),
                                   ("DELETE", path.replace(REPO, repository))):
                message = self.check_error(wb.request(method, target), 403, "DENIED")
                self.assertIn("access", message)

    def test_limits(self):
        wb = self.make_weighbridge(config={"limits": {"uploads": 2}})
        path = self.session(wb)
        self.session(wb)
        answer = wb.request("POST", UPLOADS)
        self.check_error(answer, 503, "UNAVAILABLE")
        self.assertGreater(int(answer[1]["Retry-After"]), 0)
        self.assertIn(b"weighbridge_store_uploads 2\n", wb.get("/metrics")[2])
        wb.request("DELETE", path)
        self.session(wb)

    def test_no_space(self):
        wb = self.make_weighbridge(config={"limits": {"free_percent": 99}})
        stat = os.statvfs(wb.data)
        if stat.f_bavail > 0.98 * stat.f_blocks:
            self.skipTest("the disk is empty")
        for answer in (wb.request("POST", UPLOADS),
                       wb.request("POST", f"{UPLOADS}?digest={sha256(b'x')}", None, b"x")):
            message = self.check_error(answer, 507, "UNAVAILABLE")
            self.assertIn("free", message)
        self.check_empty(wb)


class Mounts(Uploads):
    def mount(self, wb, digest, source=None, repository="team/copy"):
        query = f"?mount={digest}" + (f"&from={source}" if source is not None else "")
        return wb.request("POST", f"/v2/{repository}/blobs/uploads/{query}")

    def check_mounted(self, wb, answer, data, repository="team/copy"):
        self.check_created(wb, answer, data, repository=repository)

    def check_not_mounted(self, wb, answer):
        self.assertEqual((answer[0], answer[2]), (202, b""))
        self.check_session(wb, answer[1], 0)

    def test_mounts(self):
        wb = self.make_weighbridge()
        data = b"mounted"
        self.check_created(wb, self.put(wb, self.session(wb), sha256(data), data), data)
        self.check_mounted(wb, self.mount(wb, sha256(data), REPO), data)
        self.check_mounted(wb, self.mount(wb, sha256(data), "team%2Fmodel", "team/c"), data, "team/c")
        self.check_mounted(wb, self.mount(wb, sha256(data), None, "team/d"), data, "team/d")
        self.check_mounted(wb, self.mount(wb, sha256(data), REPO, REPO), data, REPO)
        for source in (REPO, None, "..", "", "team/none", "%zz", "x" * 300):
            for digest in (sha256(b"none"), "sha256:0", "", "x"):
                self.check_not_mounted(wb, self.mount(wb, digest, source))
        self.check_not_mounted(wb, self.mount(wb, sha256(data), "team/none", "team/e"))
        self.assertEqual(wb.blob("team/e", sha256(data))[0], 404)

    def test_what_must_not_be_read_is_not_mounted(self):
        rules = [{"repositories": "team/*", "allow": ["pull", "push"]},
                 {"repositories": "secret/*", "allow": ["push"]}]
        wb = self.make_weighbridge(config={"access": rules})
        path = self.session(wb, repository="secret/x")
        self.assertEqual(self.put(wb, path, sha256(b"secret"), b"secret")[0], 201)
        self.check_not_mounted(wb, self.mount(wb, sha256(b"secret"), "secret/x"))
        self.check_not_mounted(wb, self.mount(wb, sha256(b"secret")))
        self.check_error(wb.blob("team/copy", sha256(b"secret")), 404, "BLOB_UNKNOWN")

    def test_what_an_upstream_has_is_no_source_before_it_is_here(self):
        hub, wb = self.start()
        path = self.path(wb)
        digest = path.rsplit("/", 1)[1]
        for source in ("hf/org/name", None):
            self.check_not_mounted(wb, self.mount(wb, digest, source))
        status, _, data = wb.get(path)
        self.assertEqual(status, 200)
        for i, source in enumerate(("hf/org/name", "hf/Org/Name", None)):
            repository = f"team/copy{i}"
            self.check_mounted(wb, self.mount(wb, digest, source, repository), data, repository)

    def test_pushes_under_an_upstreams_prefix_are_for_referrers(self):
        hub, wb = self.start()
        path = self.session(wb, repository="hf/org/name")
        answer = self.put(wb, path, sha256(b"sig"), b"sig")
        self.check_created(wb, answer, b"sig", repository="hf/org/name")
        self.assertEqual(hub.count(), 0)


class Early(Uploads):
    """Answers to requests whose body is still coming."""

    def send_all(self, raw, size, as_chunks=False):
        """Sends without reading anything, as many clients do; how far it got."""
        block = b"x" * MIB
        sent = 0
        try:
            while sent < size:
                raw.send(b"%x\r\n" % MIB + block + b"\r\n" if as_chunks else block)
                sent += MIB
        except (BrokenPipeError, ConnectionResetError):
            pass
        return sent

    def test_a_refusal_of_a_long_body_is_read(self):
        wb = self.make_weighbridge()
        for framing in (f"Content-Length: {HUGE}", "Transfer-Encoding: chunked"):
            for method, path, want in (("PATCH", NONE, 404), ("PUT", f"{NONE}?digest=x", 400),
                                       ("BREW", "/v2/", 405), ("GET", "/v2/", 413),
                                       ("PATCH", "/v2/-/blobs/uploads/x", 400)):
                with self.subTest(framing=framing, method=method), Raw(wb) as raw:
                    raw.send(f"{method} {path} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n")
                    self.assertEqual(self.send_all(raw, HUGE, "chunked" in framing), HUGE)
                    status, headers, body = raw.answer()
                    self.assertEqual((status, headers["connection"]), (want, "close"))
                    self.assertIn(b'"errors"', body)
                    self.assertEqual(raw.rest(), b"")

    def test_python_and_curl_read_it(self):
        wb = self.make_weighbridge()
        self.check_error(wb.request("PATCH", NONE, None, b"x" * HUGE), 404, "BLOB_UPLOAD_UNKNOWN")
        got = subprocess.run(
            ["curl", "-s", "-X", "PATCH", "-H", "Transfer-Encoding: chunked", "-T", "-",
             "-w", "%{http_code}", f"{wb.url}{NONE}"],
            input=b"x" * HUGE, stdout=subprocess.PIPE, timeout=120, check=False)
        self.assertEqual((got.returncode, got.stdout[-3:]), (0, b"404"), got.stdout)

    def test_a_short_one_keeps_the_connection(self):
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            for framing, body in ((f"Content-Length: {MIB}", b"x" * MIB),
                                  ("Transfer-Encoding: chunked", chunked(b"x" * MIB))):
                raw.send(f"PATCH {NONE} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n").send(body)
                status, headers, _ = raw.answer()
                self.assertEqual(status, 404)
                self.assertNotIn("connection", headers)
            raw.send("GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(raw.answer()[0], 200)

    def test_who_waits_for_leave(self):
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            raw.send(f"PATCH {NONE} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
                     "Expect: 100-continue\r\n\r\n")
            status, headers, _ = raw.answer()
            self.assertEqual((status, headers["connection"]), (404, "close"))
        path = self.session(wb)
        with Raw(wb) as raw:
            raw.send(f"PATCH {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
                     "Expect: 100-continue\r\n\r\n")
            self.assertEqual(raw.head()[0], 100)
            raw.send("hello")
            self.assertEqual(raw.head()[0], 202)
        self.check_status(wb, path, 5)

    def test_a_client_that_never_stops_is_let_go(self):
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            raw.send(f"PATCH {NONE} HTTP/1.1\r\nHost: h\r\nContent-Length: {1 << 40}\r\n\r\n")
            started = time.monotonic()
            with self.assertRaises((BrokenPipeError, ConnectionResetError)):
                while time.monotonic() < started + 60:
                    raw.send(b"x" * 65536)
                    time.sleep(0.001)
        self.assertEqual(wb.get("/v2/")[0], 200)


class Broken(Uploads):
    """Connections and processes that end before their time."""

    def begin_patch(self, wb, path, data, length=None):
        """A PATCH whose first bytes are here and whose rest does not come."""
        raw = Raw(wb)
        self.addCleanup(raw.close)
        raw.send(f"PATCH {path} HTTP/1.1\r\nHost: h\r\nContent-Length: "
                 f"{length or len(data) + HUGE}\r\n\r\n").send(data)
        return raw

    def test_a_piece_that_broke_off(self):
        """Right is both: to send it again, and to ask how much of it came."""
        wb = self.make_weighbridge()
        data = bytes_of(2 * MIB)
        for asks in (False, True):
            path = self.session(wb)
            self.check_patch(wb, path, data[:1000], 1000, start=0)
            raw = self.begin_patch(wb, path, data[1000:MIB])
            raw.close()
            until(lambda: self.offset(wb, path) == MIB, "all that came")
            at = 1000
            if asks:
                status, headers, _ = wb.get(path)
                self.assertEqual((status, headers["Range"]), (204, f"0-{MIB - 1}"))
                at = MIB
            self.check_patch(wb, path, data[at:], len(data), start=at)
            self.check_created(wb, self.put(wb, path, sha256(data)), data)

    def test_a_hung_connection_is_taken_over(self):
        wb = self.make_weighbridge()
        data = bytes_of(MIB)
        path = self.session(wb)
        raw = self.begin_patch(wb, path, data[:500000])
        until(lambda: self.offset(wb, path) > 0, "the first bytes")
        self.check_patch(wb, path, data[:700000], 700000, start=0)
        try:
            raw.send(b"y" * 8 * MIB)
            status, headers, body = raw.answer()
            self.assertEqual(status, 409)
            self.assertIn(b"BLOB_UPLOAD_INVALID", body)
        except (BrokenPipeError, ConnectionResetError):
            self.fail("the older request should have been told")
        self.check_created(wb, self.put(wb, path, sha256(data), data[700000:]), data)

    def test_killed_in_the_middle_of_a_piece(self):
        wb = self.make_weighbridge()
        data = bytes_of(6 * MIB)
        path = self.session(wb)
        self.check_patch(wb, path, data[:2 * MIB], 2 * MIB, start=0)
        self.begin_patch(wb, path, data[2 * MIB:4 * MIB])
        until(lambda: self.offset(wb, path) >= 3 * MIB, "half of the piece")
        wb.kill()
        wb.start()
        status, headers, _ = wb.get(path)
        self.assertEqual(status, 204)
        at = int(headers["Range"].split("-")[1]) + 1
        self.assertGreaterEqual(at, 2 * MIB)
        self.assertLessEqual(at, 4 * MIB)
        self.check_patch(wb, path, data[at:], len(data), start=at)
        self.check_created(wb, self.put(wb, path, sha256(data)), data)
        self.check_empty(wb)

    def test_killed_between_pieces(self):
        wb = self.make_weighbridge()
        data = bytes_of(2 * MIB)
        path = self.session(wb)
        empty = self.session(wb)
        self.check_patch(wb, path, data[:MIB], MIB, start=0)
        for _ in range(2):
            wb.kill()
            wb.start()
            self.check_status(wb, path, MIB)
            self.check_status(wb, empty, 0)
        self.check_created(wb, self.put(wb, path, sha512(data), data[MIB:]), data, sha512(data))

    def test_the_answer_to_a_put_was_lost(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        self.check_created(wb, self.put(wb, path, sha256(b"blob"), b"blob"), b"blob")
        for body in (b"", b"blob", b"x" * HUGE):
            self.check_created(wb, self.put(wb, path, sha256(b"blob"), body), b"blob")
        self.check_error(self.put(wb, path, sha256(b"none")), 404, "BLOB_UPLOAD_UNKNOWN")
        other = path.replace(REPO, "team/other")
        self.check_error(self.put(wb, other, sha256(b"blob")), 404, "BLOB_UPLOAD_UNKNOWN")

    def test_a_post_that_broke_off_leaves_nothing(self):
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            raw.send(f"POST {UPLOADS}?digest={sha256(b'x')} HTTP/1.1\r\nHost: h\r\n"
                     f"Content-Length: {MIB}\r\n\r\n").send(b"x" * 100000)
            until(lambda: os.listdir(os.path.join(wb.data, "incoming")), "the session")
        until(lambda: not os.listdir(os.path.join(wb.data, "incoming")), "its end")

    def test_chunks_that_are_none(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        for body in (b"5\r\nhello\r\nzz\r\n", b"5\r\nhelloX\r\n", b"-1\r\n", b"\r\n\r\n",
                     b"ffffffffffffffffff\r\n"):
            with Raw(wb) as raw:
                raw.send(f"PATCH {path} HTTP/1.1\r\nHost: h\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n").send(body)
                self.assertNotIn(raw.head()[0], (201, 202))
        self.check_patch(wb, path, b"hello", 5, start=0)

    def test_a_drain_waits_for_a_piece(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        raw = self.begin_patch(wb, path, b"x" * MIB, length=MIB + 5)
        until(lambda: self.offset(wb, path) > 0, "the first bytes")
        process = wb.process
        process.terminate()
        port = int(wb.host.rpartition(":")[2])

        def refused():
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError as e:
                return e.errno == errno.ECONNREFUSED
            return False

        until(refused, "the listener to close")
        raw.send(b"hello")
        status, headers = raw.head()
        self.assertEqual((status, headers["range"]), (202, f"0-{MIB + 4}"))
        self.assertEqual(wb.stop(), 0)
        wb.start()
        self.check_status(wb, path, MIB + 5)

    def test_a_drain_has_an_end(self):
        wb = self.make_weighbridge(config={"timeouts": {"drain": "1s"}})
        path = self.session(wb)
        raw = self.begin_patch(wb, path, b"x" * MIB)
        until(lambda: self.offset(wb, path) > 0, "the first bytes")
        self.assertEqual(wb.stop(), 0)
        raw.rest()
        wb.start()
        status, headers, _ = wb.get(path)
        self.assertEqual(status, 204)
        self.assertGreater(int(headers["Range"].split("-")[1]), 0)


class Time(Uploads):
    def expires(self, wb, path):
        """Its file goes a moment before it does. To ask for it earlier would put it off."""
        until(lambda: not os.listdir(os.path.join(wb.data, "incoming")), "expiry")
        until(lambda: wb.get(path)[0] != 204, "the session to go")
        self.check_error(wb.get(path), 404, "BLOB_UPLOAD_UNKNOWN")

    def test_idle_sessions_expire(self):
        wb = self.make_weighbridge(config={"uploads": {"expire": "1s"}})
        path = self.session(wb)
        self.check_patch(wb, path, b"hello", 5)
        self.expires(wb, path)
        until(lambda: wb.log_lines(event="uploads_expired", bytes=5), "its line")
        self.assertIn(b"weighbridge_store_uploads 0\n", wb.get("/metrics")[2])

    def test_sessions_from_before_a_restart_expire(self):
        wb = self.make_weighbridge(config={"uploads": {"expire": "2s"}})
        path = self.session(wb)
        self.check_patch(wb, path, b"hello", 5)
        wb.kill()
        wb.start()
        self.expires(wb, path)

    def test_a_slow_piece_is_left_alone(self):
        """Slower than a connection may be otherwise, but it moves; expiry leaves it alone too."""
        wb = self.make_weighbridge(config={"timeouts": {"client": "1s"},
                                           "uploads": {"expire": "1s"}})
        path = self.session(wb)
        piece = b"x" * 700
        with Raw(wb) as raw:
            raw.send(f"PATCH {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {20 * 700}\r\n\r\n")
            for _ in range(20):
                raw.send(piece)
                time.sleep(0.25)
            status, headers = raw.head()
            self.assertEqual((status, headers["range"]), (202, f"0-{20 * 700 - 1}"))

    def test_a_dripping_piece_is_cut(self):
        wb = self.make_weighbridge(config={"timeouts": {"client": "1s"}})
        path = self.session(wb)
        with Raw(wb) as raw:
            raw.send(f"PATCH {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n")
            started = time.monotonic()
            with self.assertRaises((BrokenPipeError, ConnectionResetError)):
                for _ in range(900):
                    raw.send("x")
                    time.sleep(0.05)
            self.assertLess(time.monotonic() - started, 30)


class Records(Uploads):
    def test_the_log_and_the_metrics_tell(self):
        wb = self.make_weighbridge()
        path = self.session(wb)
        self.check_patch(wb, path, b"x" * 1000, 1000)
        self.check_created(wb, self.put(wb, path, sha256(b"x" * 1001), b"x"), b"x" * 1001)
        # Counted and logged when an answer has ended, which its reader may see first.
        until(lambda: b'weighbridge_received_bytes_total{route="upload"} 1001\n' in
              wb.get("/metrics")[2], "the bytes to be counted")
        metrics = wb.get("/metrics")[2]
        self.assertIn(b'weighbridge_requests_total{route="upload",status="202"} 1\n', metrics)
        self.assertIn(b'weighbridge_requests_total{route="uploads",status="202"} 1\n', metrics)
        until(lambda: wb.log_lines(event="request", method="PATCH", status=202, received=1000,
                                   route="upload", repo=REPO), "its line")
        until(lambda: wb.log_lines(event="request", method="PUT", status=201, received=1,
                                   digest=sha256(b"x" * 1001)), "its line")
        self.patch(wb, NONE, b"x" * HUGE)
        line = until(lambda: wb.log_lines(event="request", method="PATCH", status=404), "its line")
        self.assertNotIn("end=", line[0])


if __name__ == "__main__":
    unittest.main()
