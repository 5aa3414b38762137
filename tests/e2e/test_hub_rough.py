"""The Hub's own API under rough treatment: files that stall, trickle, break and lie on their way,
crashes in the midst of it, lists that no repository has, and clients whose clocks run out."""

import http.client
import json
import os
import random
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hub_api_case import File, HubApiCase, StandInHub, git_blob_id  # noqa: E402
from hub_api import HubHandler  # noqa: E402
from hub_cdn import CdnHandler  # noqa: E402
from hub_repos import read_all  # noqa: E402
from standin_sources import Memory  # noqa: E402

MIB = 1 << 20
# A client of Python's, for good, when no answer has begun. Under TSan a crowd is slow, as nothing is
# that is shipped: there it shows only that all of them are answered.
GIVE_UP_S = 60 if os.environ.get("WEIGHBRIDGE_BUILD") == "tsan" else 10
WITHHELD = 65536   # of a file that has not been checked
TEXT = random.Random(1).randbytes(300_000)
WEIGHTS = random.Random(2).randbytes(3 * MIB)
FILES = {"config.json": b'{"a": 1}\n', "text.txt": File(TEXT, lfs=False), "w.safetensors": WEIGHTS}
TRUE = {**FILES, "text.txt": TEXT}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
LLAMA = {"User-Agent": "llama-cpp"}
# As they are by default: clients' clocks are held against them.
USUAL = {"connect_timeout": None, "stall_timeout": None, "revalidate_timeout": None,
         "retries": None}


class RoughHandler(HubHandler):
    """Small files' bodies take the CDN's switches, limited to kind=small; pages of a tree may be
    given as they are."""

    def send_small(self, entry, etag):
        if self.command != "GET" or not self.standin.faults.rules:
            return super().send_small(entry, etag)
        body = bytearray(read_all(entry.source))
        plan = self.make_plan(0, len(body), len(body), "cdn_")
        self.send_head(200, [("X-Repo-Commit", self.commit.id), ("Content-Type", "text/plain"),
                             ("ETag", etag), ("Content-Length", str(len(body)))])
        return self.send_body(Memory(body), 0, len(body), plan)

    def serve_tree(self):
        pages = self.standin.pages
        if pages is None:
            return super().serve_tree()
        at = int(self.query.get("cursor", ["0"])[0])
        body = pages(at)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if pages(at + 1) is not None:
            url = f"{self.standin.url}{self.raw}?recursive=true&cursor={at + 1}"
            headers.append(("Link", f'<{url}>; rel="next"'))
        return self.send_head(200, headers, body)


class RoughHub(StandInHub):
    HANDLERS = {"hub": RoughHandler, "cdn": CdnHandler}
    pages = None  # number -> the JSON of a page, or None


class Rough(HubApiCase):
    REPO = "Org/Model"

    def url(self, path, revision="main"):
        return f"/{self.REPO}/resolve/{revision}/{path}"

    def begin(self, files=None, options=None, **settings):
        self.hub = RoughHub(**(options or {})).start()
        self.addCleanup(self.end_hub, self.hub)
        self.repo = self.hub.add_repo(self.REPO, FILES if files is None else files)
        self.wb = self.make_server(self.hub, root={"timeouts": {"drain": "1s"}},
                                   **{"tag_ttl": "1h", **USUAL, **settings})

    def open(self, path, headers=None, method="GET"):
        """(seconds until the answer began, the answer, its connection)"""
        connection = http.client.HTTPConnection(self.wb.host, timeout=120)
        self.addCleanup(connection.close)
        begun = time.monotonic()
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return time.monotonic() - begun, answer, connection

    def take(self, path, headers=None):
        """(status, what came of the body, whether that was all, headers)"""
        _, answer, connection = self.open(path, headers)
        data = b""
        try:
            while piece := answer.read(65536):
                data += piece
            whole = len(data) == int(answer.headers["Content-Length"])
        except http.client.IncompleteRead as error:
            data, whole = data + error.partial, False
        except ConnectionError:
            whole = False
        connection.close()
        return answer.status, data, whole, answer.headers

    def rest(self, path, have):
        """What a client has after it resumed what it had, and whether it believes it complete."""
        status, data, whole, headers = self.take(self.url(path), {"Range": f"bytes={len(have)}-"})
        if status == 206 and whole:
            return have + data, True
        if status != 206:
            self.assertRegex(headers["X-Error-Message"], "must not be resumed")
        return have, False

    def is_never_wrong(self, path, have):
        got, complete = self.rest(path, have)
        if complete:
            self.assertTrue(got == TRUE[path], f"a complete wrong {path}")
        return complete


