#!/usr/bin/env python3
"""The Hub's own clients, unmodified, download through the server: from nothing, again, after the
branch's time is over while the Hub answers 503, and when there is no Hub. hf_xet is installed where
a client knows it, the stand-in Hub has all that leads there, and the clients run in a network
namespace in which nothing but the server can be reached."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import PATIENCE_S, EndToEnd, tree  # noqa: E402
from harness import safetensors_file  # noqa: E402
from hub_clients import (CannotInstall, client_env, js_client,  # noqa: E402
                         python_client)
from hub_world import BARE, DATA, MODEL, OLD_NAME, SPACE, World  # noqa: E402
from namespace import CannotMake, Namespace  # noqa: E402
from realfiles import MINILM_ID, Unavailable, minilm  # noqa: E402

HUB = Path(__file__).resolve().parents[1] / "hub"
DRIVER, JS_DRIVER = HUB / "client_driver.py", HUB / "client_driver.mjs"
TENSORS = "Test-Org/Tensors"
BIG = "model.safetensors"
BRANCH_S = "1h"
ISOLATED = """
import socket, sys
for i, place in enumerate(sys.argv[1:]):
    try:
        socket.create_connection(place.split(":"), timeout=3).close()
        reached = True
    except OSError:
        reached = False
    print("reached" if reached else "not reached")
"""
# The weights are read with numpy: torch from PyPI is 539 MB, and CUDA comes on top of that.
TRANSFORMERS = """
import hashlib, json, sys
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import cached_file
name = sys.argv[1]
tokenizer = AutoTokenizer.from_pretrained(name)
config = AutoConfig.from_pretrained(name)
weights = load_file(cached_file(name, "model.safetensors"))
print(json.dumps({"ids": tokenizer("hello world")["input_ids"], "hidden": config.hidden_size,
                  "layers": config.num_hidden_layers, "type": config.model_type,
                  "tensors": {name: [list(tensor.shape), hashlib.sha256(tensor).hexdigest()]
                              for name, tensor in weights.items()}}))
"""


def tensors():
    """A model in three shards, which safetensors can read: {path: bytes}."""
    files, index = {"config.json": b"{}"}, {}
    for i in range(3):
        name = f"model-{i + 1:05d}-of-00003.safetensors"
        files[name] = safetensors_file({f"l{i}.w": ("F32", (8, 16)), f"l{i}.b": ("BF16", (8,))})
        index |= {f"l{i}.w": name, f"l{i}.b": name}
    files["model.safetensors.index.json"] = json.dumps(
        {"metadata": {"total_size": 3 * (8 * 16 * 4 + 8 * 2)}, "weight_map": index}).encode()
    return files


def tensors_of(path):
    """{name: [shape, sha256]} of a safetensors file."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    table = json.loads(data[8:start])
    table.pop("__metadata__", None)
    return {name: [tensor["shape"], hashlib.sha256(
        data[start + tensor["data_offsets"][0]:start + tensor["data_offsets"][1]]).hexdigest()]
            for name, tensor in table.items()}


