#!/usr/bin/env python3
"""Every switch of the stand-in registry, seen from the outside with raw HTTP.

Nothing here decides by sleeping: stalls and holds are seen by what has arrived and by the
stand-in's own counts.
"""

import email.utils
import gzip
import http.client
import os
import socket
import ssl
import sys
import threading
import time
import unittest
from urllib.parse import urljoin

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from registry import OPTIONS, Authority, Sparse, StandInRegistry  # noqa: E402
from registry_case import LAYER, SIZE, RegistryCase, connect, send, start  # noqa: E402
from registry_faults import FAULTS  # noqa: E402
from registry_content import OCI_MANIFEST  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ZEROS = "sha256:" + "0" * 64


class Complete(unittest.TestCase):
    def test_each_switch_is_tested_and_described(self):
        with open(__file__, encoding="utf-8") as f:
            tests = f.read()
        with open(os.path.join(HERE, "README.md"), encoding="utf-8") as f:
            readme = f.read()
        for name in FAULTS:
            used = r"registry\.hold\(" if name == "hold" else rf'(fault|once)\("{name}"'
            self.assertRegex(tests, used)
            self.assertRegex(readme, rf"`{name}[` ]")
        with open(os.path.join(HERE, "test_registry.py"), encoding="utf-8") as f:
            tests += f.read()
        for name in OPTIONS:
            self.assertRegex(tests, rf'{name}=|"{name}"')
            self.assertIn(f"`{name}`", readme)


class FaultCase(RegistryCase):
    def once(self, name, **settings):
        return self.registry.fault(name, times=1, **settings)

    def start_blob(self, **headers):
        return start(f"{self.registry.url}/v2/team/app/blobs/{self.layer}", **headers)

    def assert_silent(self, connection, answer):
        connection.sock.settimeout(0.2)
        with self.assertRaises(socket.timeout):
            answer.read(1)
        connection.close()


