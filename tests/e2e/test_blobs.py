#!/usr/bin/env python3
"""Blobs: cold and warm, whole and in ranges, by one client and by many at once."""

import os
import socket
import threading
import time
import unittest
from unittest import mock

from blob_case import (FILE, GIB, KIB, LAG, MIB, NAME, WITHHELD, BlobCase, Pull, in_threads)
from harness import paths_of, sha256

UNDER_TSAN = os.environ.get("WEIGHBRIDGE_BUILD") == "tsan"
UNKNOWN = "sha256:" + "0" * 64


class ColdPull(BlobCase):
    def test_cold_then_warm_then_without_the_hub(self):
        wb = self.serve()
        model = self.cold(wb, 3 * MIB + 7)
        pull = self.whole(wb, model)
        headers = pull.answer.headers
        self.assertEqual(headers["Docker-Content-Digest"], model.digest)
        self.assertEqual(headers["Accept-Ranges"], "bytes")
        self.assertEqual(headers["Content-Type"], "application/octet-stream")
        self.assertIsNone(headers["Content-Encoding"])
        self.assertEqual(self.cdn_bytes(), model.size)
        self.assertEqual(self.hub.count("cdn"), 1)
        asked = self.hub.count()
        self.whole(wb, model)
        self.assertEqual(self.hub.count(), asked, "a warm blob asks nobody")
        self.assertTrue(self.held(wb, model.digest))
        self.assertEqual(self.incoming(wb), [])
        self.assertEqual(wb.stop(), 0)
        self.hub.stop()
        wb.start()
        self.whole(wb, model)
        self.hub.start()

    def test_what_an_import_fetched_is_not_fetched_again(self):
        wb = self.serve()
        self.add_model(2 * MIB)
        _, manifest = self.pull_manifest(wb, NAME, "main")
        self.hub.reset()
        for part in (manifest["config"], paths_of(manifest)["config.json"]):
            status, _, body = wb.blob(NAME, part["digest"])
            self.assertEqual((status, len(body), sha256(body)), (200, part["size"], part["digest"]))
        self.assertEqual(self.hub.count(), 0)

    def test_head_moves_no_byte(self):
        wb = self.serve()
        model = self.cold(wb, 2 * MIB)
        for _ in range(2):
            status, headers, body = wb.head(f"/v2/{NAME}/blobs/{model.digest}")
            self.assertEqual((status, body), (200, b""))
            self.assertEqual(headers["Content-Length"], str(model.size))
            self.assertEqual(headers["Docker-Content-Digest"], model.digest)
            self.assertEqual(headers["Accept-Ranges"], "bytes")
        self.assertEqual(self.hub.count(), 0)
        self.assertEqual(wb.head(f"/v2/{NAME}/blobs/{UNKNOWN}")[0], 404)

    def test_unknown_blobs_and_names(self):
        wb = self.serve()
        model = self.cold(wb, 2 * MIB)
        for name, digest, status, code, text in (
                (NAME, UNKNOWN, 404, "BLOB_UNKNOWN", "pull the manifest first"),
                ("hf/org/other", model.digest, 404, "BLOB_UNKNOWN", "pull the manifest first"),
                ("local/name", model.digest, 404, "BLOB_UNKNOWN",
                 f"local/name has no blob {model.digest}: it was never pushed or mounted there"),
                (NAME, "sha256:abc", 400, "DIGEST_INVALID", "")):
            got, headers, body = wb.blob(name, digest)
            self.assertEqual(got, status, body)
            self.assertIn(code.encode(), body)
            self.assertIn(text.encode(), body)
            self.assertEqual(headers["Content-Type"].split(";")[0], "application/json")
        self.assertEqual(self.cdn_bytes(), 0)

    def test_peer_bug_69_a_digest_is_no_way_into_another_repository(self):
        wb = self.serve()
        model = self.cold(wb, 2 * MIB)
        self.whole(wb, model)
        self.hub.add_repo("Org/Other", {"config.json": b"{}"})
        self.pull_manifest(wb, "hf/org/other", "main")
        self.assertEqual(wb.blob("hf/org/other", model.digest)[0], 404)
        self.assertEqual(wb.head(f"/v2/hf/org/other/blobs/{model.digest}")[0], 404)

    def test_conditional_get(self):
        wb = self.serve()
        model = self.cold(wb, 2 * MIB)
        self.whole(wb, model)
        etag = wb.head(f"/v2/{NAME}/blobs/{model.digest}")[1]["ETag"]
        self.assertEqual(etag, f'"{model.digest}"')
        status, _, body = wb.blob(NAME, model.digest, {"If-None-Match": etag})
        self.assertEqual((status, body), (304, b""))

    def test_a_zero_byte_file(self):
        wb = self.serve()
        self.hub.add_repo("Org/Empty", {"config.json": b"{}", "empty.txt": b""})
        _, manifest = self.pull_manifest(wb, "hf/org/empty", "main")
        digest = paths_of(manifest)["empty.txt"]["digest"]
        self.assertEqual(digest, sha256(b""))
        status, headers, body = wb.blob("hf/org/empty", digest)
        self.assertEqual((status, headers["Content-Length"], body), (200, "0", b""))