class HubClients(EndToEnd):
    """A Hub with a world of repositories, and ways to run clients that cannot reach it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        scratch = tempfile.TemporaryDirectory(prefix="wb-hub-clients-")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = scratch.name
        cls.world = World(Path(cls.scratch), page_size=5)
        cls.addClassCleanup(cls.world.hub.stop)
        cls.world.hub.add_repo(TENSORS, tensors())
        cls.hub = cls.world.hub
        cls.namespace, cls.why_not = None, None
        try:
            cls.namespace = Namespace()
            cls.addClassCleanup(cls.namespace.close)
        except CannotMake as error:
            cls.why_not = str(error)

    def setUp(self):
        self.hub.reset()
        self.addCleanup(self.end_world)

    def end_world(self):
        self.assertEqual(self.hub.errors, [], "the stand-in Hub itself failed")

    @classmethod
    def have(cls, install, *names):
        try:
            return install(*names)
        except CannotInstall as error:
            raise unittest.SkipTest(("unreachable: " if error.offline else "")
                                    + f"{' '.join(names) or install.__name__}: {error}") from error

    def serve(self, data=None, policies=(), **settings):
        wb = self.make_weighbridge(data=data, config={"policies": policies, "upstreams": [{
            "prefix": "hf", "kind": "huggingface", "url": self.hub.url, "negative_ttl": "1h",
            "connect_timeout": "2s", "stall_timeout": "5s", **settings}]})
        if self.namespace:
            self.namespace.lead(int(wb.host.rsplit(":", 1)[1]))
        return wb

    @staticmethod
    def endpoint(wb):
        """For HF_ENDPOINT: under the upstream's prefix."""
        return f"{wb.url}/hf"

    def run_client(self, command, endpoint, cwd=None, **env):
        """Standard output of a client that must succeed, with a home of its own."""
        inside = self.namespace.command if self.namespace else []
        with tempfile.TemporaryDirectory(dir=self.scratch) as home:
            done = subprocess.run(
                [*inside, *map(str, command)], env=client_env(endpoint, home, **env), cwd=cwd,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
                check=False)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-2000:]}\n"
                                             f"{done.stderr[-4000:]}")
        return done.stdout

    def in_each_state(self, check, states=("cold", "warm", "stale", "down")):
        """check(endpoint, state) with a server that knows nothing, that has everything, whose
        knowledge is old while the Hub is broken, and whose Hub is gone."""
        wb = self.serve(tag_ttl=BRANCH_S)
        for state in states:
            if state == "stale":
                wb.stop()
                wb = self.serve(data=wb.data, tag_ttl="0s")
                self.hub.fault("hub_status", status=503)
            if state == "down":
                self.hub.stop()
                self.addCleanup(self.hub.start)
            elif state != "stale":
                self.hub.reset()
            with self.subTest(state=state):
                check(self.endpoint(wb), state)
            if state == "warm":
                asked = [(r.kind, r.method, r.target) for r in self.hub.requests()]
                self.assertEqual(asked, [], "nothing needs to be asked")
            self.nobody_came_round()
        wb.stop()

    def nobody_came_round(self):
        for request in self.hub.requests():
            self.assertTrue(request.headers.get("user-agent", "").startswith("weighbridge"),
                            f"{request.host} {request.target}: {request.headers}")
        self.assertEqual(self.hub.count(kind="xet-token,cas"), 0)


class Isolation(HubClients):
    def test_only_the_server_can_be_reached(self):
        if self.why_not:
            self.skipTest(f"no network namespace: {self.why_not}")
        wb = self.serve()
        places = [wb.host, *("%s:%d" % self.hub.address(host) for host in ("hub", "cdn")),
                  "1.1.1.1:443", "huggingface.co:443"]
        said = self.run_client([sys.executable, "-c", ISOLATED, *places], wb.url).split("\n")
        self.assertEqual(said[:-1], ["reached", *["not reached"] * 4])


