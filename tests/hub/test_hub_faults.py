"""Every switch of the stand-in, seen from the outside with raw HTTP.

Nothing here decides by sleeping: stalls and holds are seen by what has arrived and
by the stand-in's own counts.
"""

import hashlib
import http.client
import json
import os
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hub import StandInHub  # noqa: E402
from hub_case import BIG, CONFIG, HubCase, send, sha1_blob, start  # noqa: E402

SIZE = len(BIG)


class CdnFaults(HubCase):
    def test_cut(self):
        for settings, length in (({"bytes": 1000}, 1000), ({"bytes": 0}, 0),
                                 ({"fraction": 0.1}, SIZE // 10),
                                 ({"fraction": 0.5}, SIZE // 2),
                                 ({"fraction": 0.99}, SIZE * 99 // 100),
                                 ({"offset": 70_000}, 70_000), ({"offset": -1}, SIZE - 1)):
            for path in ("w.bin", "disk.safetensors"):
                fault = self.hub.fault("cdn_cut", times=1, **settings)
                got = self.cdn(path)
                self.assertEqual((got.status, got["Content-Length"]), (200, str(SIZE)))
                self.assertTrue(got.cut)
                self.assertEqual(got.body, BIG[:length], settings)
                self.assertEqual(fault.hits, 1)
                self.assertEqual(self.cdn(path).body, BIG)
        record = self.hub.requests("cdn")[0]
        self.assertTrue(record.aborted)

    def test_cut_in_a_range(self):
        fault = self.hub.fault("cdn_cut", offset=500, times=1)
        self.assertEqual(self.cdn(Range="bytes=600-").body, BIG[600:])
        self.assertEqual(fault.hits, 0)
        self.assertEqual(self.cdn(Range="bytes=400-").body, BIG[400:500])
        self.hub.fault("cdn_cut", bytes=10, times=1)
        self.assertEqual(self.cdn(Range="bytes=600-").body, BIG[600:610])

    def test_reset_and_drop(self):
        self.hub.fault("cdn_reset", bytes=100_000, times=1)
        connection, answer = start(self.signed())
        with self.assertRaises((ConnectionResetError, http.client.IncompleteRead)):
            while answer.read(1000):
                pass
        connection.close()
        self.hub.fault("cdn_drop", times=1)
        with self.assertRaises(http.client.RemoteDisconnected):
            self.cdn()
        self.assertEqual(self.cdn().status, 200)

    def test_flip(self):
        for offset in (0, 12_345, SIZE - 1, -1):
            self.hub.fault("cdn_flip", offset=offset, times=1)
            for path in ("w.bin", "disk.safetensors"):
                got = self.cdn(path)
                self.assertEqual(len(got.body), SIZE)
                wrong = [i for i in range(0, SIZE, 1) if got.body[i] != BIG[i]] \
                    if got.body != BIG else []
                self.assertEqual(wrong, [offset % SIZE] if path == "w.bin" else [])
        fault = self.hub.fault("cdn_flip", offset=50, xor=1)
        self.assertEqual(self.cdn(Range="bytes=51-60").body, BIG[51:61])
        got = self.cdn(Range="bytes=45-55").body
        self.assertEqual(got[5], BIG[50] ^ 1)
        self.assertEqual(fault.hits, 1)

    def test_length(self):
        self.hub.fault("cdn_length", delta=10, times=1)
        got = self.cdn()
        self.assertEqual((got["Content-Length"], got.cut, got.body), (str(SIZE + 10), True, BIG))
        self.hub.fault("cdn_length", delta=-10, times=1)
        got = self.cdn()
        self.assertEqual((got["Content-Length"], got.body), (str(SIZE - 10), BIG[:-10]))

    def test_range_lies(self):
        self.hub.fault("cdn_total", delta=1, times=1)
        self.assertEqual(self.cdn(Range="bytes=0-1")["Content-Range"], f"bytes 0-1/{SIZE + 1}")
        self.hub.fault("cdn_total", total="*", times=1)
        self.assertEqual(self.cdn(Range="bytes=0-1")["Content-Range"], "bytes 0-1/*")
        self.hub.fault("cdn_ignore_range", times=1)
        got = self.cdn(Range="bytes=5-9")
        self.assertEqual((got.status, got.body, got["Content-Range"]), (200, BIG, None))
        self.hub.fault("cdn_range_start", delta=7, times=1)
        got = self.cdn(Range="bytes=5-9")
        self.assertEqual((got["Content-Range"], got.body),
                         (f"bytes 12-16/{SIZE}", BIG[12:17]))
        self.hub.fault("cdn_range_start", delta=7, body="asked", times=1)
        got = self.cdn(Range="bytes=5-9")
        self.assertEqual((got["Content-Range"], got.body), (f"bytes 12-16/{SIZE}", BIG[5:10]))

    def test_stall(self):
        self.hub.fault("cdn_stall", seconds=3600, bytes=1000, times=1)
        connection, answer = start(self.signed())
        self.assertEqual(answer.read(1000), BIG[:1000])
        connection.sock.settimeout(0.2)
        with self.assertRaises(socket.timeout):
            answer.read(1)
        connection.close()
        self.hub.fault("cdn_stall", seconds=0.1, offset=1000, times=1)
        began = time.monotonic()
        self.assertEqual(self.cdn().body, BIG)
        self.assertGreaterEqual(time.monotonic() - began, 0.1)

    def test_throttle(self):
        self.hub.fault("cdn_throttle", rate=200_000, times=1)
        began = time.monotonic()
        got = self.cdn(Range="bytes=0-99999")
        self.assertEqual(got.body, BIG[:100_000])
        self.assertGreaterEqual(time.monotonic() - began, 0.4)

    def test_status(self):
        for status in (403, 404, 429, 500, 503):
            fault = self.hub.fault("cdn_status", status=status, headers={"Retry-After": "3"},
                                   times=1)
            got = self.cdn()
            self.assertEqual((got.status, got["Retry-After"]), (status, "3"))
            self.assertEqual(fault.hits, 1)
        self.assertEqual(self.cdn().status, 200)

    def test_headers(self):
        self.hub.fault("cdn_headers", set={"X-Linked-Etag": '"forged"', "ETag": '"other"'},
                       drop=["Accept-Ranges"])
        got = self.cdn()
        self.assertEqual(got["X-Linked-Etag"], '"forged"')
        self.assertEqual(got.headers.get_all("ETag"), ['"other"'])
        self.assertIsNone(got["Accept-Ranges"])

    def test_signed_urls(self):
        self.hub.fault("url_expired", times=1)
        self.assertEqual(send(self.signed()).status, 403)
        self.hub.fault("url_uses", uses=2, times=1)
        url = self.signed()
        self.assertEqual([send(url, Range="bytes=0-0").status for _ in range(3)],
                         [206, 206, 403])
        self.assertEqual(send(self.signed()).status, 200)

    def test_limits(self):
        fault = self.hub.fault("cdn_status", status=500, path="*.safetensors", repo="org/*",
                               skip=1, times=2)
        self.assertEqual(self.cdn("w.bin").status, 200)
        self.assertEqual([self.cdn("disk.safetensors").status for _ in range(4)],
                         [200, 500, 500, 200])
        self.assertEqual(fault.hits, 2)
        self.hub.fault("cdn_status", status=500, repo="other/*")
        self.hub.fault("cdn_status", status=503, method="HEAD")
        self.assertEqual(self.cdn().status, 200)
        self.assertEqual(self.cdn(method="HEAD").status, 503)


class Holds(HubCase):
    def pull(self, results, url):
        results.append(send(url).body)

    def test_body_held_until_released(self):
        hold = self.hub.hold("cdn", bytes=1000)
        results, threads = [], []
        for _ in range(3):
            threads.append(threading.Thread(target=self.pull, args=(results, self.signed())))
            threads[-1].start()
        self.assertTrue(hold.wait_held(3))
        self.assertEqual(hold.waiting, 3)
        self.assertEqual(self.hub.bytes_sent("cdn"), 3000)
        self.assertEqual(results, [])
        hold.release(1)
        self.assertTrue(self.hub.wait_requests(1, host="cdn", done=True))
        self.assertEqual(hold.waiting, 2)
        hold.release()
        for thread in threads:
            thread.join(20)
        self.assertEqual(results, [BIG] * 3)
        self.assertEqual(self.cdn().body, BIG)

    def test_held_before_the_headers(self):
        hold = self.hub.hold("cdn", before=True, times=1)
        results = []
        thread = threading.Thread(target=self.pull, args=(results, self.signed()))
        thread.start()
        self.assertTrue(hold.wait_held())
        self.assertIsNone(self.hub.requests("cdn")[0].status)
        hold.remove()
        thread.join(20)
        self.assertEqual(results, [BIG])

    def test_hub_answer_held(self):
        hold = self.hub.hold("hub", kind="tree")
        self.assertEqual(self.get("/api/models/Org/Name").status, 200)
        got = []
        thread = threading.Thread(target=lambda: got.append(self.tree()))
        thread.start()
        self.assertTrue(hold.wait_held(1))
        self.assertEqual(got, [])
        hold.release()
        thread.join(20)
        self.assertEqual(got[0].status, 200)

    def test_stop_ends_holds_and_stalls(self):
        hub = StandInHub()
        hub.add_repo("a/b", {"w.bin": BIG})
        hub.start()
        hold = hub.hold("cdn")
        hub.fault("hub_stall", seconds=3600, kind="tree")
        url = send(f"{hub.url}/a/b/resolve/main/w.bin")["Location"]
        for target in (url, f"{hub.url}/api/models/a/b/tree/main"):
            threading.Thread(target=self.swallow, args=(target,), daemon=True).start()
        self.assertTrue(hold.wait_held())
        self.assertTrue(hub.wait_requests(1, kind="tree"))
        hub.stop()
        self.assertTrue(hub.wait_requests(3, done=True, timeout=10))

    def test_stop_and_start_again(self):
        urls, signed = (self.hub.url, self.hub.cdn_url), self.signed()
        self.hub.stop()
        for url in (urls[0], signed):
            with self.assertRaises(ConnectionRefusedError):
                send(url)
        self.hub.start()
        self.assertEqual((self.hub.url, self.hub.cdn_url), urls)
        self.assertEqual(send(signed).body, BIG)
        self.hub.fault("hub_stall", seconds=0.01, times=1)
        self.assertEqual(self.tree().status, 200)

    @staticmethod
    def swallow(url):
        try:
            send(url)
        except (OSError, http.client.HTTPException):
            pass

    def test_close_connections(self):
        hold = self.hub.hold("cdn", bytes=1000)
        connection, answer = start(self.signed())
        self.assertEqual(answer.read(1000), BIG[:1000])
        self.assertTrue(hold.wait_held())
        self.hub.close_connections("cdn")
        with self.assertRaises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
        connection.close()


class HubFaults(HubCase):
    def test_status_per_kind(self):
        asks = {"info": lambda: self.get("/api/models/Org/Name"), "tree": self.tree,
                "refs": lambda: self.get("/api/models/Org/Name/refs"),
                "resolve": lambda: self.resolve("config.json"),
                "small": lambda: self.get(
                    f"/api/resolve-cache/models/Org/Name/{self.main}/config.json")}
        for kind, ask in asks.items():
            for status in (401, 403, 404, 429, 500, 503):
                self.hub.fault("hub_status", kind=kind, status=status, times=1)
                for other, other_ask in asks.items():
                    if other != kind:
                        self.assertIn(other_ask().status, (200, 307), other)
                got = ask()
                self.assertEqual(got.status, status, kind)
                if status == 403:
                    self.assertEqual(got["X-Error-Code"], "GatedRepo")
                if status == 429:
                    self.assertEqual(got["Retry-After"], "1")
                    self.assertIn(";r=0;t=1", got["RateLimit"])
                self.assertIn(ask().status, (200, 307))

    def test_status_in_detail(self):
        self.hub.fault("hub_status", kind="resolve", status=429, retry_after=7, reset=55,
                       path="w.bin", method="HEAD")
        got = self.resolve("w.bin", method="HEAD")
        self.assertEqual((got["Retry-After"], got["RateLimit"]), ("7", '"resolvers";r=0;t=55'))
        self.assertEqual(self.resolve("w.bin").status, 302)
        self.hub.clear_faults()
        self.hub.fault("hub_status", status=404, code="", message="odd", body="<html>")
        got = self.tree()
        self.assertEqual((got.status, got["X-Error-Code"], got.body), (404, None, b"<html>"))

    def test_headers(self):
        other = "f" * 40
        self.hub.fault("hub_headers", kind="resolve", path="w.bin", times=1, set={
            "X-Repo-Commit": other, "X-Linked-Etag": '"bad"', "X-Linked-Size": 5})
        got = self.resolve("w.bin")
        self.assertEqual(got.headers.get_all("X-Repo-Commit"), [other])
        self.assertEqual(got.headers.get_all("X-Linked-ETag"), ['"bad"'])
        self.assertEqual(got["X-Linked-Size"], "5")
        self.hub.fault("hub_headers", kind="resolve", times=1,
                       drop=["x-repo-commit", "x-linked-etag", "x-linked-size"])
        got = self.resolve("w.bin")
        for name in ("X-Repo-Commit", "X-Linked-ETag", "X-Linked-Size"):
            self.assertIsNone(got[name])
        self.hub.fault("hub_headers", kind="small", drop=["etag"])
        self.assertIsNone(self.get(self.resolve("config.json")["Location"])["ETag"])

    def test_stall_and_drop(self):
        self.hub.fault("hub_stall", kind="info", seconds=0.1, times=1)
        began = time.monotonic()
        self.assertEqual(self.get("/api/models/Org/Name").status, 200)
        self.assertGreaterEqual(time.monotonic() - began, 0.1)
        self.hub.fault("hub_drop", kind="info", times=1)
        with self.assertRaises(http.client.RemoteDisconnected):
            self.get("/api/models/Org/Name")

    def test_bad_bodies(self):
        for mode in ("malformed", "empty", "html"):
            self.hub.fault("hub_body", kind="tree,info", mode=mode, times=2)
            for got in (self.tree(), self.get("/api/models/Org/Name")):
                self.assertFalse(got.cut)
                with self.assertRaises(ValueError):
                    json.loads(got.body)
        self.hub.fault("hub_body", mode="raw", raw="[1,2]", times=1)
        self.assertEqual(self.tree().json, [1, 2])
        self.hub.fault("hub_body", mode="truncated", times=1)
        got = self.tree()
        self.assertTrue(got.cut)
        self.assertEqual(len(got.body), int(got["Content-Length"]) // 2)

    def test_hostile_paths(self):
        for path in ("../x", "/etc/x", "a\0b", "a\\b", "a/../../x", ""):
            self.hub.fault("tree_add", entry={"path": path})
            self.assertEqual(self.tree().json[-1]["path"], path)
            info = self.get("/api/models/Org/Name").json
            self.assertEqual(info["siblings"][-1], {"rfilename": path})
            self.hub.clear_faults()
        self.hub.fault("tree_add", kind="tree", entry={"path": "../x"})
        self.assertNotIn("../x", str(self.get("/api/models/Org/Name").json))

    def rows(self):
        return {r["path"]: r for r in self.tree().json}

    def test_lfs_oid(self):
        self.hub.fault("tree_lfs_oid", value="masked", times=1)
        self.assertEqual(self.rows()["w.bin"]["lfs"]["oid"], "*" * 64)
        self.hub.fault("tree_lfs_oid", value="absent", file="w.*", times=1)
        rows = self.rows()
        self.assertNotIn("oid", rows["w.bin"]["lfs"])
        self.assertIn("oid", rows["huge.gguf"]["lfs"])
        self.hub.fault("tree_lfs_oid", value="1" * 64, times=1)
        self.assertEqual(self.rows()["w.bin"]["lfs"]["oid"], "1" * 64)
        self.assertEqual(self.rows()["w.bin"]["lfs"]["oid"], hashlib.sha256(BIG).hexdigest())

    def test_edit_and_duplicate(self):
        self.hub.fault("tree_edit", file="w.bin", set={"size": 1}, drop=["xetHash"], times=1)
        row = self.rows()["w.bin"]
        self.assertEqual(row["size"], 1)
        self.assertNotIn("xetHash", row)
        self.hub.fault("tree_duplicate", file="w.bin", times=1)
        self.assertEqual([r["path"] for r in self.tree().json].count("w.bin"), 2)

    def test_links(self):
        self.hub.fault("tree_loop", times=1)
        self.assertEqual(
            self.tree("recursive=true")["Link"],
            f'<{self.hub.url}/api/models/Org/Name/tree/main?recursive=true>; rel="next"')
        self.hub.fault("tree_next", url="http://127.0.0.2:1/x", times=1)
        self.assertEqual(self.tree()["Link"], '<http://127.0.0.2:1/x>; rel="next"')
        self.assertIsNone(self.tree()["Link"])

    def test_small_files(self):
        self.hub.fault("small_flip", path="config.json", times=1)
        where = self.resolve("config.json")["Location"]
        got = self.get(where)
        self.assertEqual(len(got.body), len(CONFIG))
        self.assertNotEqual(sha1_blob(got.body), sha1_blob(CONFIG))
        self.assertEqual(got["ETag"], f'"{sha1_blob(CONFIG)}"')
        self.hub.fault("small_cut", bytes=7, times=1)
        got = self.get(where)
        self.assertEqual((got.cut, got.body), (True, CONFIG[:7]))
        self.assertEqual(self.get(where).body, CONFIG)

    def test_locations(self):
        for url in ("file:///etc/passwd", "gopher://127.0.0.1/", "http://127.0.0.2:1/"):
            for path, status in (("w.bin", 302), ("config.json", 302)):
                self.hub.fault("resolve_location", url=url, times=1)
                got = self.resolve(path)
                self.assertEqual((got.status, got["Location"]), (status, url))
        url, seen = "/Org/Name/resolve/main/w.bin", set()
        self.hub.fault("redirect_loop", path="w.bin")
        for _ in range(5):
            got = self.get(url)
            self.assertEqual(got.status, 307)
            url = got["Location"]
            seen.add(url)
        self.assertEqual(len(seen), 5)
        self.assertEqual(self.resolve("disk.safetensors").status, 302)


class Control(HubCase):
    def command(self, **asked):
        return self.get("/_control", "POST", body=json.dumps(asked).encode())

    def test_switches_over_http(self):
        number = self.command(fault="cdn_status", status=503, times=5).json["id"]
        self.assertEqual(self.cdn().status, 503)
        self.assertEqual(self.get("/_faults").json[0]["hits"], 1)
        self.command(remove=number)
        self.assertEqual(self.cdn().status, 200)
        self.command(fault="cdn_status", status=503)
        self.command(clear=True)
        self.assertEqual(self.cdn().status, 200)
        self.command(options={"xet": False})
        self.assertIsNone(self.resolve("w.bin")["X-Xet-Hash"])
        url = self.signed()
        self.command(expire_urls=True)
        self.assertEqual(send(url).status, 403)
        got = self.command(move_branch="Org/Name", branch="main", commit="v1")
        self.assertEqual(got.json["commit"], self.old)

    def test_hold_over_http(self):
        number = self.command(fault="hub_hold", kind="refs").json["id"]
        got = []
        thread = threading.Thread(
            target=lambda: got.append(self.get("/api/models/Org/Name/refs")))
        thread.start()
        self.assertTrue(self.command(wait_held=number, count=1).json["ok"])
        self.command(release=number)
        thread.join(20)
        self.assertEqual(got[0].status, 200)

    def test_mistakes_are_told(self):
        for asked in ({"fault": "no_such"}, {"fault": "cdn_flip"}, {"options": {"x": 1}},
                      {"fault": "cdn_cut", "bites": 3}, {"what": 1}, {"release": 99}):
            self.assertEqual(self.command(**asked).status, 400, asked)
        self.assertEqual(self.get("/_control", "POST", body=b"{").status, 400)
        self.assertEqual(self.get("/_nothing").status, 404)


if __name__ == "__main__":
    unittest.main()
