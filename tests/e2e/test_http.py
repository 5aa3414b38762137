"""What goes over the wire between a client and a real server: headers, ranges,
framing, errors, limits, draining, and what the log must not say."""

import json
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

from harness import MANIFEST_TYPE, EndToEnd, binary, paths_of, safetensors_file, sha256

REPO = "hf/org/name"
TOKEN = "hf_planted_secret_token"
WEIGHTS = safetensors_file({"w": ("F32", [1024, 256])}, fill=bytes(range(251)))
SMALL = {"config.json": b'{"model_type": "llama"}', "README.md": b"# hello\n"}
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


class Raw:
    """One connection whose bytes are exactly what the test says."""

    def __init__(self, wb, timeout=60):
        host, _, port = wb.host.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))
        return self

    def head(self):
        """(status or None at the end of the connection, headers as a dict)."""
        line = self.file.readline()
        if not line:
            return None, {}
        headers = {}
        while True:
            text = self.file.readline().decode("latin-1").rstrip("\r\n")
            if not text:
                return int(line.split()[1]), headers
            name, _, value = text.partition(":")
            headers[name.strip().lower()] = value.strip()

    def answer(self, method="GET"):
        status, headers = self.head()
        if status is None or method == "HEAD" or status == 304:
            return status, headers, b""
        return status, headers, self.file.read(int(headers["content-length"]))

    def rest(self):
        """Everything until the server closes."""
        try:
            return self.file.read()
        except ConnectionResetError:
            return b""

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Http(EndToEnd):
    def start(self, files=None, **settings):
        hub = self.make_hub()
        hub.add_repo("Org/Name", {**SMALL, "model.safetensors": WEIGHTS, **(files or {})})
        return hub, self.make_weighbridge(hub.url, **settings)

    def descriptor(self, wb, path):
        return paths_of(self.pull_manifest(wb, REPO, "main")[1])[path]

    def path(self, wb, name="model.safetensors"):
        return f"/v2/{REPO}/blobs/{self.descriptor(wb, name)['digest']}"

    def check_common(self, headers):
        self.assertEqual(headers["Docker-Distribution-API-Version"], "registry/2.0")
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        self.assertRegex(headers["X-Request-Id"], r"^[0-9a-f]{16}$")

    def check_error(self, answer, status, code):
        got, headers, body = answer
        self.assertEqual(got, status, body)
        self.check_common(headers)
        self.assertEqual(headers["Content-Type"], "application/json")
        error = json.loads(body)["errors"][0]
        self.assertEqual(error["code"], code)
        self.assertEqual(error["detail"]["request"], headers["X-Request-Id"])
        return error["message"]