class PythonClient:
    """One version of huggingface_hub; a mixin."""

    VERSION = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python = cls.have(python_client, cls.VERSION)
        has_xet = subprocess.run([cls.python, "-c", "import hf_xet"], capture_output=True,
                                 check=False).returncode == 0
        if has_xet == (cls.VERSION == "0.24.7"):
            raise AssertionError(f"hf_xet with {cls.VERSION}: {has_xet}")

    def drive(self, endpoint, do, repo, env=None, **more):
        out = self.run_client([self.python, DRIVER, json.dumps({"do": do, "repo": repo, **more})],
                              endpoint, **(env or {}))
        return json.loads(out.splitlines()[-1])

    def command(self):
        tool = self.python.parent / "hf"
        return tool if tool.exists() else self.python.parent / "huggingface-cli"

    def test_snapshots(self):
        world = self.world

        def check(endpoint, state):
            for repo, kind, revision, wanted in (
                    (MODEL, None, None, world.expected), (MODEL, None, "v1.0", world.tag_expected),
                    (MODEL, None, "refs/pr/1", world.pr_expected),
                    (OLD_NAME, None, None, world.expected),
                    (BARE, None, None, world.small_expected),
                    (DATA, "dataset", None, world.data_expected),
                    (SPACE, "space", None, world.space_expected)):
                if state in ("warm", "stale") and repo != MODEL:
                    continue
                self.assertEqual(self.drive(endpoint, "snapshot", repo, revision=revision,
                                            type=kind), wanted, f"{repo} {revision}")
        self.in_each_state(check)

    def test_single_files_and_the_command(self):
        def check(endpoint, _):
            self.assertEqual(self.drive(endpoint, "files", MODEL, files=list(self.world.files)),
                             self.world.expected)
            with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
                self.run_client([self.command(), "download", MODEL, "--local-dir", folder],
                                endpoint)
                got = {path: digest[7:] for path, digest in tree(folder).items()
                       if not path.startswith(".cache")}
            self.assertEqual(got, self.world.expected)
        self.in_each_state(check)

    def test_filesystem_and_tensors(self):
        weights = self.world.files[BIG]
        first, end = 7_000_003, 7_200_001

        def check(endpoint, _):
            said = self.drive(endpoint, "filesystem", MODEL, range=[BIG, first, end])
            self.assertEqual(said, {
                "names": sorted({path.split("/")[0] for path in self.world.files}),
                "glob": sorted(path for path in self.world.files if path.endswith(".json")),
                "size": len(weights), "whole": self.world.expected["config.json"],
                "part": hashlib.sha256(weights[first:end]).hexdigest()})
            self.assertEqual(self.drive(endpoint, "safetensors", TENSORS), {
                "sharded": True, "parameters": {"F32": 3 * 8 * 16, "BF16": 3 * 8},
                "tensors": sorted(f"l{i}.{part}" for i in range(3) for part in "wb")})
        self.in_each_state(check)

    def test_the_rest_of_the_api(self):
        repo = self.world.repo
        asked = ["config.json", BIG, "sub dir/a+b c.txt", "not there"]
        commit = repo.commits[repo.branches["main"]]

        def check(endpoint, _):
            got = self.drive(endpoint, "api", MODEL, files=asked)
            self.assertEqual(got, {
                "sha": commit.id, "files": sorted(self.world.files),
                "tree": sorted(path for path, _ in commit.listing("", True)),
                "refs": {"refs/heads/main": commit.id, "refs/tags/v1.0": repo.tags["v1.0"],
                         "refs/pr/1": repo.refs["refs/pr/1"]},
                "paths": {path: commit.files[path].etag for path in asked[:3]},
                "missing": False, "no_revision": False, "no_repo": False, "commits": 2})
        self.in_each_state(check, ("cold", "warm"))

    def test_rules(self):
        """A branch or tag that a policy allows by name is asked for by its commit, too."""
        for rule, revision, wanted in (
                ({"revisions": ["v1.0"]}, "v1.0", self.world.tag_expected),
                ({"revisions": ["main"]}, None, self.world.expected),
                ({"pinned_only": True}, self.world.repo.branches["main"], self.world.expected)):
            wb = self.serve(policies=[{"repositories": "hf/**", **rule}])
            with self.subTest(rule=rule):
                self.assertEqual(self.drive(self.endpoint(wb), "snapshot", MODEL,
                                            revision=revision), wanted)
                said = self.drive(self.endpoint(wb), "errors", "x", cases={
                    "pr": (MODEL, "refs/pr/1", "config.json")})
                self.assertIn("HfHubHTTPError", said["pr"])
            wb.stop()
        self.nobody_came_round()

    def test_errors(self):
        wb = self.serve()
        cases = {"RepositoryNotFoundError": ("nobody/nothing", None, "config.json"),
                 "GatedRepoError": ("Test-Org/Gated", None, "config.json"),
                 "RevisionNotFoundError": (MODEL, "nope", "config.json"),
                 "EntryNotFoundError": (MODEL, None, "nope.json")}
        said = self.drive(self.endpoint(wb), "errors", "x", cases=cases)
        for name, kinds in said.items():
            self.assertIn(name, [kind.replace("RemoteEntry", "Entry") for kind in kinds])
        self.nobody_came_round()