class Streaming(BlobCase):
    def test_peer_bug_14_bytes_flow_while_the_download_is_held(self):
        wb = self.serve()
        model = self.cold(wb, 12 * MIB)
        hold = self.hub.hold(bytes=8 * MIB, path=FILE)
        pull = Pull(wb, model.digest)
        self.assertEqual(pull.take(7 * MIB), model.whole(0, 7 * MIB - 1))
        self.assertTrue(hold.wait_held(1))
        self.assertFalse(self.held(wb, model.digest))
        hold.release()
        pull.finish()
        self.assertTrue(pull.complete)
        self.assertEqual(pull.digest, model.digest)

    def test_the_end_waits_for_the_digest(self):
        wb = self.serve()
        model = self.cold(wb, 4 * MIB)
        hold = self.hub.hold(offset=-1, path=FILE)
        pull = Pull(wb, model.digest)
        pull.take(model.size - WITHHELD - LAG)
        self.assertTrue(hold.wait_held(1))
        # Ranges that the missing byte is not in can end; the client's whole body cannot.
        early = Pull(wb, model.digest, f"0-{model.size - WITHHELD - LAG - 1}").finish()
        self.assertTrue(early.complete)
        late = Pull(wb, model.digest, f"{model.size - WITHHELD - LAG}-{model.size - 2}")
        late.begin()
        for waiting in (pull, late):
            waiting.answer.fp.raw._sock.settimeout(0.5)
            with self.assertRaises((TimeoutError, socket.timeout)):
                while True:
                    piece = waiting.answer.read1(MIB)
                    self.assertTrue(piece, "the body ended")
                    waiting.received += len(piece)
                    waiting.hash.update(piece)
            self.assertLess(waiting.received, waiting.expected)
        self.assertLessEqual(pull.received, model.size - WITHHELD)
        hold.release()
        late.close()
        pull.close()
        self.whole(wb, model)
        self.assertEqual(self.cdn_bytes(), model.size)

    def test_peer_bug_16_the_first_client_leaves_and_the_others_go_on(self):
        wb = self.serve()
        model = self.cold(wb, 16 * MIB)
        hold = self.hub.hold(fraction=0.5, path=FILE)
        pulls = [Pull(wb, model.digest) for _ in range(8)]
        for pull in pulls:
            self.assertEqual(len(pull.take(6 * MIB)), 6 * MIB)
        self.assertEqual(self.metric(wb, "weighbridge_transfer_readers"), 8)
        self.assertEqual(self.metric(wb, "weighbridge_transfers_running"), 1)
        pulls[0].vanish()
        pulls[1].close()
        hold.release()
        with in_threads(6, lambda i: pulls[i + 2].finish()):
            pass
        for pull in pulls[2:]:
            self.assertTrue(pull.complete)
            self.assertEqual(pull.digest, model.digest)
        self.assertEqual(self.cdn_bytes(), model.size)

    def test_peer_bug_18_a_client_that_stops_reading_slows_nobody(self):
        wb = self.serve()
        model = self.cold(wb, 48 * MIB)
        slow = Pull(wb, model.digest)
        slow.take(MIB)
        with in_threads(3, lambda _: self.whole(wb, model)):
            pass
        self.assertTrue(self.held(wb, model.digest))
        self.assertEqual(slow.received, MIB)
        slow.finish()
        self.assertTrue(slow.complete)
        self.assertEqual(slow.digest, model.digest)
        self.assertEqual(self.cdn_bytes(), model.size)

    def test_waiting_for_the_upstream_is_not_the_clients_fault(self):
        wb = self.serve(self.config(timeouts={"client": "1s"}))
        model = self.cold(wb, 4 * MIB)
        hold = self.hub.hold(fraction=0.5, path=FILE)
        pull = Pull(wb, model.digest)
        pull.take(MIB)
        time.sleep(3)  # the time that passes is what is tested
        hold.release()
        pull.finish()
        self.assertTrue(pull.complete)
        self.assertEqual(pull.digest, model.digest)

    def test_a_client_that_takes_nothing_for_too_long_is_let_go(self):
        wb = self.serve(self.config(timeouts={"client": "1s"}))
        model = self.cold(wb, 48 * MIB)
        slow = Pull(wb, model.digest)
        slow.take(KIB)
        self.until("the server to give it up",
                   lambda: wb.log_lines(event="request", end="client_timeout"))
        slow.finish()
        self.assertFalse(slow.complete)
        self.whole(wb, model)

    def test_a_download_that_all_have_left_is_finished(self):
        wb = self.serve()
        model = self.cold(wb, 8 * MIB)
        hold = self.hub.hold(fraction=0.5, path=FILE)
        pull = Pull(wb, model.digest)
        pull.take(MIB)
        pull.vanish()
        self.until("the reader to be gone",
                   lambda: self.metric(wb, "weighbridge_transfer_readers") == 0)
        hold.release()
        self.until("the blob", lambda: self.held(wb, model.digest))
        self.whole(wb, model)
        self.assertEqual(self.cdn_bytes(), model.size)

    def test_a_download_that_all_have_left_can_be_given_up(self):
        wb = self.serve(self.config(transfers={"finish_abandoned": False}))
        model = self.cold(wb, 8 * MIB)
        hold = self.hub.hold(fraction=0.5, path=FILE)
        pull = Pull(wb, model.digest)
        pull.take(3 * MIB)
        pull.vanish()
        self.until("the transfer to end",
                   lambda: self.metric(wb, "weighbridge_transfers_running") == 0)
        hold.release()
        self.assertFalse(self.held(wb, model.digest))
        self.whole(wb, model)
        self.assertLessEqual(self.cdn_bytes(), model.size + MIB, "what was there is used")

    def test_peer_bug_13_64_clients_one_transfer(self):
        wb = self.serve()
        model = self.cold(wb, 6 * MIB)
        hold = self.hub.hold(before=True, path=FILE)
        with in_threads(64, lambda _: self.whole(wb, model)):
            self.assertTrue(hold.wait_held(1))
            hold.release()
        self.assertEqual(self.cdn_bytes(), model.size)
        self.assertEqual(self.hub.count("cdn"), 1)
        self.assertEqual(self.hub.count("hub", kind="resolve"), 1)


