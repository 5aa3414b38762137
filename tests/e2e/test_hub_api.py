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

from harness import paths_of, sha256  # noqa: E402
from hub_api_case import (TOKEN, HubApiCase, Truth, Weighbridge, World,  # noqa: E402
                          bearer, end_hub, end_server, git_blob_id, upstream)
from hub_world import (BARE, DATA, GATED, MODEL, OLD_NAME, PRIVATE, SPACE)  # noqa: E402

CASED = "test-org/some.MODEL"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
BIG = "model.safetensors"


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
        for path in ("/api/agent-harnesses", "/api/telemetry/x", "/api/nonsense",
                     "/api/models/a/b/c",
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
                     "/api/models/nobody/nothing/tree/main?recursive=true",
                     "/nobody/resolve/main/x",
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
                     f"/{MODEL}/resolve/main/%zz", f"/{MODEL}/resolve/main/",
                     f"/{MODEL}/resolve/main",
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
                             ("PUT", f"/api/models/{MODEL}"),
                             ("DELETE", f"/{MODEL}/resolve/main/x"),
                             ("POST", f"/api/models/{MODEL}/commit/main"),
                             ("POST", "/api/repos/create"),
                             ("GET", f"/api/models/{MODEL}/paths-info/main")):
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


if __name__ == "__main__":
    unittest.main()
