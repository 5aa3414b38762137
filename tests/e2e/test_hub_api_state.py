"""What the server knows of a Hub's repositories, and for how long: one commit for a branch, what is
served without the Hub, how often it is asked, and that the bytes are held once."""

import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import (binary, gguf_file, paths_of, safetensors_file,  # noqa: E402
                     safetensors_sparse, sha256)
from hub_api_case import PATIENT, HubApiCase, Truth, upstream  # noqa: E402
from standin_sources import Noise  # noqa: E402

LLAMA = {"User-Agent": "llama-cpp", "Accept": "application/json"}
GIB = 1 << 30


class Own(HubApiCase):
    """A small repository, and a server of the test's own."""

    WEIGHTS = safetensors_file({"a": ("F32", (300, 100)), "b": ("BF16", (8,))}, fill=b"weights!")
    CONFIG = b'{"model_type":"llama"}\n'

    def setUp(self):
        self.hub = self.make_hub()
        self.repo = self.add("Org/Model")
        self.commit = self.repo.branches["main"]

    def add(self, name, more=None, **settings):
        return self.hub.add_repo(name, {
            "config.json": self.CONFIG, "README.md": b"# x\n", "model.safetensors": self.WEIGHTS,
            "dir/notes.txt": b"notes\n", **(more or {})}, **settings)

    def move(self):
        return self.hub.add_commit("Org/Model", {"config.json": b'{"new":1}', "new.txt": b"n"},
                                   keep=True)

    def commit_said(self, how, **more):
        """The commit of main, as one of the routes tells it."""
        if how == "info":
            return self.json("/api/models/Org/Model", **more)["sha"]
        if how == "info at main":
            return self.json("/api/models/Org/Model/revision/main", **more)["sha"]
        if how == "refs":
            return self.json("/api/models/Org/Model/refs", **more)["branches"][0]["targetCommit"]
        path = {"tree": "/api/models/Org/Model/tree/main?recursive=true",
                "resolve": "/Org/Model/resolve/main/config.json",
                "weights": "/Org/Model/resolve/main/model.safetensors",
                "nothing": "/Org/Model/resolve/main/nope.json"}[how]
        return self.head(path, **more).headers["X-Repo-Commit"] if how != "tree" else \
            self.get(path, **more).headers["X-Repo-Commit"]

    WAYS = ("info", "info at main", "refs", "tree", "resolve", "weights", "nothing")