class Ranges(BlobCase):
    SIZE = 3 * MIB + 11

    def rows(self):
        """(Range, first, last) with last inclusive; None = 416."""
        end = self.SIZE - 1
        return [("0-0", 0, 0), ("0-99", 0, 99), ("1000-1999", 1000, 1999),
                (f"{2 * MIB}-{2 * MIB + 70000}", 2 * MIB, 2 * MIB + 70000),
                (f"{MIB}-", MIB, end), ("0-", 0, end), ("-1", end, end),
                ("-70000", self.SIZE - 70000, end), (f"-{self.SIZE + 5}", 0, end),
                (f"{end}-{end}", end, end), (f"{end - 10}-{end + 1000}", end - 10, end),
                (f"{self.SIZE}-", None, None), (f"{self.SIZE + 9}-{self.SIZE + 10}", None, None),
                ("500-0", None, None), ("-0", None, None)]

    def check(self, wb, model, name, row):
        wanted, first, last = row
        status, headers, body = wb.blob(name, model.digest, {"Range": f"bytes={wanted}"})
        if first is None:
            self.assertEqual(status, 416, wanted)
            self.assertEqual(headers["Content-Range"], f"bytes */{self.SIZE}")
            return
        self.assertEqual(status, 206, wanted)
        self.assertEqual(headers["Content-Range"], f"bytes {first}-{last}/{self.SIZE}")
        self.assertEqual(headers["Content-Length"], str(last - first + 1))
        self.assertTrue(body == model.whole(first, last), wanted)

    def test_peer_bug_21_on_cold_blobs(self):
        wb = self.serve()
        for i, row in enumerate(self.rows()):
            with self.subTest(row[0]):
                model = self.cold(wb, self.SIZE, seed=i, repo=f"Org/Cold{i}")
                self.check(wb, model, f"hf/org/cold{i}", row)
                if row[1] is not None:  # the transfer that it started is the only one
                    self.whole(wb, model, f"hf/org/cold{i}")
                    self.assertEqual(self.cdn_bytes(), self.SIZE)

    def test_on_a_warm_blob(self):
        wb = self.serve()
        model = self.cold(wb, self.SIZE)
        self.whole(wb, model)
        for row in self.rows():
            with self.subTest(row[0]):
                self.check(wb, model, NAME, row)
        status, headers, body = wb.head(f"/v2/{NAME}/blobs/{model.digest}", {"Range": "bytes=0-9"})
        self.assertIn(status, (200, 206))
        self.assertEqual(body, b"")

    def test_what_is_no_single_range_is_answered_whole(self):
        wb = self.serve()
        model = self.cold(wb, self.SIZE)
        for wanted in ("bytes=0-1,5-9", "lines=0-1", "bytes=a-b", "bytes=-"):
            with self.subTest(wanted):
                status, _, body = wb.blob(NAME, model.digest, {"Range": wanted})
                self.assertEqual(status, 200)
                self.assertEqual(sha256(body), model.digest)

    def test_if_range(self):
        wb = self.serve()
        model = self.cold(wb, self.SIZE)
        self.whole(wb, model)
        same = {"Range": "bytes=5-9", "If-Range": f'"{model.digest}"'}
        self.assertEqual(wb.blob(NAME, model.digest, same)[0], 206)
        other = {"Range": "bytes=5-9", "If-Range": '"other"'}
        self.assertEqual(wb.blob(NAME, model.digest, other)[0], 200)

    def test_a_range_does_not_wait_for_the_rest(self):
        wb = self.serve()
        model = self.cold(wb, 8 * MIB)
        hold = self.hub.hold(bytes=2 * MIB, path=FILE)
        for first, last in ((0, 999), (100_000, 999_999)):
            pull = Pull(wb, model.digest, f"{first}-{last}")
            self.assertEqual(pull.take(last - first + 1), model.whole(first, last))
            self.assertEqual(pull.status, 206)
        self.assertTrue(hold.wait_held(1))
        hold.release()
        self.whole(wb, model)
        self.assertEqual(self.cdn_bytes(), model.size)


