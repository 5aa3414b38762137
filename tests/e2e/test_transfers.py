#!/usr/bin/env python3
"""How the bytes of a cold blob come: over several connections, out of order for those who want a
part, within the limits that are set; and what the upstream is asked for it."""

import contextlib
import hashlib
import os
import re
import resource
import threading
import time
import unittest

from blob_case import FILE, GIB, KIB, LAG, MIB, NAME, WITHHELD, BlobCase, Pull, in_threads
from harness import safetensors_sparse
from mirror_case import PREFIX, REPO, MirrorCase, Noise

HELD_AT = 4 * MIB


class TransferCase(BlobCase):
    def end_weighbridge(self, wb):
        if wb.running and self.metric(wb, "weighbridge_transfers_running") == 0:
            self.until("files of downloads to be closed", lambda: not self.open_downloads(wb))
        super().end_weighbridge(wb)

    def open_downloads(self, wb):
        folder, found = f"/proc/{wb.pid}/fd", []
        for fd in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.append(os.readlink(os.path.join(folder, fd)))
        return [path for path in found if "/incoming/" in path]

    def fetched(self, wb):
        """All that the server has read of answers since its start. What the Hub has sent is more
        when connections are given up on their way: tens of MB may be in the kernel's buffers."""
        return self.metric(wb, "weighbridge_upstream_bytes_total")

    def requests(self):
        """The exchanges with the CDN, in the order in which they began."""
        return self.hub.requests("cdn", path=FILE)

    def hold_the_first(self, at=HELD_AT):
        """The first download stops there; what else is asked for comes."""
        return self.hub.hold("cdn", bytes=at, path=FILE, times=1)


