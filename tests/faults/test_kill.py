#!/usr/bin/env python3
"""Kills the server with SIGKILL at random moments while many clients push, starts it again, and
holds it to what it said (expectations.py). One data directory lives through all rounds.

Now and then the start after it, or a collection, is killed as well.

    WEIGHBRIDGE_KILLS      how many (30)
    WEIGHBRIDGE_KILL_SEED  what the clients do and when the server dies (random; it is printed).
                           How the clients' requests interleave is not in it.
"""

import contextlib
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

from examine import check_disk, examine, expire_uploads  # noqa: E402
from expectations import World  # noqa: E402
from harness import EndToEnd, binary  # noqa: E402
from pusher import Pusher  # noqa: E402
from wire import Wire  # noqa: E402

KILLS = int(os.environ.get("WEIGHBRIDGE_KILLS", "30"))
SEED = os.environ.get("WEIGHBRIDGE_KILL_SEED") or str(random.randrange(10 ** 9))
PUSHERS = 8
START_LIMIT_S = 10       # the goal is one second; a loaded machine gets ten
WORK_LIMIT_S = 1         # of a processor
START_READ_LIMIT = 1 << 20
COLLECT_EVERY = 10       # rounds
SHOWN = 20               # complaints


def cpu_seconds(pid):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total / 1e9


class Kills(EndToEnd):
    def setUp(self):
        print(f"WEIGHBRIDGE_KILL_SEED={SEED} WEIGHBRIDGE_KILLS={KILLS}", file=sys.stderr)
        self.random = random.Random(SEED)
        self.world = World()
        self.pushers = [Pusher(self.world, f"w{i}") for i in range(PUSHERS)]
        self.starts, self.work, self.reads, self.in_flight = [], [], [], 0
        self.wb = self.make_weighbridge()

    def test_kill_at_random_moments(self):
        for i in range(KILLS):
            self.one_round(i)
        self.last_round()
        moves = sum(pusher.done for pusher in self.pushers)
        resumed = sum(pusher.resumed for pusher in self.pushers)
        print(f"\n{KILLS} kills, {moves} moves, {self.in_flight} operations in flight, {resumed} "
              f"uploads ended after a kill; starts: at most {max(self.starts):.3f} s, "
              f"{max(self.work):.3f} s of a processor, {max(self.reads)} bytes read",
              file=sys.stderr)
        self.assertGreater(self.in_flight, 0, "no request was ever under way")
        self.assertGreater(resumed, 0, "no upload outlived a kill")

    def one_round(self, i):
        self.push_until_killed(i, self.delay())
        if i % COLLECT_EVERY == COLLECT_EVERY - 1:
            self.start()
            self.assert_right(f"round {i}, before gc")
            self.assertEqual(self.wb.stop(), 0)
            self.collect(self.random.random() < 0.5)
        if self.random.random() < 0.25:
            self.start_killed()
        self.start()
        self.assert_right(f"round {i}")

    def delay(self):
        """From a millisecond to a second, and often short."""
        exponent = self.random.uniform(-3, 0)
        return self.random.choice((10 ** exponent, self.random.random()))

    def push_until_killed(self, i, delay):
        killed, errors = threading.Event(), []

        def push(pusher):
            try:
                pusher.run(self.wb.host, f"{SEED} {i} {pusher.name}", killed.is_set)
            except (OSError, http.client.HTTPException) as error:
                if not killed.is_set():
                    errors.append(f"{pusher.name}: {type(error).__name__}: {error}")
            except Exception as error:  # an answer that is wrong, whenever it came
                errors.append(f"{pusher.name}: {type(error).__name__}: {error}")

        threads = [threading.Thread(target=push, args=(p,)) for p in self.pushers]
        for thread in threads:
            thread.start()
        time.sleep(delay)  # when to kill is what the test is about
        killed.set()
        died = self.wb.kill()
        for thread in threads:
            thread.join()
        self.in_flight += len({op for cell in self.world.cells.values() for op in cell.ops
                               if op.is_in_flight})
        if died != -signal.SIGKILL:
            errors.append(f"the server ended by itself, with {died}")
        if errors:
            self.fail(f"round {i}:\n" + "\n".join(errors) + f"\nthe log:\n{self.wb.log[-4000:]}")

    def start_killed(self):
        process = subprocess.Popen([binary(), *self.wb.args], env=self.wb.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.random.uniform(0, 0.05))
        process.kill()
        process.wait()

    def start(self):
        begun = time.monotonic()
        self.wb.start()
        self.starts.append(time.monotonic() - begun)
        self.work.append(cpu_seconds(self.wb.pid))
        with open(f"/proc/{self.wb.pid}/io", encoding="ascii") as f:
            self.reads.append(int(f.read().split()[1]))
        self.assertLess(self.starts[-1], START_LIMIT_S)
        self.assertLess(self.work[-1], WORK_LIMIT_S)
        # It reads names and rows, never contents: far less than the uploads that are open.
        self.assertLess(self.reads[-1], START_READ_LIMIT)

    def assert_right(self, when):
        wrong = examine(self.world, self.wb)
        if wrong:
            self.fail(f"{when}: {len(wrong)} things are wrong:\n" + "\n".join(wrong[:SHOWN]) +
                      f"\nthe log:\n{self.wb.log[-4000:]}")

    def collect(self, killed=False):
        """gc on the stopped store; killed too, sometimes."""
        op = self.world.collection()
        op.begin()
        process = subprocess.Popen([binary(), "gc", "--data", self.wb.data, "--grace", "0"],
                                   env=self.wb.env, stdout=subprocess.PIPE, text=True)
        if killed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.random.uniform(0, 0.1))
            process.kill()
        out, _ = process.communicate(timeout=60)
        if process.returncode == 0:
            op.acknowledge()
        elif not killed:
            self.fail(f"gc ended with {process.returncode}: {out}")

    def last_round(self):
        """Uploads go on to their end; then nothing is left that nobody needs."""
        for pusher in self.pushers:
            pusher.wire, pusher.random = Wire(self.wb.host), random.Random(SEED)
            pusher.sessions = [s for s in pusher.sessions if s in self.world.sessions]
            while pusher.sessions:
                pusher.go_on()
            pusher.wire.close()
        self.assertEqual(self.world.sessions, set())
        self.assert_right("after the last uploads")
        self.assertEqual(self.wb.stop(), 0)
        self.assertEqual(expire_uploads(self.wb), [])
        self.world.unknown_sessions = 0
        self.assertEqual(self.wb.stop(), 0)
        self.collect()
        self.start()
        self.assert_right("after the last gc")
        self.assertEqual(check_disk(self.world, self.wb.data), [])


if __name__ == "__main__":
    unittest.main()