class Headers(Http):
    def test_base(self):
        wb = self.make_weighbridge()
        for path in ("/v2/", "/v2", "/v2/?ns=docker.io"):
            status, headers, body = wb.get(path)
            self.assertEqual((status, body), (200, b"{}"), path)
            self.assertEqual(headers["Content-Type"], "application/json")
            self.check_common(headers)

    def test_manifest(self):
        hub, wb = self.start()
        status, headers, body = wb.get(f"/v2/{REPO}/manifests/main", {"Accept": "text/html"})
        self.assertEqual(status, 200)
        self.check_common(headers)
        digest = sha256(body)
        self.assertEqual(headers["Docker-Content-Digest"], digest)
        self.assertEqual(headers["Content-Type"], MANIFEST_TYPE)
        self.assertEqual(headers["ETag"], f'"{digest}"')
        self.assertEqual(headers["Cache-Control"], "no-cache")
        by_digest = wb.get(f"/v2/{REPO}/manifests/{digest}")
        self.assertEqual(by_digest[2], body)
        self.assertIn("immutable", by_digest[1]["Cache-Control"])
        escaped = digest.replace(":", "%3A")
        self.assertEqual(wb.get(f"/v2/{REPO}/manifests/{escaped}")[2], body)
        for value in (f'"{digest}"', digest, f'W/"{digest}"', f'"x", "{digest}"', "*"):
            status, headers, body_304 = wb.get(f"/v2/{REPO}/manifests/main",
                                               {"If-None-Match": value})
            self.assertEqual((status, body_304), (304, b""), value)
            self.assertEqual(headers["ETag"], f'"{digest}"')
            self.assertEqual(int(headers["Content-Length"]), len(body))  # of the 200
        self.assertEqual(wb.get(f"/v2/{REPO}/manifests/main", {"If-None-Match": '"x"'})[0], 200)

    def test_head_is_get_without_a_body(self):
        hub, wb = self.start()
        digest, manifest = self.pull_manifest(wb, REPO, "main")
        cold = self.path(wb)
        warm = f"/v2/{REPO}/blobs/{manifest['config']['digest']}"
        for path in (f"/v2/{REPO}/manifests/main", f"/v2/{REPO}/manifests/{digest}", warm,
                     f"/v2/{REPO}/tags/list", "/v2/", "/healthz", "/nothing",
                     f"/v2/{REPO}/manifests/no-such-tag", f"/v2/{REPO}/blobs/sha256:{'0' * 64}",
                     cold):
            head = wb.head(path)
            get = wb.get(path)
            self.assertEqual(head[0], get[0], path)
            self.assertEqual(head[2], b"", path)
            volatile = ("x-request-id", "date", "content-length")
            self.assertEqual({k.lower(): v for k, v in head[1].items()
                              if k.lower() not in volatile},
                             {k.lower(): v for k, v in get[1].items()
                              if k.lower() not in volatile}, path)
            self.assertEqual(int(head[1]["Content-Length"]), len(get[2]), path)

    def test_head_of_a_cold_blob_moves_no_weight(self):
        """peer_bug_97"""
        hub, wb = self.start()
        path = self.path(wb)
        before = hub.bytes_sent("cdn")
        status, headers, _ = wb.head(path)
        self.assertEqual(status, 200)
        self.assertEqual(int(headers["Content-Length"]), len(WEIGHTS))
        self.assertEqual(hub.bytes_sent("cdn"), before)

    def test_blob(self):
        hub, wb = self.start()
        path = self.path(wb)
        for _ in ("cold", "warm"):
            status, headers, body = wb.get(path)
            self.assertEqual((status, body == WEIGHTS), (200, True))
            self.check_common(headers)
            self.assertEqual(headers["Docker-Content-Digest"], sha256(WEIGHTS))
            self.assertEqual(headers["ETag"], f'"{sha256(WEIGHTS)}"')
            self.assertEqual(headers["Accept-Ranges"], "bytes")
            self.assertEqual(headers["Content-Type"], "application/octet-stream")
            self.assertIn("max-age=31536000", headers["Cache-Control"])
            self.assertEqual(headers["Location"], wb.url + path)
            self.assertNotIn("Content-Encoding", headers)
        for method in ("GET", "HEAD"):
            status, headers, _ = wb.request(method, path,
                                            {"If-None-Match": f'"{sha256(WEIGHTS)}"'})
            self.assertEqual(status, 304)
            self.assertEqual(int(headers["Content-Length"]), len(WEIGHTS))  # of the 200

    def test_external_url(self):
        hub, wb = self.start(args=("--external-url", "https://models.example/"))
        path = self.path(wb)
        self.assertEqual(wb.head(path)[1]["Location"], "https://models.example" + path)

    def test_a_long_external_url_is_not_cut(self):
        url = "https://models.example/" + "p" * 1500
        hub, wb = self.start(args=("--external-url", url))
        path = self.path(wb)
        self.assertEqual(wb.head(path)[1]["Location"], url + path)

    def test_upper_case_names_are_the_same_repository(self):
        hub, wb = self.start()
        lower = wb.get(f"/v2/{REPO}/manifests/main")
        upper = wb.get("/v2/hf/Org/Name/manifests/main")
        self.assertEqual((upper[0], upper[2]), (200, lower[2]))

    def test_referrers(self):
        wb = self.make_weighbridge()
        status, headers, body = wb.get(f"/v2/no/such/referrers/sha256:{'0' * 64}?artifactType=x")
        self.assertEqual((status, headers["Content-Type"]), (200, INDEX_TYPE))
        self.assertEqual(json.loads(body), {"schemaVersion": 2, "mediaType": INDEX_TYPE,
                                            "manifests": []})
        self.check_error(wb.get("/v2/a/referrers/sha256:0"), 400, "DIGEST_INVALID")


