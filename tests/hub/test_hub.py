#!/usr/bin/env python3
"""The stand-in's endpoints, asked with raw HTTP. test_hub_faults.py has the switches.

Run as a program, this runs both.
"""

import gzip
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path
from urllib.parse import quote, urlencode

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hub import Sparse, StandInHub  # noqa: E402
from hub_case import (BIG, CONFIG, OTHER, TOKEN, HubCase, bearer, send,  # noqa: E402
                      sha1_blob)

HERE = Path(__file__).parent


class TrueIds(unittest.TestCase):
    def test_git_agrees_with_blob_tree_and_commit_ids(self):
        hub = StandInHub()
        repo = hub.add_repo("a/b", {"x/y.txt": b"1", "x.txt": b"2", "x/z/q": b""})
        commit = repo.commits[repo.branches["main"]]
        self.assertEqual(commit.files["x/z/q"].oid,
                         "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
        self.assertEqual(commit.files["x.txt"].oid, sha1_blob(b"2"))
        rows = [(b"100644 x.txt\0", commit.files["x.txt"].oid), (b"40000 x\0", commit.dirs["x"])]
        body = b"".join(head + bytes.fromhex(oid) for head, oid in rows)
        self.assertEqual(commit.dirs[""], hashlib.sha1(
            b"tree %d\0" % len(body) + body).hexdigest())

    def test_same_content_gives_the_same_commit(self):
        ids = {StandInHub().add_repo("a/b", {"f": b"1"}).branches["main"] for _ in range(2)}
        self.assertEqual(len(ids), 1)
        self.assertRegex(ids.pop(), r"\A[0-9a-f]{40}\Z")

    def test_lfs_rule(self):
        hub = StandInHub()
        repo = hub.add_repo("a/b", {"a.gguf": b"1", "big.json": b" " * (1 << 20),
                                    "small.json": b"1", "no.bin": b"1", "yes.txt": b"1"},
                            lfs=["!no.bin", "yes.*"])
        files = repo.commits[repo.branches["main"]].files
        self.assertEqual({p for p, e in files.items() if e.lfs},
                         {"a.gguf", "big.json", "yes.txt"})
        pointer = (f"version https://git-lfs.github.com/spec/v1\noid sha256:"
                   f"{hashlib.sha256(b'1').hexdigest()}\nsize 1\n").encode()
        self.assertEqual(files["a.gguf"].oid, sha1_blob(pointer))


class Api(HubCase):
    def test_info(self):
        for path in ("", "/revision/main", "/revision/HEAD", f"/revision/{self.main}",
                     "?revision=main"):
            value = self.get(f"/api/models/Org/Name{path}").json
            self.assertEqual((value["id"], value["sha"]), ("Org/Name", self.main), path)
            self.assertIn({"rfilename": "dir/sub/x.txt"}, value["siblings"])
        self.assertEqual(self.get("/api/models/Org/Name/revision/v1").json["sha"], self.old)
        self.assertEqual(
            self.get("/api/models/Org/Name/revision/refs%2Fpr%2F1").json["sha"], self.pr)
        self.assertEqual(
            self.get("/api/models/Org/Name/revision/refs/pr/1").json["sha"], self.pr)

    def test_info_blobs_and_expand(self):
        rows = self.get("/api/models/Org/Name?blobs=true").json["siblings"]
        row = next(r for r in rows if r["rfilename"] == "w.bin")
        self.assertEqual(row["lfs"]["sha256"], hashlib.sha256(BIG).hexdigest())
        self.assertEqual(row["size"], len(BIG))
        for query in ("expand=sha&expand=tags", "expand[]=sha&expand[]=tags"):
            self.assertEqual(set(self.get(f"/api/models/Org/Name?{query}").json),
                             {"_id", "id", "sha", "tags"})

    def test_tree(self):
        rows = {r["path"]: r for r in self.tree().json}
        self.assertEqual(rows["dir/sub"]["type"], "directory")
        self.assertEqual(rows["config.json"]["oid"], sha1_blob(CONFIG))
        self.assertNotIn("lfs", rows["config.json"])
        lfs = rows["w.bin"]["lfs"]
        self.assertEqual(lfs["oid"], hashlib.sha256(BIG).hexdigest())
        self.assertEqual(lfs["size"], len(BIG))
        self.assertEqual(rows["huge.gguf"]["lfs"],
                         {"oid": "5" * 64, "size": 60 << 30, "pointerSize": 136})
        self.assertRegex(rows["w.bin"]["xetHash"], r"\A[0-9a-f]{64}\Z")
        self.assertNotIn("xetHash", rows["old.onnx"])
        top = [r["path"] for r in self.tree("").json]
        self.assertIn("dir", top)
        self.assertNotIn("dir/sub", top)
        expanded = self.tree("recursive=True&expand=True").json[0]
        self.assertEqual(expanded["lastCommit"]["id"], self.main)

    def test_tree_of_a_folder(self):
        for sub in ("dir%2Fsub", "dir/sub"):
            for rev in ("main", "refs%2Fpr%2F1", "refs/pr/1"):
                rows = self.get(f"/api/models/Org/Name/tree/{rev}/{sub}").json
                self.assertEqual([r["path"] for r in rows], ["dir/sub/x.txt"])
        gone = self.get("/api/models/Org/Name/tree/main/additional_chat_templates")
        self.assertEqual((gone.status, gone["X-Error-Code"]), (404, "EntryNotFound"))

    def test_tree_pages(self):
        self.hub.set_options(page_size=4)
        whole, url, pages = [], f"{self.hub.url}/api/models/Org/Name/tree/main?recursive=true", 0
        while url:
            answer = send(url)
            whole += [r["path"] for r in answer.json]
            link = answer["Link"]
            url, pages = link[1:link.index(">")] if link else None, pages + 1
            self.assertTrue(url is None or url.startswith(self.hub.url))
        self.hub.set_options(page_size=1000)
        self.assertEqual(whole, [r["path"] for r in self.tree().json])
        self.assertEqual(pages, 3)
        self.assertIsNotNone(self.tree("recursive=true&limit=2")["Link"])

    def test_paths_info(self):
        asked = ["w.bin", "dir", "not/there", "a b+c/d.txt"]
        form = urlencode([("paths", p) for p in asked] + [("expand", "False")]).encode()
        by_form = self.get("/api/models/Org/Name/paths-info/main", "POST", body=form,
                           Content_Type="application/x-www-form-urlencoded").json
        by_json = self.get("/api/models/Org/Name/paths-info/main", "POST",
                           body=json.dumps({"paths": asked, "expand": True}).encode(),
                           Content_Type="application/json").json
        for rows in (by_form, by_json):
            self.assertEqual([r["path"] for r in rows], ["w.bin", "dir", "a b+c/d.txt"])
        self.assertIn("lastCommit", by_json[0])

    def test_refs(self):
        value = self.get("/api/models/Org/Name/refs").json
        self.assertEqual(value["branches"], [
            {"name": "main", "ref": "refs/heads/main", "targetCommit": self.main}])
        self.assertEqual(value["tags"][0]["targetCommit"], self.old)
        self.assertEqual(value["converts"], [])
        self.assertNotIn("pullRequests", value)
        value = self.get("/api/models/Org/Name/refs?include_prs=1").json
        self.assertEqual(value["pullRequests"][0]["ref"], "refs/pr/1")

    def test_the_rest(self):
        rows = self.get("/api/models/Org/Name/commits/main").json
        self.assertEqual([r["id"] for r in rows], [self.main, self.old])
        self.assertEqual(self.get("/api/models/Org/Name/auth-check").status, 200)
        self.assertEqual(self.get("/api/models/Org/Name/discussions?p=0").status, 200)
        self.assertEqual(self.get("/api/whoami-v2").status, 401)
        self.hub.add_token(TOKEN, "ann")
        self.assertEqual(self.get("/api/whoami-v2", **bearer(TOKEN)).json["name"], "ann")
        self.assertEqual(self.get("/api/agent-harnesses").status, 404)
        self.assertEqual(self.get("/api/telemetry/x", "HEAD").status, 404)
        self.assertEqual(self.get("/").status, 404)
        token = self.get(f"/api/models/Org/Name/xet-read-token/{self.main}")
        self.assertEqual(set(token.json), {"accessToken", "casUrl", "exp"})
        self.assertEqual(self.hub.count(kind="xet-token"), 1)

    def test_rate_limit_headers(self):
        first, second = self.tree(), self.tree()
        self.assertRegex(first["RateLimit"], r'\A"api";r=\d+;t=\d+\Z')
        self.assertEqual(first["RateLimit-Policy"], '"fixed window";"api";q=500;w=300')
        left = [int(a["RateLimit"].split("r=")[1].split(";")[0]) for a in (first, second)]
        self.assertEqual(left[0] - 1, left[1])
        self.assertIn('"resolvers"', self.resolve("config.json")["RateLimit"])

    def test_moving_a_branch_and_tag(self):
        self.hub.move_branch("Org/Name", "main", "v1")
        self.assertEqual(self.resolve("config.json", Accept_Encoding="identity").status, 307)
        self.assertEqual(self.get("/api/models/Org/Name").json["sha"], self.old)
        self.hub.set_tag("Org/Name", "v2", self.main)
        self.assertEqual(self.get("/api/models/Org/Name/revision/v2").json["sha"], self.main)
        new = self.hub.add_commit("Org/Name", {"n.txt": b"n", "config.json": None},
                                  keep=True, parent=self.main)
        files = self.repo.commits[new].files
        self.assertIn("n.txt", files)
        self.assertNotIn("config.json", files)


    def test_rate_limits_that_are_enforced(self):
        self.hub.set_options(rate_enforced=True, rate_limits={"api": 2, "resolvers": 1},
                             rate_window=60)
        said = [self.get("/api/models/Org/Name") for _ in range(3)]
        self.assertEqual([answer.status for answer in said], [200, 200, 429])
        self.assertRegex(said[2]["RateLimit"], r'\A"api";r=0;t=\d+\Z')
        self.assertEqual(self.resolve("w.bin").status, 302)
        self.assertEqual(self.resolve("w.bin").status, 429)
        self.hub.reset()
        self.assertEqual(self.resolve("w.bin").status, 302)
        self.hub.set_options(rate_window=0)
        self.assertEqual([self.resolve("w.bin").status for _ in range(2)], [302, 302])


class Resolve(HubCase):
    def test_small_file_goes_by_resolve_cache(self):
        for method in ("GET", "HEAD"):
            hop = self.resolve("config.json", method=method, Accept_Encoding="identity")
            self.assertEqual(hop.status, 307)
            self.assertEqual(hop["Location"], (
                f"/api/resolve-cache/models/Org/Name/{self.main}/config.json?"
                f"%2FOrg%2FName%2Fresolve%2Fmain%2Fconfig.json="
                f"&etag=%22{sha1_blob(CONFIG)}%22"))
            got = self.get(hop["Location"], method, Accept_Encoding="identity")
            self.assertEqual(got.status, 200)
            self.assertEqual(got["X-Repo-Commit"], self.main)
            self.assertEqual(got["ETag"], f'"{sha1_blob(CONFIG)}"')
            self.assertEqual(got["Content-Length"], str(len(CONFIG)))
            self.assertIsNone(got["Content-Encoding"])
            self.assertEqual(got.body, CONFIG if method == "GET" else b"")
            bare = self.get(hop["Location"].split("?")[0], method)
            self.assertEqual(bare.status, 200)

    def small(self, path="config.json", revision="main", **more):
        hop = self.resolve(path, revision, **more)
        self.assertEqual(hop.status, 307)
        return self.get(hop["Location"], **more)

    def test_gzip_when_accepted(self):
        got = self.small(Accept_Encoding="gzip, deflate")
        self.assertEqual(got["Content-Encoding"], "gzip")
        self.assertEqual(got["Transfer-Encoding"], "chunked")
        self.assertIsNone(got["Content-Length"])
        self.assertEqual(got["ETag"], f'W/"{sha1_blob(CONFIG)}"')
        self.assertEqual(gzip.decompress(got.body), CONFIG)
        self.hub.set_options(gzip="never")
        self.assertEqual(self.small(Accept_Encoding="gzip").body, CONFIG)
        self.hub.set_options(gzip="always")
        self.assertEqual(self.small(Accept_Encoding="identity")["Content-Encoding"], "gzip")

    def test_small_ranges(self):
        got = self.small(Range="bytes=2-5", Accept_Encoding="gzip")
        self.assertEqual((got.status, got.body), (206, CONFIG[2:6]))
        self.assertEqual(got["Content-Range"], f"bytes 2-5/{len(CONFIG)}")
        got = self.small(Range=f"bytes=5-{len(CONFIG)}")
        self.assertEqual(got.body, CONFIG[5:])
        got = self.small(Range=f"bytes={len(CONFIG)}-")
        self.assertEqual((got.status, got["Content-Range"]), (416, f"bytes */{len(CONFIG)}"))

    def test_empty_file_is_direct(self):
        got = self.resolve("empty.txt")
        self.assertEqual((got.status, got["Content-Length"]), (200, "0"))
        self.assertEqual(got["ETag"], '"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"')
        for mode, status in (("trick", 200), ("416", 416), ("200", 200)):
            self.hub.set_options(empty_range=mode)
            got = self.resolve("empty.txt", Range="bytes=0-0")
            self.assertEqual(got.status, status)
            self.assertEqual(got["Content-Range"], None if mode == "200" else "bytes */0")

    def test_bare_private_and_gated_are_direct(self):
        self.hub.add_repo("gpt2", {"config.json": CONFIG})
        self.hub.add_repo("P/r", {"config.json": CONFIG}, private=True, tokens=[TOKEN])
        self.hub.add_repo("G/r", {"config.json": CONFIG}, gated=True, tokens=[TOKEN])
        self.assertEqual(self.resolve("config.json", repo="gpt2").body, CONFIG)
        for repo in ("P/r", "G/r"):
            got = self.resolve("config.json", repo=repo, **bearer(TOKEN))
            self.assertEqual((got.status, got.body), (200, CONFIG))
        self.assertEqual(self.get("/api/models/gpt2/tree/main").json[0]["path"], "config.json")
        self.assertEqual(self.get("/api/models/gpt2").json["author"], None)

    def test_weights_redirect_to_the_cdn(self):
        for method in ("GET", "HEAD"):
            got = self.resolve("w.bin", method=method)
            self.assertEqual(got.status, 302)
            self.assertEqual(got["X-Repo-Commit"], self.main)
            self.assertEqual(got["X-Linked-Size"], str(len(BIG)))
            self.assertEqual(got["X-Linked-ETag"], f'"{hashlib.sha256(BIG).hexdigest()}"')
            self.assertRegex(got["X-Xet-Hash"], r"\A[0-9a-f]{64}\Z")
            self.assertIn('rel="xet-auth"', got["Link"])
            self.assertEqual(got["Accept-Ranges"], "bytes")
            self.assertTrue(got["Location"].startswith(self.hub.cdn_url))
        self.assertIsNone(self.resolve("old.onnx")["X-Xet-Hash"])
        info = self.resolve("w.bin", Accept="application/vnd.xet-fileinfo+json, */*")
        self.assertEqual(info["Content-Type"], "application/vnd.xet-fileinfo+json")
        self.hub.set_options(xet=False)
        got = self.resolve("w.bin", Accept="application/vnd.xet-fileinfo+json, */*")
        self.assertEqual((got.status, got["X-Xet-Hash"], got["Link"]), (302, None, None))
        self.assertFalse(any("xetHash" in r for r in self.tree().json))
        self.assertNotIn("xetEnabled", self.get("/api/models/Org/Name").json)

    def test_paths_and_revisions_in_every_spelling(self):
        for path in ("a%20b+c/d.txt", "a%20b%2Bc/d.txt", "a%20b%2Bc%2Fd.txt"):
            self.assertEqual(self.small(path).body, b"plus")
        for revision in ("refs%2Fpr%2F1", "refs/pr/1", self.pr):
            self.assertEqual(self.small(revision=revision).body, b"pr")
        self.assertEqual(self.small(revision="v1").body, b"{}")
        self.assertEqual(self.resolve("config.json", self.main[:8]).status, 404)

    def test_if_none_match(self):
        etag = f'"{hashlib.sha256(BIG).hexdigest()}"'
        for method in ("GET", "HEAD"):
            got = self.resolve("w.bin", method=method, If_None_Match=etag)
            self.assertEqual((got.status, got["ETag"]), (304, etag))
            got = self.resolve("config.json", method=method,
                               If_None_Match=f'"{sha1_blob(CONFIG)}"')
            self.assertEqual(got.status, 304)
        self.assertEqual(self.resolve("w.bin", If_None_Match='"x"').status, 302)

    def test_raw_gives_the_pointer(self):
        got = self.get("/Org/Name/raw/main/w.bin")
        self.assertTrue(got.body.startswith(b"version https://git-lfs"))
        self.assertEqual(self.get("/Org/Name/raw/main/config.json").body, CONFIG)

    def test_datasets_have_their_own_names(self):
        self.hub.add_repo("Org/Name", {"d.json": b"1"}, kind="dataset")
        hop = self.get("/datasets/Org/Name/resolve/main/d.json")
        self.assertIn("/api/resolve-cache/datasets/Org/Name/", hop["Location"])
        self.assertEqual(self.get(hop["Location"]).body, b"1")
        self.assertEqual(self.get("/api/datasets/Org/Name/tree/main").json[0]["path"], "d.json")


class Errors(HubCase):
    def check(self, answer, status, code, message):
        self.assertEqual((answer.status, answer["X-Error-Code"]), (status, code))
        self.assertIn(message, answer["X-Error-Message"])
        if answer.body:
            self.assertIn(message, answer.json["error"])

    def test_missing_things(self):
        for method in ("GET", "HEAD"):
            got = self.resolve("nope.json", method=method)
            self.check(got, 404, "EntryNotFound", "Entry not found")
            self.assertEqual(got["X-Repo-Commit"], self.main)
            self.check(self.resolve("config.json", "nope", method=method), 404,
                       "RevisionNotFound", "Invalid rev id: nope")
            self.check(self.resolve("x", repo="no/body", method=method), 401,
                       "RepoNotFound", "Repository not found")
        self.check(self.resolve("dir"), 404, "EntryNotFound", "Entry not found")
        self.hub.add_token(TOKEN)
        self.check(self.resolve("x", repo="no/body", **bearer(TOKEN)), 404,
                   "RepoNotFound", "Repository not found")
        for tail in ("revision/nope", "tree/nope", "commits/nope"):
            self.check(self.get(f"/api/models/Org/Name/{tail}"), 404,
                       "RevisionNotFound", "Invalid rev id")

    def test_private_gated_disabled(self):
        files = {"config.json": CONFIG, "w.bin": b"w"}
        self.hub.add_token(OTHER)
        self.hub.add_repo("P/r", files, private=True, tokens=[TOKEN])
        self.hub.add_repo("G/r", files, gated="manual", tokens=[TOKEN])
        self.hub.add_repo("D/r", files, disabled=True)
        for path in ("/P/r/resolve/main/w.bin", "/api/models/P/r", "/api/models/P/r/refs"):
            self.check(self.get(path), 401, "RepoNotFound", "Repository not found")
            self.check(self.get(path, **bearer(OTHER)), 404, "RepoNotFound", "Repository")
            self.assertIn(self.get(path, **bearer(TOKEN)).status, (200, 302))
        for path in ("/G/r/resolve/main/w.bin", "/api/models/G/r/auth-check"):
            self.check(self.get(path), 401, "GatedRepo", "Access to model G/r is restricted")
            self.check(self.get(path, **bearer(OTHER)), 403, "GatedRepo", "restricted")
            self.assertIn(self.get(path, **bearer(TOKEN)).status, (200, 302))
        rows = {r["path"]: r for r in self.get("/api/models/G/r/tree/main").json}
        self.assertEqual(rows["w.bin"]["xetHash"], "*" * 64)
        self.check(self.get("/api/models/D/r"), 403, None, "Access to this resource")

    def test_bad_token(self):
        for path in ("/api/models/Org/Name", "/Org/Name/resolve/main/config.json"):
            self.check(self.get(path, **bearer("hf_wrong")), 401, None, "Invalid credentials")

    def test_renames_and_case(self):
        for asked in ("Old/Name", "old/name", "org/name", "ORG/NAME"):
            got = self.resolve("a%20b+c/d.txt?x=1", repo=asked)
            self.assertEqual((got.status, got["Location"]),
                             (307, "/Org/Name/resolve/main/a%20b+c/d.txt?x=1"))
            got = self.get(f"/api/models/{asked}/tree/refs%2Fpr%2F1?recursive=true")
            self.assertEqual((got.status, got["Location"]), (
                307, "/api/models/Org/Name/tree/refs%2Fpr%2F1?recursive=true"))
        self.hub.set_options(case_redirect=False)
        self.check(self.get("/api/models/org/name"), 401, "RepoNotFound", "Repository")
        self.assertEqual(self.get("/api/models/Old/Name").status, 307)
        self.hub.rename_repo("Org/Name", "New/Name")
        self.assertEqual(self.get("/api/models/Org/Name")["Location"], "/api/models/New/Name")
        self.hub.delete_repo("New/Name")
        self.assertEqual(self.get("/api/models/Org/Name").status, 401)


class Cdn(HubCase):
    def test_whole_and_ranges(self):
        for path in ("w.bin", "disk.safetensors"):
            got = self.cdn(path)
            self.assertEqual((got.status, got.body), (200, BIG))
            self.assertNotIn(hashlib.sha256(BIG).hexdigest(), got["ETag"])
            size = len(BIG)
            for asked, a, b in (("0-0", 0, 0), ("5-99", 5, 99), ("2999990-", 2999990, size - 1),
                                (f"10-{size}", 10, size - 1), ("-7", size - 7, size - 1)):
                got = self.cdn(path, Range=f"bytes={asked}")
                self.assertEqual((got.status, got.body), (206, BIG[a:b + 1]), asked)
                self.assertEqual(got["Content-Range"], f"bytes {a}-{b}/{size}")
            got = self.cdn(path, Range=f"bytes={size}-")
            self.assertEqual((got.status, got["Content-Range"]), (416, f"bytes */{size}"))
            got = self.cdn(path, method="HEAD")
            self.assertEqual((got["Content-Length"], got.body), (str(size), b""))

    def test_etag_is_the_xet_hash(self):
        xet = self.resolve("w.bin")["X-Xet-Hash"]
        etag = self.cdn()["ETag"]
        self.assertEqual(etag, f'"{xet}"')
        self.assertEqual(self.cdn(Range="bytes=1-2", If_Range=etag).status, 206)
        self.assertEqual(self.cdn(Range="bytes=1-2", If_Range='"other"').status, 200)

    def test_authorization_is_refused(self):
        got = self.cdn(**bearer(TOKEN))
        self.assertEqual(got.status, 400)
        self.assertIn(b"Only one auth mechanism allowed", got.body)
        self.assertEqual(self.hub.counters()["rows"][-1]["authorization"], 1)

    def test_signatures(self):
        url = self.signed()
        other = self.signed("disk.safetensors")
        forged = [url.replace("Signature=", "Signature=0"), url.split("?")[0],
                  url.replace("Expires=", "Expires=9"),
                  other.split("?")[0].rsplit("/", 1)[0] + "/" + "0" * 64 + "?"
                  + url.split("?")[1]]
        for bad in forged:
            self.assertEqual(send(bad).status, 403, bad)
        self.assertEqual(send(url).status, 200)
        self.hub.expire_urls()
        self.assertEqual(send(url).status, 403)
        self.assertEqual(send(self.signed()).status, 200)

    def test_huge_sparse_file(self):
        url = self.signed("huge.gguf")
        self.assertEqual(send(url).status, 400)
        got = send(url, Range="bytes=0-11")
        self.assertEqual(got.body, b"GGUFhead\0\0\0\0")
        got = send(url, Range=f"bytes={(60 << 30) - 5}-")
        self.assertEqual(got.body, bytes(5))
        self.assertEqual(send(url, "HEAD")["Content-Length"], str(60 << 30))

    def test_sparse_hash(self):
        sparse = Sparse(3_000_000, header=b"abc")
        want = hashlib.sha256(b"abc" + bytes(2_999_997)).hexdigest()
        self.assertEqual(sparse.true_sha256(), want)
        self.hub.add_repo("S/r", {"s.bin": Sparse(3_000_000, want, b"abc")})
        got = send(self.signed("s.bin", repo="S/r"))
        self.assertEqual(hashlib.sha256(got.body).hexdigest(), want)


class Counting(HubCase):
    def test_log_and_counters(self):
        url = self.signed(User_Agent="probe/1")
        send(url, Range="bytes=10-19", User_Agent="probe/1")
        send(url, Range="bytes=20-24")
        self.assertEqual(self.hub.count("cdn"), 2)
        self.assertEqual(self.hub.bytes_sent("cdn", path="w.bin"), 15)
        self.assertEqual(self.hub.count("cdn", path="other*"), 0)
        self.assertEqual(self.hub.count("hub", kind="resolve", repo="org/name"), 1)
        value = self.get("/_counters").json
        self.assertEqual(value["totals"]["cdn"], {"requests": 2, "bytes": 15})
        row = next(r for r in value["rows"] if r["host"] == "cdn")
        self.assertEqual(row["ranges"], ["bytes=10-19", "bytes=20-24"])
        self.assertEqual(row["authorization"], 0)
        self.assertEqual(row["user_agents"], ["probe/1", None])
        self.assertEqual(self.get("/_log").json[0]["headers"]["user-agent"], "probe/1")
        self.assertEqual(self.get("/_reset", "POST", body=b"").status, 200)
        self.assertEqual(self.hub.counters()["totals"]["cdn"]["requests"], 0)

    def test_an_early_close_is_not_overstated(self):
        huge = self.signed("huge.gguf")
        connection = http.client.HTTPConnection(self.hub.cdn_url[7:], timeout=20)
        connection.request("GET", huge[len(self.hub.cdn_url):],
                           headers={"Range": "bytes=0-4000000000"})
        answer = connection.getresponse()
        answer.read(1 << 20)
        connection.sock.close() if connection.sock else None
        answer.close()
        self.assertTrue(self.hub.wait_requests(1, host="cdn", done=True))
        record = self.hub.requests("cdn")[0]
        self.assertTrue(record.aborted)
        self.assertGreaterEqual(record.sent, 1 << 20)
        self.assertLess(record.sent, 4 << 20)

    def test_keep_alive(self):
        connection = http.client.HTTPConnection(self.hub.url[7:], timeout=20)
        for _ in range(3):
            connection.request("GET", "/api/models/Org/Name")
            self.assertEqual(connection.getresponse().read()[:1], b"{")
        connection.close()


class Root(unittest.TestCase):
    def test_program_with_a_directory(self):
        import tempfile
        with tempfile.TemporaryDirectory() as name:
            plain = Path(name, "models/Org/Plain")
            for revision, text in (("main", "m"), (quote("refs/pr/2", safe=""), "p"),
                                   ("b" * 40, "c")):
                Path(plain, revision, "sub").mkdir(parents=True)
                Path(plain, revision, "sub", "f.txt").write_text(text)
            Path(name, "models/bare/main").mkdir(parents=True)
            Path(name, "models/bare/main/w.bin").write_bytes(b"weights")
            told = Path(name, "models/org/told")
            Path(told, "one").mkdir(parents=True)
            Path(told, "one", "f.json").write_text("1")
            Path(told, "h.bin").write_bytes(b"HEAD")
            Path(told, "repo.json").write_text(json.dumps({
                "id": "Org/Told", "renamed_from": ["Was/Told"], "default_branch": "trunk",
                "commits": [{"name": "one"}, {"name": "two", "folder": "one", "parent": "one",
                             "sparse": {"big.gguf": {"size": 60 << 30, "sha256": "7" * 64,
                                                     "header": "h.bin"}}}],
                "branches": {"trunk": "two"}, "tags": {"v0": "one"},
                "refs": {"refs/pr/1": "one"}}))
            process = subprocess.Popen([sys.executable, HERE / "hub.py", "--root", name],
                                       stdout=subprocess.PIPE, text=True)
            try:
                hub = process.stdout.readline().split()
                cdn = process.stdout.readline().split()
                self.assertEqual((hub[0], cdn[0]), ("hub", "cdn"))
                url = hub[1]
                for revision, text in (("main", b"m"), ("refs%2Fpr%2F2", b"p"), ("b" * 40, b"c")):
                    got = send(f"{url}/Org/Plain/resolve/{revision}/sub/f.txt")
                    self.assertEqual(send(url + got["Location"]).body, text)
                got = send(f"{url}/bare/resolve/main/w.bin")
                self.assertEqual(send(got["Location"]).body, b"weights")
                got = send(f"{url}/Org/Told/resolve/trunk/big.gguf")
                self.assertEqual(send(got["Location"], Range="bytes=0-4").body, b"HEAD\0")
                self.assertEqual(send(f"{url}/api/models/Was/Told").status, 307)
                refs = send(f"{url}/api/models/Org/Told/refs?include_prs=1").json
                self.assertEqual(len(refs["pullRequests"]), 1)
            finally:
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(20), 0)
                process.stdout.close()


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.discover(str(HERE), "test_hub*.py")
    result = unittest.TextTestRunner().run(suite)
    bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.testsRun - bad - skipped} passed, {bad} failed, {skipped} skipped")
    sys.exit(not result.wasSuccessful())
