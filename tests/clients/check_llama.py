#!/usr/bin/env python3
"""llama.cpp's own programs download through the server. By hand, as they take long to build:

    WEIGHBRIDGE_LLAMA_CPP=<folder with its programs> python3 tests/clients/check_llama.py -v

llama-completion, or else llama-cli, fetches a model; llama-server fetches an mmproj file with it.

The models are headers and noise: a program downloads one, finds nothing that it could run, and ends
with an error. What is in its cache by then is what counts."""

import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import PATIENCE_S, sha256_of  # noqa: E402
from harness import gguf_header, gguf_string, sha256  # noqa: E402
from hub_clients import client_env  # noqa: E402
from test_hub_clients import HubClients  # noqa: E402

PROGRAMS = os.environ.get("WEIGHBRIDGE_LLAMA_CPP")
SERVER = "llama-server"
REPO, SPLIT, OLD_NAME = "Test-Org/Tiny-GGUF", "Test-Org/Split-GGUF", "Old-Org/Tiny-GGUF"
Q4, Q8, MMPROJ = "Tiny-Q4_K_M.gguf", "Tiny-Q8_0.gguf", "mmproj-Tiny-F16.gguf"
PARTS = 3
PART = "Split-Q4_K_M-{:05d}-of-{:05d}.gguf"


def part_of_a_model(number, noise):
    """A GGUF that says which part of how many it is: older programs read that in the first."""
    keys = {"split.no": number, "split.count": PARTS}
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    for key, value in keys.items():
        out += gguf_string(key) + struct.pack("<IH", 2, value)
    return out + b"\0" * (-len(out) % 32) + noise


def models():
    """{repository: {path: bytes}}"""
    rng = random.Random(5)

    def gguf(rows, **settings):
        header, size = gguf_header({"token_embd.weight": (1024, rows)}, **settings)
        return header + rng.randbytes(size)
    return {REPO: {Q4: gguf(1500), Q8: gguf(20), MMPROJ: gguf(30, architecture="clip"),
                   "README.md": b"# Tiny\n", "config.json": b"{}"},
            SPLIT: {PART.format(n + 1, PARTS): part_of_a_model(n, rng.randbytes(70_000))
                    for n in range(PARTS)}}


