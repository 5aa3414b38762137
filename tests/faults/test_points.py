#!/usr/bin/env python3
"""Kills the server at each named point of storage/fault.h, the first and the second time that it
comes there, and holds the next start to what clients were told (expectations.py).

weighbridge_faults (kill_at.c) is the program that dies; WEIGHBRIDGE_FAULTS_BIN names it. What
starts on the same data behind it is the plain one. The points are read from the source: one that no client
can bring the server to fails here. What only a registry upstream brings a server to is killed at by
storage's unit tests."""

import concurrent.futures
import glob
import http.client
import os
import re
import signal
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

from examine import check_disk, examine, expire_uploads  # noqa: E402
from expectations import World  # noqa: E402
from harness import (ROOT, EndToEnd, Weighbridge, binary, safetensors_file,  # noqa: E402
                     sha256)
from pusher import Pusher  # noqa: E402
from wire import Wire  # noqa: E402

TIMES = (1, 2)
LARGEST = 200_000
COLLECTED_AT_ONCE = 1024  # blobs: the collector comes to its points once for so many
SEED = "points"
NAME = "hf/org/model"
WEIGHTS = safetensors_file({"w": ("F32", [30_000])})


def faults_binary():
    path = os.environ.get("WEIGHBRIDGE_FAULTS_BIN") or os.path.join(
        os.path.dirname(binary()), "tests", "weighbridge_faults")
    if not os.access(path, os.X_OK):
        raise RuntimeError(f"no {path}: build it, or set WEIGHBRIDGE_FAULTS_BIN")
    return path


def named(pattern, *folder):
    found = set()
    for path in glob.glob(os.path.join(ROOT, *folder, "*.c")):
        with open(path, encoding="utf-8") as f:
            found.update(re.findall(pattern, f.read()))
    return found


def points():
    """All but those of upstreams that unit tests name."""
    found = named(r'fault_point\("([a-z_.]+)"\)', "storage")
    tested = named(r'"(referrers\.[a-z_.]+)"', "tests", "unit", "storage")
    return sorted(found - tested)


class Points(EndToEnd):
    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Model", {"config.json": b'{"model_type": "llama"}',
                                        "model.safetensors": WEIGHTS})

    def test_kill_at_each_point(self):
        names = points()
        self.assertGreater(len(names), 8)
        for name in names:
            for n in TIMES:
                with self.subTest(point=name, time=n):
                    self.one(name, n)

    def one(self, name, n):
        world = World()
        pusher = Pusher(world, "w", LARGEST)
        wb = Weighbridge(self.hub.url, program=faults_binary())
        try:
            if name.startswith("gc."):
                self.die_collecting(wb, world, pusher, name, n)
            elif name.startswith("recover."):
                self.die_serving(wb, pusher, "publish.renamed:1")
                self.die_starting(wb, name, n)
            else:
                self.die_serving(wb, pusher, f"{name}:{n}")
            wb.program = binary()
            wb.start()
            self.assert_right(world, wb, partials=1)
            self.go_on(wb, pusher)
            self.assert_right(world, wb)
            self.assert_collected(world, wb)
        finally:
            self.end_weighbridge(wb)

    def assert_right(self, world, wb, partials=0):
        wrong = examine(world, wb, partials)
        self.assertEqual(wrong, [], wb.log[-4000:])

    # --- dying ---

    def die_serving(self, wb, pusher, where):
        wb.stop()
        wb.env["WB_KILL_AT"] = where
        wb.start()
        try:
            pusher.every_move(wb.host, SEED)
            self.pull_model(wb)
        except (OSError, http.client.HTTPException):
            pass  # as it has to be
        else:
            self.fail("nothing brought the server to this point")
        self.assertEqual(wb.wait(), -signal.SIGKILL, wb.log[-4000:])
        del wb.env["WB_KILL_AT"]

    def die_starting(self, wb, point, times):
        for _ in range(times):
            died = subprocess.run([faults_binary(), *wb.args],
                                  env={**wb.env, "WB_KILL_AT": f"{point}:1"},
                                  stdout=subprocess.DEVNULL, timeout=60, check=False)
            self.assertEqual(died.returncode, -signal.SIGKILL)

    def die_collecting(self, wb, world, pusher, point, n):
        pusher.every_move(wb.host, SEED)
        self.push_small(wb, world, COLLECTED_AT_ONCE * (n - 1))
        self.assert_right(world, wb)
        wb.stop()
        op = world.collection()
        op.begin()
        self.assertEqual(self.gc(wb, faults_binary(), {"WB_KILL_AT": f"{point}:{n}"}),
                         -signal.SIGKILL)

    def push_small(self, wb, world, n):
        each = n // len(self.SMALL) + 1
        with concurrent.futures.ThreadPoolExecutor(len(self.SMALL)) as pool:
            list(pool.map(lambda name: Pusher(world, name).push_small(wb.host, each), self.SMALL))

    SMALL = [f"small{i}" for i in range(16)]

    def gc(self, wb, program, env=()):
        return subprocess.run([program, "gc", "--data", wb.data, "--grace", "0"],
                              env={**wb.env, **dict(env)}, stdout=subprocess.DEVNULL, timeout=60,
                              check=False).returncode

    # --- and going on ---

    def pull_model(self, wb):
        _, manifest = self.pull_manifest(wb, NAME, "main")
        self.model = {part["digest"] for part in [manifest["config"], *manifest["layers"]]}
        for digest in self.model:
            status, _, body = wb.blob(NAME, digest)
            self.assertEqual((status, sha256(body)), (200, digest))

    def go_on(self, wb, pusher):
        """Uploads to their end, and everything anew."""
        pusher.wire = Wire(wb.host)
        pusher.sessions = [s for s in pusher.sessions if s in pusher.world.sessions]
        while pusher.sessions:
            pusher.go_on()
        pusher.wire.close()
        pusher.every_move(wb.host, SEED)
        self.pull_model(wb)

    def assert_collected(self, world, wb):
        self.assertEqual(wb.stop(), 0)
        if world.unknown_sessions:
            self.assertEqual(expire_uploads(wb), [])
            world.unknown_sessions = 0
            self.assertEqual(wb.stop(), 0)
        op = world.collection()
        op.begin()
        self.assertEqual(self.gc(wb, binary()), 0)
        op.acknowledge()
        wb.start()
        self.assert_right(world, wb)
        self.pull_model(wb)
        self.assertEqual(check_disk(world, wb.data, self.model), [])


if __name__ == "__main__":
    unittest.main()
