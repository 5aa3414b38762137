#!/usr/bin/env python3
"""Ways to a wrong file, or to lost bytes, that were open once."""

import contextlib
import os
import socket
import threading
import time
import unittest

from blob_case import FILE, LAG, MIB, REPO, BlobCase, Pull
from harness import Sparse, paths_of, sha256


class WrongFiles(BlobCase):
    upstream = {"retries": 0, "stall_timeout": "60s"}  # tests hold answers up

    def join(self, wb, model, beginning):
        """What a client makes that resumes behind `beginning`: nothing, or the right file."""
        pull = Pull(wb, model.digest, f"{len(beginning)}-")
        rest = pull.take(model.size)
        pull.close()
        if pull.status != 206:
            self.assertEqual(pull.status, 502, rest)
            self.assertIn(b"from byte 0", rest)
            return
        if len(beginning) + len(rest) == model.size:
            self.assertEqual(beginning + rest, model.whole())

    def test_bytes_that_a_killed_server_sent(self):
        """They may have been wrong, and were not synced: what is fetched after the restart can not
        be joined to them unless it is what they were."""
        for size, flipped, killed_at in ((8, 2, 3), (48, 20, 24), (48, 1, 24)):
            with self.subTest(flipped):
                wb = self.serve()
                model = self.cold(wb, size * MIB + flipped, seed=flipped)
                self.hub.fault("cdn_flip", offset=flipped * MIB, path=FILE)
                hold = self.hub.hold("cdn", bytes=killed_at * MIB)
                pull = Pull(wb, model.digest)
                beginning = pull.take(killed_at * MIB - LAG - 1)
                self.assertTrue(hold.wait_held(1))
                wb.kill()
                pull.close()
                self.hub.reset()
                wb.start()
                self.join(wb, model, beginning)
                self.until("the transfer's end",
                           lambda: self.metric(wb, "weighbridge_transfers_running") == 0)
                self.join(wb, model, beginning)
                self.whole(wb, model)
                self.join(wb, model, beginning)

    def test_a_partial_that_was_deleted(self):
        wb = self.serve()
        model = self.cold(wb, 8 * MIB)
        self.hub.fault("cdn_flip", offset=2 * MIB, path=FILE)
        self.hub.fault("cdn_cut", fraction=0.5, path=FILE)
        pull = Pull(wb, model.digest)
        beginning = pull.take(model.size)
        pull.close()
        self.until("the partial to be let go",
                   lambda: self.metric(wb, "weighbridge_transfers_running") == 0)
        self.hub.reset()
        name, = self.incoming(wb)
        os.unlink(os.path.join(wb.data, "incoming", name))
        self.join(wb, model, beginning)
        self.whole(wb, model)

    def test_a_digest_has_one_size(self):
        """A repository that says that the file is shorter must not get a complete beginning."""
        wb = self.serve()
        model = self.cold(wb, 8 * MIB)
        short = Sparse(len(model.header) + MIB, sha256=model.sha256(), header=model.header)
        self.hub.add_repo("Org/Short", {"config.json": b'{"model_type": "llama"}', FILE: short})
        _, manifest = self.pull_manifest(wb, "hf/org/short", "main")
        self.assertEqual(paths_of(manifest)[FILE]["digest"], model.digest)
        hold = self.hub.hold("cdn", bytes=4 * MIB)
        honest = Pull(wb, model.digest)
        honest.take(2 * MIB)
        self.assertFalse(Pull(wb, model.digest, name="hf/org/short").finish().complete)
        hold.release()
        self.assertEqual(honest.finish().digest, model.digest)
        self.whole(wb, model, "hf/org/short")  # now the size is known
        # And the one that is wrong may be the first to come.
        other = self.cold(wb, 4 * MIB, seed=1, repo="Org/Other")
        short = Sparse(len(other.header) + MIB, sha256=other.sha256(), header=other.header)
        self.hub.add_repo("Org/Short2", {"config.json": b'{"model_type": "llama"}', FILE: short})
        self.pull_manifest(wb, "hf/org/short2", "main")
        self.assertFalse(Pull(wb, other.digest, name="hf/org/short2").finish().complete)
        self.whole(wb, other, "hf/org/other")


class LostBytes(BlobCase):
    upstream = {"retries": 0}

    def test_a_partial_outlives_a_full_disk(self):
        """It was dropped by a transfer that ended before it had looked at it."""
        wb = self.serve()
        model = self.cold(wb, 8 * MIB)
        self.hub.fault("cdn_cut", fraction=0.5, path=FILE)
        Pull(wb, model.digest).finish()
        self.hub.reset()
        self.assertEqual(wb.stop(), 0)
        full = self.serve(self.config(limits={"free_percent": 99}), data=wb.data)
        self.whole(full, model)  # passed through
        self.assertEqual(full.stop(), 0)
        self.hub.reset()
        wb.start()
        self.whole(wb, model)
        self.assertLessEqual(self.cdn_bytes(), model.size - 4 * MIB + LAG)


class FilesThatAreGone(BlobCase):
    def test_every_file_of_a_repository(self):
        """Whoever deletes under blobs/ costs a download, and does not break a repository: small
        files could not be located again, and the config blob was never made again."""
        wb = self.serve()
        self.cold(wb, MIB)
        for tag in ("main", self.hub.repo(REPO).branches["main"]):
            _, manifest = self.pull_manifest(wb, "hf/org/model", tag)
            blobs = [manifest["config"], *manifest["layers"]]
            for blob in blobs:
                self.assertEqual(wb.blob("hf/org/model", blob["digest"])[0], 200)
            for blob in blobs:
                hex_ = blob["digest"].split(":")[1]
                os.unlink(os.path.join(wb.data, "blobs/sha256", hex_[:2], hex_))
            status, _, body = wb.blob("hf/org/model", blobs[0]["digest"])
            self.assertEqual(status, 404)
            self.assertIn(b"gone from the data directory", body)
            _, again = self.pull_manifest(wb, "hf/org/model", tag)
            self.assertEqual(again, manifest)
            for blob in blobs:
                status, _, body = wb.blob("hf/org/model", blob["digest"])
                self.assertEqual((status, sha256(body)), (200, blob["digest"]))


class Drips(BlobCase):
    """A few bytes now and then are no stall; they held a place, and the clients, for ever."""

    upstream = {"retries": 1, "stall_timeout": "1s"}

    def test_a_download(self):
        wb = self.serve()
        model = self.cold(wb, 2 * MIB)
        self.hub.fault("cdn_throttle", rate=200, path=FILE)
        pull = Pull(wb, model.digest).finish()
        self.assertFalse(pull.complete)
        self.until("the log to say why", lambda: "bytes came in 4 s" in wb.log)
        self.hub.reset()
        self.whole(wb, model)

    def test_an_answer_of_the_hub(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def answer():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    connection.sendall(b"X: y\r\n")
                    time.sleep(0.1)  # the drip itself

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = self.config()
        config["upstreams"][0]["url"] = url
        wb = self.serve(config)
        text = self.pull_error(wb, "hf/org/model", "main", 504)
        self.assertIn("bytes came in 4 s", text)


class Secrets(BlobCase):
    def test_a_token_that_the_upstream_repeats(self):
        token = "hf_secret_of_ours"
        wb = self.serve(env={"HF_TOKEN": token})
        self.hub.fault("hub_status", status=500, message=f"Invalid credentials: Bearer {token}")
        text = self.pull_error(wb, "hf/org/model", "main", 502)
        self.assertIn("Invalid credentials: Bearer ****", text)
        self.assertNotIn(token, text + wb.log)


if __name__ == "__main__":
    unittest.main()