class SeveralConnections(TransferCase):
    """A connection brings 16 MiB a second: further ones are worth it."""

    upstream = {"connections_per_blob": 4, "stall_timeout": "5s", "retries": 2}
    SIZE = 128 * MIB + 5

    def setUp(self):
        super().setUp()
        self.wb = self.serve()
        self.model = self.cold(self.wb, self.SIZE)
        self.throttle = self.hub.fault("cdn_throttle", rate=16 * MIB, path=FILE)

    def most_at_once(self):
        """The largest number of answers that were being sent at one time. The Hub notices the end
        of an answer that was broken off, or read to its end, a little later than the client that
        already asks for the next: the last moments of each do not count."""
        marks = sorted([(r.started, 1) for r in self.requests()] +
                       [(r.started + max(0, r.seconds - 0.5), -1)
                        for r in self.requests() if r.done])
        now = most = 0
        for _, step in marks:
            now += step
            most = max(most, now)
        return most

    def costs(self, most):
        """At most so many times its size, of which no connection can bring the whole once more."""
        self.assertLess(self.fetched(self.wb), most * self.SIZE)
        self.assertLess(self.cdn_bytes(), (most + 0.5) * self.SIZE)

    def test_a_large_blob(self):
        # So slow that the machine, under whatever load or sanitizer, is not what holds it up:
        # then there would rightly be no further connections.
        self.throttle.remove()
        self.hub.fault("cdn_throttle", rate=4 * MIB, path=FILE)
        self.whole(self.wb, self.model)
        self.assertGreater(self.hub.count("cdn"), 4)
        self.assertIn(self.most_at_once(), (2, 3, 4))
        self.costs(1.05)
        self.assertEqual(self.hub.count("hub", kind="resolve"), 1)
        self.assertEqual(self.incoming(self.wb), [])

    def test_64_readers_are_still_one_transfer(self):
        with in_threads(16, lambda _: self.whole(self.wb, self.model)):
            pass
        self.costs(1.05)

    def test_connections_that_break(self):
        self.hub.fault("cdn_cut", bytes=3 * MIB, path=FILE, skip=1, times=6)
        self.whole(self.wb, self.model)
        self.costs(1.1)

    def test_a_connection_that_stalls(self):
        self.hub.fault("cdn_stall", seconds=100, bytes=3 * MIB, path=FILE, skip=1, times=1)
        self.whole(self.wb, self.model)

    def test_urls_that_expire(self):
        self.hub.fault("url_uses", uses=3, path=FILE)
        self.whole(self.wb, self.model)
        self.assertGreater(self.hub.count("hub", kind="resolve"), 1)

    def falls_back(self, name=NAME):
        self.whole(self.wb, self.model, name)
        self.assertLessEqual(self.most_at_once(), 2)
        self.assertLess(self.hub.count("cdn"), 6)
        self.assertEqual(self.metric(self.wb, "weighbridge_verification_failures_total"), 0)

    def test_an_upstream_that_does_not_range(self):
        self.hub.fault("cdn_ignore_range", path=FILE)
        self.whole(self.wb, self.model)
        self.assertLessEqual(self.most_at_once(), 3)

    def test_an_upstream_that_refuses_more(self):
        for status in (429, 503):
            with self.subTest(status):
                self.model = self.cold(self.wb, self.SIZE, status, f"Org/M{status}")
                self.hub.fault("cdn_throttle", rate=16 * MIB, path=FILE)
                self.hub.fault("cdn_status", status=status, path=FILE, skip=1, times=1,
                               headers={"Retry-After": "20"})
                self.falls_back(f"hf/org/m{status}")

    def test_another_etag(self):
        self.hub.fault("cdn_headers", path=FILE, skip=1, times=1, set={"ETag": '"another"'})
        self.falls_back()

    def test_a_wrong_byte_in_a_later_part(self):
        self.hub.fault("cdn_flip", offset=100 * MIB, path=FILE)
        pull = Pull(self.wb, self.model.digest).finish()
        self.assertFalse(pull.complete)
        self.assertLessEqual(pull.received, self.SIZE - WITHHELD)
        self.assertFalse(self.held(self.wb, self.model.digest))
        self.until("its bytes to be gone", lambda: self.incoming(self.wb) == [])
        self.hub.clear_faults()
        self.whole(self.wb, self.model)

    def goes_on(self, end, part, name=NAME):
        """Broken off at `part` of the file by end(): what was fetched is not fetched again, and who
        has a beginning may go on. With however many connections: on a crowded machine it is one."""
        pull = Pull(self.wb, self.model.digest, name=name)
        beginning = pull.take(int(part * self.SIZE))
        end()
        pull.close()
        self.wb.start()
        late = Pull(self.wb, self.model.digest, f"{len(beginning)}-", name)
        self.assertEqual(late.status, 206)
        rest = late.take(self.SIZE)
        self.assertTrue(beginning + rest == self.model.whole())
        late.close()
        self.whole(self.wb, self.model, name)
        self.assertLess(len(beginning) + self.fetched(self.wb), 1.05 * self.SIZE)
        self.assertEqual(self.incoming(self.wb), [])

    def test_a_stop_on_the_way(self):
        self.goes_on(lambda: self.assertEqual(self.wb.stop(), 0), 0.4)

    def test_peer_bug_23_a_kill_on_the_way(self):
        for seed, part in enumerate((0.4, 0.9)):
            self.model = self.cold(self.wb, self.SIZE, seed, f"Org/K{seed}")
            self.hub.fault("cdn_throttle", rate=16 * MIB, path=FILE)
            with self.subTest(part):
                self.goes_on(self.wb.kill, part, f"hf/org/k{seed}")

    def test_other_downloads_get_their_turn(self):
        """Three places: further connections leave room, and a second blob comes."""
        wb = self.serve(self.config(upstreams=[{
            "prefix": "hf", "kind": "huggingface", "url": self.hub.url, "max_connections": 3,
            "connections_per_blob": 8}]))
        models = [self.cold(wb, 100 * MIB, i, f"Org/Fair{i}") for i in range(3)]
        self.hub.fault("cdn_throttle", rate=16 * MIB, path=FILE)
        with in_threads(3, lambda i: self.whole(wb, models[i], f"hf/org/fair{i}")):
            pass