class Ranges(Http):
    CASES = (
        ("bytes=500-1499", 500, 1500),
        ("bytes=0-0", 0, 1),
        ("bytes=500-", 500, None),
        ("bytes=-500", -500, None),
        ("bytes=0-", 0, None),
        ("bytes=-99999999999", 0, None),
    )

    def check_ranges(self, wb, path, data):
        n = len(data)
        for header, first, end in (*self.CASES, (f"bytes={n - 48}-{n + 5000}", n - 48, n)):
            status, headers, body = wb.get(path, {"Range": header})
            want = data[first:end]
            self.assertEqual(status, 206, header)
            self.assertEqual(body, want, header)
            start = first % n if first < 0 else first
            self.assertEqual(headers["Content-Range"],
                             f"bytes {start}-{start + len(want) - 1}/{n}", header)
        for header in (f"bytes={n}-", "bytes=500-0", f"bytes={n + 5}-{n + 9}", "bytes=-0"):
            answer = wb.get(path, {"Range": header})
            self.check_error(answer, 416, "SIZE_INVALID")
            self.assertEqual(answer[1]["Content-Range"], f"bytes */{n}", header)
        for header in ("bytes=0-1,5-6", "lines=0-1", "bytes=x"):
            status, _, body = wb.get(path, {"Range": header})
            self.assertEqual((status, body == data), (200, True), header)
        tag = f'"{sha256(data)}"'
        self.assertEqual(wb.get(path, {"Range": "bytes=1-2", "If-Range": tag})[2], data[1:3])
        self.assertEqual(wb.get(path, {"Range": "bytes=1-2", "If-Range": '"x"'})[2], data)

    def test_warm(self):
        hub, wb = self.start()
        path = self.path(wb)
        self.assertEqual(wb.get(path)[2], WEIGHTS)
        before = hub.count("cdn")
        self.check_ranges(wb, path, WEIGHTS)
        self.assertEqual(hub.count("cdn"), before)

    def test_cold_each_range_first(self):
        """peer_bug_21: 206 with exactly these bytes, on a blob that nobody has."""
        hub = self.make_hub()
        cases = self.CASES
        for i in range(len(cases)):
            hub.add_repo(f"Org/R{i}", {**SMALL, "model.safetensors": WEIGHTS + bytes([i])
                                       if i else WEIGHTS})
        wb = self.make_weighbridge(hub.url)
        for i, (header, first, end) in enumerate(cases):
            data = WEIGHTS + bytes([i]) if i else WEIGHTS
            path = f"/v2/hf/org/r{i}/blobs/{sha256(data)}"
            self.pull_manifest(wb, f"hf/org/r{i}", "main")
            status, headers, body = wb.get(path, {"Range": header})
            self.assertEqual((status, body == data[first:end]), (206, True), header)