class Connections(FaultCase):
    def test_cut(self):
        for settings, length in (({"bytes": 1000}, 1000), ({}, 0), ({"fraction": 0.5}, SIZE // 2),
                                 ({"offset": 70_000}, 70_000), ({"offset": -1}, SIZE - 1)):
            fault = self.once("cut", kind="blob", **settings)
            got = self.blob()
            self.assertEqual((got.status, got["Content-Length"]), (200, str(SIZE)))
            self.assertTrue(got.cut)
            self.assertEqual(got.body, LAYER[:length], settings)
            self.assertEqual(fault.hits, 1)
            self.assertEqual(self.blob().body, LAYER)
        fault = self.once("cut", offset=500, kind="blob")
        self.assertEqual(self.blob(Range="bytes=600-").body, LAYER[600:])
        self.assertEqual(fault.hits, 0)
        self.assertEqual(self.blob(Range="bytes=400-").body, LAYER[400:500])
        self.once("cut", kind="manifest", fraction=0.5)
        got = self.manifest()
        self.assertEqual(got.body, self.image.body[:len(self.image.body) // 2])
        self.assertTrue(got.cut)

    def test_cut_on_the_cdn(self):
        self.registry.set_options(redirect_blobs=True)
        self.once("cut", kind="blob", bytes=10)
        url = self.blob()["Location"]
        self.assertEqual(send(url).body, LAYER[:10])
        self.assertEqual(send(url).body, LAYER)

    def test_reset_and_drop(self):
        self.once("reset", bytes=100_000)
        connection, answer = self.start_blob()
        with self.assertRaises((ConnectionResetError, http.client.IncompleteRead)):
            while answer.read(1000):
                pass
        connection.close()
        self.once("drop", host="registry", kind="manifest")
        with self.assertRaises(http.client.RemoteDisconnected):
            self.manifest()
        self.assertEqual(self.manifest().status, 200)

    def test_stall(self):
        self.once("stall", seconds=3600, bytes=1000)
        connection, answer = self.start_blob()
        self.assertEqual(answer.read(1000), LAYER[:1000])
        self.assert_silent(connection, answer)
        self.once("stall", seconds=0.1, kind="manifest")
        began = time.monotonic()
        self.assertEqual(self.manifest().body, self.image.body)
        self.assertGreaterEqual(time.monotonic() - began, 0.1)

    def test_stall_before_the_headers(self):
        self.once("stall", seconds=3600, before=True)
        connection = connect(self.registry.url)
        connection.request("GET", "/v2/team/app/manifests/v1")
        self.assertTrue(self.registry.wait_requests(1))
        connection.sock.settimeout(0.2)
        with self.assertRaises(socket.timeout):
            connection.getresponse()
        connection.close()
        self.assertIsNone(self.registry.requests()[0].status)

    def test_slow_head(self):
        self.once("slow_head", interval=0.001, step=10)
        began = time.monotonic()
        self.assertEqual(self.manifest().body, self.image.body)
        self.assertGreaterEqual(time.monotonic() - began, 0.02)
        self.once("slow_head", interval=3600)
        with socket.create_connection(self.registry.address("registry"), 20) as sock:
            sock.sendall(b"GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(sock.recv(100), b"H")

    def test_throttle_and_rate(self):
        self.once("throttle", rate=200_000)
        for options in ({}, {"rate": 200_000}, {"rate": None, "total_rate": 200_000}):
            self.registry.set_options(**options)
            began = time.monotonic()
            got = self.blob(Range="bytes=0-99999")
            self.assertEqual(got.body, LAYER[:100_000])
            self.assertGreaterEqual(time.monotonic() - began, 0.35)

    def test_rates_of_several(self):
        def seconds():
            began = time.monotonic()
            threads = [threading.Thread(target=self.blob, kwargs={"Range": "bytes=0-99999"})
                       for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return time.monotonic() - began
        self.registry.set_options(total_rate=400_000)
        self.assertGreaterEqual(seconds(), 0.8)
        self.registry.set_options(total_rate=None, rate=400_000)
        self.assertGreaterEqual(seconds(), 0.15)
        self.assertEqual(self.registry.bytes_sent(), 800_000)

    def test_hold(self):
        hold = self.registry.hold(kind="blob", bytes=1000)
        results, threads = [], []
        for _ in range(3):
            threads.append(threading.Thread(target=lambda: results.append(self.blob().body)))
            threads[-1].start()
        self.assertTrue(hold.wait_held(3))
        self.assertEqual((hold.waiting, self.registry.bytes_sent()), (3, 3000))
        hold.release(1)
        self.assertTrue(self.registry.wait_requests(1, done=True))
        self.assertEqual(hold.waiting, 2)
        hold.release()
        for thread in threads:
            thread.join(20)
        self.assertEqual(results, [LAYER] * 3)

    def test_a_barrier_that_opens_itself(self):
        hold = self.registry.hold(before=True, until=3)
        results = []
        threads = [threading.Thread(target=lambda: results.append(self.manifest().status))
                   for _ in range(3)]
        for thread in threads[:2]:
            thread.start()
        self.assertTrue(hold.wait_held(2))
        self.assertEqual((results, hold.waiting), ([], 2))
        threads[2].start()
        for thread in threads:
            thread.join(20)
        self.assertEqual(results, [200] * 3)
        self.assertEqual(self.manifest().status, 200)

    def test_close_quietly(self):
        self.once("close_quietly")
        connection = connect(self.registry.url)
        connection.request("GET", "/v2/")
        answer = connection.getresponse()
        self.assertEqual((answer.read(), answer.headers["Connection"]), (b"{}", None))
        self.assertEqual(connection.sock.recv(1), b"")
        connection.close()

    def test_refuse_and_blackhole(self):
        url = self.registry.url
        connection, _ = self.start_blob()
        self.registry.refuse("registry")
        connection.close()
        with self.assertRaises(ConnectionRefusedError):
            send(url)
        self.assertEqual(self.registry.connections("registry")["accepted"], 0)
        self.registry.serve("registry")
        self.assertEqual(self.manifest().status, 200)
        self.registry.blackhole("registry")
        for _ in range(2):
            with self.assertRaises(TimeoutError):
                socket.create_connection(self.registry.address("registry"), 0.2)
        self.registry.serve("registry")
        self.assertEqual((self.registry.url, self.manifest().status), (url, 200))
        self.registry.blackhole("cdn")

    def test_connections(self):
        connection = connect(self.registry.url)
        for _ in range(3):
            connection.request("GET", "/v2/")
            connection.getresponse().read()
        self.assertEqual(self.registry.connections("registry"),
                         {"accepted": 1, "open": 1, "most": 1, "handshakes_failed": 0})
        self.assertEqual({r.connection for r in self.registry.requests()}, {1})
        self.get("/v2/")
        self.assertEqual({r.connection for r in self.registry.requests()}, {1, 2})
        self.registry.close_connections("registry")
        self.assertEqual(connection.sock.recv(1), b"")
        connection.close()
        self.assertEqual(self.registry.connections("registry")["accepted"], 2)
        self.assertEqual(self.registry.connections("registry")["most"], 2)


class Answers(FaultCase):
    def test_status(self):
        for status in (401, 403, 404, 429, 500, 502, 503):
            self.once("status", status=status, kind="manifest")
            self.assertEqual(self.blob(Range="bytes=0-0").status, 206)
            got = self.manifest()
            self.assertEqual((got.status, got.json["errors"][0]["code"]), (status, "SWITCHED_ON"))
            self.assertEqual(self.manifest().status, 200)
        self.registry.fault("status", status=503, html=True, skip=1, times=2,
                            headers={"Server": "balancer"})
        got = [self.manifest() for _ in range(4)]
        self.assertEqual([g.status for g in got], [200, 503, 503, 200])
        self.assertIn(b"<h1>503 Service Unavailable</h1>", got[1].body)
        self.assertEqual((got[1]["Content-Type"], got[1]["Server"]), ("text/html", "balancer"))
        self.once("status", status=500, body="panic", code="X")
        self.assertEqual(self.manifest().body, b"panic")
        self.once("status", status=404, code="NAME_UNKNOWN", message="who")
        self.assertEqual(self.manifest().json["errors"],
                         [{"code": "NAME_UNKNOWN", "message": "who"}])

    def test_retry_after(self):
        self.once("status", status=429, retry_after=7)
        self.assertEqual(self.manifest()["Retry-After"], "7")
        self.once("status", status=429)
        self.assertIsNone(self.manifest()["Retry-After"])
        self.once("status", status=503, retry_after="date:100")
        then = email.utils.parsedate_to_datetime(self.manifest()["Retry-After"])
        self.assertAlmostEqual(then.timestamp(), time.time() + 100, delta=10)
        self.once("status", status=429, retry_after="soon")
        self.assertEqual(self.manifest()["Retry-After"], "soon")

    def test_401_in_mid_way(self):
        self.registry.set_options(auth="bearer")
        token = self.token()
        self.registry.fault("status", status=401, kind="blob", skip=1, times=1)
        got = [self.blob(Range="bytes=0-9", Authorization=token) for _ in range(3)]
        self.assertEqual([g.status for g in got], [206, 401, 206])
        self.assertIn("Bearer realm=", got[1]["WWW-Authenticate"])

    def test_raw(self):
        self.once("raw", text="SSH-2.0-OpenSSH_9.2\r\n")
        with self.assertRaises(http.client.BadStatusLine):
            self.manifest()
        self.once("raw", text="HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        self.assertEqual(self.blob().body, b"ok")

    def test_empty(self):
        for kind, ask in (("manifest", self.manifest), ("blob", self.blob)):
            self.once("empty", kind=kind)
            got = ask()
            self.assertEqual((got.status, got["Content-Length"], got.body), (200, "0", b""))
            self.once("empty", kind=kind, status=204)
            got = ask()
            self.assertEqual((got.status, got["Content-Length"], got.body), (204, None, b""))
            self.assertGreater(len(ask().body), 0)

    def test_replace(self):
        self.once("replace", text="<html>", type="text/html", kind="manifest")
        got = self.manifest()
        self.assertEqual((got.status, got["Content-Type"], got.body, got["Content-Length"]),
                         (200, "text/html", b"<html>", "6"))
        self.once("replace", text="{}", kind="manifest")
        got = self.manifest()
        self.assertEqual((got["Content-Type"], got.body), (OCI_MANIFEST, b"{}"))

    def test_endless(self):
        for framing in ("chunked", "close"):
            self.once("endless", framing=framing, kind="manifest")
            connection, answer = start(self.registry.url + "/v2/team/app/manifests/v1")
            self.assertIsNone(answer.headers["Content-Length"])
            self.assertEqual(answer.read(len(self.image.body)), self.image.body)
            for _ in range(5):
                self.assertEqual(answer.read(1_000_000), b" " * 1_000_000)
            answer.close()
            connection.close()
            self.once("endless", framing=framing, limit=SIZE + 10)
            got = self.blob()
            self.assertEqual((got.cut, got.body), (False, LAYER + b" " * 10))
            self.once("endless", framing=framing, limit=SIZE)
            got = self.blob(Range="bytes=100-")
            self.assertEqual((got.status, got.body), (206, LAYER[100:] + b" " * 100))
        self.assertTrue(self.registry.wait_requests(6, done=True))

    def test_headers(self):
        self.once("headers", set={"Docker-Content-Digest": ZEROS, "X-New": 1}, drop=["etag"])
        got = self.manifest()
        self.assertEqual(got.headers.get_all("Docker-Content-Digest"), [ZEROS])
        self.assertEqual((got["X-New"], got["ETag"]), ("1", None))
        self.once("digest_header")
        self.assertEqual(self.manifest(method="HEAD")["Docker-Content-Digest"], ZEROS)
        self.once("digest_header", value="sha256:short")
        self.assertEqual(self.manifest()["Docker-Content-Digest"], "sha256:short")
        self.once("media_type", value="text/html")
        self.assertEqual(self.manifest()["Content-Type"], "text/html")
        self.once("pad_head", bytes=10_000)
        self.assertEqual(sum(map(len, self.manifest().headers.get_all("X-Pad"))), 10_000)

    def test_many_headers(self):
        self.once("pad_head", bytes=2_000_000)
        with self.assertRaises(http.client.HTTPException):
            self.manifest()


class Bodies(FaultCase):
    def test_flip(self):
        for offset in (0, SIZE - 1, -1):
            self.once("flip", offset=offset, kind="blob")
            got = self.blob().body
            at = offset % SIZE
            self.assertEqual(got[at], LAYER[at] ^ 0xFF)
            self.assertEqual(got[:at] + got[at + 1:], LAYER[:at] + LAYER[at + 1:])
        fault = self.once("flip", offset=50, xor=1)
        self.assertEqual(self.blob(Range="bytes=51-60").body, LAYER[51:61])
        self.assertEqual(self.blob(Range="bytes=50-50").body, bytes([LAYER[50] ^ 1]))
        self.assertEqual(fault.hits, 1)
        self.once("flip", offset=3)
        got = self.manifest().body
        self.assertEqual((got[3], got[4:]), (self.image.body[3] ^ 0xFF, self.image.body[4:]))

    def test_truncate_and_append(self):
        self.once("truncate", kind="blob", bytes=1000)
        got = self.blob()
        self.assertEqual((got["Content-Length"], got.cut, got.body), ("1000", False, LAYER[:1000]))
        self.once("truncate", fraction=0.25)
        self.assertEqual(len(self.blob().body), SIZE // 4)
        self.once("truncate")
        self.assertEqual(self.manifest().body, self.image.body[:len(self.image.body) // 2])
        self.once("append", bytes=5)
        got = self.blob()
        self.assertEqual((got["Content-Length"], got.body), (str(SIZE + 5), LAYER + b"+++++"))
        self.once("append", bytes=5)
        self.once("chunked")
        self.assertEqual(self.blob().body, LAYER + b"+++++")
        self.once("append", bytes=1)
        self.assertEqual(self.manifest(method="HEAD")["Content-Length"],
                         str(len(self.image.body) + 1))

    def test_length(self):
        self.once("length", delta=10)
        got = self.blob()
        self.assertEqual((got["Content-Length"], got.cut, got.body),
                         (str(SIZE + 10), True, LAYER))
        self.once("length", delta=-10)
        got = self.blob()
        self.assertEqual((got["Content-Length"], got.body), (str(SIZE - 10), LAYER[:-10]))
        self.once("length", delta=1)
        self.assertEqual(self.manifest(method="HEAD")["Content-Length"],
                         str(len(self.image.body) + 1))

    def test_chunked(self):
        self.registry.fault("chunked", times=3)
        got = self.manifest()
        self.assertEqual((got["Content-Length"], got["Transfer-Encoding"], got.body),
                         (None, "chunked", self.image.body))
        got = self.blob()
        self.assertEqual((got["Transfer-Encoding"], got.body), ("chunked", LAYER))
        got = self.blob(Range="bytes=7-99999")
        self.assertEqual((got.status, got.body), (206, LAYER[7:100_000]))
        self.once("chunked")
        self.once("cut", bytes=1000)
        got = self.blob()
        self.assertEqual((got.cut, got.body), (True, LAYER[:1000]))
        self.once("chunked", method="HEAD")
        self.assertIsNone(self.manifest(method="HEAD")["Content-Length"])

    def test_gzip(self):
        self.registry.fault("gzip", times=2)
        for got, data in ((self.manifest(), self.image.body), (self.blob(), LAYER)):
            self.assertEqual((got["Content-Encoding"], got["Content-Length"]),
                             ("gzip", str(len(got.body))))
            self.assertEqual(gzip.decompress(got.body), data)


class Ranges(FaultCase):
    def test_lies(self):
        self.once("ignore_range")
        got = self.blob(Range="bytes=5-9")
        self.assertEqual((got.status, got.body, got["Content-Range"], got["Accept-Ranges"]),
                         (200, LAYER, None, "bytes"))
        self.once("range_total", delta=1)
        self.assertEqual(self.blob(Range="bytes=0-1")["Content-Range"], f"bytes 0-1/{SIZE + 1}")
        self.once("range_total", total="*")
        self.assertEqual(self.blob(Range="bytes=0-1")["Content-Range"], "bytes 0-1/*")
        self.once("range_start", delta=7)
        got = self.blob(Range="bytes=5-9")
        self.assertEqual((got["Content-Range"], got.body), (f"bytes 12-16/{SIZE}", LAYER[12:17]))
        self.once("range_start", delta=7, body="asked")
        got = self.blob(Range="bytes=5-9")
        self.assertEqual((got["Content-Range"], got.body), (f"bytes 12-16/{SIZE}", LAYER[5:10]))
        self.once("no_content_range")
        got = self.blob(Range="bytes=5-9")
        self.assertEqual((got.status, got["Content-Range"], got.body), (206, None, LAYER[5:10]))
        self.once("status", status=416)
        self.assertEqual(self.blob(Range="bytes=5-9").status, 416)

    def test_on_the_cdn(self):
        self.registry.set_options(redirect_blobs=True)
        url = self.blob()["Location"]
        self.once("ignore_range", host="cdn")
        self.assertEqual([send(url, Range="bytes=5-9").status for _ in range(2)], [200, 206])
        self.registry.set_options(ranges=False)
        self.assertEqual(send(url, Range="bytes=5-9").status, 200)

    def test_huge(self):
        digest = self.repo.add_blob(Sparse(60 << 30))["digest"]
        connection, answer = start(f"{self.registry.url}/v2/team/app/blobs/{digest}")
        self.assertEqual(answer.headers["Content-Length"], str(60 << 30))
        self.assertEqual(answer.read(100), bytes(100))
        answer.close()
        connection.close()
        last = (60 << 30) - 1
        self.assertEqual(self.blob(digest, Range="bytes=-1")["Content-Range"],
                         f"bytes {last}-{last}/{60 << 30}")


class Redirects(FaultCase):
    OPTIONS = {"redirect_blobs": True}

    def test_location(self):
        for url in ("file:///etc/passwd", "http://nowhere.invalid/x", "gopher://x", "//x/y", ""):
            self.once("location", url=url or "#")
            got = self.blob()
            self.assertEqual((got.status, got["Location"]), (307, url or "#"))
        self.once("location", url="http://127.0.0.1:1/", status=302, kind="manifest")
        self.assertEqual(self.manifest().status, 302)

    def test_loop_and_chain(self):
        self.registry.fault("redirect_loop", times=3)
        url = f"{self.registry.url}/v2/team/app/blobs/{self.layer}"
        for _ in range(3):
            self.assertEqual(send(url)["Location"], url)
        self.once("redirect_loop", status=301, kind="manifest")
        self.assertEqual(self.manifest().status, 301)
        self.once("redirect_chain", hops=3)
        got, seen = send(url), 0
        while got.status == 307:
            url = urljoin(url, got["Location"])  # the CDN's own are relative
            got, seen = send(url), seen + 1
        self.assertEqual((seen, got.body), (4, LAYER))

    def test_signed_urls(self):
        self.once("url_expired")
        self.assertEqual(send(self.blob()["Location"]).status, 403)
        self.once("url_uses", uses=2)
        url = self.blob()["Location"]
        self.assertEqual([send(url, Range="bytes=0-0").status for _ in range(3)],
                         [206, 206, 403])
        self.assertEqual(send(self.blob()["Location"]).status, 200)
        self.once("status", status=403, host="cdn", kind="blob")
        got = send(self.blob()["Location"])
        self.assertEqual((got.status, got["Content-Type"]), (403, "application/xml"))


class TokensAndListings(FaultCase):
    def test_token_server(self):
        self.registry.set_options(auth="bearer")
        self.once("bad_token")
        self.assertEqual(self.manifest(Authorization=self.token()).status, 401)
        self.once("status", status=503, html=True, kind="token")
        self.assertEqual(self.token().status, 503)
        for text in ("{}", '{"token":null}', '{"token":5}', '{"token":""}', "<html>",
                     '{"token":"a\\r\\nX: y"}'):
            self.once("replace", text=text, host="token")
            got = send(self.registry.token_url + "/token")
            self.assertEqual((got.status, got.body.decode()), (200, text))
        self.once("drop", kind="token")
        with self.assertRaises(http.client.RemoteDisconnected):
            self.token()
        self.assertEqual(self.manifest(Authorization=self.token()).status, 200)
        self.registry.blackhole("token")

    def test_pages(self):
        path = "/v2/team/app/tags/list"
        self.once("page_loop")
        self.assertEqual(self.get(path + "?n=1")["Link"], f'<{path}?n=1>; rel="next"')
        self.once("page_next", url="http://elsewhere.example/", kind="referrers")
        self.assertIsNone(self.get(path)["Link"])
        got = self.get(f"/v2/team/app/referrers/{self.image.digest}")
        self.assertEqual(got["Link"], '<http://elsewhere.example/>; rel="next"')

    def test_limits(self):
        fault = self.registry.fault("status", status=500, repo="team/*", path="sha256:*",
                                    method="GET")
        self.assertEqual((self.blob().status, self.manifest().status), (500, 200))
        self.assertEqual(self.blob(method="HEAD").status, 200)
        self.assertEqual(self.manifest(self.secret.digest, "secret/app").status, 200)
        self.assertEqual(fault.hits, 1)
        fault.remove()
        self.assertEqual(self.blob().status, 200)
        for wrong in ({"name": "no_such"}, {"name": "flip"}, {"name": "cut", "colour": 1}):
            with self.assertRaises(ValueError):
                self.registry.fault(wrong.pop("name"), **wrong)
        with self.assertRaises(ValueError):
            self.registry.set_options(no_such=1)

    def test_errors_on_the_way_are_spared(self):
        self.registry.set_options(auth="bearer")
        cut = self.once("cut", kind="manifest", bytes=3)
        status = self.once("status", status=429, kind="blob", authorized=True)
        self.assertEqual((self.manifest().json["errors"][0]["code"], self.blob().status),
                         ("UNAUTHORIZED", 401))
        token = self.token()
        got = self.manifest(Authorization=token)
        self.assertEqual((got.cut, got.body), (True, self.image.body[:3]))
        self.assertEqual(self.blob(Authorization=token).status, 429)
        self.assertEqual((cut.hits, status.hits), (1, 1))
        self.once("status", status=503)
        self.once("truncate", bytes=1)
        self.assertEqual(self.manifest().body, b"{")

    def test_stop_ends_holds_and_stalls(self):
        registry = StandInRegistry()
        registry.add_repo("a").add_image(tag="v1")
        registry.start()
        hold = registry.hold(kind="manifest")
        registry.fault("stall", seconds=3600, kind="ping")
        for path in ("/v2/", "/v2/a/manifests/v1"):
            threading.Thread(target=self.swallow, args=(registry.url + path,),
                             daemon=True).start()
        self.assertTrue(hold.wait_held())
        self.assertTrue(registry.wait_requests(1, kind="ping"))
        registry.stop()
        self.assertTrue(registry.wait_requests(2, done=True, timeout=10))

    @staticmethod
    def swallow(url):
        try:
            send(url)
        except (OSError, http.client.HTTPException):
            pass


class Tls(FaultCase):
    OPTIONS = {"redirect_blobs": True}

    def make(self):
        self.authority = Authority(self.scratch)
        return StandInRegistry(authority=self.authority, tls=("registry", "token"),
                               **self.OPTIONS)

    def context(self, kind=None):
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        if kind:
            context.load_cert_chain(*self.authority.certificate(kind))
        return context

    def test_trusted_by_its_authority_alone(self):
        self.assertTrue(self.registry.url.startswith("https://"))
        self.assertEqual(self.manifest(context=self.context()).body, self.image.body)
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.manifest(context=ssl.create_default_context())
        self.assertTrue(self.registry.wait_requests(1, done=True))
        self.assertEqual(send(self.registry.url.replace("127.0.0.1", "localhost") + "/v2/",
                              context=self.context()).status, 200)

    def test_wrong_certificates(self):
        for kind, why in (("wrong_name", "IP address mismatch"), ("expired", "expired"),
                          ("not_yet", "not yet valid"), ("self_signed", "self.signed")):
            self.registry.use_certificate("registry", kind)
            with self.assertRaisesRegex(ssl.SSLCertVerificationError, why):
                self.manifest(context=self.context())
        self.registry.use_certificate("registry", "none")
        with self.assertRaisesRegex(ssl.SSLError, "alert"):
            self.manifest(context=self.context())
        self.registry.use_certificate("registry")
        self.assertEqual(self.manifest(context=self.context()).status, 200)
        self.assertEqual(self.registry.count(), 1)

    def test_a_clients_certificate(self):
        self.registry.use_certificate("registry", client=True)
        with self.assertRaises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            self.manifest(context=self.context())
        self.assertEqual(self.manifest(context=self.context("good")).status, 200)
        with self.assertRaises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            self.manifest(context=self.context("self_signed"))

    def test_no_tls_at_all(self):
        with self.assertRaises((ConnectionError, http.client.HTTPException)):
            send(self.registry.url.replace("https", "http"))
        with self.assertRaises(ssl.SSLError):
            send(self.registry.cdn_url.replace("http", "https"), context=self.context())
        self.assertEqual(self.registry.connections("registry")["handshakes_failed"], 1)

    def test_redirect_to_http(self):
        url = self.blob(context=self.context())["Location"]
        self.assertTrue(url.startswith("http://localhost:"), url)
        self.assertEqual(send(url).body, LAYER)

    def test_bodies(self):
        self.registry.set_options(redirect_blobs=False, rate=20_000_000)
        self.assertEqual(self.blob(context=self.context()).body, LAYER)
        self.once("cut", bytes=1000)
        got = self.blob(context=self.context())
        self.assertEqual((got.cut, got.body), (True, LAYER[:1000]))
        self.once("flip", offset=0)
        self.assertNotEqual(self.blob(context=self.context()).body, LAYER)
        self.once("chunked")
        self.assertEqual(self.blob(context=self.context()).body, LAYER)
        self.once("reset", bytes=10)
        with self.assertRaises((ConnectionError, ssl.SSLError, http.client.IncompleteRead)):
            got = self.blob(context=self.context())
            raise http.client.IncompleteRead(got.body) if got.cut else AssertionError(got.status)


if __name__ == "__main__":
    unittest.main()
