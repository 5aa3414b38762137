#!/usr/bin/env python3
"""history of a tag that was pushed, moved and removed, from the server and from its directory; and
gc, which keeps what was just pushed."""

import json
import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

from harness import EndToEnd, binary, sha256  # noqa: E402

PATIENCE_S = 60
IMAGE = "application/vnd.oci.image.manifest.v1+json"
WHEN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"


class History(EndToEnd):
    def command(self, *args, status=0):
        done = subprocess.run([binary(), *args], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def push_blob(self, server, repository, data):
        digest = sha256(data)
        status, _, body = server.request(
            "POST", f"/v2/{repository}/blobs/uploads/?digest={digest}",
            {"Content-Type": "application/octet-stream"}, data)
        self.assertEqual(status, 201, body)
        return {"mediaType": "application/octet-stream", "digest": digest, "size": len(data)}

    def push(self, server, repository, tag, data):
        """A manifest with this one layer; returns its digest."""
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": IMAGE,
            "config": self.push_blob(server, repository, b"{}"),
            "layers": [self.push_blob(server, repository, data)]}).encode()
        status, _, body = server.request("PUT", f"/v2/{repository}/manifests/{tag}",
                                         {"Content-Type": IMAGE}, manifest)
        self.assertEqual(status, 201, body)
        return sha256(manifest)

    def check_history(self, first, second, *where):
        lines = self.command("history", "Team/Model:v1", *where).splitlines()
        for line, (digest, source) in zip(lines, (
                (second, r"push 127\.0\.0\.1"), ("removed", r"delete 127\.0\.0\.1"),
                (second, r"push 127\.0\.0\.1"), (first, r"push 127\.0\.0\.1"))):
            self.assertRegex(line, f"^{WHEN}  {digest} *  {source}$")
        self.assertEqual(len(lines), 4, lines)
        at = [line.rindex("  ") for line in lines]
        self.assertEqual(len(set(at)), 1, "the columns are aligned")
        self.assertEqual(self.command("history", "team/model:v1", "--limit=1", *where).splitlines(),
                         lines[:1])
        shown = json.loads(self.command("history", "team/model:v1", "--json", *where))
        self.assertEqual((shown["repository"], shown["tag"]), ("team/model", "v1"))
        self.assertEqual([e.get("digest") for e in shown["events"]], [second, None, second, first])
        self.assertIs(shown["events"][1]["removed"], True)
        self.assertIn('no event is recorded for team/model:v2',
                      self.command("history", "team/model:v2", *where, status=1))
        self.assertIn('no event is recorded for nowhere:latest',
                      self.command("history", "nowhere", *where, status=1))
        return shown

    def test_pushed_moved_removed(self):
        server = self.make_weighbridge()
        first = self.push(server, "team/model", "v1", b"one")
        second = self.push(server, "team/model", "v1", b"two")
        self.push(server, "team/model", "v1", b"two")  # no change
        self.assertEqual(server.request("DELETE", "/v2/team/model/manifests/v1")[0], 202)
        self.push(server, "team/model", "v1", b"two")
        online = self.check_history(first, second, "--server", server.url)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.check_history(first, second, "--data", server.data), online)

    def test_imported(self):
        hub = self.make_hub()
        hub.add_repo("Org/Name", {"config.json": b"{}"})
        server = self.make_weighbridge(hub.url)
        _, headers, _ = server.get("/v2/hf/org/name/manifests/main")
        digest = headers["docker-content-digest"]
        self.command("rm", "hf/org/name:main", "--server", server.url)
        removed, imported = self.command("history", "hf/org/name:main", "--server",
                                         server.url).splitlines()
        self.assertRegex(imported, f"^{WHEN}  {digest}  [0-9a-f]{{40}}  import hf Org/Name$")
        self.assertRegex(removed, f"^{WHEN}  removed +rm$")
        self.assertEqual(removed.index(" rm"), imported.index(" import"), "aligned")

    def test_gc_keeps_what_was_just_pushed(self):
        server = self.make_weighbridge()
        self.push(server, "team/model", "v1", b"one")
        self.push_blob(server, "team/model", b"alone")
        self.assertEqual(server.stop(), 0)
        kept = (r"removed 0 blobs and 0 unfinished downloads: 0 bytes\n"
                r"kept 1 blob that no manifest needs, pushed or let go in the last (24h|60s): "
                r"a push may be under way; --grace 0 takes it\n")
        for args in ([], ["--grace", "60"]):
            out = self.command("gc", "--data", server.data, *args)
            self.assertTrue(re.fullmatch(kept, out), out)
        self.assertEqual(self.command("gc", "--data", server.data, "--grace=0s", "--dry-run"),
                         "would remove 1 blob and 0 unfinished downloads: 5 bytes\n")
        self.assertEqual(self.command("gc", "--data", server.data, "--grace=0"),
                         "removed 1 blob and 0 unfinished downloads: 5 bytes\n")
        left = [n for _, _, names in os.walk(os.path.join(server.data, "blobs")) for n in names]
        self.assertEqual(len(left), 2, "config and layer of the manifest")


if __name__ == "__main__":
    unittest.main()