class Newest(PythonClient, HubClients):
    VERSION = "newest"

    def test_verify(self):
        """By the hashes of the file list."""
        wb = self.serve(tag_ttl=BRANCH_S)
        with tempfile.TemporaryDirectory(dir=self.scratch) as cache:
            env = {"HF_HUB_CACHE": cache}
            self.run_client([self.command(), "download", MODEL], self.endpoint(wb), **env)
            said = self.run_client([self.command(), "cache", "verify", MODEL,
                                    "--fail-on-missing-files", "--fail-on-extra-files", "--json"],
                                   self.endpoint(wb), **env)
        self.assertIn(str(len(self.world.files)), said)
        self.nobody_came_round()


class V0362(PythonClient, HubClients):
    VERSION = "0.36.2"


class V0302(PythonClient, HubClients):
    VERSION = "0.30.2"


class V0247(PythonClient, HubClients):
    VERSION = "0.24.7"


class JavaScript(HubClients):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = cls.have(js_client)

    def drive(self, endpoint, snapshot=False, repo=MODEL, canonical=None, **more):
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            asked = {"repo": repo, "canonical": canonical or repo, "hubUrl": endpoint, **more,
                     **({"snapshot": folder} if snapshot else {"infos": True})}
            out = self.run_client(["node", JS_DRIVER, json.dumps(asked)], endpoint, cwd=self.home)
        return json.loads(out.splitlines()[-1])

    def test_downloads(self):
        world = self.world

        def check(endpoint, _):
            self.assertEqual(self.drive(endpoint), world.expected)
            self.assertEqual(self.drive(endpoint, snapshot=True), world.expected)
            self.assertEqual(self.drive(endpoint, revision="refs/pr/1"), world.pr_expected)
            self.assertEqual(self.drive(endpoint, repo=TENSORS, tensors=True),
                             {"sharded": True, "F32": 3 * 8 * 16, "BF16": 3 * 8})
        self.in_each_state(check)

    def test_names(self):
        wb = self.serve()
        for repo, canonical, wanted in ((OLD_NAME, MODEL, self.world.expected),
                                        (BARE, BARE, self.world.small_expected)):
            self.assertEqual(self.drive(self.endpoint(wb), repo=repo, canonical=canonical), wanted)
        self.nobody_came_round()


class RealModel(HubClients):
    """MiniLM as it is on the Hub: 91 MB, of which one file is larger than what hf_transfer leaves
    to others."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            folder = minilm()
        except Unavailable as error:
            raise unittest.SkipTest(f"unreachable: {error}") from error
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))
                 if path.is_file()}
        cls.hub.add_repo(MINILM_ID, files)
        cls.expected = {path: digest[7:] for path, digest in tree(folder).items()}
        cls.tensors = tensors_of(folder / BIG)

    def test_transformers(self):
        python = self.have(python_client, "transformers")

        def check(endpoint, _):
            said = json.loads(self.run_client([python, "-c", TRANSFORMERS, MINILM_ID],
                                              endpoint).splitlines()[-1])
            self.assertEqual(said, {"ids": [101, 7592, 2088, 102], "hidden": 384, "layers": 6,
                                    "type": "bert", "tensors": self.tensors})
        self.in_each_state(check)

    def test_hf_transfer(self):
        python = self.have(python_client, "0.36.2")
        asked = json.dumps({"do": "snapshot", "repo": MINILM_ID})
        logs = []

        def check(endpoint, _):
            said = self.run_client([python, DRIVER, asked], endpoint, HF_HUB_ENABLE_HF_TRANSFER="1")
            self.assertEqual(json.loads(said.splitlines()[-1]), self.expected)
        serve = self.serve

        def noted(*args, **settings):
            logs.append(serve(*args, **settings))
            return logs[-1]
        self.serve = noted
        self.in_each_state(check)
        for wb in logs:
            with open(wb.log_path, encoding="utf-8") as f:
                parts = [line for line in f if "status=206" in line and BIG in line]
            self.assertGreaterEqual(len(parts), 9, "it asks for parts of 10 MiB")


if __name__ == "__main__":
    unittest.main()