class FromARegistry(MirrorCase):
    OPTIONS = {"rate": 12 * MIB}
    UPSTREAM = {"connections_per_blob": 8}
    SIZE = 192 * MIB + 1

    def test_peer_bug_23_a_kill_on_the_way(self):
        data = Noise(self.SIZE, "a large layer")
        image = self.repo.add_artifact({"weights": data}, tag="large")
        digest = image.blobs[-1]
        self.pulls(image, "large")
        name = f"{PREFIX}/{REPO}"
        pull = Pull(self.wb, digest, name=name)
        beginning = pull.take(int(0.9 * self.SIZE))
        self.wb.kill()
        pull.close()
        self.wb.start()
        late = Pull(self.wb, digest, f"{len(beginning)}-", name)
        self.assertEqual(late.status, 206)
        rest = late.take(self.SIZE)
        late.close()
        self.assertEqual("sha256:" + hashlib.sha256(beginning + rest).hexdigest(), digest)
        fetched = re.search(r"\nweighbridge_upstream_bytes_total{[^}]*} (\d+)\n",
                            self.wb.get("/metrics")[2].decode())
        self.assertLess(len(beginning) + int(fetched[1]), 1.05 * self.SIZE)


class ColdRanges(TransferCase):
    SIZE = 96 * MIB + 3

    def setUp(self):
        super().setUp()
        self.wb = self.serve()

    def part(self, model, first, last, name=NAME):
        pull = Pull(self.wb, model.digest, f"{first}-{last}", name=name)
        self.assertEqual(pull.status, 206)
        self.assertTrue(pull.take(last - first + 1) == model.whole(first, last))
        pull.close()

    def test_peer_bug_21_a_range_does_not_wait_for_what_is_before_it(self):
        model = self.cold(self.wb, self.SIZE)
        hold = self.hold_the_first()
        whole = Pull(self.wb, model.digest)
        whole.take(HELD_AT - MIB)
        self.assertTrue(hold.wait_held(1))
        for first, last in ((64 * MIB, 64 * MIB + 99), (32 * MIB, 40 * MIB),
                            (self.SIZE - 9 * MIB, self.SIZE - WITHHELD - 1)):
            self.part(model, first, last)
        hold.release()
        whole.finish()
        self.assertTrue(whole.complete)
        self.assertEqual(whole.digest, model.digest)
        self.assertEqual(self.incoming(self.wb), [])

    def test_the_last_block_waits_for_the_digest(self):
        model = self.cold(self.wb, self.SIZE)
        hold = self.hold_the_first()
        late = Pull(self.wb, model.digest, f"{self.SIZE - 8 * MIB}-")
        self.assertTrue(late.take(8 * MIB - WITHHELD)
                        == model.whole(self.SIZE - 8 * MIB, self.SIZE - WITHHELD - 1))
        late.answer.fp.raw._sock.settimeout(0.5)
        with self.assertRaises(TimeoutError):
            late.answer.read1(1)
        late.close()
        hold.release()
        self.whole(self.wb, model)

    def test_ranges_of_the_same_part_are_fetched_once(self):
        model = self.cold(self.wb, self.SIZE)
        hold = self.hold_the_first()
        with in_threads(8, lambda _: self.part(model, 50 * MIB, 51 * MIB)):
            pass
        self.assertLessEqual(self.hub.count("cdn"), 4)
        hold.release()
        self.whole(self.wb, model)

    def test_the_start_of_every_shard_while_one_is_downloaded(self):
        """vLLM reads the header of each file first. The download that has the only place must not
        keep the others from it."""
        self.wb = self.serve(self.config(limits={"transfers": 1}))
        models = [self.cold(self.wb, 24 * MIB, i, f"Org/S{i}") for i in range(4)]
        hold = self.hold_the_first()
        whole = Pull(self.wb, models[0].digest, name="hf/org/s0")
        whole.take(MIB)
        self.assertTrue(hold.wait_held(1))
        for i in range(1, 4):
            self.part(models[i], 0, 100_000, f"hf/org/s{i}")
        self.assertEqual(self.metric(self.wb, "weighbridge_transfers_running"), 1)
        hold.release()
        whole.finish()
        self.assertTrue(whole.complete)
        for i in range(1, 4):
            self.whole(self.wb, models[i], f"hf/org/s{i}")
        self.assertEqual(self.incoming(self.wb), [])

    def test_a_part_of_a_file_that_waits_for_its_place(self):
        """Its reader leaves and comes back for another part."""
        self.wb = self.serve(self.config(limits={"transfers": 1}))
        models = [self.cold(self.wb, self.SIZE, i, f"Org/W{i}") for i in range(2)]
        hold = self.hold_the_first()
        whole = Pull(self.wb, models[0].digest, name="hf/org/w0")
        whole.take(MIB)
        self.assertTrue(hold.wait_held(1))
        for at in (60, 30, 80):
            self.part(models[1], at * MIB, at * MIB + 9999, "hf/org/w1")
            self.until("the reader to be gone", lambda: self.metric(
                self.wb, "weighbridge_transfer_readers") == 1)
        hold.release()
        self.assertTrue(whole.finish().complete)
        self.whole(self.wb, models[1], "hf/org/w1")
        self.assertEqual(self.incoming(self.wb), [])

    def test_an_upstream_that_does_not_range(self):
        """The part comes when the download gets there."""
        model = self.cold(self.wb, self.SIZE)
        self.hub.fault("cdn_ignore_range", path=FILE)
        self.part(model, 60 * MIB, 61 * MIB)
        self.whole(self.wb, model)

    def test_a_part_that_breaks(self):
        model = self.cold(self.wb, self.SIZE)
        hold = self.hold_the_first()
        whole = Pull(self.wb, model.digest)
        whole.take(MIB)
        self.hub.fault("cdn_cut", bytes=100 * KIB, path=FILE, times=2)
        self.part(model, 60 * MIB, 61 * MIB)
        hold.release()
        self.assertTrue(whole.finish().complete)

    def test_a_part_of_a_file_that_turns_out_wrong(self):
        model = self.cold(self.wb, self.SIZE)
        flip = self.hub.fault("cdn_flip", offset=60 * MIB + 5, path=FILE)
        hold = self.hold_the_first()
        pull = Pull(self.wb, model.digest, f"{60 * MIB}-{61 * MIB}")
        got = pull.take(MIB)
        self.assertEqual(len(got), MIB)
        self.assertFalse(got == model.whole(60 * MIB, 61 * MIB - 1))
        flip.remove()
        whole = Pull(self.wb, model.digest)
        hold.release()
        self.assertFalse(whole.finish().complete)
        self.assertEqual(self.wb.blob(NAME, model.digest, {"Range": f"bytes={61 * MIB}-"})[0], 502)
        self.whole(self.wb, model)
        self.assertEqual(self.wb.blob(NAME, model.digest, {"Range": "bytes=1-"})[0], 502)

    def test_a_part_outlives_its_download(self):
        """It was handed out before it was hashed, and is still what it was."""
        self.wb = self.serve(self.config(upstreams=[{
            "prefix": "hf", "kind": "huggingface", "url": self.hub.url, "retries": 0}]))
        model = self.cold(self.wb, self.SIZE)
        hold = self.hold_the_first()
        whole = Pull(self.wb, model.digest)
        whole.take(HELD_AT - 2 * LAG)
        self.part(model, 60 * MIB, 61 * MIB)
        self.assertEqual(self.wb.stop(), 0)
        hold.release()
        whole.close()
        self.hub.reset()
        self.wb.start()
        self.part(model, 61 * MIB, 62 * MIB)
        self.whole(self.wb, model)
        self.assertLess(self.cdn_bytes(), self.SIZE - 4 * MIB)


