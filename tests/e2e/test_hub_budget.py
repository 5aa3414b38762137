"""What a download by the Hub's own API costs upstream: requests and bytes, for one client and for
many, the first time and later."""

import collections
import concurrent.futures
import hashlib
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import safetensors_file  # noqa: E402
from hub_api_case import HubApiCase  # noqa: E402
from hub_clients import CannotInstall, client_env, python_client  # noqa: E402

DRIVER = Path(__file__).resolve().parents[1] / "hub" / "client_driver.py"
SHARDS = 30
SMALL = 6
PODS = 64
PROCESSES = 4  # with 16 clients in each
VERSIONS = ("newest", "0.24.7")
PATIENCE_S = 300


def model():
    """Shards with an index, and small files: {path: bytes}."""
    rng = random.Random(3)
    files, index = {}, {}
    for i in range(SHARDS):
        name = f"model-{i + 1:05d}-of-{SHARDS:05d}.safetensors"
        files[name] = safetensors_file({f"layer.{i}": ("F32", (150, 100))}, fill=rng.randbytes(64))
        index[f"layer.{i}"] = name
    files["model.safetensors.index.json"] = json.dumps(
        {"metadata": {}, "weight_map": index}).encode()
    for i in range(SMALL - 1):
        files[f"small-{i}.json"] = json.dumps({"n": i}).encode()
    return files


def hashes(files):
    return {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}


class BudgetCase(HubApiCase):
    def setUp(self):
        self.files = model()
        self.weights = sum(len(d) for p, d in self.files.items() if p.endswith(".safetensors"))
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Sharded", self.files)

    def snapshots(self, version, processes=1, **more):
        """Clients of that version, all at once, each with an empty cache."""
        try:
            python = python_client(version)
        except CannotInstall as error:
            self.skipTest(("unreachable: " if error.offline else "") + str(error))
        with tempfile.TemporaryDirectory() as scratch:
            running = []
            for i in range(processes):
                asked = {"do": "snapshot", "repo": "Org/Sharded", "folder": f"{scratch}/{i}/all",
                         **more}
                running.append(subprocess.Popen(
                    [python, DRIVER, json.dumps(asked)], stdin=subprocess.DEVNULL, text=True,
                    env=client_env(self.wb.url + self.PREFIX, f"{scratch}/{i}"),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            for process in running:
                try:
                    said, errors = process.communicate(timeout=PATIENCE_S)
                finally:
                    process.kill()
                    process.wait()
                self.assertEqual(process.returncode, 0, errors[-3000:])
                got = json.loads(said.splitlines()[-1])
                self.assertEqual(got if isinstance(got, list) else [got], [hashes(self.files)])

    def asked(self):
        return [(r.kind, r.method, r.path) for r in self.hub.requests("hub")]

    def assert_one_copy(self):
        self.assertEqual(self.hub.bytes_sent("cdn"), self.weights)

    def assert_as_for_one(self):
        self.assertLessEqual(self.hub.count("hub"), SHARDS + 2 * SMALL + 4, self.asked())
        twice = {what for what, n in collections.Counter(self.asked()).items() if n > 1}
        self.assertEqual(twice, set(), "nothing is asked twice")
        self.assert_one_copy()


class RealClients(BudgetCase):
    def costs(self, version):
        self.wb = self.make_server(self.hub, tag_ttl="1h", negative_ttl="1h")
        self.snapshots(version)
        self.assert_as_for_one()
        self.hub.reset()
        self.snapshots(version)
        self.assertEqual(self.asked(), [], "within the TTL nothing is asked")
        self.assertEqual(self.hub.requests("cdn"), [])
        self.wb.stop()
        self.wb = self.make_server(self.hub, data=self.wb.data, tag_ttl="0s", negative_ttl="1h")
        # Each time that the branch is named: the oldest client does so once, the newest once.
        self.snapshots(version)
        self.assertLessEqual(len(self.asked()), 1, self.asked())
        self.assertEqual(self.hub.requests("cdn"), [])
        self.wb.stop()

    def test_newest(self):
        self.costs("newest")

    def test_oldest(self):
        self.costs("0.24.7")

    def test_64_at_once(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h", negative_ttl="1h", stall_timeout="60s",
                                   connect_timeout="60s")
        hold = self.hub.hold("hub")
        waiter = threading.Thread(target=lambda: (hold.wait_held(1, PATIENCE_S), hold.release()))
        waiter.start()
        self.snapshots("newest", PROCESSES, do="snapshots", count=PODS // PROCESSES)
        waiter.join()
        self.assert_as_for_one()


class Pod:
    """Played by threads that ask for what huggingface_hub asks, on connections that they keep: so
    64 of them come closer together."""

    WORKERS = 4

    def __init__(self, wb, prefix=""):
        self.host, self.prefix = wb.host, prefix
        self.local = threading.local()

    def ask(self, method, path):
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPConnection(self.host, timeout=PATIENCE_S)
        connection = self.local.connection
        connection.request(method, self.prefix + path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise AssertionError(f"{method} {path}: {answer.status} {body[:500]}")
        return answer.headers, body

    def file(self, commit, path):
        url = f"/Org/Sharded/resolve/{commit}/{quote(path)}"
        headers, _ = self.ask("HEAD", url)
        got, body = self.ask("GET", url)
        if int(headers["Content-Length"]) != len(body) or got["ETag"] != headers["ETag"]:
            raise AssertionError(f"{path}: HEAD and GET do not agree")
        return path, hashlib.sha256(body).hexdigest()

    def snapshot(self, start):
        start.wait()
        commit = json.loads(self.ask("GET", "/api/models/Org/Sharded/revision/main")[1])["sha"]
        rows = json.loads(self.ask(
            "GET", f"/api/models/Org/Sharded/tree/{commit}?recursive=true&expand=false")[1])
        with concurrent.futures.ThreadPoolExecutor(self.WORKERS) as pool:
            return dict(pool.map(lambda row: self.file(commit, row["path"]), rows))


class ManyPods(BudgetCase):
    def pods(self):
        start = threading.Barrier(PODS)
        with concurrent.futures.ThreadPoolExecutor(PODS) as pool:
            got = list(pool.map(lambda _: Pod(self.wb).snapshot(start), range(PODS)))
        for files in got:
            self.assertEqual(files, hashes(self.files))

    def test_cold(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h", negative_ttl="1h", stall_timeout="60s",
                                   connect_timeout="60s")
        self.pods()
        self.assert_as_for_one()
        self.hub.reset()
        self.pods()
        self.assertEqual(self.hub.requests(), [])

    def test_the_hub_goes_away_meanwhile(self):
        """One pod has been there; then 64 come, and there is no Hub."""
        self.wb = self.make_server(self.hub, tag_ttl="0s", negative_ttl="0s")
        Pod(self.wb).snapshot(threading.Barrier(1))
        self.hub.stop()
        self.pods()


if __name__ == "__main__":
    unittest.main()
