#!/usr/bin/env python3
"""Parts of a file that there is no room for: they come at once, are what the upstream has, and can
not be put together to a file that nobody has checked."""

import resource
import time
import unittest

from blob_case import FILE, MIB, NAME, WITHHELD, Pull, in_threads
from test_transfers import TransferCase


class PartsOfWhatIsNotStored(TransferCase):
    upstream = {"retries": 2, "stall_timeout": "60s"}  # tests hold answers up
    limits = {"free_percent": 100}
    SIZE = 48 * MIB + 7

    def setUp(self):
        super().setUp()
        wb = self.serve()
        self.model = self.cold(wb, self.SIZE)
        self.assertEqual(wb.stop(), 0)
        self.wb = self.serve(self.config(limits=self.limits), data=wb.data)

    def ask(self, first, end):
        return self.wb.blob(NAME, self.model.digest, {"Range": f"bytes={first}-{end - 1}"})

    def part(self, first, end):
        status, headers, body = self.ask(first, end)
        self.assertEqual(status, 206, body[:500])
        self.assertEqual(headers["Content-Range"], f"bytes {first}-{end - 1}/{self.SIZE}")
        self.assertTrue(body == self.model.whole(first, end - 1))

    def refused(self, first, end):
        status, _, body = self.ask(first, end)
        self.assertEqual(status, 502)
        self.assertIn(b"download it from byte 0", body)

    def ends(self):
        first = 40 * MIB
        status, _, body = self.ask(first, self.SIZE)
        self.assertEqual(status, 206, body[:500])
        self.assertTrue(body == self.model.whole(first, self.SIZE - 1))

    def test_one_in_the_middle_comes_without_what_is_before(self):
        self.part(30 * MIB, 31 * MIB)
        self.assertEqual(self.cdn_bytes(), MIB)
        self.assertEqual(self.hub.count("hub", kind="resolve"), 1)
        self.assertEqual([r.headers["range"] for r in self.requests()],
                         [f"bytes={30 * MIB}-{31 * MIB - 1}"])
        self.assertFalse(self.held(self.wb, self.model.digest))
        self.assertEqual(self.incoming(self.wb), [])
        self.until("the log to say why", lambda: "limits.free_percent" in self.wb.log)

    def test_one_that_was_given_from_the_beginning_is_no_reason_to_refuse_others(self):
        self.part(0, 100001)
        self.part(100001, 200000)
        self.part(20 * MIB, 21 * MIB)
        self.part(1, self.SIZE - WITHHELD)
        self.whole(self.wb, self.model)
        self.part(MIB, 2 * MIB)

    def test_by_the_api_of_the_hub(self):
        for first, last in ((0, 100000), (30 * MIB, 31 * MIB)):
            status, headers, body = self.wb.get(f"/Org/Model/resolve/main/{FILE}",
                                                {"Range": f"bytes={first}-{last}"})
            self.assertEqual(status, 206, body[:500])
            self.assertEqual(headers["Content-Range"], f"bytes {first}-{last}/{self.SIZE}")
            self.assertTrue(body == self.model.whole(first, last))
        self.assertEqual(self.cdn_bytes(), 100001 + MIB + 1)

    def test_long_ones_of_many_clients(self):
        with in_threads(8, lambda i: self.part(i * 4 * MIB, i * 4 * MIB + 11 * MIB)):
            pass
        self.assertLess(self.cdn_bytes(), 8 * 11 * MIB + MIB)

    def test_while_the_whole_file_is_passed_through(self):
        hold = self.hold_the_first()
        whole = Pull(self.wb, self.model.digest)
        whole.take(3 * MIB)
        self.assertTrue(hold.wait_held(1))
        self.part(30 * MIB, 40 * MIB)
        hold.release()
        self.assertTrue(whole.finish().complete)
        self.assertEqual(whole.digest, self.model.digest)

    def test_no_connection_waits_for_a_slow_client(self):
        slow = Pull(self.wb, self.model.digest, f"0-{40 * MIB}")
        slow.take(MIB)
        self.until("its connection to end", lambda: self.requests() and
                   all(r.done for r in self.requests()))
        self.assertLess(self.cdn_bytes(), 16 * MIB)
        self.part(41 * MIB, 42 * MIB)
        self.assertTrue(slow.finish().complete)

    def test_what_is_not_checked_gets_no_end(self):
        self.part(20 * MIB, 21 * MIB)
        self.refused(21 * MIB, self.SIZE)
        self.refused(self.SIZE - WITHHELD, self.SIZE)
        self.refused(self.SIZE - 1, self.SIZE)
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()
        self.refused(21 * MIB, self.SIZE)
        self.whole(self.wb, self.model)

    def test_an_end_that_was_waited_for_meanwhile(self):
        hold = self.hold_the_first()
        end = Pull(self.wb, self.model.digest, f"{40 * MIB}-{self.SIZE - 1}")
        self.assertTrue(hold.wait_held(1))
        self.part(20 * MIB, 21 * MIB)
        hold.release()
        self.assertFalse(end.finish().complete)
        self.assertLessEqual(end.received, 8 * MIB + 7 - WITHHELD)

    def test_who_has_the_end_gets_nothing_that_is_not_checked(self):
        """It waits for the bytes of a download of the whole."""
        self.ends()
        before = self.cdn_bytes()
        self.part(0, MIB)
        self.assertIsNone(self.requests()[-1].headers.get("range"))
        self.assertGreater(self.cdn_bytes(), before)

    def test_connections_that_break(self):
        self.hub.fault("cdn_cut", bytes=MIB, path=FILE, times=3)
        self.part(20 * MIB, 30 * MIB)

    def test_a_signed_url_that_is_refused(self):
        self.hub.fault("cdn_status", status=403, path=FILE, skip=1, times=1)
        self.part(20 * MIB, 30 * MIB)
        self.assertEqual(self.hub.count("hub", kind="resolve"), 2)

    def test_a_file_that_changes_meanwhile(self):
        self.hub.fault("cdn_headers", set={"ETag": '"another"'}, path=FILE, skip=1)
        pull = Pull(self.wb, self.model.digest, f"{20 * MIB}-{30 * MIB}").finish()
        self.assertEqual(pull.status, 206)
        self.assertFalse(pull.complete)
        self.assertLessEqual(pull.received, 4 * MIB)

    def test_another_file(self):
        self.hub.fault("cdn_total", delta=1, path=FILE)
        self.assertEqual(self.ask(20 * MIB, 21 * MIB)[0], 502)

    def test_another_range(self):
        self.hub.fault("cdn_range_start", delta=7, path=FILE)
        self.assertEqual(self.ask(20 * MIB, 21 * MIB)[0], 502)

    def test_an_upstream_without_ranges(self):
        """They come out of a download of the whole."""
        self.hub.fault("cdn_ignore_range", path=FILE)
        self.part(0, MIB)

    def test_an_upstream_without_ranges_and_not_the_beginning(self):
        self.hub.fault("cdn_ignore_range", path=FILE)
        self.part(30 * MIB, 31 * MIB)

    def test_an_upstream_that_fails(self):
        """Nobody has got anything of it."""
        fault = self.hub.fault("cdn_status", status=500, path=FILE)
        self.assertGreaterEqual(self.ask(30 * MIB, 31 * MIB)[0], 500)
        fault.remove()
        self.ends()

    def test_the_server_stops(self):
        self.hub.hold("cdn", bytes=MIB, path=FILE, times=1)
        pull = Pull(self.wb, self.model.digest, f"{20 * MIB}-{30 * MIB}")
        pull.take(MIB // 2)
        began = time.monotonic()
        self.assertEqual(self.wb.stop(), 0)
        self.assertLess(time.monotonic() - began, 30)
        self.assertFalse(pull.finish().complete)


class ADiskThatFillsUp(TransferCase):
    upstream = {"retries": 2, "stall_timeout": "60s"}
    SIZE = 48 * MIB + 7

    def test_a_part_that_waits_goes_on_by_itself(self):
        wb = self.serve()
        model = self.cold(wb, self.SIZE)
        hold = self.hold_the_first()
        whole = Pull(wb, model.digest)
        whole.take(3 * MIB)
        self.assertTrue(hold.wait_held(1))
        resource.prlimit(wb.pid, resource.RLIMIT_FSIZE, (8 * MIB, 8 * MIB))
        part = Pull(wb, model.digest, f"{6 * MIB}-{40 * MIB - 1}")
        self.assertEqual(part.status, 206)
        hold.release()
        self.assertTrue(part.finish().complete)
        self.assertEqual(part.received, 34 * MIB)
        self.assertTrue(whole.finish().complete)
        self.assertEqual(whole.digest, model.digest)


if __name__ == "__main__":
    unittest.main()
