#!/usr/bin/env python3
"""The Rust crate hf-hub downloads through the server, as test_hub_clients.py has other clients do:
1.0, which knows Xet, and 0.5 in its two forms, of which one asks for pieces, several at once."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import PATIENCE_S, sha256_of, tree  # noqa: E402
from hub_clients import client_env  # noqa: E402
from hub_world import BARE, DATA, GATED, MODEL, OLD_NAME, SPACE  # noqa: E402
from test_hub_clients import BIG, BRANCH_S, HubClients  # noqa: E402
from tools import tool  # noqa: E402

# 0.5 puts a file's name into the URL as it is: with ureq, no file with a space can be asked for.
NOT_FOR_BEFORE = ("sub dir/",)


class Rust(HubClients):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = cls.have(tool, "rust-hub")
        cls.commits = {name: commit.id for name, commit in (
            (None, cls.world.repo.commits[cls.world.repo.branches["main"]]),
            ("v1.0", cls.world.repo.commits[cls.world.repo.tags["v1.0"]]),
            ("refs/pr/1", cls.world.repo.commits[cls.world.repo.refs["refs/pr/1"]]))}

    def drive(self, endpoint, api, repo, **more):
        """(what it says, {path: sha256}), by a client with an empty cache."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as home:
            asked = json.dumps({"api": api, "repo": repo, **more})
            said = json.loads(self.run_client([self.program, asked], endpoint, HF_HOME=home))
            got = {}
            for name, path in said["paths"].items():
                self.assertTrue(path.startswith(home), path)
                got |= tree(path) if name == "." else {name: sha256_of(path)}
            if "part" in said:
                said["part"] = sha256_of(said["part"])[7:]
        return said, {name: digest[7:] for name, digest in got.items()}

    def check(self, endpoint, api, repo, wanted, **more):
        said, got = self.drive(endpoint, api, repo, **more)
        self.assertEqual(got, wanted, f"{api} {repo} {more}")
        if repo in (MODEL, OLD_NAME) and "type" not in more:
            self.assertEqual(said["sha"], self.commits[more.get("revision")])
        return said

    def assert_one_copy(self, but=()):
        """Of all that the tests below ask for, except for paths that begin so."""
        sizes = {}
        for repo in (self.hub.repo(MODEL), self.hub.repo(BARE), self.hub.repo(DATA, "dataset"),
                     self.hub.repo(SPACE, "space")):
            for name in (*repo.branches, *repo.tags, *(r for r in repo.refs if "/pr/" in r)):
                sizes |= {entry.sha256: entry.size
                          for path, entry in repo.commits[repo.resolve(name)].files.items()
                          if entry.lfs and not path.startswith(but)}
        self.assertEqual(self.hub.bytes_sent("cdn"), sum(sizes.values()))

    def test_now(self):
        world = self.world
        first, end = 7_000_003, 7_200_001

        def check(endpoint, state):
            said = self.check(endpoint, "1.0", MODEL, world.expected)
            self.assertEqual(sorted(said["names"]), sorted(world.files))
            said = self.check(endpoint, "1.0", MODEL, {"config.json": world.expected["config.json"],
                                                       BIG: world.expected[BIG]},
                              files=["config.json", BIG], range=[BIG, first, end])
            self.assertEqual(said["part"],
                             hashlib.sha256(world.files[BIG][first:end]).hexdigest())
            if state in ("warm", "stale"):
                return
            self.check(endpoint, "1.0", MODEL, world.tag_expected, revision="v1.0")
            self.check(endpoint, "1.0", MODEL, world.pr_expected, revision="refs/pr/1")
            self.check(endpoint, "1.0", BARE, world.small_expected)
            self.check(endpoint, "1.0", OLD_NAME, world.expected)
            self.check(endpoint, "1.0", DATA, world.data_expected, type="dataset")
            self.check(endpoint, "1.0", SPACE, world.space_expected, type="space")
            if state == "cold":
                self.assert_one_copy()
        self.in_each_state(check)

    def before(self, api):
        world = self.world

        def files_of(expected):
            return {name: digest for name, digest in expected.items()
                    if not name.startswith(NOT_FOR_BEFORE)}

        def check(endpoint, state):
            for repo, kind, revision, expected in (
                    (MODEL, None, None, world.expected), (MODEL, None, "v1.0", world.tag_expected),
                    (MODEL, None, "refs/pr/1", world.pr_expected),
                    (BARE, None, None, world.small_expected),
                    (OLD_NAME, None, None, world.expected),
                    (DATA, "dataset", None, world.data_expected),
                    (SPACE, "space", None, world.space_expected)):
                if state in ("warm", "stale") and (repo != MODEL or revision):
                    continue
                wanted, more = files_of(expected), {"type": kind} if kind else {}
                said = self.check(endpoint, api, repo, wanted, files=sorted(wanted),
                                  **({"revision": revision} if revision else {}), **more)
                self.assertEqual(sorted(said["names"]), sorted(expected))
            if state == "cold":
                self.assert_one_copy(NOT_FOR_BEFORE)
        self.in_each_state(check)

    def refuse(self, wb, repo, *said):
        """1.0.0 by itself takes what is said of an error for the file."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as home:
            asked = json.dumps({"api": "1.0", "repo": repo, "files": ["config.json"]})
            done = subprocess.run([self.program, asked], env=client_env(self.endpoint(wb), home),
                                  capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            for word in said:
                self.assertIn(word, done.stderr)
            self.assertEqual([path for path in Path(home).rglob("*")
                              if path.is_file() and path.name not in ("main", ".gitignore")
                              and path.suffix not in (".lock", ".incomplete")], [])

    def test_errors(self):
        wb = self.serve(tag_ttl=BRANCH_S)
        self.refuse(wb, "nobody/nothing", "RepoNotFound", "does not exist on the Hub")
        self.refuse(wb, GATED)
        wb.get(f"/hf/api/models/{BARE}/tree/main")
        self.hub.stop()
        self.addCleanup(self.hub.start)
        self.refuse(wb, BARE)

    def test_before_with_ureq(self):
        self.before("ureq")

    def test_before_with_tokio(self):
        self.before("tokio")


if __name__ == "__main__":
    unittest.main()
