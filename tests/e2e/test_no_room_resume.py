#!/usr/bin/env python3
"""A file that there is no room for is passed through. Who has bytes of it that were not checked to
the end gets no end from elsewhere: not after a crash, not from another download, not from the blob
that could be stored meanwhile."""

import resource
import unittest

from blob_case import FILE, MIB, NAME, WITHHELD, Pull, in_threads
from test_transfers import TransferCase


class Resume(TransferCase):
    # Tests hold answers up.
    upstream = {"retries": 2, "stall_timeout": "60s", "connections_per_blob": 1}
    SIZE = 48 * MIB + 7

    def setUp(self):
        super().setUp()
        self.wb = self.serve()
        self.model = self.cold(self.wb, self.SIZE)

    def fill_up(self):
        """As a full disk: what is longer than that can not be written."""
        most = resource.RLIM_INFINITY
        resource.prlimit(self.wb.pid, resource.RLIMIT_FSIZE, (8 * MIB, most))

    def make_room(self):
        most = resource.RLIM_INFINITY
        resource.prlimit(self.wb.pid, resource.RLIMIT_FSIZE, (most, most))

    def get_wrong(self, pull, count):
        self.assertFalse(pull.take(count) == self.model.whole(0, count - 1))

    def resume(self, first):
        return self.wb.blob(NAME, self.model.digest, {"Range": f"bytes={first}-"})

    def refused(self, first):
        status, _, body = self.resume(first)
        self.assertEqual(status, 502, body[:200])
        self.assertIn(b"download it from byte 0", body)

    def below_the_floor(self):
        self.assertEqual(self.wb.stop(), 0)
        self.wb = self.serve(self.config(limits={"free_percent": 100}), data=self.wb.data)

    def killed(self):
        flip = self.hub.fault("cdn_flip", offset=9 * MIB, path=FILE)
        hold = self.hub.hold("cdn", bytes=20 * MIB, path=FILE, times=1)
        self.get_wrong(Pull(self.wb, self.model.digest), 18 * MIB)
        self.wb.kill()
        hold.release()
        flip.remove()
        self.wb.start()
        self.refused(18 * MIB)
        self.refused(self.SIZE - 1)
        self.whole(self.wb, self.model)
        self.refused(18 * MIB)

    def test_after_a_crash(self):
        self.below_the_floor()
        self.killed()

    def test_after_a_crash_with_a_disk_that_filled_up(self):
        self.fill_up()
        self.killed()
        self.assertTrue(self.held(self.wb, self.model.digest))

    def test_after_a_crash_when_all_had_been_checked(self):
        self.below_the_floor()
        self.whole(self.wb, self.model)
        self.until("its end", lambda: self.metric(self.wb, "weighbridge_transfers_running") == 0)
        self.wb.kill()
        self.wb.start()
        status, _, body = self.resume(18 * MIB)
        self.assertEqual(status, 206, body[:200])
        self.assertTrue(body == self.model.whole(18 * MIB))

    def two_have_wrong_bytes(self, before=0):
        """Of one download, which is held up. One of them leaves. before: its first exchanges."""
        flip = self.hub.fault("cdn_flip", offset=9 * MIB, path=FILE)
        hold = self.hub.hold("cdn", offset=24 * MIB, path=FILE, skip=before, times=1)
        pulls = [Pull(self.wb, self.model.digest) for _ in range(2)]
        with in_threads(2, lambda i: self.get_wrong(pulls[i], 20 * MIB)):
            pass
        self.assertTrue(hold.wait_held(1))
        flip.remove()
        pulls[0].vanish()
        return hold, pulls[1]

    def ends_wrong(self, hold, pull):
        hold.release()
        self.assertFalse(pull.finish().complete)
        self.refused(20 * MIB)

    def test_while_it_goes_on(self):
        self.below_the_floor()
        hold, other = self.two_have_wrong_bytes()
        again = Pull(self.wb, self.model.digest, f"{20 * MIB}-").finish()
        self.assertFalse(again.complete)
        self.assertLessEqual(again.received, self.SIZE - WITHHELD - 20 * MIB)
        self.ends_wrong(hold, other)

    def push(self):
        """Another way in, which waits for no download."""
        status, headers, _ = self.wb.request("POST", "/v2/local/mine/blobs/uploads/")
        self.assertEqual(status, 202)
        path = headers["Location"].split(self.wb.host)[-1]
        status, _, body = self.wb.request(
            "PUT", f"{path}{'&' if '?' in path else '?'}digest={self.model.digest}",
            {"Content-Type": "application/octet-stream"}, self.model.whole())
        self.assertEqual(status, 201, body[:500])
        self.assertTrue(self.held(self.wb, self.model.digest))

    def test_while_it_goes_on_and_the_blob_has_come_meanwhile(self):
        self.fill_up()
        hold, other = self.two_have_wrong_bytes(1)
        self.make_room()
        self.push()
        status, headers, body = self.resume(20 * MIB)
        self.assertEqual(status, 503, body[:200])
        self.assertEqual(headers["Retry-After"], "10")
        self.assertIn(b"not been checked", body)
        status, _, body = self.wb.blob(NAME, self.model.digest, {"Range": "bytes=100-200"})
        self.assertEqual(status, 206)
        self.assertTrue(body == self.model.whole(100, 200))
        self.whole(self.wb, self.model)
        self.ends_wrong(hold, other)


if __name__ == "__main__":
    unittest.main()
