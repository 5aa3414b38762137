#!/usr/bin/env python3
"""200 clients at once that push and pull a mix, for WEIGHBRIDGE_LOAD_S seconds (15): no error of
any kind, everything acknowledged is there at the end, each blob is stored once, and memory stays within
bounds. WEIGHBRIDGE_LOAD_SEED is printed; how the clients interleave is not in it."""

import collections
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

from harness import EndToEnd  # noqa: E402

SECONDS = float(os.environ.get("WEIGHBRIDGE_LOAD_S", "15"))
SEED = os.environ.get("WEIGHBRIDGE_LOAD_SEED") or str(random.randrange(10 ** 9))
CLIENTS, PROCESSES = 200, 4
END_S = 180              # for the last moves, and to pull everything again
MEMORY_LIMIT = 128 << 20
LEFT_FILES, LEFT_THREADS = 8, 2
IS_SANITIZED = os.environ.get("WEIGHBRIDGE_BUILD", "release") != "release"


def status(pid, field):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(rf"^{field}:\s*(\d+)", f.read(), re.M)[1])


class Watch(threading.Thread):
    """The most anonymous memory that a process had."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.most = pid, 0
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.1):
            self.most = max(self.most, status(self.pid, "RssAnon") << 10)


class Load(EndToEnd):
    def setUp(self):
        print(f"WEIGHBRIDGE_LOAD_SEED={SEED} WEIGHBRIDGE_LOAD_S={SECONDS}", file=sys.stderr)
        self.wb = self.make_weighbridge()
        self.files, self.threads = self.descriptors(), status(self.wb.pid, "Threads")
        each = CLIENTS // PROCESSES
        self.clients = [self.client(i * each, each) for i in range(PROCESSES)]

    def client(self, first, count):
        process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "client.py"), self.wb.host, SEED, str(first),
             str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end_client, process)
        return process

    @staticmethod
    def end_client(process):
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.wb.pid}/fd"))

    def tell(self, line):
        for process in self.clients:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

    def answers(self):
        """One object from each process; those that hang are ended."""
        timer = threading.Timer(SECONDS + END_S, lambda: [p.kill() for p in self.clients])
        timer.start()
        try:
            lines = [process.stdout.readline() for process in self.clients]
        finally:
            timer.cancel()
        self.assertTrue(all(lines), f"clients died or hung\n{self.wb.log[-4000:]}")
        answers = [json.loads(line) for line in lines]
        errors = [error for answer in answers for error in answer["errors"]]
        self.assertEqual(errors, [], f"{errors[0] if errors else ''}\n{self.wb.log[-4000:]}")
        return answers

    def test_200_clients(self):
        watch = Watch(self.wb.pid)
        watch.start()
        try:
            self.tell(SECONDS)
            moves = sum((collections.Counter(a["moves"]) for a in self.answers()),
                        collections.Counter())
            self.tell("pull")
            answers = self.answers()
        finally:
            watch.ended.set()
            watch.join()
        print(f"\n{sum(moves.values())} moves, {sum(a['pulled'] for a in answers)} things pulled "
              f"again, {watch.most >> 20} MiB at most; {dict(moves)}", file=sys.stderr)
        self.assertGreater(min(moves[m] for m in ("push", "push_same", "pull", "delete")), 0)
        self.assertEqual(self.wb.log_lines(level="error"), [])
        self.assert_stored_once(set().union(*(a["digests"] for a in answers)))
        self.assert_let_go()
        if not IS_SANITIZED:
            self.assertLess(watch.most, MEMORY_LIMIT)

    def assert_stored_once(self, digests):
        found = collections.Counter(
            name for _, _, names in os.walk(os.path.join(self.wb.data, "blobs")) for name in names)
        self.assertEqual(set(found), {d.split(":")[1] for d in digests})
        self.assertEqual(max(found.values()), 1)
        self.assertEqual(os.listdir(os.path.join(self.wb.data, "incoming")), [])

    def assert_let_go(self):
        """Clients that have left hold nothing."""
        deadline = time.monotonic() + END_S
        while (self.descriptors() > self.files + LEFT_FILES or
               status(self.wb.pid, "Threads") > self.threads + LEFT_THREADS):
            self.assertLess(time.monotonic(), deadline, f"{self.descriptors()} files, "
                            f"{status(self.wb.pid, 'Threads')} threads are left")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