class Crowd(BlobCase):
    """The figures of the release build: sanitizers have memory of their own."""

    upstream = {"connections_per_blob": 1}  # requests are counted
    COUNT, LIMIT = 50, 100 * MIB

    def anonymous(self, wb):
        with open(f"/proc/{wb.pid}/status", encoding="ascii") as f:
            line = next(line for line in f if line.startswith("RssAnon:"))
        return int(line.split()[1]) * KIB

    def pull_as_a_crowd(self, wb, model):
        """Every client reads and hashes all of it; returns the most anonymous memory seen."""
        most, done = [self.anonymous(wb)], threading.Event()

        def watch(_):
            while not done.wait(0.05):
                most[0] = max(most[0], self.anonymous(wb))

        hold = self.hub.hold(bytes=MIB, path=FILE)
        with in_threads(1, watch):
            try:
                with in_threads(self.COUNT, lambda _: self.whole(wb, model)):
                    self.assertTrue(hold.wait_held(1))
                    self.until("every client to read along", lambda: self.metric(
                        wb, "weighbridge_transfer_readers") == self.COUNT)
                    hold.release()
            finally:
                done.set()
        self.assertEqual(self.cdn_bytes(), model.size)
        self.assertEqual(self.hub.count("cdn"), 1)
        return most[0]

    def test_50_clients_of_a_cold_blob(self):
        wb = self.serve()
        self.pull_as_a_crowd(wb, self.cold(wb, 32 * MIB))

    if not UNDER_TSAN:
        def test_peer_bug_92_50_clients_of_a_cold_gibibyte_in_100_mib(self):
            release = os.environ.get("WEIGHBRIDGE_RELEASE_BIN") or os.environ.get("WEIGHBRIDGE_BIN")
            with mock.patch.dict(os.environ, {"WEIGHBRIDGE_BIN": release} if release else {}):
                wb = self.serve()
            most = self.pull_as_a_crowd(wb, self.cold(wb, GIB))
            self.assertLess(most, self.LIMIT)
            print(f"RssAnon {most / MIB:.1f} MiB with {self.COUNT} clients of 1 GiB")


if __name__ == "__main__":
    unittest.main()