class NoRoom(TransferCase):
    """What cannot be stored is passed through: the readers have the right bytes, and nothing of
    them stays."""

    upstream = {"retries": 2, "stall_timeout": "60s"}  # tests hold answers up
    SIZE = 24 * MIB + 7

    def full(self, wb):
        """From now on no file of the server's grows beyond 8 MiB."""
        resource.prlimit(wb.pid, resource.RLIMIT_FSIZE, (8 * MIB, 8 * MIB))

    def below_the_floor(self):
        wb = self.serve()
        model = self.cold(wb, self.SIZE)
        self.assertEqual(wb.stop(), 0)
        return self.serve(self.config(limits={"free_percent": 100}), data=wb.data), model

    def passed(self, wb, model, times=1):
        self.assertFalse(self.held(wb, model.digest))
        self.assertEqual(self.metric(wb, "weighbridge_transfers_uncached_total"), times)
        self.until("the downloads to end",
                   lambda: self.metric(wb, "weighbridge_transfers_running") == 0)

        def lines():
            return wb.log_lines(event="transfer", error="no_space") + \
                wb.log_lines(event="transfer", error="io")

        self.until("the log to tell of them", lambda: len(lines()) >= times)
        self.assertEqual(len(lines()), times, wb.log[-2000:])
        self.assertIn("passed through", wb.log)

    def test_none_from_the_start(self):
        wb, model = self.below_the_floor()
        self.whole(wb, model)
        self.passed(wb, model)
        self.assertIn("limits.free_percent", wb.log)
        self.until("its room to be given back", lambda: self.incoming(wb) == [])
        self.assertEqual(self.cdn_bytes(), self.SIZE)

    def test_16_readers_of_one_download(self):
        wb, model = self.below_the_floor()
        hold = self.hub.hold("cdn", before=True, path=FILE)
        with in_threads(16, lambda _: self.whole(wb, model)):
            self.assertTrue(hold.wait_held(1))
            self.until("every client to wait", lambda: self.metric(
                wb, "weighbridge_transfer_readers") == 16)
            hold.release()
        self.passed(wb, model)
        self.assertEqual(self.cdn_bytes(), self.SIZE)

    def test_a_reader_that_comes_too_late_has_a_download_of_its_own(self):
        wb, model = self.below_the_floor()
        hold = self.hub.hold("cdn", bytes=16 * MIB, path=FILE, times=1)
        first = Pull(wb, model.digest)
        first.take(15 * MIB)
        self.assertTrue(hold.wait_held(1))
        self.whole(wb, model)
        hold.release()
        self.assertTrue(first.finish().complete)
        self.assertEqual(first.digest, model.digest)
        self.passed(wb, model, 2)

    def test_a_range(self):
        wb, model = self.below_the_floor()
        first, last = 20 * MIB, self.SIZE - 1
        status, _, body = wb.blob(NAME, model.digest, {"Range": f"bytes={first}-{last}"})
        self.assertEqual(status, 206)
        self.assertTrue(body == model.whole(first, last))
        self.passed(wb, model)

    def test_wrong_bytes_do_not_get_through(self):
        wb, model = self.below_the_floor()
        self.hub.fault("cdn_flip", offset=5 * MIB, path=FILE, times=1)
        pull = Pull(wb, model.digest).finish()
        self.assertFalse(pull.complete)
        self.assertLessEqual(pull.received, self.SIZE - WITHHELD)
        self.assertEqual(wb.blob(NAME, model.digest, {"Range": "bytes=1-"})[0], 502)
        self.whole(wb, model)

    def test_a_broken_connection(self):
        wb, model = self.below_the_floor()
        self.hub.fault("cdn_cut", bytes=5 * MIB, path=FILE, times=2)
        self.whole(wb, model)
        self.passed(wb, model)
        self.assertEqual(self.cdn_bytes(), self.SIZE)

    def test_a_slow_reader_is_left_behind(self):
        wb, model = self.below_the_floor()
        model = self.cold(wb, 64 * MIB, 1, "Org/Long")
        # Whoever comes when the first bytes have gone by has a download of his own.
        hold = self.hub.hold("cdn", before=True, path=FILE)
        slow = Pull(wb, model.digest, name="hf/org/long")
        with in_threads(1, lambda _: self.whole(wb, model, "hf/org/long")):
            self.assertTrue(hold.wait_held(1))
            self.until("both to wait", lambda: self.metric(
                wb, "weighbridge_transfer_readers") == 2)
            hold.release()
        self.assertFalse(slow.finish().complete)
        self.until("the log to say why", lambda: "too slow" in wb.log)

    def test_a_reader_that_leaves(self):
        """Without readers there is nothing to gain."""
        wb, model = self.below_the_floor()
        hold = self.hub.hold("cdn", bytes=4 * MIB, path=FILE)
        pull = Pull(wb, model.digest)
        pull.take(MIB)
        self.assertTrue(hold.wait_held(1))
        pull.vanish()
        self.until("the download to end",
                   lambda: self.metric(wb, "weighbridge_transfers_running") == 0)
        hold.release()
        self.whole(wb, model)

    def test_a_disk_that_fails_on_the_way(self):
        wb = self.serve()
        model = self.cold(wb, self.SIZE)
        hold = self.hub.hold("cdn", bytes=4 * MIB, path=FILE, times=1)
        pulls = [Pull(wb, model.digest) for _ in range(4)]
        for pull in pulls:
            pull.take(3 * MIB)
        self.assertTrue(hold.wait_held(1))
        self.full(wb)
        hold.release()
        with in_threads(4, lambda i: pulls[i].finish()):
            pass
        for pull in pulls:
            self.assertTrue(pull.complete, wb.log[-2000:])
            self.assertEqual(pull.digest, model.digest)
        self.passed(wb, model)
        # No byte twice, but for what could not be written; and the Hub's own answers.
        self.assertLess(self.fetched(wb), self.SIZE + MIB)
        self.until("the part of it to be gone", lambda: self.incoming(wb) == [])
        self.assertEqual(wb.stop(), 0)
        wb.start()
        self.whole(wb, model)
        self.assertTrue(self.held(wb, model.digest))
        self.assertEqual(self.incoming(wb), [])