class Framing(Http):
    BAD = (
        "POST /v2/ HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v2/ HTTP/1.1\r\nHost: {h}\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5, 5\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nContent-Length: -1\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: gzip\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: identity\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.0\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        # A continued line: the library takes it for more of the header's name.
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nContent-Length:\r\n 40\r\n\r\n"
        "GET /healthz HTTP/1.1\r\nHost: {h}\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\n 0\r\n\r\n"
        "GET /healthz HTTP/1.1\r\nHost: {h}\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nTransfer-Encodin: chunked\r\n g\r\n\r\n0\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nX: a\r\n b\r\n c\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nX: a\r\n \r\nHost: {h}\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: {h}\r\nHost: {h}\r\n\r\n",
        "GET /v2/ HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET http://other/v2/ HTTP/1.1\r\nHost: {h}\r\n\r\n",
    )

    def test_ambiguous_requests_are_refused_and_the_connection_closed(self):
        wb = self.make_weighbridge()
        for text in self.BAD:
            with Raw(wb) as raw:
                got = raw.send(text.format(h=wb.host)).rest()
            self.assertTrue(got.startswith(b"HTTP/1.1 400 "), (text, got[:200]))
            # The library answers a malformed length itself, and writes the head twice; the
            # connection ends behind it either way.
            heads = 2 if "Content-Length: 5, 5" in text or "Content-Length: -1" in text else 1
            self.assertEqual(got.count(b"HTTP/1.1 "), heads, (text, got))

    def test_names_are_read_raw(self):
        hub, wb = self.start()
        for path, code in (("/v2/hf%2Forg/name/manifests/main", "NAME_INVALID"),
                           ("/v2/hf/org/name%00/manifests/main", "NAME_INVALID"),
                           ("/v2/hf/../org/name/manifests/main", "NAME_INVALID"),
                           ("/v2/hf//org/name/manifests/main", "NAME_INVALID"),
                           ("/v2/hf/org/name/manifests/ma%69n", "NAME_INVALID"),
                           ("/v2/hf/org/name/manifests/sha256:totallywrong", "DIGEST_INVALID"),
                           ("/v2/hf/org/name/blobs/..%2f..%2fetc", "NAME_INVALID"),
                           ("/v2/hf/org/name/blobs/main", "DIGEST_INVALID")):
            with self.subTest(path):
                self.check_error(wb.get(path), 400, code)
        for path in ("/v2/hf/org/name/manifests/..", "/v2/hf/org/name/manifests/.hidden"):
            self.check_error(wb.get(path), 404, "MANIFEST_UNKNOWN")  # nothing has such a tag
            self.check_error(wb.request("PUT", path, body=b"{}"), 400, "MANIFEST_INVALID")
        self.assertEqual(hub.count(), 0, "none of them was asked upstream")

    def test_absolute_form(self):
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            raw.send(f"GET {wb.url}/v2/ HTTP/1.1\r\nHost: {wb.host}\r\n\r\n")
            self.assertEqual(raw.answer()[0], 200)

    def test_get_with_a_body(self):
        """The conformance suite does it."""
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            for _ in range(2):
                raw.send(f"GET /v2/ HTTP/1.1\r\nHost: {wb.host}\r\nContent-Length: 5\r\n\r\nhello")
                self.assertEqual(raw.answer()[0], 200)
            raw.send(f"GET /v2/ HTTP/1.1\r\nHost: {wb.host}\r\nContent-Length: 9999999\r\n\r\n")
            self.assertEqual(raw.answer()[0], 413)
            self.assertEqual(raw.rest(), b"")

    def test_large_heads(self):
        wb = self.make_weighbridge()
        for text, statuses in ((f"GET /{'a' * 200000} HTTP/1.1\r\nHost: h\r\n\r\n", (414, 431)),
                               (f"GET /v2/ HTTP/1.1\r\nHost: h\r\nX: {'a' * 200000}\r\n\r\n",
                                (431,))):
            with Raw(wb) as raw:
                try:
                    raw.send(text)
                    status = raw.head()[0]
                except ConnectionError:
                    continue  # it stopped reading, and said why into a closed window
                self.assertIn(status, statuses)
        self.assertEqual(wb.get("/v2/")[0], 200)

    def test_keep_alive(self):
        hub, wb = self.start()
        path = self.path(wb)
        with Raw(wb) as raw:
            for method, target, status in (("GET", path, 200), ("HEAD", path, 200),
                                           ("GET", path, 304), ("HEAD", path, 304),
                                           ("GET", path, 200), ("GET", "/nothing", 404),
                                           ("GET", f"/v2/{REPO}/manifests/main", 200),
                                           ("PUT", f"/v2/{REPO}/manifests/main", 403),
                                           ("GET", path, 200)):
                condition = "If-None-Match: *\r\n" if status == 304 else ""
                raw.send(f"{method} {target} HTTP/1.1\r\nHost: h\r\n{condition}"
                         "Content-Length: 0\r\n\r\n")
                got, _, body = raw.answer(method)
                self.assertEqual(got, status, target)
                if target == path and method == "GET" and status == 200:
                    self.assertEqual(body, WEIGHTS)


