#!/usr/bin/env python3
"""One digest, and several who say something about it: manifests that name other sizes than the
registry has, and repositories that do not have what they promise. Whoever lies harms nobody else."""

import hashlib
import http.client
import json
import os
import re
import threading
import time
import unittest

from mirror_case import LAYER, PREFIX, REPO, SIZE, MirrorCase

IMAGE = "application/vnd.oci.image.manifest.v1+json"
SMALL = b"a small layer " * 500
WITHHELD = 64 * 1024


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class SharedCase(MirrorCase):
    # Patient: it is the tests that hold answers up, for as long as a loaded machine needs.
    UPSTREAM = {"negative_ttl": "0s", "breaker_failures": 1000, "retries": 0,
                "stall_timeout": "60s"}

    def until(self, what, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end, f"waited for {what}")
            time.sleep(0.02)

    def names(self, tag, *layers, repo=None):
        """A manifest with layers (digest, size), pulled."""
        repo = repo or self.repo
        config = b"{}"
        repo.add_blob(config)
        body = json.dumps({
            "schemaVersion": 2, "mediaType": IMAGE,
            "config": {"mediaType": "a/config", "digest": sha256(config), "size": len(config)},
            "layers": [{"mediaType": "a/layer", "digest": digest, "size": size}
                       for digest, size in layers]}).encode()
        repo.add_manifest(body, IMAGE, tag=tag)
        return self.get_manifest(tag, repo=repo.name)[0]

    def add(self, data, *sizes):
        """A blob, and a manifest for each size."""
        self.repo.add_blob(data)
        for size in sizes:
            self.assertEqual(self.names(f"says-{size}", (sha256(data), size)), 200)
        return sha256(data)

    def says(self, digest, size):
        status, headers, _ = self.get_blob(digest, method="HEAD")
        self.assertEqual((status, int(headers["Content-Length"])), (200, size))

    def settled(self):
        self.until("transfers to end", lambda: b"\nweighbridge_transfers_running 0\n" in
                   self.wb.get("/metrics")[2])
        self.assertEqual(os.listdir(os.path.join(self.wb.data, "incoming")), [])


