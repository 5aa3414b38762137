#!/usr/bin/env python3
"""What inspect says, beside what the formats' own readers say: on real models, and on files that
their writers made (compare.py). WEIGHBRIDGE_ORACLE_SEED picks other files."""

import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))

import realfiles  # noqa: E402
from hub_clients import CannotInstall  # noqa: E402
from oracle_env import python_with_readers  # noqa: E402

BIN = os.environ.get("WEIGHBRIDGE_BIN", os.path.join(ROOT, "build/release/weighbridge"))
SEED = int(os.environ.get("WEIGHBRIDGE_ORACLE_SEED", "1"))
LIMIT_S = 900


class Oracle(unittest.TestCase):
    def compare(self, *args, files, values):
        try:
            python = python_with_readers()
        except CannotInstall as e:
            if e.offline:
                self.skipTest(f"the reference readers cannot be had: {e}")
            raise
        done = subprocess.run([python, os.path.join(HERE, "compare.py"), BIN, *args],
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        found = re.search(r"^(\d+) files, (\d+) tensors, (\d+) values, (\d+) differences$",
                          done.stdout, re.M)
        self.assertTrue(found, done.stdout[-2000:] + done.stderr[-2000:])
        self.assertEqual((done.returncode, int(found[4])), (0, 0), done.stdout[-4000:])
        self.assertGreaterEqual(int(found[1]), files)
        self.assertGreaterEqual(int(found[3]), values)
        print(found[0], file=sys.stderr)

    def real(self, get):
        try:
            return get()
        except realfiles.Unavailable as e:
            return self.skipTest(str(e))

    def test_generated_files(self):
        self.compare("--generated", str(SEED), files=200, values=20_000)

    def test_minilm(self):
        folder = self.real(realfiles.minilm)
        self.compare(os.path.join(folder, "model.safetensors"), "--several", files=2, values=5000)

    def test_gemma(self):
        self.compare(str(self.real(realfiles.gemma_gguf)), "--several", files=2, values=10_000)


if __name__ == "__main__":
    unittest.main()