class Errors(Http):
    def test_unknown(self):
        hub, wb = self.start()
        self.check_error(wb.get("/"), 404, "UNSUPPORTED")
        self.check_error(wb.get("/v2/nothing"), 404, "UNSUPPORTED")
        message = self.check_error(wb.get("/v2/local/x/manifests/y"), 404, "MANIFEST_UNKNOWN")
        self.assertIn('as "hf/..." does', message)
        self.check_error(wb.get(f"/v2/local/x/blobs/sha256:{'0' * 64}"), 404, "BLOB_UNKNOWN")
        self.check_error(wb.get("/v2/local/x/tags/list"), 404, "NAME_UNKNOWN")
        self.check_error(wb.get("/v2/local/x/blobs/uploads/1"), 404, "BLOB_UPLOAD_UNKNOWN")

    def test_a_link_of_another_repository_does_not_count(self):
        """peer_bug_69"""
        hub, wb = self.start()
        path = self.path(wb)
        self.assertEqual(wb.get(path)[0], 200)
        other = path.replace(REPO, "local/other")
        self.check_error(wb.get(other), 404, "BLOB_UNKNOWN")
        self.assertEqual(wb.head(other)[0], 404)

    def test_pushes_to_an_upstream(self):
        hub, wb = self.start()
        message = self.check_error(
            wb.request("PUT", f"/v2/{REPO}/manifests/main", body=b"{}"), 403, "DENIED")
        self.assertIn("hf", message)
        answer = wb.request("PATCH", f"/v2/{REPO}/manifests/main", body=b"{}")
        self.check_error(answer, 405, "UNSUPPORTED")
        self.assertEqual(answer[1]["Allow"], "GET, HEAD, PUT, DELETE")
        self.assertEqual(hub.count(), 0)

    def test_upstream_errors(self):
        """peer_bug_62"""
        for status, want, code in ((429, 429, "TOOMANYREQUESTS"), (500, 502, "UNAVAILABLE"),
                                   (403, 403, "DENIED")):
            with self.subTest(status=status):
                hub, wb = self.start()
                hub.fault("hub_status", status=status, body="<html>no</html>")
                answer = wb.get(f"/v2/{REPO}/manifests/main")
                self.check_error(answer, want, code)
                self.assertNotIn("WWW-Authenticate", answer[1])
                self.assertNotIn(b"<html>", answer[2])
                if want == 429:
                    self.assertGreater(int(answer[1]["Retry-After"]), 0)


class Lists(Http):
    def start_tags(self):
        hub, wb = self.start()
        commit = hub.repo("Org/Name").add_commit({**SMALL, "model.safetensors": WEIGHTS})
        for tag in ("v1", "v2", "V3", "b-x"):
            hub.set_tag("Org/Name", tag, commit)
            self.pull_manifest(wb, REPO, tag)
        status, _, body = wb.get(f"/v2/{REPO}/tags/list")
        self.assertEqual(status, 200)
        tags = json.loads(body)["tags"]
        self.assertEqual(tags, sorted(tags))
        self.assertTrue({"v1", "v2", "V3", "b-x"} <= set(tags), tags)
        return wb, tags

    def test_pages(self):
        wb, tags = self.start_tags()
        for n in (1, 2, 3, len(tags), len(tags) + 1):
            got, path = [], f"/v2/{REPO}/tags/list?n={n}"
            while path:
                status, headers, body = wb.get(path)
                page = json.loads(body)["tags"]
                self.assertEqual(status, 200)
                self.assertLessEqual(len(page), n)
                got += page
                link = headers["Link"]
                path = re.fullmatch(r'<(/v2/[^>]+)>; rel="next"', link).group(1) if link else None
                self.assertTrue(path is None or page, "a page that leads nowhere")
            self.assertEqual(got, tags, n)

    def test_last_and_zero(self):
        wb, tags = self.start_tags()
        for last in ("v1", "nothing-like-it", tags[-1], "0"):
            body = wb.get(f"/v2/{REPO}/tags/list?last={urllib.parse.quote(last)}")[2]
            self.assertEqual(json.loads(body)["tags"], [t for t in tags if t > last], last)
        status, headers, body = wb.get(f"/v2/{REPO}/tags/list?n=0")
        self.assertEqual((status, json.loads(body)["tags"], headers["Link"]), (200, [], None))
        for n in ("-1", "x", "", "1.5", "%00"):
            self.check_error(wb.get(f"/v2/{REPO}/tags/list?n={n}"), 400, "UNSUPPORTED")
        self.check_error(wb.get("/v2/local/none/tags/list?n=0"), 404, "NAME_UNKNOWN")

    def test_catalog(self):
        hub, wb = self.start()
        self.assertEqual(json.loads(wb.get("/v2/_catalog")[2]), {"repositories": []})
        self.pull_manifest(wb, REPO, "main")
        self.assertEqual(json.loads(wb.get("/v2/_catalog")[2]), {"repositories": [REPO]})


