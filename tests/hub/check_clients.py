#!/usr/bin/env python3
"""Prove the stand-in with the real, unmodified clients.

Each client downloads a repository straight from the stand-in, and every file's
sha256 is compared. Clients are installed into $WEIGHBRIDGE_TEST_CACHE on demand.
The last line is 'N passed, N failed, N skipped'.

With Xet decorations on, a client that has hf_xet goes to the CAS for its bytes,
and the stand-in has none: those runs set HF_HUB_DISABLE_XET=1 (JavaScript: the
option xet: false), and one run per such client proves that without it the client
really is drawn away.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hub_clients import (PYTHON_VERSIONS, CannotInstall, client_env,  # noqa: E402
                         js_client, js_version, python_client)
from hub_world import OTHER_TOKEN, TOKEN, World, sha256  # noqa: E402

HERE = Path(__file__).parent
class Tally:
    """Runs named checks and counts them."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def run(self, name, check, *args):
        try:
            check(*args)
        except Exception as error:
            self.failed += 1
            print(f"FAILED: {name}: {error}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc(file=sys.stdout)
        else:
            self.passed += 1
            print(f"ok: {name}", flush=True)

    def missing(self, name, error):
        if os.environ.get("CI") == "true" and not error.offline:
            self.failed += 1
            print(f"FAILED: {name}: cannot install: {error}", flush=True)
        else:
            self.skipped += 1
            print(f"skipped: {name}: {error}", flush=True)


def same(got, want):
    if got != want:
        wrong = sorted(k for k in set(got) | set(want) if got.get(k) != want.get(k))
        raise AssertionError(f"differs in {wrong}")


def run_client(command, **settings):
    done = subprocess.run(command, capture_output=True, text=True, timeout=240,
                          check=False, **settings)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise AssertionError(f"exit {done.returncode}\n{tail}")
    return done.stdout


def asks_for_xet(hub, command, cwd=None):
    """Start a client and let it run only until it asks for a Xet token."""
    hub.reset()
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(command, cwd=cwd, env=client_env(hub.url, home),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            asked = hub.wait_requests(1, kind="xet-token", timeout=60)
        finally:
            process.kill()
            process.wait()
    assert asked, "no request for a Xet token"


class PythonClient:
    """One huggingface_hub version against the world."""

    def __init__(self, world, version, python):
        self.world = world
        self.hub = world.hub
        self.python = python
        self.version = self.drive("version", "x")
        self.has_xet = self.knows("import hf_xet")
        self.stays_away = not self.has_xet or self.knows(
            "from huggingface_hub.constants import HF_HUB_DISABLE_XET")
        self.label = f"huggingface_hub {self.version}"

    def knows(self, statement):
        return subprocess.run([self.python, "-c", statement], capture_output=True,
                              check=False).returncode == 0

    def drive(self, do, repo, env=None, **more):
        with tempfile.TemporaryDirectory() as home:
            text = json.dumps({"do": do, "repo": repo, **more})
            out = run_client([self.python, HERE / "client_driver.py", text],
                             env=client_env(self.hub.url or "http://127.0.0.1:9", home,
                                            **(env or {})))
        return json.loads(out.splitlines()[-1])

    def checks(self, tally):
        w, hub, name = self.world, self.hub, "Test-Org/Some.Model"
        for xet in (False, True) if self.stays_away else (False,):
            env = {"HF_HUB_DISABLE_XET": "1"} if xet and self.has_xet else {}
            how = "Xet decorations on" + (", HF_HUB_DISABLE_XET=1" if env else "") \
                if xet else "Xet decorations off"
            hub.set_options(xet=xet)

            def snapshot(repo=name, want=w.expected, **more):
                same(self.drive("snapshot", repo, env, **more), want)

            tally.run(f"{self.label}: snapshot ({how})", self.watched, snapshot)
            tally.run(f"{self.label}: hf_hub_download of each file ({how})", self.watched,
                      lambda: same(self.drive("files", name, env, files=list(w.expected)),
                                   w.expected))
            tally.run(f"{self.label}: hf download ({how})", self.watched, self.cli, env)
        hub.set_options(xet=False)
        tally.run(f"{self.label}: snapshot of refs/pr/1", self.watched, lambda: snapshot(
            revision="refs/pr/1", want=w.pr_expected))
        tally.run(f"{self.label}: snapshot of a tag", self.watched, lambda: snapshot(
            revision="v1.0", want=w.tag_expected))
        tally.run(f"{self.label}: snapshot of a commit", self.watched, lambda: snapshot(
            revision=w.repo.resolve("main")))
        tally.run(f"{self.label}: renamed repository", self.watched,
                  lambda: snapshot("old-org/old-name"))
        tally.run(f"{self.label}: name in another case", self.watched,
                  lambda: snapshot("test-org/some.model"))
        tally.run(f"{self.label}: bare name", self.watched,
                  lambda: snapshot("gpt-bare", want=w.small_expected))
        tally.run(f"{self.label}: local_dir", self.watched, self.local_dir)
        for repo in ("Test-Org/Private", "Test-Org/Gated"):
            tally.run(f"{self.label}: {repo} with a token", self.watched,
                      lambda repo=repo: snapshot(repo, token=TOKEN, want=w.small_expected))
        hub.set_options(page_size=3)
        tally.run(f"{self.label}: paged tree", self.watched, self.api)
        hub.set_options(page_size=1000)
        tally.run(f"{self.label}: errors", self.errors)
        if self.has_xet:
            hub.set_options(xet=True)
            tally.run(f"{self.label}: hf_xet is drawn to the CAS when allowed",
                      self.drawn_away)

    def watched(self, check, *args):
        """Run a check; no token may have reached the CDN, no error the stand-in."""
        self.hub.reset()
        check(*args)
        leaks = [r.target for r in self.hub.requests("cdn") if "authorization" in r.headers]
        assert not leaks, f"the CDN saw a token: {leaks}"
        away = self.hub.count(kind="xet-token,cas")
        assert away == 0, f"{away} requests to Xet"
        assert not self.hub.errors, self.hub.errors

    def cli(self, env):
        tool = self.python.parent / "hf"
        if not tool.exists():
            tool = self.python.parent / "huggingface-cli"
        with tempfile.TemporaryDirectory() as home:
            run_client([tool, "download", "Test-Org/Some.Model", "--local-dir", f"{home}/out"],
                       env=client_env(self.hub.url, home, **env))
            out = Path(home, "out")
            got = {str(p.relative_to(out)): sha256(p.read_bytes())
                   for p in out.rglob("*") if p.is_file()
                   and not str(p.relative_to(out)).startswith(".cache")}
        same(got, self.world.expected)

    def local_dir(self):
        with tempfile.TemporaryDirectory() as folder:
            same(self.drive("local-dir", "Test-Org/Some.Model", folder=folder),
                 self.world.expected)

    def api(self):
        w, repo = self.world, self.world.repo
        asked = ["config.json", "model.safetensors", "sub dir/a+b c.txt", "not there"]
        got = self.drive("api", "Test-Org/Some.Model", files=asked)
        assert got["sha"] == repo.branches["main"], got["sha"]
        assert got["files"] == sorted(w.expected), got["files"]
        commit = repo.commits[got["sha"]]
        assert got["tree"] == sorted(p for p, _ in commit.listing("", True)), got["tree"]
        assert got["refs"] == {"refs/heads/main": got["sha"],
                               "refs/tags/v1.0": repo.tags["v1.0"],
                               "refs/pr/1": repo.refs["refs/pr/1"]}, got["refs"]
        assert got["paths"] == {p: commit.files[p].etag for p in asked[:3]}, got["paths"]
        assert (got["missing"], got["no_revision"], got["no_repo"]) == (
            False, False, False), got
        assert got["commits"] == 2, got["commits"]

    def errors(self):
        cases = {"repo": ("nobody/nothing", None, "config.json"),
                 "private": ("Test-Org/Private", None, "config.json"),
                 "gated": ("Test-Org/Gated", None, "config.json"),
                 "revision": ("Test-Org/Some.Model", "nope", "config.json"),
                 "entry": ("Test-Org/Some.Model", None, "nope.json")}
        got = self.drive("errors", "x", cases=cases)
        want = {"repo": "RepositoryNotFoundError", "private": "RepositoryNotFoundError",
                "gated": "GatedRepoError", "revision": "RevisionNotFoundError",
                "entry": "EntryNotFoundError"}
        for label, name in want.items():
            kinds = [got[label][0].replace("RemoteEntry", "Entry"), got[label][1]]
            assert name in kinds, f"{label}: {got[label]}"
        got = self.drive("errors", "x", token=OTHER_TOKEN,
                         cases={"gated": cases["gated"]})
        assert "GatedRepoError" in got["gated"], got

    def drawn_away(self):
        """Without HF_HUB_DISABLE_XET the client must ask for a Xet token."""
        text = json.dumps({"do": "snapshot", "repo": "Test-Org/Some.Model"})
        asks_for_xet(self.hub, [self.python, HERE / "client_driver.py", text])


def check_js(world, tally):
    hub = world.hub
    try:
        home = js_client()
    except CannotInstall as error:
        tally.missing("@huggingface/hub", error)
        return
    label = f"@huggingface/hub {js_version(home)}"

    def drive(want, repo="Test-Org/Some.Model", canonical=None, snapshot=False, **more):
        hub.reset()
        with tempfile.TemporaryDirectory() as scratch:
            asked = {"repo": repo, "canonical": canonical or repo, "hubUrl": hub.url, **more}
            if snapshot:
                asked["snapshot"] = scratch
            out = run_client(["node", HERE / "client_driver.mjs", json.dumps(asked)],
                             cwd=home, env=client_env(hub.url, scratch))
        same(json.loads(out.splitlines()[-1]), want)
        leaks = [r.target for r in hub.requests("cdn") if "authorization" in r.headers]
        assert not leaks, f"the CDN saw a token: {leaks}"

    for xet in (False, True):
        hub.set_options(xet=xet)
        how = "Xet decorations on, xet: false" if xet else "Xet decorations off"
        more = {"xet": False} if xet else {}
        tally.run(f"{label}: listFiles and downloadFile ({how})",
                  lambda more=more: drive(world.expected, **more))
    asked = json.dumps({"repo": "Test-Org/Some.Model", "hubUrl": hub.url})
    tally.run(f"{label}: is drawn to the CAS when allowed", asks_for_xet, hub,
              ["node", HERE / "client_driver.mjs", asked], home)
    hub.set_options(xet=False)
    tally.run(f"{label}: snapshotDownload", lambda: drive(world.expected, snapshot=True))
    tally.run(f"{label}: refs/pr/1",
              lambda: drive(world.pr_expected, revision="refs/pr/1"))
    tally.run(f"{label}: a tag", lambda: drive(world.tag_expected, revision="v1.0"))
    hub.set_options(page_size=3)
    tally.run(f"{label}: paged tree", lambda: drive(world.expected))
    hub.set_options(page_size=1000)
    tally.run(f"{label}: renamed repository", lambda: drive(
        world.expected, repo="old-org/old-name", canonical="Test-Org/Some.Model"))
    tally.run(f"{label}: private repository", lambda: drive(
        world.small_expected, repo="Test-Org/Private", token=TOKEN))


def main():
    tally = Tally()
    with tempfile.TemporaryDirectory() as scratch:
        world = World(Path(scratch))
        try:
            for version in PYTHON_VERSIONS:
                try:
                    python = python_client(version)
                except CannotInstall as error:
                    tally.missing(f"huggingface_hub {version}", error)
                    continue
                PythonClient(world, version, python).checks(tally)
            check_js(world, tally)
        finally:
            world.hub.stop()
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
