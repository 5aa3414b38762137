"""The Hub's own API, by raw HTTP: the same questions go to the server and to a stand-in Hub without
Xet, and the answers are compared field by field. The server's own Hub has all of Xet."""

import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import (gguf_file, paths_of, safetensors_file, safetensors_sparse,  # noqa: E402
                     sha256)
from hub_api_case import (OTHER_TOKEN, TOKEN, HubApiCase, Truth, Weighbridge,  # noqa: E402
                          World, bearer, end_hub, end_server, git_blob_id, upstream)
from hub_world import (BARE, DATA, GATED, MODEL, OLD_NAME, PRIVATE, SPACE)  # noqa: E402

CASED = "test-org/some.MODEL"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
LLAMA = {"User-Agent": "llama-cpp", "Accept": "application/json"}
BIG = "model.safetensors"
GIB = 1 << 30


class Compared(HubApiCase):
    """Two worlds with the same commits: one behind the server, one to compare with."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.world = World(Path(scratch.name), xet=True, page_size=4, expand_page_size=3)
        cls.addClassCleanup(end_hub, cls.world.hub)
        other = World(Path(scratch.name), xet=False)
        cls.addClassCleanup(end_hub, other.hub)
        cls.truth = Truth(other.hub)
        for world in (cls.world, other):
            world.add_branch()
        cls.wb = Weighbridge(config={"upstreams": [upstream(cls.world.hub, tag_ttl="1h")]})
        cls.addClassCleanup(end_server, cls.wb)
        cls.commit = cls.world.repo.branches["main"]

    def same(self, method, path, headers=None, body=None):
        """Asked twice, cold and warm, and compared with what the Hub says."""
        true = self.truth.ask(method, path, headers, body)
        for temperature in ("cold", "warm"):
            where = f"{temperature}: {method} {path} {headers or ''}"
            ours = self.ask(method, path, headers, body)
            self.assertEqual(ours.status, true.status, f"{where}: {ours.body[:1000]}")
            for name in ("X-Repo-Commit", "X-Error-Code", "X-Total-Count"):
                if name != "X-Repo-Commit" or ours.status >= 400 or name.lower() in true.headers:
                    self.assertEqual(ours.headers[name], true.headers.get(name.lower()), where)
        return ours, true

    def same_file(self, method, path, headers=None):
        """For what has an entity tag: HEAD, GET and Range of a file that is there."""
        ours, true = self.same(method, path, headers)
        if ours.status in (200, 206, 304):
            size = true.headers.get("content-length")
            if method == "HEAD":
                size = true.headers.get("x-linked-size", size)
            self.check_file(path, ours, None if ours.status == 304 else int(size),
                            true.body if method == "GET" else None)
            self.assertEqual(ours.headers["ETag"], true.headers["etag"], path)
        if ours.status in (206, 416) or "content-range" in true.headers:
            self.assertEqual(ours.headers["Content-Range"], true.headers["content-range"],
                             f"{path} {headers}")
        return ours

    def same_json(self, method, path, headers=None, body=None, key=None):
        """key: of arrays whose order says nothing."""
        ours, true = self.same(method, path, headers, body)
        self.assertIn("application/json", ours.headers["Content-Type"])
        mine, wanted = json.loads(ours.body), json.loads(true.body)
        if key and isinstance(wanted, list):
            mine, wanted = (sorted(rows, key=lambda row: row[key]) for rows in (mine, wanted))
        self.assertEqual(mine, wanted, path)
        return mine


class Root(Compared):
    def test_files(self):
        for path in self.world.files:
            for revision in ("main", self.commit, "refs%2Fpr%2F1", "feature%2Fx", "HEAD"):
                for method in ("HEAD", "GET"):
                    with self.subTest(path=path, revision=revision, method=method):
                        self.same_file(method, f"/{MODEL}/resolve/{revision}/{quote(path)}")

    def test_files_of_other_revisions_and_names(self):
        for repo, revision, path in (
                (MODEL, "v1.0", "config.json"), (MODEL, "v1.0", "w.bin"),
                (MODEL, "refs/pr/1", "config.json"), (MODEL, "feature%2Fx", "only-here.json"),
                (MODEL, "main", "sub%20dir/a+b%20c.txt"), (OLD_NAME, "main", "config.json"),
                (OLD_NAME, "main", BIG), (CASED, "main", "deep/er/still/notes.txt"),
                (CASED, self.commit, "tokenizer.json"), (BARE, "main", "config.json"),
                (BARE, "main", "model.bin"), (f"datasets/{DATA}", "main", "README.md"),
                (f"datasets/{DATA}", "main", "data/train-00000-of-00001.parquet"),
                (f"datasets/{DATA}", "refs%2Fconvert%2Fparquet", "default/train/0000.parquet"),
                ("datasets/bare-data", "main", "x.csv"), (f"spaces/{SPACE}", "main", "app.py"),
                (f"datasets/{MODEL}", "main", "README.md"),
                (f"spaces/{MODEL}", "main", "README.md")):
            for method in ("HEAD", "GET"):
                with self.subTest(repo=repo, revision=revision, path=path, method=method):
                    self.assertEqual(self.same_file(
                        method, f"/{repo}/resolve/{revision}/{path}").status, 200)

    def test_ranges(self):
        for path in ("config.json", "old-store.onnx", "tokenizer.json", BIG):
            size = len(self.world.files[path])
            for span in ("0-0", "5-", "0-99", "100-100", f"{size - 1}-{size}", f"0-{size}",
                         f"{size - 7}-", "-5", f"{size}-", f"{size + 5}-{size + 9}", "0-100000",
                         f"-{size + 1}", "x-y", "0-1,4-5"):
                with self.subTest(path=path, span=span):
                    ours = self.same_file("GET", f"/{MODEL}/resolve/main/{path}",
                                          {"Range": f"bytes={span}"})
                    if span == f"{size}-":
                        self.assertEqual(ours.status, 416)
                        self.assertEqual(ours.headers["Content-Range"], f"bytes */{size}")

    def test_a_range_in_a_head_changes_nothing(self):
        size = len(self.world.files[BIG])
        answer = self.head(f"/{MODEL}/resolve/main/{BIG}", {"Range": "bytes=0-0"})
        self.assertIn(answer.status, (200, 206))
        self.check_file(BIG, answer, size if answer.status == 200 else 1)

    def test_empty_files_have_one_answer_that_all_clients_take(self):
        for span in (None, "0-0", "0-", "5-9", "-1"):
            with self.subTest(span=span):
                answer = self.get(f"/{MODEL}/resolve/main/empty.txt",
                                  {"Range": f"bytes={span}"} if span else None)
                self.assertEqual(answer.status, 200)
                self.check_file("empty.txt", answer, 0, b"")
                self.assertEqual(answer.headers["Content-Range"], span and "bytes */0")
                self.assertEqual(answer.headers["ETag"], f'"{git_blob_id(b"")}"')

    def test_conditions(self):
        for path in ("config.json", BIG):
            url = f"/{MODEL}/resolve/main/{path}"
            etag = self.head(url).headers["ETag"]
            for method in ("HEAD", "GET"):
                for given in (etag, f"W/{etag}", f'"other", {etag}'):
                    with self.subTest(path=path, method=method, given=given):
                        self.assertEqual(self.same_file(
                            method, url, {"If-None-Match": given}).status, 304)
                with self.subTest(path=path, method=method, given="another"):
                    self.assertEqual(self.same_file(
                        method, url, {"If-None-Match": '"0000"'}).status, 200)

    def test_nothing_is_compressed(self):
        for accepted in ("gzip, deflate", "gzip, deflate, br, zstd", "*"):
            answer = self.get(f"/{MODEL}/resolve/main/config.json", {"Accept-Encoding": accepted})
            self.check_file("config.json", answer, data=self.world.files["config.json"])

    def test_what_javascript_asks_for(self):
        answer = self.get(f"/{MODEL}/resolve/main/{BIG}", {
            "Range": "bytes=0-0", "Accept": "application/vnd.xet-fileinfo+json, */*"})
        self.assertEqual(answer.status, 206)
        self.check_file(BIG, answer, 1, self.world.files[BIG][:1])

    def test_info(self):
        for repo in (f"models/{MODEL}", f"models/{OLD_NAME}", f"models/{CASED}", f"models/{BARE}",
                     f"datasets/{DATA}", f"spaces/{SPACE}", "datasets/bare-data",
                     f"datasets/{MODEL}", f"spaces/{MODEL}"):
            for more in ("", "/revision/main", "/revision/HEAD", "?blobs=true", "?blobs=True",
                         "/revision/main?blobs=true"):
                with self.subTest(repo=repo, more=more):
                    self.same_json("GET", f"/api/{repo}{more}")

    def test_info_of_revisions(self):
        for revision in ("v1.0", self.commit, "refs%2Fpr%2F1", "feature%2Fx", "refs/pr/1"):
            for more in ("", "?blobs=true"):
                with self.subTest(revision=revision, more=more):
                    info = self.same_json("GET", f"/api/models/{MODEL}/revision/{revision}{more}")
                    self.assertEqual(info["sha"], self.world.repo.resolve(
                        revision.replace("%2F", "/")))
        self.assertEqual(self.same_json("GET", f"/api/models/{MODEL}?revision=v1.0")["sha"],
                         self.world.repo.tags["v1.0"])

    def test_info_of_some_keys(self):
        for keys in (["sha"], ["siblings", "sha"], ["private", "gated", "downloads", "likes"],
                     ["pipeline_tag", "lastModified"], ["gguf"]):
            for name in ("expand", "expand[]", "expand%5B%5D"):
                with self.subTest(keys=keys, name=name):
                    query = "&".join(f"{name}={key}" for key in keys)
                    for at in ("", "/revision/HEAD", f"/revision/{self.commit}"):
                        self.same_json("GET", f"/api/models/{MODEL}{at}?{query}")

    def same_rows(self, path):
        """A listing, whole, in whatever order."""
        last, rows = self.truth.rows(path)
        self.assertEqual(last.status, 200, path)
        for temperature in ("cold", "warm"):
            answer = self.get(path)
            self.assertEqual(answer.status, 200, f"{path}: {answer.body[:1000]}")
            self.assertEqual(answer.headers["X-Repo-Commit"], last.headers["x-repo-commit"])
            ours = json.loads(answer.body)
            self.assertEqual(sorted(ours, key=lambda r: r["path"]),
                             sorted(rows, key=lambda r: r["path"]), f"{temperature}: {path}")
        return ours

    def test_trees(self):
        for revision in ("main", self.commit, "v1.0", "HEAD", "refs%2Fpr%2F1", "refs/pr/1",
                         "feature%2Fx", "feature/x"):
            for query in ("", "?recursive=true", "?recursive=True&expand=False",
                          "?recursive=false&expand=false", "?recursive=1",
                          "?recursive=true&expand=true", "?expand=true"):
                with self.subTest(revision=revision, query=query):
                    self.same_rows(f"/api/models/{MODEL}/tree/{revision}{query}")

    def test_trees_of_folders(self):
        for folder in ("deep", "deep/er", "deep%2Fer", "sub%20dir", "deep%2Fer%2Fstill",
                       "1_Pooling"):
            for revision in ("main", "refs%2Fpr%2F1", "refs/pr/1", self.commit):
                for query in ("", "?recursive=true", "?recursive=true&expand=true"):
                    with self.subTest(folder=folder, revision=revision, query=query):
                        self.same_rows(f"/api/models/{MODEL}/tree/{revision}/{folder}{query}")

    def test_trees_of_other_repositories(self):
        for repo in (f"models/{OLD_NAME}", f"models/{CASED}", f"models/{BARE}",
                     f"datasets/{DATA}", "datasets/bare-data", f"spaces/{SPACE}"):
            with self.subTest(repo=repo):
                self.same_rows(f"/api/{repo}/tree/main?recursive=true&expand=false")
        self.same_rows(f"/api/datasets/{DATA}/tree/refs%2Fconvert%2Fparquet?recursive=true")

    def test_no_such_folder(self):
        for folder in ("additional_chat_templates", "deep%2Fnope", "config.json/x", "dee"):
            for query in ("?recursive=False&expand=False", "?recursive=true&expand=true"):
                with self.subTest(folder=folder, query=query):
                    ours, _ = self.same("GET", f"/api/models/{MODEL}/tree/main/{folder}{query}")
                    self.refused(ours, 404, "EntryNotFound")

    def test_paths_info(self):
        asked = ["config.json", BIG, "sub dir/a+b c.txt", "deep", "not there", "empty.txt"]
        for revision in ("main", self.commit, "refs%2Fpr%2F1"):
            url = f"/api/models/{MODEL}/paths-info/{revision}"
            for expand in (False, True):
                form = "&".join([*(f"paths={quote(p, safe='')}" for p in asked),
                                 f"expand={expand}"]).encode()
                document = json.dumps({"paths": asked, "expand": expand}).encode()
                for headers, body in ((FORM, form), (JSON, document)):
                    with self.subTest(revision=revision, expand=expand, headers=headers):
                        self.same_paths(url, headers, body)
        plus = b"paths=sub+dir%2Fa%2Bb+c.txt"  # in a form, + is a space
        rows = self.same_json("POST", f"/api/models/{MODEL}/paths-info/main", FORM, plus)
        self.assertEqual([row["path"] for row in rows], ["sub dir/a+b c.txt"])
        self.same_json("POST", f"/api/datasets/{DATA}/paths-info/main", JSON,
                       b'{"paths":["README.md","data"]}', key="path")

    def same_paths(self, url, headers, body):
        """But for the commit that each was changed by, which no client needs of single paths."""
        ours, true = self.same("POST", url, headers, body)
        mine, wanted = json.loads(ours.body), json.loads(true.body)
        for row in wanted:
            row.pop("lastCommit", None)
            row.pop("securityFileStatus", None)
        self.assertEqual(len(wanted), 5)
        self.assertEqual(mine, wanted)

    def test_paths_info_of_nonsense(self):
        url = f"/api/models/{MODEL}/paths-info/main"
        for headers, body in ((JSON, b"{"), (JSON, b"[]"), (JSON, b'{"paths": 5}'),
                              (JSON, b'{"paths": [5, null]}'), (JSON, b""),
                              (JSON, json.dumps({"paths": ["x"] * 2000}).encode()),
                              (FORM, b"&".join([b"paths=x"] * 2000)), (FORM, b"paths=%zz%00"),
                              ({}, b"\xff\xfe"), (JSON, b'{"paths":' + b"[" * 100_000)):
            with self.subTest(body=body[:30]):
                answer = self.ask("POST", url, headers, body)
                self.assertIn(answer.status, (200, 400, 413, 422))
                if answer.status == 200:
                    self.assertEqual(json.loads(answer.body), [])

    def test_refs(self):
        for repo in (f"models/{MODEL}", f"models/{OLD_NAME}", f"models/{CASED}",
                     f"datasets/{DATA}", f"spaces/{SPACE}", f"models/{BARE}"):
            for query in ("", "?include_prs=1", "?include_prs=true", "?include_prs=True",
                          "?include_prs=0"):
                with self.subTest(repo=repo, query=query):
                    path = f"/api/{repo}/refs{query}"
                    ours, true = self.same("GET", path)
                    mine, wanted = json.loads(ours.body), json.loads(true.body)
                    self.assertEqual(set(mine) - {"pullRequests"}, set(wanted) - {"pullRequests"})
                    for kind, rows in wanted.items():
                        self.assertEqual(sorted(mine[kind], key=lambda r: r["ref"]),
                                         sorted(rows, key=lambda r: r["ref"]), path)

    def test_commits(self):
        for repo in (f"models/{MODEL}", f"models/{CASED}", f"datasets/{DATA}"):
            self.same_json("GET", f"/api/{repo}/commits/main")
        for revision in (self.commit, "v1.0", "refs%2Fpr%2F1", "feature%2Fx"):
            self.same_json("GET", f"/api/models/{MODEL}/commits/{revision}")

    def test_raw(self):
        for path in ("config.json", "sub%20dir/a%2Bb%20c.txt", "empty.txt", BIG, "old-store.onnx"):
            for revision in ("main", self.commit, "refs%2Fpr%2F1"):
                with self.subTest(path=path, revision=revision):
                    ours, true = self.same("GET", f"/{MODEL}/raw/{revision}/{path}")
                    self.assertEqual(ours.body, true.body)
        ours, true = self.same("GET", f"/datasets/{DATA}/raw/main/README.md")
        self.assertEqual(ours.body, true.body)

    def test_auth_check_and_optional_things(self):
        self.same_json("GET", f"/api/models/{MODEL}/auth-check")
        for path in ("/api/agent-harnesses", "/api/telemetry/x", "/api/nonsense", "/api/models/a/b/c",
                     f"/api/models/{MODEL}/xet-read-token/main",
                     f"/api/models/{MODEL}/xet-read-token/{self.commit}",
                     f"/api/models/{MODEL}/nothing"):
            with self.subTest(path=path):
                before = self.world.hub.count("hub", kind="xet-token,other")
                answer = Answer404(self.wb, self.PREFIX + path)
                self.assertEqual(answer.status, 404)
                self.assertEqual(self.world.hub.count("hub", kind="xet-token,other"), before)
        answer = self.get(f"/api/models/{MODEL}/discussions?p=0")
        self.assertIn(answer.status, (200, 404))

    def test_what_is_not_there(self):
        for path in ("/nobody/nothing/resolve/main/config.json", "/api/models/nobody/nothing",
                     "/api/models/nobody/nothing/tree/main?recursive=true", "/nobody/resolve/main/x",
                     "/api/models/nobody/nothing/revision/main", "/api/models/nobody/nothing/refs",
                     "/datasets/nobody/nothing/resolve/main/x", "/api/datasets/nobody/nothing",
                     f"/{DATA}/resolve/main/README.md", f"/api/models/{DATA}"):
            with self.subTest(path=path):
                for _ in range(2):
                    self.refused(self.get(path), (401, 404), "RepoNotFound")

    def test_no_such_revision(self):
        for revision in ("nope", "0" * 40, self.commit[:10], "refs%2Fpr%2F99", "v9.9"):
            for path in (f"/{MODEL}/resolve/{revision}/config.json",
                         f"/api/models/{MODEL}/revision/{revision}",
                         f"/api/models/{MODEL}/tree/{revision}?recursive=true",
                         f"/api/models/{MODEL}/commits/{revision}",
                         f"/{MODEL}/raw/{revision}/config.json"):
                with self.subTest(path=path):
                    ours, _ = self.same("GET", path)
                    self.refused(ours, 404, "RevisionNotFound")

    def test_no_such_file(self):
        for path in ("nope.json", "chat_template.jinja", "deep", "deep/er/still", "config.json/x",
                     "CONFIG.JSON", "sub+dir/a+b%20c.txt", "nope.safetensors", "a" * 250):
            for revision in ("main", self.commit, "refs%2Fpr%2F1"):
                for method in ("HEAD", "GET"):
                    with self.subTest(path=path, revision=revision, method=method):
                        ours, true = self.same(method, f"/{MODEL}/resolve/{revision}/{path}")
                        self.refused(ours, 404, "EntryNotFound")
                        self.assertEqual(ours.headers["X-Repo-Commit"],
                                         true.headers["x-repo-commit"])

    def test_what_is_not_for_everybody(self):
        for repo, code in ((PRIVATE, "RepoNotFound"), (GATED, "GatedRepo")):
            for path in ("config.json", "model.bin", "nope"):
                for method in ("HEAD", "GET"):
                    with self.subTest(repo=repo, path=path, method=method):
                        answer = self.ask(method, f"/{repo}/resolve/main/{path}")
                        self.refused(answer, (401, 403, 404), code)
            self.refused(self.get(f"/api/models/{repo}/auth-check"), (401, 403, 404), code)
        self.refused(self.get(f"/api/models/{PRIVATE}"), (401, 404), "RepoNotFound")

    def test_whoami_of_strangers(self):
        for token in (None, TOKEN, "nonsense"):
            answer = self.get("/api/whoami-v2", bearer(token))
            self.refused(answer, 401)

    def test_hostile_paths(self):
        for path in (f"/{MODEL}/resolve/main/../../../etc/passwd",
                     f"/{MODEL}/resolve/main/%2e%2e/%2e%2e/x", f"/{MODEL}/resolve/main/a%00b",
                     f"/{MODEL}/resolve/main/%zz", f"/{MODEL}/resolve/main/", f"/{MODEL}/resolve/main",
                     f"/{MODEL}/resolve/", f"/{MODEL}/resolve//config.json",
                     f"/{MODEL}/resolve/main//config.json", f"/{MODEL}/resolve/main/a%0d%0aX:y",
                     f"/{MODEL}/resolve/%2e%2e/config.json", f"/{MODEL}/resolve/main/\xff".replace(
                         "\xff", "%ff%fe"), "/%2e%2e/x/resolve/main/y", "/a--b/x/resolve/main/y",
                     "/api/models/..%2f..%2fx", "/api/models//x", "/api/models/",
                     f"/{MODEL}/resolve/{'r' * 5000}/config.json",
                     f"/{MODEL}/resolve/main/{'p' * 7000}", f"/{'n' * 600}/x/resolve/main/y",
                     f"/api/models/{MODEL}/tree/main/..", f"/api/models/{MODEL}/tree/main/%00",
                     f"/api/models/{MODEL}/revision/", f"/api/models/{MODEL}/tree/",
                     f"/api/models/{MODEL}/revision/main?expand=" + "x" * 3000,
                     f"/{MODEL}/resolve/main/config.json?download=true%00"):
            with self.subTest(path=path[:120]):
                status, headers, body = self.wb.get(self.PREFIX + path)
                self.assertLess(status, 500, body[:500])
                self.assertNotIn("X", headers)
                if status >= 400:
                    self.assertIn("error", "".join(json.loads(body)))
        self.assertEqual(self.get(f"/{MODEL}/resolve/main/config.json?download=true").status, 200)

    def test_other_methods(self):
        for method, path in (("POST", f"/{MODEL}/resolve/main/config.json"),
                             ("PUT", f"/api/models/{MODEL}"), ("DELETE", f"/{MODEL}/resolve/main/x"),
                             ("POST", f"/api/models/{MODEL}/commit/main"),
                             ("POST", "/api/repos/create"), ("GET", f"/api/models/{MODEL}/paths-info/main")):
            with self.subTest(method=method, path=path):
                answer = self.ask(method, path, body=b"{}")
                self.assertIn(answer.status, (403, 404, 405))

    def test_the_registry_is_not_disturbed(self):
        status, _, _ = self.wb.get("/v2/")
        self.assertEqual(status, 200)
        digest, manifest = self.pull_manifest(self.wb, "hf/test-org/some.model", "main")
        layer = paths_of(manifest)[BIG]
        self.assertEqual(layer["digest"], sha256(self.world.files[BIG]))
        self.assertEqual(self.wb.blob("hf/test-org/some.model", layer["digest"])[2],
                         self.world.files[BIG])
        status, headers, _ = self.wb.get(f"/v2/hf/test-org/some.model/manifests/{digest}")
        self.assertEqual((status, headers["Docker-Content-Digest"]), (200, digest))


class Answer404:
    """A quick answer of whatever form: its path may name what answers may not name."""

    def __init__(self, wb, path):
        begun = time.monotonic()
        self.status, self.headers, self.body = wb.get(path)
        self.seconds = time.monotonic() - begun


class UnderAPrefix(Root):
    """HF_ENDPOINT=http://host:port/hf"""

    PREFIX = "/hf"


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
                     "/nobody/nothing/resolve/main/config.json", "/api/models/Org/Model/revision/no",
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
        self.wb = self.make_server(self.hub, tag_ttl="1h")
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
        self.wb = self.make_server(self.hub, tag_ttl="1h", negative_ttl="1h")
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


class Huge(Own):
    """Sparse files: nobody has the room for real ones. Their hashes are made up, so that they cannot
    be had whole."""

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
