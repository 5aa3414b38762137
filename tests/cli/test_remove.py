#!/usr/bin/env python3
"""rm and gc on what was imported: a tag, then the manifest, then the bytes."""

import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

from harness import EndToEnd, binary  # noqa: E402

PATIENCE_S = 60


class Remove(EndToEnd):
    def command(self, *args, status=0):
        done = subprocess.run([binary(), *args], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_tag_then_manifest_then_bytes(self):
        hub = self.make_hub()
        hub.add_repo("Org/Name", {"config.json": b'{"model_type": "llama"}', "README.md": b"text"})
        server = self.make_weighbridge(hub.url)
        status, headers, _ = server.get("/v2/hf/org/name/manifests/main")
        self.assertEqual(status, 200)
        digest = headers["docker-content-digest"]

        self.assertEqual(self.command("rm", "hf/Org/Name:main", "--server", server.url),
                         "removed hf/org/name:main\n")
        self.assertIn("MANIFEST_UNKNOWN", self.command(
            "rm", "hf/Org/Name:main", "--server", server.url, status=1))
        self.assertEqual(server.get(f"/v2/hf/org/name/manifests/{digest}")[0], 200,
                         "the manifest is still there by its digest")
        self.assertEqual(self.command("rm", f"hf/org/name@{digest}", "--server", server.url),
                         f"removed hf/org/name@{digest}\n")
        self.assertIn("MANIFEST_UNKNOWN", self.command(
            "rm", f"hf/org/name@{digest}", "--server", server.url, status=1))
        self.assertEqual(server.stop(), 0)

        planned = self.command("gc", "--data", server.data, "--dry-run")
        found = re.fullmatch(r"would remove (\d+) blobs and 0 unfinished downloads: (\d+) bytes\n",
                             planned)
        self.assertTrue(found and int(found[1]) >= 3 and int(found[2]) > 27, planned)
        self.assertEqual(self.command("gc", "--data", server.data),
                         planned.replace("would remove", "removed"))
        self.assertIn("removed 0 blobs", self.command("gc", "--data", server.data))
        left = [n for _, _, names in os.walk(os.path.join(server.data, "blobs")) for n in names]
        self.assertEqual(left, [])

    def test_offline(self):
        hub = self.make_hub()
        hub.add_repo("Org/Name", {"config.json": b"{}"})
        server = self.make_weighbridge(hub.url)
        self.assertEqual(server.get("/v2/hf/org/name/manifests/main")[0], 200)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.command("rm", "hf/org/name:main", "--data", server.data),
                         "removed hf/org/name:main\n")
        self.assertIn("hf/org/name", self.command("rm", "hf/org/name:main", "--data", server.data,
                                                  status=1))


if __name__ == "__main__":
    unittest.main()