class Limits(Http):
    def test_above_max_clients(self):
        wb = self.make_weighbridge(env={"WEIGHBRIDGE_LIMITS_CLIENTS": "3"})
        held = [Raw(wb) for _ in range(3)]
        for raw in held:
            raw.send("GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(raw.answer()[0], 200)
        answer = wb.get("/v2/")
        self.assertIn("limits.clients", self.check_error(answer, 503, "UNAVAILABLE"))
        self.assertGreater(int(answer[1]["Retry-After"]), 0)
        self.assertEqual(wb.get("/healthz")[0], 200, "probes go on")
        for raw in held:
            raw.send("GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(raw.answer()[0], 200, "who is in stays in")
            raw.close()
        deadline = time.monotonic() + 30
        while wb.get("/v2/")[0] != 200:
            self.assertLess(time.monotonic(), deadline)

    def test_a_slow_reader_harms_nobody(self):
        """peer_bug_18"""
        big = safetensors_file({"w": ("F32", [8192, 1024])})  # no socket buffer holds that
        hub, wb = self.start({"model.safetensors": big})
        path = self.path(wb)
        with Raw(wb) as slow:
            slow.send(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            self.assertEqual(slow.head()[0], 200)
            results = []
            threads = [threading.Thread(target=lambda: results.append(wb.get(path)[2] == big))
                       for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(results, [True] * 6)
            self.assertEqual(slow.rest(), big, "and it gets everything in the end")

    def test_a_client_that_moves_no_byte_is_cut(self):
        wb = self.make_weighbridge(env={"WEIGHBRIDGE_TIMEOUTS_CLIENT": "1s"})
        with Raw(wb) as raw:
            raw.send("GET /v2/ HTTP/1.1\r\nHost:")
            self.assertEqual(raw.rest().count(b"HTTP/1.1 200"), 0)

    def test_a_client_that_drips_its_request_is_cut(self):
        """Every byte sets libmicrohttpd's own clock back, so it would stay for ever."""
        wb = self.make_weighbridge(env={"WEIGHBRIDGE_TIMEOUTS_CLIENT": "1s"})
        with Raw(wb) as fresh, Raw(wb) as used:
            used.send("GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(used.answer()[0], 200)
            for raw in (fresh, used):
                raw.send("GET /v2/ HTTP/1.1\r\nHost: h\r\nX: ")
            alive, deadline = [fresh, used], time.monotonic() + 60
            while alive:
                self.assertLess(time.monotonic(), deadline, "a dripping client keeps its place")
                for raw in alive[:]:
                    try:
                        raw.send("x")
                    except OSError:
                        alive.remove(raw)
                time.sleep(0.1)
        self.assertEqual(wb.get("/v2/")[0], 200)

    def test_the_upstream_may_be_slower_than_the_client_timeout(self):
        hub, wb = self.start(env={"WEIGHBRIDGE_TIMEOUTS_CLIENT": "1s"})
        path = self.path(wb)
        hold = hub.hold(bytes=600000)
        with Raw(wb) as raw:
            raw.send(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            self.assertEqual(raw.head()[0], 200)
            self.assertTrue(hold.wait_held(1))
            time.sleep(2.5)  # the wait is the subject
            hold.release()
            self.assertEqual(raw.rest(), WEIGHTS)


class Drain(Http):
    def test_sigterm_finishes_what_runs(self):
        """peer_bug_81"""
        hub, wb = self.start(env={"WEIGHBRIDGE_TIMEOUTS_DRAIN": "60s"})
        path = self.path(wb)
        hold = hub.hold(bytes=600000)
        with Raw(wb) as raw, Raw(wb) as idle:
            idle.send("GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(idle.answer()[0], 200)
            raw.send(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
            status, headers = raw.head()
            self.assertEqual(status, 200)
            self.assertTrue(hold.wait_held(1))
            wb.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 30
            while True:
                try:
                    Raw(wb).close()
                except ConnectionRefusedError:
                    break
                except ConnectionResetError:
                    pass  # it was in the queue when the listener closed
                self.assertLess(time.monotonic(), deadline, "still taking connections")
            idle.send("GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
            status, headers_ready, body = idle.answer()
            self.assertEqual((status, json.loads(body)["status"]), (503, "draining"))
            self.assertEqual(headers_ready["connection"].lower(), "close")
            hold.release()
            self.assertEqual(raw.file.read(int(headers["content-length"])), WEIGHTS)
        self.assertEqual(wb.wait(60), 0)
        wb.start()
        before = hub.bytes_sent("cdn")
        self.assertEqual(wb.get(path)[2], WEIGHTS)
        self.assertEqual(hub.bytes_sent("cdn"), before, "it was kept")

    def test_the_drain_has_an_end(self):
        hub, wb = self.start(env={"WEIGHBRIDGE_TIMEOUTS_DRAIN": "1s"})
        path = self.path(wb)
        hold = hub.hold(bytes=600000)
        with Raw(wb) as raw:
            raw.send(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(raw.head()[0], 200)
            self.assertTrue(hold.wait_held(1))
            self.assertEqual(wb.stop(), 0)
            got = raw.rest()
            self.assertLess(len(got), len(WEIGHTS))
            self.assertTrue(WEIGHTS.startswith(got), "what came is a prefix")
        hold.release()

    def test_sigterm_on_an_idle_server(self):
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            raw.send("GET /v2/ HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(raw.answer()[0], 200)
            begun = time.monotonic()
            self.assertEqual(wb.stop(), 0)
            self.assertLess(time.monotonic() - begun, 20, "idle connections are not waited for")


class Operations(Http):
    def test_health_and_metrics(self):
        hub, wb = self.start()
        self.assertEqual(wb.get("/healthz")[2], b"ok\n")
        self.assertEqual(json.loads(wb.get("/readyz")[2])["status"], "ready")
        path = self.path(wb)
        wb.get(path)
        wb.get(path, {"Range": "bytes=0-9"})
        lines = ('weighbridge_requests_total{route="blob",status="206"} 1',
                 'weighbridge_requests_total{route="blob",status="200"} 1',
                 f'weighbridge_response_bytes_total{{route="blob"}} {len(WEIGHTS) + 10}',
                 "weighbridge_verification_failures_total 0",
                 "weighbridge_transfers_completed_total 1",
                 "weighbridge_transfers_running 0")
        # Counted when the connection is done with it, which may be after our read.
        text, deadline = "", time.monotonic() + 30
        while not all(line + "\n" in text for line in lines) and time.monotonic() < deadline:
            text = wb.get("/metrics")[2].decode()
        for line in lines:
            self.assertIn(line + "\n", text)
        self.check_exposition(text)
        received = re.search(r'weighbridge_upstream_bytes_total\{upstream="hf"\} (\d+)', text)
        self.assertGreaterEqual(int(received.group(1)), len(WEIGHTS))

    def test_a_client_that_leaves_before_the_answer_is_no_answer(self):
        wb = self.make_weighbridge()
        with Raw(wb) as raw:
            raw.send(f"GET /v2/ HTTP/1.1\r\nHost: {wb.host}\r\n")
        deadline = time.monotonic() + 30
        while not wb.log_lines(end="client_closed") and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(len(wb.log_lines(end="client_closed", status=0)), 1, wb.log)
        self.assertNotIn('weighbridge_requests_total{', wb.get("/metrics")[2].decode())

    def check_exposition(self, text):
        """Each family has its TYPE once and before its samples; each sample is unique."""
        types, seen = {}, set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                self.assertNotIn(name, types)
                types[name] = kind
            elif not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                self.assertNotIn(series, seen)
                seen.add(series)
                float(value)
                name = series.partition("{")[0]
                self.assertIn(name, types)
                self.assertEqual(name.endswith("_total"), types[name] == "counter", name)

    def test_admin(self):
        hub, wb = self.start()
        self.pull_manifest(wb, REPO, "main")
        path = f"/admin/v1/references/{REPO}:main"
        self.check_error(wb.request("DELETE", path, {"Origin": "http://evil.example"}), 403,
                         "DENIED")
        self.check_error(wb.request("DELETE", path, {"Host": "evil.example"}), 403, "DENIED")
        self.check_error(wb.request("DELETE", f"/admin/v1/references/{REPO}"), 400,
                         "MANIFEST_INVALID")
        self.assertIn("main", json.loads(wb.get(f"/v2/{REPO}/tags/list")[2])["tags"])
        status, _, body = wb.request("DELETE", path)
        self.assertEqual((status, json.loads(body)["removed"]), (200, f"{REPO}:main"))
        self.assertNotIn("main", json.loads(wb.get(f"/v2/{REPO}/tags/list")[2])["tags"])
        self.check_error(wb.request("DELETE", path), 404, "MANIFEST_UNKNOWN")

    def test_one_line_a_request_and_no_secrets(self):
        """peer_bug_77"""
        hub = self.make_hub()
        hub.add_token(TOKEN)
        hub.add_repo("Org/Name", {**SMALL, "model.safetensors": WEIGHTS}, private=True,
                     tokens=[TOKEN])
        wb = self.make_weighbridge(hub.url, env={"HF_TOKEN": TOKEN,
                                                 "WEIGHBRIDGE_LOG_LEVEL": "debug"})
        path = self.path(wb)
        status, headers, body = wb.get(path + "?sig=planted-query",
                                       {"Authorization": "Bearer planted-credential",
                                        "User-Agent": 'te"st=1\tx'})
        self.assertEqual((status, body == WEIGHTS), (200, True))
        hub.fault("cdn_status", status=403)
        wb.get(f"/v2/{REPO}/manifests/nothing?token=planted-query")
        with Raw(wb) as raw:
            raw.send("GET http://user:planted-password@h/v2/?planted=1 HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(raw.answer()[0], 400)
        metrics = wb.get("/metrics")[2].decode()
        self.assertEqual(wb.stop(), 0)
        lines = wb.log_lines(req=headers["X-Request-Id"])
        self.assertEqual(len(lines), 1, lines)
        for field in ("event=request", "method=GET", f"path={path}", "status=200",
                      f"bytes={len(WEIGHTS)}", "peer=127.0.0.1", f"repo={REPO}",
                      f"digest={sha256(WEIGHTS)}", "cache=fill", "route=blob"):
            self.assertIn(field, lines[0].split())
        self.assertEqual(len(wb.log_lines(event="transfer", digest=sha256(WEIGHTS))), 1)
        for secret in (TOKEN, "planted", "Signature=", "X-Amz-", "sig="):
            self.assertNotIn(secret, wb.log)
            self.assertNotIn(secret, metrics)

    def test_non_loopback_needs_rules(self):
        with tempfile.TemporaryDirectory() as scratch:
            got = subprocess.run([binary(), "serve", "--listen", "0.0.0.0:0", "--data", scratch],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                 timeout=60, check=False)
        self.assertNotEqual(got.returncode, 0)
        self.assertEqual(got.stdout, "")
        self.assertRegex(got.stderr, r"0\.0\.0\.0.*\"access\".*WEIGHBRIDGE_ACCESS")

    def test_rules(self):
        """peer_bug_68"""
        hub = self.make_hub()
        hub.add_repo("Org/Name", {**SMALL, "model.safetensors": WEIGHTS})
        hub.add_repo("Org/Closed", {**SMALL, "model.safetensors": WEIGHTS})
        wb = self.make_weighbridge(hub.url, config={"access": [
            {"repositories": "hf/org/closed", "allow": []},
            {"repositories": "**", "allow": ["pull"]}]})
        self.pull_manifest(wb, REPO, "main")
        before = hub.count()
        for path in ("manifests/main", f"blobs/{sha256(WEIGHTS)}", "tags/list",
                     f"referrers/{sha256(WEIGHTS)}"):
            self.check_error(wb.get(f"/v2/hf/Org/Closed/{path}"), 403, "DENIED")
        self.assertEqual(hub.count(), before)
        self.check_error(wb.request("DELETE", f"/admin/v1/references/{REPO}:main"), 403, "DENIED")


if __name__ == "__main__":
    unittest.main()