class HugeFiles(TransferCase):
    """The Hub's CDN sends a file of over 50 GB in bounded ranges only, and the stand-in's refuses
    one without. No disk has room for this one, so nothing of it is allocated for the test."""

    SIZE = 60 * 10**12

    def test_bounded_ranges(self):
        wb = self.serve()
        file = safetensors_sparse({"w": ("U8", [self.SIZE])})
        self.hub.add_repo("Org/Huge", {"config.json": b"{}", FILE: file})
        self.pull_manifest(wb, "hf/org/huge", "main")
        self.hub.reset()
        pull = Pull(wb, "sha256:" + file.sha256(), name="hf/org/huge")
        self.assertEqual(pull.expected, file.size)
        beginning = pull.take(MIB)
        self.assertEqual(beginning, bytes(file.header).ljust(MIB, b"\0"))
        while pull.received < GIB + 2 * MIB:
            self.assertEqual(pull.take(MIB), bytes(MIB))
        self.assertEqual([r.range for r in self.requests()],
                         [f"bytes=0-{GIB - 1}", f"bytes={GIB}-{2 * GIB - 1}"])
        pull.vanish()
        self.until("the download to end",
                   lambda: self.metric(wb, "weighbridge_transfers_running") == 0)
        self.until("its room to be given back", lambda: self.incoming(wb) == [])