class Sizes(SharedCase):
    def test_a_manifest_that_lies(self):
        for size in (0, 10, len(SMALL) + 1, 1 << 40, (1 << 63) - 1):
            data = SMALL + str(size).encode()
            if size == len(SMALL) + 1:
                size = len(data) + 1
            digest = self.add(data, size)
            with self.subTest(size):
                self.pulls_blob(digest, data=data)
                self.says(digest, len(data))
                self.pulls_blob(digest, data=data)
        self.settled()

    def test_does_not_harm_a_later_one(self):
        digest = self.add(SMALL, 10, len(SMALL))
        self.says(digest, len(SMALL))
        self.pulls_blob(digest, data=SMALL)

    def test_nor_an_earlier_one(self):
        digest = self.add(SMALL, len(SMALL), 10)
        for _ in range(2):
            self.assertEqual(self.wb.stop(), 0)
            self.wb.start()
            self.says(digest, len(SMALL))
        self.pulls_blob(digest, data=SMALL)

    def test_two_sizes_in_one_manifest(self):
        digest = self.add(SMALL)
        self.assertEqual(self.names("two", (digest, 7), (digest, len(SMALL)), (digest, 8)), 200)
        self.pulls_blob(digest, data=SMALL)

    def test_bytes_that_are_here_know_better(self):
        digest = self.add(SMALL, len(SMALL))
        self.pulls_blob(digest, data=SMALL)
        self.assertEqual(self.names("bad", (digest, 10)), 502)
        self.pulls_blob(digest, data=SMALL)

    def test_ranges(self):
        digest = self.add(LAYER, 10)
        status, headers, body = self.get_blob(digest, Range="bytes=5-")
        self.assertEqual((status, body), (206, LAYER[5:]))
        self.assertEqual(headers["Content-Range"], f"bytes 5-{SIZE - 1}/{SIZE}")

    def test_many_at_once(self):
        digest = self.add(LAYER, 10)
        right = []

        def pull():
            status, _, body = self.get_blob(digest)
            right.append(status == 200 and body == LAYER)

        threads = [threading.Thread(target=pull) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(right, [True] * 20)
        # What was sent is more: an answer of another size than expected is given up at its header,
        # and how much of its body is in the kernel's buffers by then is a matter of time.
        metrics = self.wb.get("/metrics")[2].decode()
        name = f'weighbridge_upstream_bytes_total{{upstream="{PREFIX}"}}'
        self.assertLess(int(re.search(f"^{re.escape(name)} (\\d+)", metrics, re.M)[1]), 1.5 * SIZE)

    def test_a_registry_that_lies(self):
        """Its HEAD and its GET agree, and are wrong: no byte is given out, so none is suspect."""
        digest = self.add(SMALL, len(SMALL))
        for fault, settings in (("truncate", {"bytes": 1000}), ("append", {"bytes": 9}),
                                ("empty", {})):
            with self.subTest(fault):
                found = self.registry.fault(fault, kind="blob", path=digest, **settings)
                status, _, body = self.get_blob(digest)
                text = self.error_text(502, "UNAVAILABLE", status, body)
                self.assertIn(str(len(SMALL)), text)
                self.assertIn("are expected" if fault == "empty" else "hash to", text)
                found.remove()
        status, _, body = self.get_blob(digest, Range="bytes=5-")
        self.assertEqual((status, body), (206, SMALL[5:]))
        self.settled()

    def test_one_answer_of_another_size(self):
        """That is no reason to doubt the manifest."""
        digest = self.add(SMALL, len(SMALL))
        self.registry.fault("truncate", kind="blob", method="GET", path=digest)
        status, _, body = self.get_blob(digest)
        text = self.error_text(502, "UNAVAILABLE", status, body)
        self.assertIn(f"{len(SMALL)} are expected", text)
        self.assertIn(f"in {REPO}", text)
        self.registry.clear_faults()
        self.pulls_blob(digest, data=SMALL)

    def test_is_not_tried_again_at_once(self):
        self.wb = self.mirror(**{**self.UPSTREAM, "negative_ttl": "1h"})
        digest = self.add(SMALL, len(SMALL))
        self.registry.fault("truncate", kind="blob", path=digest, bytes=1000)
        self.assertEqual(self.get_blob(digest)[0], 502)
        for _ in range(3):
            status, _, body = self.get_blob(digest)
            self.assertIn("hash to", self.error_text(502, "UNAVAILABLE", status, body))
        self.assertEqual(self.requests(kind="blob", path=digest, method="HEAD"), 1)

    def test_over_max_blob(self):
        self.wb = self.mirror(**{**self.UPSTREAM, "max_blob": 4096})
        digest = self.add(SMALL, 10)
        self.assertEqual(self.get_blob(digest)[0], 413)


class Strangers(SharedCase):
    """evil/x names a digest of team/app."""

    def setUp(self):
        super().setUp()
        self.evil = self.registry.add_repo("evil/x")

    def claims(self, data, size=None, bytes_=None):
        """The two repositories name the blob; evil/x has it, or something else under its name."""
        digest = self.add(data, len(data))
        self.assertEqual(self.names("v1", (digest, size or len(data)), repo=self.evil), 200)
        if bytes_ is not None:
            self.evil.add_blob(bytes_, digest=digest)
        return digest

    def begins(self, digest, **hold):
        """evil/x is asked for first, and does not get on."""
        hold = self.registry.hold(kind="blob", repo="evil/x", method="GET", path=digest, **hold)
        connection = http.client.HTTPConnection(self.wb.host, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/v2/{PREFIX}/evil/x/blobs/{digest}")
        self.assertTrue(hold.wait_held(1))
        return hold, connection

    def joins(self, digest, readers=2):
        """team/app is asked for meanwhile."""
        connection = http.client.HTTPConnection(self.wb.host, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/v2/{PREFIX}/{REPO}/blobs/{digest}")
        self.until("it to join", lambda: f"\nweighbridge_transfer_readers {readers}\n".encode() in
                   self.wb.get("/metrics")[2])
        return connection

    def whole(self, connection, data):
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.read() == data)

    def test_another_size(self):
        digest = self.claims(LAYER, SIZE - 1, b"x" * (SIZE - 1))
        hold, _ = self.begins(digest, bytes=100_000)
        for _ in range(2):
            self.pulls_blob(digest, data=LAYER)
        hold.release()
        self.until("it to fail", lambda: self.wb.log_lines(event="transfer",
                                                           error="digest_mismatch"))
        self.pulls_blob(digest, data=LAYER)
        self.settled()
        self.registry.refuse("registry")
        self.pulls_blob(digest, data=LAYER)

    def test_another_size_that_is_refused(self):
        """It is waited for, so that ours is the only one and is stored."""
        digest = self.claims(LAYER, SIZE - 1)
        hold, _ = self.begins(digest, before=True)
        pull = threading.Thread(target=self.pulls_blob, args=(digest,), kwargs={"data": LAYER})
        pull.start()
        self.until("it to come", lambda: self.requests(kind="blob", path=digest) >= 1)
        hold.release()
        pull.join()
        self.settled()
        self.assertNotIn("passed through", self.wb.log)

    def test_gone(self):
        digest = self.claims(LAYER)
        for fault in ({"status": 404}, {"status": 403}, {"status": 500}):
            with self.subTest(**fault):
                data = LAYER + str(fault).encode()
                digest = self.claims(data, bytes_=data)
                self.registry.fault("status", kind="blob", repo="evil/x", method="GET", **fault)
                hold, evil = self.begins(digest, before=True)
                victim = self.joins(digest)
                hold.release()
                self.whole(victim, data)
                self.assertIn(evil.getresponse().status, (404, 403, 502))
                self.registry.clear_faults()

    def test_wrong_bytes_of_which_none_was_given(self):
        digest = self.claims(SMALL, bytes_=b"y" * len(SMALL))
        hold, evil = self.begins(digest, bytes=100)
        victim = self.joins(digest)
        answer = evil.getresponse()
        hold.release()
        self.whole(victim, SMALL)
        with self.assertRaises(http.client.IncompleteRead):
            answer.read()

    def test_wrong_bytes_of_which_some_were_given(self):
        """Such a client is cut; its next attempt does not depend on evil/x again."""
        digest = self.claims(LAYER, bytes_=b"z" * SIZE)
        hold, _ = self.begins(digest, bytes=2_000_000)
        victim = self.joins(digest)
        answer = victim.getresponse()
        self.assertEqual(len(answer.read(1_000_000)), 1_000_000)
        hold.release()
        with self.assertRaises(http.client.IncompleteRead):
            answer.read()
        hold, _ = self.begins(digest, bytes=1_000_000)
        self.pulls_blob(digest, data=LAYER)
        hold.release()

    def test_a_partial_is_no_way_in(self):
        """What a download of team/app has left is read from before the registry answers: evil/x,
        which names the digest and does not have it, gets none of it, then or later."""
        digest = self.claims(LAYER)
        cut = self.registry.fault("cut", kind="blob", repo=REPO, path=digest, bytes=2_000_000)
        with self.assertRaises(http.client.IncompleteRead):
            self.get_blob(digest)
        cut.remove()
        self.until("a partial", lambda: b"\nweighbridge_transfers_running 0\n" in
                   self.wb.get("/metrics")[2])
        self.assertEqual(len(os.listdir(os.path.join(self.wb.data, "incoming"))), 1)
        for headers in ({}, {"Range": "bytes=0-999"}, {"Range": "bytes=5000-5999"}):
            self.assertEqual(self.get_blob(digest, repo="evil/x", **headers)[0], 404)
        self.until("its downloads to end", lambda: b"\nweighbridge_transfers_running 0\n" in
                   self.wb.get("/metrics")[2])
        self.pulls_blob(digest, data=LAYER)
        self.assertEqual(self.get_blob(digest, repo="evil/x")[0], 404)
        self.assertEqual(self.get_blob(digest, repo="evil/x", method="HEAD")[0], 404)

    def ends(self):
        self.until("transfers to end", lambda: b"\nweighbridge_transfers_running 0\n" in
                   self.wb.get("/metrics")[2])

    def is_cut(self, digest, repo, **headers):
        with self.assertRaises(http.client.IncompleteRead):
            self.get_blob(digest, repo=repo, **headers)
        self.ends()

    def resumes(self, digest, data, repo=REPO):
        status, _, body = self.get_blob(digest, repo=repo, Range="bytes=100000-")
        self.assertEqual(status, 206, body[:300])
        self.assertTrue(body == data[100000:])

    def refused(self, digest, repo):
        status, _, body = self.get_blob(digest, repo=repo, Range="bytes=100000-")
        self.assertIn("must not be resumed", self.error_text(502, "UNAVAILABLE", status, body))

    def restarts(self):
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()

    def test_ranges_are_refused_only_to_who_got_wrong_bytes(self):
        digest = self.claims(LAYER, bytes_=LAYER)
        self.registry.fault("flip", kind="blob", repo="evil/x", path=digest, offset=1000)
        self.is_cut(digest, "evil/x")
        self.resumes(digest, LAYER)
        self.pulls_blob(digest, data=LAYER)
        for _ in range(2):
            self.resumes(digest, LAYER)
            self.refused(digest, "evil/x")
            self.restarts()

    def test_ranges_are_refused_to_a_victim_that_got_wrong_bytes(self):
        digest = self.claims(LAYER, bytes_=b"z" * SIZE)
        hold, evil = self.begins(digest, bytes=2_000_000)
        victim = self.joins(digest)
        answer = victim.getresponse()
        self.assertEqual(len(answer.read(1_000_000)), 1_000_000)
        self.assertEqual(len(evil.getresponse().read(1000)), 1000)
        hold.release()
        with self.assertRaises(http.client.IncompleteRead):
            answer.read()
        self.ends()
        self.pulls_blob(digest, data=LAYER)
        for repo in (REPO, "evil/x"):
            self.refused(digest, repo)

    def leaves(self, digest, repo):
        """A partial of 2 MB, of which clients of the repository got most."""
        cut = self.registry.fault("cut", kind="blob", repo=repo, path=digest, bytes=2_000_000)
        self.is_cut(digest, repo)
        cut.remove()
        self.assertEqual(len(os.listdir(os.path.join(self.wb.data, "incoming"))), 1)

    def test_nobody_begins_with_the_bytes_of_another_upstream(self):
        far = self.make_registry()
        evil = far.add_repo("evil/x")
        self.wb = self.mirror(root={"upstreams": [
            self.upstream(), self.upstream(prefix="far.test", url=far.url)]})
        for restart in (False, True):
            with self.subTest(restart=restart):
                data = LAYER + str(restart).encode()
                digest = self.claims(data)
                evil.add_image([data], tag="v1")
                self.assertEqual(self.wb.get("/v2/far.test/evil/x/manifests/v1")[0], 200)
                far.fault("flip", kind="blob", path=digest, offset=1000, times=1)
                far.fault("cut", kind="blob", path=digest, bytes=2_000_000, times=2)
                with self.assertRaises(http.client.IncompleteRead):
                    self.wb.get(f"/v2/far.test/evil/x/blobs/{digest}")
                self.ends()
                if restart:
                    self.restarts()
                self.pulls_blob(digest, data=data)
                self.resumes(digest, data)
                status, _, body = self.wb.get(f"/v2/far.test/evil/x/blobs/{digest}",
                                              {"Range": "bytes=100000-"})
                self.assertIn("must not be resumed",
                              self.error_text(502, "UNAVAILABLE", status, body))
        self.settled()

    def test_a_partial_is_resumed_for_any_repository_of_its_upstream(self):
        """Images of one registry share layers; a restart must not cost what one of them had."""
        digest = self.claims(LAYER, bytes_=LAYER)
        self.leaves(digest, "evil/x")
        self.restarts()
        before = self.registry_bytes()
        self.resumes(digest, LAYER)
        self.pulls_blob(digest, data=LAYER)
        self.assertLess(self.registry_bytes() - before, SIZE - 1_000_000)
        self.resumes(digest, LAYER, repo="evil/x")

    def test_who_began_with_wrong_bytes_goes_on_alone(self):
        """The list of who got bytes of a partial outlives the process that lent them."""
        digest = self.claims(LAYER, bytes_=LAYER)
        flip = self.registry.fault("flip", kind="blob", repo="evil/x", path=digest, offset=1000)
        self.leaves(digest, "evil/x")
        flip.remove()
        self.restarts()
        self.is_cut(digest, "evil/x", Range="bytes=0-")
        self.resumes(digest, LAYER)
        self.refused(digest, "evil/x")

    def test_a_partial_is_resumed_by_its_own(self):
        digest = self.claims(LAYER)
        self.leaves(digest, REPO)
        self.restarts()
        before = self.registry_bytes()
        self.resumes(digest, LAYER)
        self.pulls_blob(digest, data=LAYER)
        self.assertLess(self.registry_bytes() - before, SIZE - 1_000_000)

    def registry_bytes(self):
        name = f'weighbridge_upstream_bytes_total{{upstream="{PREFIX}"}}'
        found = re.search(f"^{re.escape(name)} (\\d+)", self.wb.get("/metrics")[2].decode(), re.M)
        return int(found[1]) if found else 0

    def test_no_conflict_is_told(self):
        digest = self.claims(LAYER, SIZE - 1, b"x" * (SIZE - 1))
        hold, evil = self.begins(digest, bytes=WITHHELD)
        answer = evil.getresponse()
        self.pulls_blob(digest, data=LAYER)
        hold.release()
        with self.assertRaises(http.client.IncompleteRead):
            answer.read()
        self.assertEqual(self.wb.log_lines(event="request", status="409"), [])


if __name__ == "__main__":
    unittest.main()