class Pinned(Own):
    def test_one_commit_whoever_asks_first(self):
        for first in self.WAYS:
            with self.subTest(first=first):
                self.hub.move_branch("Org/Model", "main", self.commit)
                self.wb = self.make_server(self.hub, tag_ttl="1h")
                self.assertEqual(self.commit_said(first), self.commit)
                self.move()
                for way in self.WAYS:
                    self.assertEqual(self.commit_said(way), self.commit, way)
                answer = self.get("/Org/Model/resolve/main/config.json")
                self.check_file("main", answer, data=self.CONFIG)
                self.assertEqual(answer.headers["X-Repo-Commit"], self.commit)
                self.refused(self.get("/Org/Model/resolve/main/new.txt"), 404, "EntryNotFound")

    def test_also_after_a_restart(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        self.commit_said("info")
        self.wb.stop()
        self.move()
        self.wb.start()
        for way in self.WAYS:
            self.assertEqual(self.commit_said(way), self.commit, way)

    def test_and_then_it_moves(self):
        self.wb = self.make_server(self.hub, tag_ttl="0s", negative_ttl="0s")
        for way in self.WAYS:
            with self.subTest(way=way):
                self.commit_said(way)
                commit = self.move()
                self.assertEqual(self.commit_said(way), commit)

    def test_a_new_commit_is_all_new(self):
        self.wb = self.make_server(self.hub, tag_ttl="0s", negative_ttl="0s")
        self.get("/Org/Model/resolve/main/config.json")
        commit = self.move()
        answer = self.get("/Org/Model/resolve/main/config.json")
        self.check_file("main", answer, data=b'{"new":1}')
        self.assertEqual(answer.headers["X-Repo-Commit"], commit)
        answer = self.get(f"/Org/Model/resolve/{self.commit}/config.json")
        self.check_file("old", answer, data=self.CONFIG)

    def test_a_commit_is_asked_for_once(self):
        self.wb = self.make_server(self.hub, tag_ttl="0s")
        questions = [f"/api/models/Org/Model/revision/{self.commit}",
                     f"/api/models/Org/Model/tree/{self.commit}?recursive=true",
                     f"/api/models/Org/Model/tree/{self.commit}/dir",
                     f"/api/models/Org/Model/commits/{self.commit}",
                     *(f"/Org/Model/resolve/{self.commit}/{path}" for path in (
                         "config.json", "model.safetensors", "dir/notes.txt", "README.md"))]
        first = [self.get(q).body for q in questions]
        self.hub.reset()
        self.assertEqual([self.get(q).body for q in questions], first)
        self.assertEqual(self.hub.requests(), [])

    def test_what_is_not_there_is_asked_for_once(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h", negative_ttl="1h")
        for path in ("/Org/Model/resolve/main/generation_config.json",
                     f"/Org/Model/resolve/{self.commit}/chat_template.jinja",
                     "/api/models/Org/Model/tree/main/additional_chat_templates",
                     "/nobody/nothing/resolve/main/config.json",
                     "/api/models/Org/Model/revision/no",
                     "/Org/Model/resolve/no/config.json", "/api/models/nobody/nothing"):
            with self.subTest(path=path):
                before = self.get(path)
                self.hub.reset()
                again = self.get(path)
                self.assertEqual((again.status, again.headers["X-Error-Code"]),
                                 (before.status, before.headers["X-Error-Code"]))
                self.assertEqual(self.hub.requests(), [])

    def test_a_cold_head_is_one_request(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        self.head("/Org/Model/resolve/main/model.safetensors")
        self.assertEqual(self.hub.count("hub"), 1)
        self.assertEqual(self.hub.count("cdn"), 0)
        self.add("Org/Other")
        self.hub.reset()
        self.head("/Org/Other/resolve/main/config.json")
        self.assertLessEqual(self.hub.count("hub"), 2)
        self.assertEqual(self.hub.count("cdn"), 0)


class Stale(Own):
    QUESTIONS = ["/api/models/Org/Model", "/api/models/Org/Model?blobs=true",
                 "/api/models/Org/Model/revision/main", "/api/models/Org/Model/refs",
                 "/api/models/Org/Model/refs?include_prs=1", "/api/models/Org/Model/commits/main",
                 "/api/models/Org/Model/tree/main?recursive=true&expand=false",
                 "/api/models/Org/Model/tree/main", "/api/models/Org/Model/tree/main/dir",
                 "/api/models/Org/Model/tree/main?recursive=true&expand=true",
                 "/api/models/org/model/tree/main", "/Org/Model/raw/main/config.json",
                 "/Org/Model/raw/main/model.safetensors",
                 *(f"/Org/Model/resolve/main/{p}" for p in (
                     "config.json", "model.safetensors", "dir/notes.txt", "README.md")),
                 "/org/MODEL/resolve/main/config.json"]
    GONE = ["/Org/Model/resolve/main/nope.json", "/api/models/Org/Model/tree/main/nope"]

    def answers(self):
        return {q: (lambda a: (a.status, a.body, a.headers["X-Repo-Commit"], a.headers["ETag"]))(
            self.get(q)) for q in self.QUESTIONS + self.GONE}

    def warm(self, **settings):
        self.wb = self.make_server(self.hub, tag_ttl="0s", negative_ttl="0s",
                                   **{"breaker_failures": 1000, **settings})
        got = self.answers()
        for question, answer in got.items():
            self.assertEqual(answer[0], 404 if question in self.GONE else 200, question)
        return got

    def test_restart_with_the_hub_gone(self):
        before = self.warm()
        self.wb.stop()
        self.hub.stop()
        self.wb.start()
        for question, answer in self.answers().items():
            with self.subTest(question=question):
                self.assertEqual(answer, before[question])
        status, _, body = self.wb.get(f"{self.PREFIX}/Org/Model/resolve/main/config.json",
                                      {"Range": "bytes=2-5"})
        self.assertEqual((status, body), (206, self.CONFIG[2:6]))

    def test_old_answers_say_so(self):
        self.warm()
        self.hub.stop()
        for question in ("/api/models/Org/Model", "/Org/Model/resolve/main/config.json",
                         "/api/models/Org/Model/tree/main"):
            self.assertRegex(self.get(question).headers["Warning"] or "", "served from the store")

    def test_the_hub_answers_errors(self):
        before = self.warm()
        for status in (429, 500, 502, 503, 504):
            fault = self.hub.fault("hub_status", status=status)
            for question, answer in self.answers().items():
                with self.subTest(status=status, question=question):
                    self.assertEqual(answer, before[question])
            fault.remove()

    def test_the_hub_says_nothing(self):
        before = self.warm(revalidate_timeout="1s")
        self.hub.fault("hub_stall", seconds=600)
        begun = time.monotonic()
        for question, answer in self.answers().items():
            with self.subTest(question=question):
                self.assertEqual(answer, before[question])
        self.assertLess(time.monotonic() - begun, 60)

    def test_the_hub_tells_nonsense(self):
        before = self.warm()
        for mode in ("malformed", "empty", "html", "truncated"):
            fault = self.hub.fault("hub_body", mode=mode)
            for question, answer in self.answers().items():
                with self.subTest(mode=mode, question=question):
                    self.assertEqual(answer, before[question])
            fault.remove()

    def test_offline(self):
        before = self.warm()
        self.wb.stop()
        self.hub.reset()
        wb = self.make_server(self.hub, data=self.wb.data, tag_ttl="0s", offline=True)
        self.wb = wb
        for question, answer in self.answers().items():
            with self.subTest(question=question):
                self.assertEqual(answer, before[question])
        self.refused(self.get("/Org/Unknown/resolve/main/config.json"), (404, 502, 503, 504),
                     says="offline")
        self.assertEqual(self.hub.requests(), [])
        wb.stop()

    def test_cold_and_the_hub_is_gone(self):
        self.wb = self.make_server(self.hub)
        self.hub.stop()
        for path in ("/api/models/Org/Model", "/api/models/Org/Model/tree/main",
                     "/Org/Model/resolve/main/config.json", "/api/models/Org/Model/refs"):
            with self.subTest(path=path):
                # 503 for a file is fatal to clients that would wait for a 429.
                statuses = (429, 502, 504) if "/resolve/" in path else (502, 503, 504)
                self.refused(self.get(path), statuses, says="(?i)connect")
        answer = self.head("/Org/Model/resolve/main/config.json")
        self.assertIn(answer.status, (502, 503, 504))

    def test_a_repository_that_is_gone(self):
        """The Hub says that it is not there (any more): that is news, not trouble."""
        self.warm()
        self.hub.delete_repo("Org/Model")
        self.refused(self.get("/Org/Model/resolve/main/config.json"), (401, 404), "RepoNotFound")
        self.refused(self.get("/api/models/Org/Model"), (401, 404), "RepoNotFound")


class Forgotten(Own):
    """`weighbridge rm` with a commit, at a server that has it in memory and on disk."""

    def remove(self, tag, *where):
        done = subprocess.run([binary(), "rm", f"hf/org/model:{tag}", *where], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                              check=False)
        return done.returncode, done.stdout

    def questions(self):
        return [f"/api/models/Org/Model/revision/{self.commit}",
                f"/api/models/Org/Model/tree/{self.commit}?recursive=true",
                f"/api/models/Org/Model/tree/{self.commit}?expand=true",
                f"/api/models/Org/Model/commits/{self.commit}",
                *(f"/Org/Model/resolve/{self.commit}/{path}" for path in (
                    "config.json", "model.safetensors", "nope.json"))]

    def is_gone(self):
        self.hub.fault("hub_status", status=500)
        for question in self.questions():
            answer = self.get(question)
            self.assertGreaterEqual(answer.status, 429, f"{question}: {answer}")

    def test_by_a_server_that_runs(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h", breaker_failures=1000)
        for question in self.questions():
            self.get(question)
        self.assertEqual(self.remove(self.commit, "--server", self.wb.url)[0], 0)
        self.assertEqual(self.remove(self.commit, "--server", self.wb.url)[0], 1)
        self.is_gone()

    def test_by_both_apis(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h", breaker_failures=1000)
        for question in self.questions():
            self.get(question)
        tag = f"/v2/hf/org/model/manifests/{self.commit}"
        for url in (tag, "/v2/hf/org/model/manifests/main"):
            self.assertEqual(self.wb.get(url)[0], 200)
        self.assertEqual(self.remove("main", "--server", self.wb.url)[0], 0)
        self.hub.reset()
        for question in self.questions():
            self.get(question)
        self.assertEqual(self.hub.requests(), [])
        self.assertEqual(self.remove(self.commit, "--server", self.wb.url)[0], 0)
        # What the manifest is of stays with it.
        self.assertEqual(self.remove(self.commit, "--server", self.wb.url)[0], 1)
        self.hub.fault("hub_status", status=500)
        self.assertGreaterEqual(self.wb.get(tag)[0], 500)

    def test_and_in_its_data(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h", breaker_failures=1000)
        for question in self.questions():
            self.get(question)
        self.wb.stop()
        self.assertEqual(self.remove(self.commit, "--data", self.wb.data)[0], 0)
        self.assertEqual(self.remove(self.commit, "--data", self.wb.data)[0], 1)
        self.wb.start()
        self.is_gone()

    def test_of_which_only_one_thing_was_asked(self):
        self.hub.set_options(rate_limits={"api": 10 ** 6, "resolvers": 10 ** 6})
        for question in self.questions():
            with self.subTest(question=question):
                self.wb = self.make_server(self.hub, tag_ttl="1h")
                self.get(question)
                self.assertEqual(self.remove(self.commit, "--server", self.wb.url)[0], 0)
                self.hub.reset()
                self.get(question)
                self.assertGreater(self.hub.count("hub"), 0)


class Limits(Own):
    def test_none_left_is_never_asked(self):
        self.hub.set_options(rate_enforced=True, rate_limits={"api": 6, "resolvers": 6})
        self.wb = self.make_server(self.hub, tag_ttl="0s", negative_ttl="0s")
        self.get("/Org/Model/resolve/main/config.json")
        self.get("/Org/Model/resolve/main/model.safetensors")
        for _ in range(12):
            for path in ("/api/models/Org/Model", "/Org/Model/resolve/main/config.json",
                         "/api/models/Org/Model/tree/main", "/api/models/Org/Model/refs",
                         "/Org/Model/resolve/main/model.safetensors"):
                self.assertEqual(self.get(path).status, 200, path)
        self.assertEqual(self.hub.count("hub", status=429), 0)
        self.assertLessEqual(self.hub.count("hub"), 12)

    def test_what_is_not_held_waits_for_the_next_window(self):
        self.hub.set_options(rate_enforced=True, rate_limits={"api": 2, "resolvers": 2},
                             rate_window=600)
        self.hub.reset()
        self.wb = self.make_server(self.hub, tag_ttl="0s")
        for i in range(6):
            self.add(f"Org/Other-{i}")
        for path in ("/api/models/Org/Other-%d", "/Org/Other-%d/resolve/main/model.safetensors"):
            said = [self.get(path % i) for i in range(6)]
            self.assertEqual([a.status for a in said if a.status != 429][:1], [200], path)
            for answer in said[2:]:
                self.refused(answer, 429, says="no request of the kind")
                self.assertRegex(answer.headers["Retry-After"] or "", r"^\d+$")
        self.assertEqual(self.hub.count("hub", status=429), 0)
        self.assertLessEqual(self.hub.count("hub"), 4)

    def test_and_then_it_is_asked_again(self):
        self.hub.set_options(rate_enforced=True, rate_limits={"api": 1, "resolvers": 1},
                             rate_window=3)
        self.hub.reset()
        self.wb = self.make_server(self.hub, tag_ttl="0s")
        self.get("/api/models/Org/Model")
        commit = self.move()
        self.until("the next window", lambda: self.commit_said("info") == commit, 30)

    def test_429_is_told_with_how_long(self):
        self.wb = self.make_server(self.hub)
        self.hub.fault("hub_status", status=429, retry_after=7, reset=7)
        answer = self.get("/api/models/Org/Model")
        self.refused(answer, 429, says="429|limit")
        self.assertLessEqual(int(answer.headers["Retry-After"]), 60)


class Together(Own):
    CROWD = 24

    def crowd(self, path, kind, method="GET", headers=None):
        self.wb = self.make_server(self.hub, **PATIENT, tag_ttl="1h")
        self.hub.reset()
        hold = self.hub.hold("hub", kind=kind)
        got, threads = self.together(
            self.CROWD, lambda i: self.ask(method, path, headers))
        self.assertTrue(hold.wait_held(1))
        self.wait_connected(self.wb, self.CROWD)
        hold.release()
        for thread in threads:
            thread.join()
        for answer in got:
            self.assertIn(answer.status if not isinstance(answer, Exception) else answer,
                          (200, 206))
        self.assertEqual(len({answer.body for answer in got}), 1)
        return got

    def test_one_question_of_each_kind(self):
        for path, kind, most in (("/api/models/Org/Model", "info", 1),
                                 ("/api/models/Org/Model/revision/main", "info", 1),
                                 ("/api/models/Org/Model/tree/main?recursive=true", "tree", 1),
                                 ("/api/models/Org/Model/refs", "refs", 1),
                                 (f"/api/models/Org/Model/commits/{self.commit}", "commits", 1),
                                 (f"/api/models/Org/Model/tree/{self.commit}", "tree", 1)):
            with self.subTest(path=path):
                self.crowd(path, kind)
                self.assertLessEqual(self.hub.count("hub", kind=kind), most)

    def test_files(self):
        self.crowd("/Org/Model/resolve/main/model.safetensors", "resolve", "HEAD")
        self.assertEqual(self.hub.count("hub"), 1)
        self.crowd("/Org/Model/resolve/main/config.json", "resolve", "HEAD")
        self.assertLessEqual(self.hub.count("hub"), 2)
        self.crowd("/Org/Model/resolve/main/config.json", "resolve")
        self.assertLessEqual(self.hub.count("hub", kind="small"), 2)
        self.crowd("/Org/Model/resolve/main/model.safetensors", "resolve")
        self.assertEqual(self.hub.bytes_sent("cdn"), len(self.WEIGHTS))

    def test_what_is_not_there(self):
        self.wb = self.make_server(self.hub, **PATIENT, tag_ttl="1h", negative_ttl="1h")
        hold = self.hub.hold("hub")
        got, threads = self.together(
            self.CROWD, lambda i: self.head("/Org/Model/resolve/main/nope.json"))
        self.assertTrue(hold.wait_held(1))
        self.wait_connected(self.wb, self.CROWD)
        hold.release()
        for thread in threads:
            thread.join()
        self.assertEqual({answer.status for answer in got}, {404})
        self.assertLessEqual(self.hub.count("hub"), 2)


class OneCopy(Own):
    def registry_pull(self):
        _, manifest = self.pull_manifest(self.wb, "hf/org/model", "main")
        digest = paths_of(manifest)["model.safetensors"]["digest"]
        self.assertEqual(self.wb.blob("hf/org/model", digest)[2], self.WEIGHTS)

    def test_then_by_the_registry(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        self.check_file("x", self.get("/Org/Model/resolve/main/model.safetensors"),
                        data=self.WEIGHTS)
        self.registry_pull()
        self.assertEqual(self.hub.bytes_sent("cdn"), len(self.WEIGHTS))

    def test_first_by_the_registry(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        self.registry_pull()
        self.hub.reset()
        self.check_file("x", self.get("/Org/Model/resolve/main/model.safetensors"),
                        data=self.WEIGHTS)
        self.check_file("x", self.get("/Org/Model/resolve/main/config.json"), data=self.CONFIG)
        self.assertEqual(self.hub.bytes_sent("cdn"), 0)
        self.assertEqual(self.hub.count("hub", kind="tree,small"), 0)

    def test_under_another_name_and_at_another_commit(self):
        self.wb = self.make_server(self.hub, tag_ttl="0s")
        self.get("/Org/Model/resolve/main/model.safetensors")
        self.move()
        self.get("/org/model/resolve/main/model.safetensors")
        self.assertEqual(self.hub.bytes_sent("cdn"), len(self.WEIGHTS))


class Kept(Own):
    """What this API has served stays, whatever the server goes through."""

    SIZE = 8_000_000

    def everything(self):
        return {path: self.get(f"/Org/Model/resolve/main/{path}").body
                for path in ("config.json", "README.md", "model.safetensors", "dir/notes.txt")}

    def test_a_collection_keeps_it(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        before = self.everything()
        rows = self.json("/api/models/Org/Model/tree/main?recursive=true")
        self.wb.stop()
        for _ in range(2):
            subprocess.run([binary(), "gc", "--data", self.wb.data, "--grace", "0s"], check=True,
                           stdout=subprocess.DEVNULL)
        self.wb.start()
        self.hub.stop()
        self.assertEqual(self.everything(), before)
        self.assertEqual(self.json("/api/models/Org/Model/tree/main?recursive=true"), rows)

    def test_a_kill_costs_what_was_missing(self):
        data = bytes(Noise(self.SIZE, "kept").read(0, self.SIZE))
        self.add("Org/Larger", {"model.safetensors": data})
        self.wb = self.make_server(self.hub, **PATIENT, tag_ttl="1h", connections_per_blob=1)
        url = "/Org/Larger/resolve/main/model.safetensors"
        hold = self.hub.hold("cdn", bytes=6_000_000)
        got, threads = self.together(1, lambda i: self.get(url))
        self.assertTrue(hold.wait_held(1))
        part = self.get(url, {"Range": "bytes=5000000-5000999"})  # it is here by now
        self.check_file(url, part, data=data[5_000_000:5_001_000])
        self.wb.kill()
        hold.release()
        threads[0].join()
        self.assertIsInstance(got[0], Exception)
        sent = self.hub.bytes_sent("cdn")
        self.wb.start()
        self.check_file(url, self.get(url), data=data)
        self.assertEqual(self.json("/api/models/Org/Larger")["id"], "Org/Larger")
        self.assertLess(self.hub.bytes_sent("cdn"), self.SIZE + sent)

    def test_clients_that_leave(self):
        data = bytes(Noise(self.SIZE, "left").read(0, self.SIZE))
        self.add("Org/Larger", {"model.safetensors": data})
        self.wb = self.make_server(self.hub, **PATIENT, tag_ttl="1h")
        url = "/Org/Larger/resolve/main/model.safetensors"
        hold = self.hub.hold("cdn", bytes=1_000_000)
        for path in (url, "/Org/Larger/resolve/main/config.json", url):
            connection = self.wb.connect()
            connection.request("GET", path)
            connection.getresponse().read(10)
            connection.close()
        hold.release()
        self.check_file(url, self.get(url), data=data)
        self.assertEqual(self.hub.bytes_sent("cdn"), self.SIZE)


class Chained(Own):
    """A server whose Hub is another server."""

    def test_all_the_same(self):
        self.hub.set_options(xet=False)
        truth = Truth(self.hub)
        far = self.make_server(self.hub, tag_ttl="1h")
        self.wb = self.make_weighbridge(config={"upstreams": [
            {**upstream(self.hub, tag_ttl="1h"), "url": f"{far.url}/hf"}]})
        for path in ("config.json", "model.safetensors", "dir/notes.txt"):
            for method in ("HEAD", "GET"):
                url = f"/Org/Model/resolve/main/{path}"
                true, answer = truth.ask(method, url), self.ask(method, url)
                self.check_file(url, answer, data=true.body if method == "GET" else None)
                self.assertEqual(answer.headers["ETag"], true.headers["etag"])
        for path in ("?blobs=true", "/refs", "/commits/main", "/tree/main",
                     "/tree/main?recursive=true&expand=true"):
            self.assertEqual(self.json(f"/api/models/org/model{path}"), json.loads(
                truth.ask("GET", f"/api/models/Org/Model{path}").body), path)
        self.refused(self.get("/Org/Model/resolve/main/nope"), 404, "EntryNotFound")
        self.refused(self.get("/api/models/nobody/nothing"), 404, "RepoNotFound")
        self.assertEqual(self.pull_manifest(self.wb, "hf/org/model", "main")[0],
                         self.pull_manifest(far, "hf/org/model", "main")[0])
        far.stop()
        self.check_file("x", self.get("/Org/Model/resolve/main/model.safetensors"),
                        data=self.WEIGHTS)


class Huge(Own):
    """Sparse files: nobody has the room for real ones. Their hashes are made up, so that they
    cannot be had whole."""

    URL = "/Org/Huge/resolve/main/huge.safetensors"

    def shard(self, size):
        shard = safetensors_sparse({"w": ("F32", (1 << 20, size >> 22))})
        self.hub.add_repo("Org/Huge", {"config.json": b"{}", "huge.safetensors": shard})
        self.hub.fault("cdn_throttle", rate=8 << 20)
        self.wb = self.make_server(self.hub, tag_ttl="1h", connections_per_blob=1)
        self.check_file(self.URL, self.head(self.URL), shard.size)
        return shard

    def part(self, shard, first, count):
        """It comes at once, though the download is not nearly there."""
        begun = time.monotonic()
        answer = self.get(self.URL, {"Range": f"bytes={first}-{first + count - 1}"})
        self.assertEqual(answer.status, 206, f"{first}+{count}: {answer.body[:500]}")
        data = (shard.header[first:] + bytes(count))[:count]
        self.check_file(self.URL, answer, count, data)
        self.assertEqual(answer.headers["Content-Range"],
                         f"bytes {first}-{first + count - 1}/{shard.size}")
        self.assertLess(time.monotonic() - begun, 10)

    def test_60_gb(self):
        """That does not fit on most disks: its header is all that can be had then."""
        shard = self.shard(60 * GIB)
        self.assertGreater(shard.size, 50_000_000_000)
        self.part(shard, 0, 100_001)
        self.assertLess(self.hub.bytes_sent("cdn"), GIB)

    def test_cold_ranges(self):
        shard = self.shard(6 * GIB)
        for first, count in ((0, 8), (0, 100_001), (3 * GIB, 1 << 16), (GIB, 1), (5 * GIB, 100_000),
                             (shard.size - (1 << 20), 1 << 16)):
            with self.subTest(first=first):
                self.part(shard, first, count)
        self.assertLess(self.hub.bytes_sent("cdn"), GIB)


class Llama(Own):
    """The client that asks /v2/ for a manifest of its own kind."""

    def test_manifest(self):
        gguf = gguf_file({"t": (32, 2)}, fill=b"gguf")
        self.hub.add_repo("Org/Tiny-GGUF", {"tiny-Q4_K_M.gguf": gguf, "README.md": b"x",
                                            "tiny-Q8_0.gguf": gguf + b"\0" * 32})
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        for agent in ("llama-cpp", "llama-cpp/b4567"):
            for tag, file in (("latest", "tiny-Q4_K_M.gguf"), ("Q8_0", "tiny-Q8_0.gguf"),
                              ("q8_0", "tiny-Q8_0.gguf")):
                with self.subTest(agent=agent, tag=tag):
                    status, headers, body = self.wb.get(
                        f"/v2/Org/Tiny-GGUF/manifests/{tag}", {**LLAMA, "User-Agent": agent})
                    self.assertEqual(status, 200, body)
                    said = json.loads(body)["ggufFile"]
                    self.assertEqual(said["rfilename"], file)
                    data = self.get(f"/Org/Tiny-GGUF/resolve/main/{file}").body
                    self.assertEqual(said["size"], len(data))
                    self.assertEqual(said["lfs"]["sha256"], sha256(data)[7:])
                    self.assertIn("application/json", headers["Content-Type"])
        status, _, body = self.wb.get("/v2/Org/Tiny-GGUF/manifests/Q2_K", LLAMA)
        self.assertEqual(status, 404, body)
        status, _, body = self.wb.get("/v2/Org/Model/manifests/latest", LLAMA)
        self.assertEqual(status, 404, body)

    def test_others_get_what_they_got(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        digest, _ = self.pull_manifest(self.wb, "hf/org/model", "main")
        status, headers, _ = self.wb.get("/v2/hf/org/model/manifests/main", {
            "User-Agent": "llama-cpp", "Accept": "application/vnd.oci.image.manifest.v1+json"})
        self.assertEqual((status, headers["Docker-Content-Digest"]), (200, digest))


if __name__ == "__main__":
    unittest.main()