@unittest.skipUnless(PROGRAMS, "WEIGHBRIDGE_LLAMA_CPP does not say where the programs are")
class LlamaCpp(HubClients):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.files = models()
        cls.hub.add_repo(REPO, cls.files[REPO], renamed_from=[OLD_NAME])
        cls.hub.add_repo(SPLIT, cls.files[SPLIT])
        cls.program = next(name for name in ("llama-completion", "llama-cli", SERVER)
                           if (Path(PROGRAMS) / name).exists())
        done = subprocess.run([Path(PROGRAMS) / cls.program, "--version"], capture_output=True,
                              text=True, check=False)
        print(cls.program, *(done.stdout + done.stderr).splitlines()[:1], file=sys.stderr)

    def start(self, endpoint, cache, model, program=None, variable="HF_ENDPOINT"):
        inside = self.namespace.command if self.namespace else []
        env = client_env(endpoint, cache, LLAMA_CACHE=str(cache))
        if variable != "HF_ENDPOINT":
            env[variable] = env.pop("HF_ENDPOINT")
        program = program or self.program
        more = ["--port", "0"] if program == SERVER else ["-p", "x"]
        return subprocess.Popen([*inside, Path(PROGRAMS) / program, "-hf", model, *more], env=env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace")

    def run_llama(self, *what, **how):
        """What it says until it finds that the model is none."""
        process = self.start(*what, **how)
        try:
            said, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.wait()
        return said

    @staticmethod
    def held(cache):
        """The contents of a cache's models, by their hashes."""
        return sorted(sha256_of(path) for path in Path(cache).rglob("*.gguf"))

    def fetch(self, endpoint, model, *wanted, **how):
        with tempfile.TemporaryDirectory(dir=self.scratch) as cache:
            said = self.run_llama(endpoint, cache, model, **how)
            repo = REPO if model.startswith("Old-Org") else model.split(":")[0]
            self.assertEqual(self.held(cache), sorted(sha256(self.files[repo][path])
                                                      for path in wanted), f"{model}\n{said}")
            self.assertEqual(list(Path(cache).rglob("*.downloadInProgress")), [], said)
            # The same again, with what it has by now.
            said = self.run_llama(endpoint, cache, model, **how)
            self.assertEqual(len(self.held(cache)), len(wanted), f"{model}, again\n{said}")

    def test_downloads(self):
        def check(endpoint, _):
            self.fetch(endpoint, f"{REPO}:Q4_K_M", Q4)
            self.fetch(endpoint, f"{REPO}:Q4_K_M", Q4, variable="MODEL_ENDPOINT")
            self.fetch(endpoint, f"{REPO}:q8_0", Q8)
            self.fetch(endpoint, REPO, Q4)
            self.fetch(endpoint, SPLIT, *self.files[SPLIT])
        self.in_each_state(check)

    def test_eyes(self):
        if not (Path(PROGRAMS) / SERVER).exists():
            self.skipTest(f"there is no {SERVER}")
        self.in_each_state(lambda endpoint, _: self.fetch(endpoint, f"{REPO}:Q4_K_M", Q4, MMPROJ,
                                                          program=SERVER))

    def test_one_copy(self):
        wb = self.serve(tag_ttl="1h")
        for _ in range(2):
            self.fetch(self.endpoint(wb), f"{REPO}:Q4_K_M", Q4)
        self.assertEqual(self.hub.bytes_sent("cdn"), len(self.files[REPO][Q4]))

    def test_names_and_endpoints(self):
        wb = self.serve(tag_ttl="1h")
        self.fetch(self.endpoint(wb), f"{OLD_NAME}:Q4_K_M", Q4)
        self.fetch(wb.url, f"{REPO}:Q4_K_M", Q4)
        self.fetch(f"{wb.url}/hf/", f"{REPO}:Q4_K_M", Q4)

    def test_the_cdn_breaks(self):
        """The server goes on by itself: no try of the client's is lost."""
        wb = self.serve(tag_ttl="1h")
        for at in (0.3, 0.6):
            self.hub.fault("cdn_cut", fraction=at, path=Q4, times=1)
        with tempfile.TemporaryDirectory(dir=self.scratch) as cache:
            said = self.run_llama(self.endpoint(wb), cache, f"{REPO}:Q4_K_M")
            self.assertEqual(self.held(cache), [sha256(self.files[REPO][Q4])], said)
            self.assertNotIn("retrying", said)

    def test_a_download_that_was_ended(self):
        """Goes on where it was where the program can do so; else it begins anew."""
        wb = self.serve(tag_ttl="1h")
        hold = self.hub.fault("cdn_hold", fraction=0.5, path=Q4, times=1)
        with tempfile.TemporaryDirectory(dir=self.scratch) as cache:
            process = self.start(self.endpoint(wb), cache, f"{REPO}:Q4_K_M")
            until, size = time.monotonic() + 60, 0
            while size < 1 << 20 and time.monotonic() < until and process.poll() is None:
                found = list(Path(cache).rglob("*.downloadInProgress"))
                size = found[0].stat().st_size if found else 0
                time.sleep(0.02)
            process.kill()
            said, _ = process.communicate()
            self.assertGreaterEqual(size, 1 << 20, said)
            self.assertEqual(self.held(cache), [])
            hold.release()
            said = self.run_llama(self.endpoint(wb), cache, f"{REPO}:Q4_K_M")
            self.assertEqual(self.held(cache), [sha256(self.files[REPO][Q4])], said)
        with open(wb.log_path, encoding="utf-8") as f:
            answers = [line for line in f if Q4 in line and "method=GET" in line]
        print(f"of {len(self.files[REPO][Q4])} bytes {size} were there:", *answers,
              sep="\n  ", file=sys.stderr)

    def test_errors(self):
        wb = self.serve(tag_ttl="1h", policies=[{"repositories": "hf/Test-Org/Split-GGUF",
                                                 "formats": ["safetensors"]}])
        for model in ("nobody/nothing:Q4_K_M", f"{REPO}:Q2_K", "Test-Org/Gated:Q4_K_M", SPLIT):
            with tempfile.TemporaryDirectory(dir=self.scratch) as cache:
                said = self.run_llama(self.endpoint(wb), cache, model)
                self.assertEqual(self.held(cache), [])
                print(f"{model}:", *said.splitlines()[-6:], sep="\n  ", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