class Beginnings(Rough):
    """A wrong beginning gets no right end, whatever happened in between."""

    KINDS = {"text.txt": "small", "w.safetensors": "cdn"}

    def wrong_beginning(self, path):
        """Some of what a client got while the rest has not come."""
        kind = self.KINDS[path]
        self.hub.fault("cdn_flip", kind=kind, offset=500)
        self.hub.fault("cdn_stall", kind=kind, seconds=600,
                       offset=200_000 if kind == "small" else MIB)
        self.head(self.url(path))
        _, answer, connection = self.open(self.url(path))
        have = answer.read(100_000)
        self.assertEqual(len(have), 100_000)
        return have, connection

    def test_a_kill_in_the_midst(self):
        for path in self.KINDS:
            with self.subTest(path):
                self.begin()
                have, connection = self.wrong_beginning(path)
                self.wb.kill()
                connection.close()
                self.hub.clear_faults()
                self.wb.start()
                self.assertFalse(self.is_never_wrong(path, have))
                status, data, _, _ = self.take(self.url(path))
                self.assertEqual((status, data == TRUE[path]), (200, True))
                self.assertFalse(self.is_never_wrong(path, have))

    def test_and_the_file_comes_by_the_registry(self):
        self.begin()
        have, connection = self.wrong_beginning("text.txt")
        self.wb.kill()
        connection.close()
        self.hub.clear_faults()
        self.wb.start()
        self.pull_manifest(self.wb, "hf/org/model", "main")
        self.hub.reset()
        self.assertFalse(self.is_never_wrong("text.txt", have))
        self.assertEqual(self.take(self.url("text.txt"))[1], TEXT)
        self.assertEqual(self.hub.count("hub", kind="small", method="GET"), 0)

    def test_a_right_one_may_be_resumed_while_it_comes_and_later(self):
        self.begin()
        self.head(self.url("text.txt"))
        hold = self.hub.fault("cdn_hold", kind="small", offset=200_000)
        _, answer, connection = self.open(self.url("text.txt"))
        have = answer.read(100_000)
        connection.close()
        self.assertTrue(hold.wait_held(1))
        got, threads = self.together(1, lambda i: self.rest("text.txt", have))
        self.wait_connected(self.wb, 1)
        hold.release()
        threads[0].join()
        self.assertEqual(got[0], (TEXT, True))
        self.assertTrue(self.is_never_wrong("text.txt", have))
        self.assertEqual(self.hub.count("hub", kind="small", method="GET"), 1)

    def test_nothing_goes_out_of_a_short_one_that_is_wrong(self):
        self.begin({"short.txt": File(TEXT[:WITHHELD], lfs=False)})
        self.head(self.url("short.txt"))
        fault = self.hub.fault("cdn_flip", kind="small", offset=WITHHELD - 1)
        answer = self.get(self.url("short.txt"))
        self.assertRegex(self.refused(answer, 502), "git object id")
        fault.remove()
        # So nobody needs to be kept from resuming it.
        self.assertEqual(self.take(self.url("short.txt"), {"Range": "bytes=1000-"})[:3],
                         (206, TEXT[1000:WITHHELD], True))

    def test_pieces_of_a_wrong_file_are_never_all_of_it(self):
        for path, kind in self.KINDS.items():
            size = len(TRUE[path])
            cuts = [size * i // 6 for i in range(7)]
            for offset in (500, size // 2, size - 5000, size - 1):
                with self.subTest(path=path, offset=offset):
                    self.begin()
                    self.hub.fault("cdn_flip", kind=kind, offset=offset)
                    self.head(self.url(path))

                    def piece(i):
                        return self.take(self.url(path), {
                            "Range": f"bytes={cuts[i]}-{cuts[i + 1] - 1}"})
                    pieces, threads = self.together(6, piece)
                    for thread in threads:
                        thread.join()
                    self.hub.clear_faults()
                    # Who has most of it asks for the pieces that failed again.
                    pieces = [p if p[0] == 206 and p[2] else piece(i)
                              for i, p in enumerate(pieces)]
                    if all(p[0] == 206 and p[2] for p in pieces):
                        self.assertTrue(b"".join(p[1] for p in pieces) == TRUE[path])
                    self.wb.stop()


class Clocks(Rough):
    """A client of Python's leaves for good when no answer has begun within 10 s, and takes up again
    what has begun and pauses."""

    def begins_in_time(self, path, statuses, method="GET"):
        seconds, answer, connection = self.open(path, method=method)
        connection.close()
        self.assertLess(seconds, GIVE_UP_S, path)
        self.assertIn(answer.status, statuses, path)
        if answer.status != 200:
            self.assertTrue(answer.headers["X-Error-Message"])
            self.assertTrue(answer.headers["Retry-After"])
        return answer

    def test_a_revision_and_then_bytes_that_do_not_come(self):
        """Each of the two waits is shorter than that."""
        self.begin(tag_ttl="0s")
        for path in ("text.txt", "w.safetensors"):
            self.head(self.url(path))
        self.hub.fault("hub_stall", seconds=600)
        answer = self.begins_in_time(self.url("text.txt"), (200,))
        self.assertRegex(answer.headers["Warning"], "revalidate_timeout")
        self.begins_in_time(self.url("w.safetensors"), (200,))

    def test_a_small_file_that_is_refused_for_longer(self):
        """The client is told to come again, and why: the answer would most likely be cut short."""
        self.begin(retries=8)
        self.head(self.url("text.txt"))
        self.hub.fault("hub_status", status=503, retry_after=2, kind="small")
        answer = self.begins_in_time(self.url("text.txt"), (429,))
        self.assertRegex(answer.headers["X-Error-Message"], "answered 503|not asked for")
        self.hub.clear_faults()
        self.until("it comes", lambda: self.take(self.url("text.txt"))[1] == TEXT, 30)

    def test_many_small_files_that_do_not_come(self):
        """More than are fetched at once: the rest is told to come again."""
        names = [f"f{i}.json" for i in range(160)]
        self.begin({name: name.encode() for name in names})
        self.json("/api/models/Org/Model/tree/main?recursive=true")
        self.hub.fault("hub_stall", seconds=600, kind="small")
        got, threads = self.together(len(names), lambda i: self.begins_in_time(
            self.url(names[i]), (200, 429)))
        for thread in threads:
            thread.join()
        for answer in got:
            self.assertNotIsInstance(answer, Exception)
        self.assertEqual({answer.status for answer in got}, {200, 429})

    def test_heads_while_a_long_list_comes(self):
        """They are answered one by one, and all at once when the list is there."""
        files = {f"f{i}.json": b"%d" % i for i in range(120)}
        self.begin(files, {"page_size": 1})
        self.hub.fault("hub_stall", seconds=0.1, kind="tree")
        for i in range(4):
            answer = self.begins_in_time(self.url(f"f{i}.json"), (200,), "HEAD")
            self.assertEqual(answer.headers["ETag"], f'"{git_blob_id(b"%d" % i)}"')
        answer = self.head(self.url("nope.json"))
        self.refused(answer, 404, "EntryNotFound")
        self.until("all of the list", lambda: self.hub.count("hub", kind="tree") == 120)
        self.json("/api/models/Org/Model/tree/main?recursive=true")
        self.hub.reset()
        for name in files:
            self.assertEqual(self.head(self.url(name)).status, 200)
        self.assertEqual(self.hub.requests("hub"), [])

    def test_a_small_file_that_breaks_again_and_again(self):
        self.begin()
        self.head(self.url("text.txt"))
        for i in range(6):
            self.hub.fault("cdn_cut", kind="small", bytes=(i + 1) * 40_000, times=1)
        self.assertEqual(self.take(self.url("text.txt"))[:3], (200, TEXT, True))

    def test_fifty_readers_of_a_slow_one(self):
        """One fetch, one copy in memory, and some who leave."""
        data = random.Random(3).randbytes(24 * MIB)
        self.begin({"big.txt": File(data, lfs=False)})
        self.head(self.url("big.txt"))
        self.hub.fault("cdn_throttle", kind="small", rate=6 * MIB)

        def read(i):
            if i % 5:
                return self.take(self.url("big.txt"))
            _, answer, connection = self.open(self.url("big.txt"))
            first = answer.read(1000)
            connection.close()
            return first
        got, threads = self.together(50, read)
        for thread in threads:
            thread.join()
        for i, took in enumerate(got):
            self.assertTrue(took[1] == data if i % 5 else took == data[:1000], i)
        self.assertEqual(self.hub.count("hub", kind="small", method="GET"), 1)
        with open(f"/proc/{self.wb.pid}/status", encoding="ascii") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        self.assertLess(peak, 300 * 1024)


class Down(Rough):
    """Nothing listens where the Hub was, or its CDN: whoever asks for a file that is not here is
    told so, in time, and never given an answer that is cut before its first byte."""

    PATHS = ("config.json", "text.txt", "w.safetensors")

    def begin_known(self, **settings):
        """What is told of the files is known already."""
        self.begin(**settings)
        for path in self.PATHS:
            self.head(self.url(path))

    def is_told(self, path, says="refused|connect|not asked for"):
        seconds, answer, connection = self.open(self.url(path))
        body = answer.read()
        connection.close()
        self.assertEqual(answer.status, 429, (path, seconds, body))
        self.assertLess(seconds, GIVE_UP_S, path)
        self.assertRegex(answer.headers["X-Error-Message"], says)
        self.assertTrue(answer.headers["Retry-After"])
        return seconds

    def all_are_told(self, paths, **more):
        got, threads = self.together(len(paths), lambda i: self.is_told(paths[i], **more))
        for thread in threads:
            thread.join()
        for seconds in got:
            self.assertIsInstance(seconds, float)

    def test_refused(self):
        self.begin_known()
        for host in ("hub", "cdn"):
            self.hub.refuse(host)
        self.all_are_told(self.PATHS * 3)
        self.hub.serve("hub")
        self.hub.serve("cdn")
        for path in self.PATHS:
            self.until(path, lambda p=path: self.take(self.url(p))[1] == TRUE[p], 30)

    def test_with_more_retries_than_there_is_time_for(self):
        self.begin_known(retries=100)
        self.hub.refuse("hub")
        self.all_are_told(self.PATHS)

    def test_no_connection_comes_about(self):
        """Packets are dropped: connect_timeout is longer than a client waits."""
        self.begin_known()
        self.hub.blackhole("hub")
        self.all_are_told(self.PATHS, says="no connection within|not asked for")

    def test_the_cdn_alone(self):
        for how in (self.blackhole_cdn, self.refuse_cdn):
            with self.subTest(how.__name__):
                self.begin_known()
                how()
                self.is_told("w.safetensors", "refused|connect")
                for path in ("config.json", "text.txt"):
                    self.assertEqual(self.take(self.url(path))[:3], (200, TRUE[path], True))
                self.wb.stop()

    def blackhole_cdn(self):
        self.hub.blackhole("cdn")

    def refuse_cdn(self):
        self.hub.refuse("cdn")

    def test_one_that_comes_back_in_time(self):
        """It is waited for, with one attempt after the other."""
        self.begin_known()
        self.hub.fault("hub_status", status=500, kind="small", times=3)
        self.assertEqual(self.take(self.url("text.txt"))[:3], (200, TEXT, True))
        self.assertEqual(self.hub.count("hub", kind="small", method="GET"), 4)

    def test_an_answer_that_has_begun_waits_for_all_attempts(self):
        """The Hub took the question and was silent until the answer had to begin."""
        self.begin_known(stall_timeout="9s", retries=8)
        stall = self.hub.fault("hub_stall", seconds=600, kind="small")
        seconds, answer, _ = self.open(self.url("text.txt"))
        self.assertEqual(answer.status, 200)
        self.assertLess(seconds, GIVE_UP_S)
        stall.remove()
        self.hub.fault("hub_status", status=500, kind="small", times=2)
        self.assertEqual(answer.read(), TEXT)


class Moving(Rough):
    """A branch that moves all the time."""

    QUESTIONS = ("/api/models/Org/Model", "/api/models/Org/Model/tree/main",
                 "/api/models/Org/Model/refs", "/Org/Model/resolve/main/config.json",
                 "/Org/Model/resolve/main/w.safetensors")

    def setUp(self):
        self.begin(tag_ttl="3s")
        self.moving = threading.Event()
        self.mover = threading.Thread(target=self.move)
        self.mover.start()
        self.addCleanup(self.halt)

    def move(self):
        i = 0
        while not self.moving.wait(0.002):
            i += 1
            self.hub.add_commit(self.REPO, {"config.json": b"%d" % i,
                                            "w.safetensors": WEIGHTS[:1000 + i]})

    def halt(self):
        self.moving.set()
        self.mover.join()

    def commit_of(self, path):
        """What the answer tells, which has to be of that commit."""
        answer = self.get(path)
        self.assertEqual(answer.status, 200, answer.body[:300])
        commit = answer.headers["X-Repo-Commit"]
        if path.endswith("/refs"):
            return next(b["targetCommit"] for b in json.loads(answer.body)["branches"]
                        if b["name"] == "main")
        if path.endswith("/Model"):
            self.assertEqual(json.loads(answer.body)["sha"], commit)
        elif "/resolve/" in path:
            entry = self.repo.commits[commit].files[path.rsplit("/", 1)[1]]
            self.assertTrue(answer.body == read_all(entry.source))
        else:
            rows = {r["path"]: r["oid"] for r in json.loads(answer.body)}
            self.assertEqual(rows["config.json"],
                             self.repo.commits[commit].files["config.json"].oid)
        return commit

    def test_all_see_one_commit_until_it_is_old(self):
        told = []  # (begun, ended, commit)
        end = time.monotonic() + 10

        def client(i):
            at = i
            while time.monotonic() < end:
                at += 1
                begun = time.monotonic()
                commit = self.commit_of(self.QUESTIONS[at % len(self.QUESTIONS)])
                told.append((begun, time.monotonic(), commit))
            return None
        got, threads = self.together(24, client)
        for thread in threads:
            thread.join()
        self.assertEqual(set(got), {None})
        first, last = {}, {}
        for begun, ended, commit in told:
            first[commit] = min(first.get(commit, ended), ended)
            last[commit] = max(last.get(commit, begun), begun)
        order = sorted(first, key=first.get)
        self.assertGreater(len(order), 2)
        for older, newer in zip(order, order[1:]):
            self.assertLess(last[older], first[newer], "it went back")
        for before, _, after in zip(order, order[1:], order[2:]):
            # A second has to turn, by the store's clock, before one counts no more: it counted
            # between a question that was yet answered with the one before it and an answer with
            # the one after it, however long all of them took.
            self.assertGreater(first[after] - last[before], 0.9)


def row(path, **more):
    return {"type": "file", "oid": "1" * 40, "size": 1, "path": path, **more}


class Lists(Rough):
    """Lists that no repository has."""

    TREE = "/api/models/Org/Model/tree/main?recursive=true"
    LISTS = ("/api/models/Org/Model", "/api/models/Org/Model?blobs=true",
             "/api/models/Org/Model?expand=siblings", "/api/models/Org/Model/revision/main", TREE,
             "/api/models/Org/Model/tree/main", TREE + "&expand=true",
             "/api/models/Org/Model/tree/main?expand=true")

    def serve_rows(self, rows, page):
        """In pages of that many."""
        pages = [json.dumps(rows[i:i + page]).encode() for i in range(0, len(rows), page)]
        self.hub.pages = lambda i: pages[i] if i < len(pages) else None

    def test_a_very_long_one_for_many(self):
        names = [f"data/{i % 100:02d}/file-{i:06d}.json" for i in range(60_000)]
        self.begin()
        self.serve_rows([row(name, oid=f"{i + 1:040x}") for i, name in enumerate(names)], 1000)
        got, threads = self.together(8, lambda i: self.get(self.TREE).body)
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(got)), 1)
        self.assertTrue([r["path"] for r in json.loads(got[0]) if r["type"] == "file"] ==
                        sorted(names))
        self.assertEqual(self.hub.count("hub", kind="tree"), 60)
        self.assertEqual(self.head(self.url(names[7])).headers["ETag"], f'"{8:040x}"')
        self.refused(self.head(self.url("data/00/no")), 404, "EntryNotFound")
        self.assertEqual(len(json.loads(self.get("/api/models/Org/Model/tree/main/data/07").body)),
                         600)

    def test_one_without_an_end(self):
        self.begin()
        self.hub.set_options(rate_limits={"api": 10 ** 6, "resolvers": 10 ** 6})
        self.hub.pages = lambda i: json.dumps([row(f"f{i}")]).encode()
        message = self.refused(self.get(self.TREE), 503)
        self.assertRegex(message, "pages")
        self.assertLessEqual(self.hub.count("hub", kind="tree"), 10_000)

    def test_paths_that_lead_elsewhere(self):
        for path in ("../x", "/etc/passwd", "a//b", "a/../b", ".", "a\nb", "a\\b", "", "x" * 5000):
            with self.subTest(path=path[:20]):
                self.begin()
                self.hub.fault("tree_add", entry={"path": path})
                asked = [self.get(url) for url in self.LISTS]
                asked.append(self.ask("POST", "/api/models/Org/Model/paths-info/main", FORM,
                                      b"paths=config.json"))
                asked.append(self.get("/v2/Org/Model/manifests/latest", LLAMA))
                for answer in asked:
                    self.assertRegex(self.refused(answer, 503), "no safe relative")
                # No file is named in these.
                self.json("/api/models/Org/Model/refs")
                self.json("/api/models/Org/Model/commits/main")
                # What is asked for by its name is not in question.
                self.check_file(path, self.get(self.url("config.json")), data=FILES["config.json"])
                self.wb.stop()


if __name__ == "__main__":
    unittest.main()