class Limits(TransferCase):
    """What comes in a second, over the time that it takes."""

    RATE = 8 * MIB

    def took(self, wb, sizes):
        models = [self.cold(wb, size, i, f"Org/L{i}") for i, size in enumerate(sizes)]
        ends = [0.0] * len(sizes)
        ready = threading.Barrier(len(sizes) + 1)

        def pull(i):
            ready.wait()
            self.whole(wb, models[i], f"hf/org/l{i}")
            ends[i] = time.monotonic()

        with in_threads(len(sizes), pull):
            ready.wait()
            start = time.monotonic()
        return [end - start for end in ends]

    def test_of_one_upstream(self):
        self.upstream = {"max_bytes_per_second": self.RATE}
        took, = self.took(self.serve(), [24 * MIB])
        self.assertGreater(took, 0.9 * 24 * MIB / self.RATE)

    def test_of_all_and_fair(self):
        wb = self.serve(self.config(limits={"bytes_per_second": self.RATE}))
        one, two = self.took(wb, [16 * MIB, 16 * MIB])
        self.assertGreater(max(one, two), 0.9 * 32 * MIB / self.RATE)
        self.assertGreater(min(one, two), 0.6 * max(one, two), "both have had their share")

    def test_a_stop_does_not_wait_for_it(self):
        wb = self.serve(self.config(limits={"bytes_per_second": 64 * KIB}))
        model = self.cold(wb, 24 * MIB)
        pull = Pull(wb, model.digest)
        pull.take(KIB)
        start = time.monotonic()
        self.assertEqual(wb.stop(), 0)
        self.assertLess(time.monotonic() - start, 15)
        pull.close()


if __name__ == "__main__":
    unittest.main()
