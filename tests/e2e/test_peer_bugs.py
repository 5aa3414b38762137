#!/usr/bin/env python3
"""Faults that users reported of other pull-through caches, proved not to be ours, for blobs that
come from a registry; docs/testing.md lists them all. Sizes and times are scaled down: what counts
is the order of events, and how often the upstream was asked."""

import contextlib
import hashlib
import http.client
import os
import re
import resource
import socket
import threading
import time
import unittest
from unittest import mock

from blob_case import BROKEN, KIB, MIB, PATIENCE_S, WITHHELD, Pull, in_threads
from harness import ROOT
from mirror_case import PASSWORD, PREFIX, REPO, USER, MirrorCase, Noise

LAG = 512 * KIB  # what may be on its way between the upstream and a client


class Drip:
    """A client that takes one byte a second out of its socket, which holds little more."""

    def __init__(self, wb, name, digest):
        host, port = wb.host.rsplit(":", 1)
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect((host, int(port)))
        self.sock.sendall(f"GET /v2/{name}/blobs/{digest} HTTP/1.1\r\nHost: {wb.host}\r\n"
                          "Connection: close\r\n\r\n".encode())
        self.got = self.sock.recv(1)  # there is an answer
        self.ended = threading.Event()
        self.slowly = 0  # bytes, until it reads on
        self.thread = threading.Thread(target=self.drip, daemon=True)
        self.thread.start()

    def drip(self):
        while not self.ended.wait(1):
            self.got += self.sock.recv(1)

    def finish(self):
        """(status, Content-Length, length, digest) after reading on as fast as it comes."""
        self.ended.set()
        self.thread.join()
        self.slowly = len(self.got)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
        while b"\r\n\r\n" not in self.got:
            self.got += self.sock.recv(4096)
        head, body = self.got.split(b"\r\n\r\n", 1)
        digest, received = hashlib.sha256(body), len(body)
        while piece := self.sock.recv(MIB):
            digest.update(piece)
            received += len(piece)
        self.sock.close()
        length = re.search(rb"\r\ncontent-length: (\d+)", head, re.I)[1]
        return int(head.split()[1]), int(length), received, "sha256:" + digest.hexdigest()


class PeerBugs(MirrorCase):
    """team/app with one layer, `self.blob`, of which nothing has been pulled but its manifest."""

    # One connection for a blob: requests are counted.
    UPSTREAM = {"tag_ttl": "1h", "negative_ttl": "0s", "connections_per_blob": 1, "retries": 2,
                "breaker_failures": 1000}
    BLOB = 6 * MIB + 13

    def setUp(self):
        super().setUp()
        self.blob, self.digest = self.cold(self.BLOB)

    def cold(self, size, tag="cold", repo=REPO, wb=None):
        """(source, digest) of a layer whose manifest is here."""
        blob = Noise(size, f"{self.id()} {tag} {repo}")
        image = self.registry.repos[repo].add_image([blob], tag=tag)
        self.pulls(image, tag, repo, wb)
        return blob, image.blobs[-1]

    def pull(self, range_=None, digest=None, repo=REPO, wb=None):
        return Pull(wb or self.wb, digest or self.digest, range_, name=f"{PREFIX}/{repo}")

    def whole(self, pull=None, **where):
        pull = (pull or self.pull(**where)).finish()
        self.assertEqual((pull.status, pull.digest), (200, where.get("digest", self.digest)))

    def bytes_of(self, first, last, blob=None):
        """Inclusive."""
        return bytes((blob or self.blob).read(first, last + 1 - first))

    def fetched(self, digest=None):
        return sum(self.registry.bytes_sent("registry", kind="blob", method="GET", status=status,
                                            path=digest or self.digest) for status in (200, 206))

    def gets(self):
        return self.requests(kind="blob", method="GET", path=self.digest)

    def hold(self, **at):
        return self.registry.hold(kind="blob", path=self.digest, method="GET", **at)

    def fault(self, name, **settings):
        return self.registry.fault(name, kind="blob", path=self.digest, method="GET", **settings)

    def held(self, digest=None, wb=None):
        algorithm, value = (digest or self.digest).split(":")
        return os.path.exists(os.path.join((wb or self.wb).data, "blobs", algorithm, value[:2],
                                           value))

    def incoming(self):
        folder = os.path.join(self.wb.data, "incoming")
        return [os.path.join(folder, name) for name in os.listdir(folder)]

    def metric(self, name, wb=None):
        text = (wb or self.wb).get("/metrics")[2].decode()
        return int(re.search(rf"^{name}(?:{{[^}}]*}})? (\d+)", text, re.M)[1])

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"waited {PATIENCE_S} s for {what}")
            time.sleep(0.02)

    def all_read(self, count, wb=None):
        self.until("every client to read along", lambda: self.metric(
            "weighbridge_transfer_readers", wb) == count)


class Patient(PeerBugs):
    """Those in which the test holds answers up, for as long as a loaded machine needs."""

    UPSTREAM = {**PeerBugs.UPSTREAM, "stall_timeout": "60s"}


class Integrity(PeerBugs):
    def test_peer_bug_1_a_beginning_is_never_the_whole(self):
        at = self.BLOB // 2
        cut = self.fault("cut", offset=at)
        for _ in range(2):
            pull = self.pull()
            if pull.status == 200:
                body = pull.take(self.BLOB)
                self.assertTrue(body == self.bytes_of(0, len(body) - 1))
                self.assertLessEqual(len(body), at)
            pull.close()
            self.assertFalse(self.held())
        cut.remove()
        before = self.fetched()
        self.whole()
        self.assertEqual(self.fetched() - before, self.BLOB - at, "only what was missing")

    def test_peer_bug_5_what_comes_is_a_prefix_of_what_was_asked_for(self):
        """And the failure is nothing but a connection that closes short of Content-Length."""
        self.fault("cut", offset=4 * MIB)
        for first in (0, MIB):
            pull = self.pull(f"{first}-" if first else None)
            body = pull.take(2 * self.BLOB)
            self.assertEqual(pull.expected, self.BLOB - first)
            self.assertFalse(pull.complete)
            self.assertTrue(body == self.bytes_of(first, first + len(body) - 1))
            self.assertGreater(len(body), 0)
            pull.close()

    def test_peer_bug_6_the_end_is_withheld_until_the_digest_matches(self):
        flip = self.fault("flip", offset=MIB)
        for _ in range(2):
            pull = self.pull().finish()
            self.assertIn(pull.status, BROKEN)
            self.assertFalse(pull.complete)
            self.assertLessEqual(pull.received, self.BLOB - WITHHELD)
            self.assertFalse(self.held())
        self.assertEqual(self.fetched(), 2 * self.BLOB, "it is asked again, from byte 0")
        flip.remove()
        self.whole()

    def test_peer_bug_7_another_length_is_refused_before_a_byte(self):
        for name, settings in (("truncate", {"bytes": 0}), ("truncate", {}),
                               ("append", {"bytes": 9}), ("empty", {}), ("empty", {"status": 204})):
            with self.subTest(name, **settings):
                fault = self.fault(name, **settings)
                status, _, body = self.get_blob(self.digest)
                self.error_text(502, "UNAVAILABLE", status, body)
                self.assertFalse(self.held())
                fault.remove()
        self.whole()

    def test_peer_bug_69_a_digest_is_no_way_into_another_repository(self):
        self.whole()
        self.registry.add_repo("team/other")
        self.pulls(self.registry.repos["team/other"].add_image([b"mine"], tag="v1"),
                   repo="team/other")
        for method in ("GET", "HEAD"):
            self.assertEqual(self.get_blob(self.digest, "team/other", method=method)[0], 404)


class Coalescing(Patient):
    def test_peer_bug_13_many_clients_one_transfer(self):
        hold = self.hold(bytes=MIB)
        with in_threads(64, lambda _: self.whole()):
            self.assertTrue(hold.wait_held(1))
            self.all_read(64)
            hold.release()
        self.assertEqual(self.gets(), 1)
        self.assertEqual(self.fetched(), self.BLOB)

    def test_peer_bug_14_who_waits_gets_bytes_as_they_come(self):
        """Those that came later as well as the first, while the upstream holds the rest back."""
        hold = self.hold(bytes=4 * MIB)
        pulls = []
        for _ in range(8):
            pulls.append(self.pull())
            self.assertTrue(pulls[-1].take(4 * MIB - LAG) == self.bytes_of(0, 4 * MIB - LAG - 1))
        self.assertTrue(hold.wait_held(1))
        self.assertFalse(self.held())
        hold.release()
        for pull in pulls:
            self.whole(pull)
        self.assertEqual(self.gets(), 1)

    def test_peer_bug_15_one_flight_however_long_it_takes(self):
        """Longer than every limit there is. 10 minutes with limits of 5 s to 60 s are 6 s here,
        with limits of a second; a client comes in each tenth of it."""
        self.wb.stop()
        self.wb = self.mirror(data=self.wb.data, stall_timeout="1s", connect_timeout="1s",
                              revalidate_timeout="1s", tag_ttl="0s")
        self.registry.reset()
        self.fault("throttle", rate=MIB)
        first = self.pull()
        pulls = [first]
        for i in range(9):
            first.take(i * self.BLOB // 10 - first.received)
            pulls.append(self.pull())
            self.assertEqual(len(pulls[-1].take(1)), 1)
        for pull in pulls:
            self.whole(pull)
        self.assertEqual(self.gets(), 1)
        self.assertEqual(self.fetched(), self.BLOB)

    def test_peer_bug_16_the_first_client_leaves(self):
        hold = self.hold(fraction=0.5)
        pulls = [self.pull() for _ in range(8)]
        for pull in pulls:
            pull.take(self.BLOB // 10)
        self.assertTrue(hold.wait_held(1))
        pulls[0].vanish()
        self.all_read(7)
        hold.release()
        for pull in pulls[1:]:
            self.whole(pull)
        self.assertEqual((self.gets(), self.fetched()), (1, self.BLOB))

    def test_peer_bug_18_a_client_that_stops_reading_slows_nobody(self):
        self.blob, self.digest = self.cold(48 * MIB, "long")
        slow = self.pull()
        slow.take(64 * KIB)
        with in_threads(3, lambda _: self.whole()):
            pass
        self.assertTrue(self.held(), "the download has ended, and the first client has not")
        self.whole(slow)
        self.assertEqual(self.gets(), 1)

    def test_peer_bug_18_one_byte_a_second(self):
        """Nor does one that reads on like that, whether it came first or later."""
        self.blob, self.digest = self.cold(32 * MIB, "long")
        hold = self.hold(bytes=MIB, times=1)
        drips = [Drip(self.wb, f"{PREFIX}/{REPO}", self.digest)]
        self.assertTrue(hold.wait_held(1))
        drips.append(Drip(self.wb, f"{PREFIX}/{REPO}", self.digest))
        self.all_read(2)
        with in_threads(4, lambda _: self.whole()):
            self.all_read(6)
            hold.release()
        self.until("the download to end", lambda: self.metric(
            "weighbridge_transfers_running") == 0)
        self.assertTrue(self.held())
        self.assertEqual(self.incoming(), [])
        for drip in drips:
            status, expected, received, digest = drip.finish()
            self.assertLess(drip.slowly, 64 * KIB, "they were slow all the while")
            self.assertEqual((status, received, digest), (200, expected, self.digest))
        self.assertEqual((self.gets(), self.fetched()), (1, 32 * MIB))

    def test_peer_bug_19_a_cold_pull_costs_the_blob_once(self):
        self.registry.reset()
        self.whole()
        self.assertEqual(self.fetched(), self.BLOB)
        self.assertEqual(self.requests(), 1)


class Ranges(Patient):
    BLOB = 64 * MIB + 3

    def test_peer_bug_21_a_cold_range_does_not_wait_for_what_is_before_it(self):
        hold = self.hold(bytes=MIB, times=1)
        whole = self.pull()
        whole.take(MIB - LAG)
        self.assertTrue(hold.wait_held(1))
        for first, last in ((40 * MIB, 40 * MIB + 99), (50 * MIB, 51 * MIB)):
            status, headers, body = self.get_blob(self.digest, Range=f"bytes={first}-{last}")
            self.assertEqual(status, 206)
            self.assertEqual(headers["Content-Range"], f"bytes {first}-{last}/{self.BLOB}")
            self.assertTrue(body == self.bytes_of(first, last))
        hold.release()
        self.whole(whole)

    def test_peer_bug_23_a_break_at_90_percent_costs_what_is_missing(self):
        """64 MiB for 4 GiB."""
        cut = self.fault("cut", fraction=0.9, times=1)
        self.whole()
        self.assertEqual(cut.hits, 1)
        self.assertEqual(self.fetched(), self.BLOB)

    def test_peer_bug_23_so_does_a_kill(self):
        """The machine goes on, so that all that was written is used."""
        at = self.BLOB * 9 // 10
        hold = self.hold(offset=at, times=1)
        pull = self.pull()
        pull.take(at - LAG)
        self.assertTrue(hold.wait_held(1))
        self.wb.kill()
        pull.close()
        hold.release()
        self.registry.reset()
        self.wb.start()
        self.whole()
        self.assertLessEqual(self.fetched(), self.BLOB - at + LAG)
        self.assertEqual(self.incoming(), [])


class Patience(PeerBugs):
    def test_peer_bug_25_a_stall_is_noticed_and_gone_on_from(self):
        stall = self.fault("stall", seconds=600, offset=MIB, times=1)
        self.whole()
        self.assertEqual(stall.hits, 1)
        self.assertEqual([r.range for r in self.registry.requests(kind="blob", method="GET")],
                         [None, f"bytes={MIB}-"])
        self.assertEqual(self.fetched(), self.BLOB)

    def test_peer_bug_25_and_nobody_hangs(self):
        """The limit is stall_timeout (2 s) for each attempt, of which there are retries + 1."""
        self.fault("stall", seconds=600, offset=MIB)
        pulls = [self.pull() for _ in range(4)]
        with in_threads(4, lambda i: pulls[i].finish()):
            pass
        for pull in pulls:
            self.assertFalse(pull.complete)
            self.assertLessEqual(pull.received, MIB)

    def test_peer_bug_26_no_limit_is_on_the_whole_time(self):
        """6 s with limits of a second for 45 minutes with limits of 30 s."""
        self.wb.stop()
        wb = self.mirror(data=self.wb.data, stall_timeout="1s", connect_timeout="1s",
                         revalidate_timeout="1s", root={"timeouts": {"client": "1s"}})
        self.fault("throttle", rate=MIB)
        self.whole(wb=wb)
        self.assertEqual(self.gets(), 1)

    def test_peer_bug_29_nor_on_an_image(self):
        """Five layers of 1.2 s each."""
        self.wb.stop()
        wb = self.mirror(data=self.wb.data, stall_timeout="1s", connect_timeout="1s",
                         revalidate_timeout="1s", root={"timeouts": {"client": "1s"}})
        layers = [Noise(1_200_000, f"layer {i}") for i in range(5)]
        image = self.repo.add_image(layers, tag="five")
        self.registry.fault("throttle", rate=MIB, kind="blob")
        connection = http.client.HTTPConnection(wb.host, timeout=PATIENCE_S)
        connection.request("GET", f"/v2/{PREFIX}/{REPO}/manifests/five")
        self.assertEqual(connection.getresponse().read(), image.body)
        with in_threads(len(image.blobs), lambda i: self.whole(digest=image.blobs[i], wb=wb)):
            pass
        connection.close()

    def test_peer_bug_80_what_can_be_known_is_a_status(self):
        """Never a 200 that breaks off at once: containerd does not ask elsewhere after that."""
        for name, settings in (("drop", {}), ("stall", {"seconds": 600, "before": True}),
                               ("status", {"status": 500}), ("raw", {"text": "no HTTP"}),
                               ("truncate", {}), ("redirect_loop", {})):
            with self.subTest(name, **settings):
                fault = self.fault(name, **settings)
                status, _, body = self.get_blob(self.digest)
                self.assertIn(status, (502, 504), body)
                fault.remove()
                self.until("the upstream to be asked again", lambda: self.get_manifest(
                    self.other.digest)[0] == 200)


class Disk(Patient):
    def test_peer_bug_27_a_disk_that_fails_does_not_break_the_clients(self):
        hold = self.hold(bytes=2 * MIB, times=1)
        pulls = [self.pull() for _ in range(4)]
        for pull in pulls:
            pull.take(MIB)
        self.assertTrue(hold.wait_held(1))
        resource.prlimit(self.wb.pid, resource.RLIMIT_FSIZE, (3 * MIB, 3 * MIB))
        hold.release()
        with in_threads(len(pulls), lambda i: self.whole(pulls[i])):
            pass
        self.assertFalse(self.held())
        self.assertEqual(self.metric("weighbridge_transfers_uncached_total"), 1)

    def test_peer_bug_41_no_second_copy(self):
        """On the disk is never more than the blob, and it is the file that was received."""
        hold = self.hold(offset=-1)
        pull = self.pull()
        pull.take(self.BLOB - LAG - WITHHELD)
        self.assertTrue(hold.wait_held(1))
        received, = self.incoming()
        number = os.stat(received).st_ino
        self.assertLessEqual(self.on_disk(), 1.02 * self.BLOB + 64 * KIB)
        hold.release()
        self.whole(pull)
        self.until("the blob", self.held)
        kept = [os.path.join(folder, name) for folder, _, names in os.walk(
            os.path.join(self.wb.data, "blobs")) for name in names]
        self.assertIn(number, [os.stat(path).st_ino for path in kept])
        self.assertEqual(self.incoming(), [])
        self.assertLessEqual(self.on_disk(), 1.02 * self.BLOB + 64 * KIB)

    def on_disk(self):
        """Of blobs, whole or not."""
        return sum(os.stat(os.path.join(folder, name)).st_blocks * 512
                   for top in ("blobs", "incoming")
                   for folder, _, names in os.walk(os.path.join(self.wb.data, top))
                   for name in names)


class Logins(Patient):
    OPTIONS = {"auth": "bearer"}
    PRIVATE = True

    def mirror(self, *args, **settings):
        self.secret = self.scratch("password")
        if not os.path.exists(self.secret):
            self.write_password(PASSWORD)
        return super().mirror(*args, username=USER, password_file=self.secret, **settings)

    def write_password(self, password):
        with open(self.secret + ".new", "w", encoding="ascii") as f:
            f.write(password)
        os.rename(self.secret + ".new", self.secret)

    def test_peer_bug_74_a_download_that_outlives_its_tokens(self):
        """At each fifth of it every token runs out, and the connection breaks."""
        hold = self.hold(offset=self.BLOB // 5, times=1)
        with in_threads(1, lambda _: self.whole()):
            for i in range(2, 6):
                self.assertTrue(hold.wait_held(1))
                last, hold = hold, self.hold(offset=i * self.BLOB // 5 - 1, times=1)
                self.registry.revoke_tokens()
                self.registry.close_connections("registry")
                last.release()
            hold.release()
        self.assertEqual(self.registry.count("registry", kind="blob", status=401), 4)

    def test_peer_bug_74_a_password_that_changes(self):
        """The file is read again, without a restart."""
        self.registry.add_user(USER, "another:password")
        self.registry.revoke_tokens()
        self.write_password("another:password")
        self.pulls(self.other, self.other.digest)
        self.whole()


class SlowAndMany(Patient):
    """The figures of the release build, at its usual place unless WEIGHBRIDGE_RELEASE_BIN names
    another: sanitizers have memory of their own."""

    LIMIT = 128 * MIB

    def setUp(self):
        release = os.environ.get("WEIGHBRIDGE_RELEASE_BIN", "")
        with mock.patch.dict(os.environ, {"WEIGHBRIDGE_BIN": release}):
            super().setUp()

    def anonymous(self):
        with open(f"/proc/{self.wb.pid}/status", encoding="ascii") as f:
            return int(re.search(r"RssAnon:\s+(\d+)", f.read())[1]) * KIB

    @contextlib.contextmanager
    def watched(self):
        """The most anonymous memory that was seen, in a list, when the block has ended."""
        most, done = [self.anonymous()], threading.Event()

        def watch(_):
            while not done.wait(0.05):
                most[0] = max(most[0], self.anonymous())

        with in_threads(1, watch):
            try:
                yield most
            finally:
                done.set()

    def crowd(self, count):
        hold = self.hold(bytes=MIB, times=1)
        with in_threads(count, lambda _: self.whole()):
            self.assertTrue(hold.wait_held(1))
            self.all_read(count)
            hold.release()

    def test_peer_bug_10_a_slow_client_has_all_of_it(self):
        """It comes back for a MiB when the download is long over, and nothing has piled up in
        memory for it: 512 MiB for 12 GiB."""
        self.blob, self.digest = self.cold(512 * MIB, "large")
        idle = self.anonymous()
        slow = self.pull()
        with self.watched() as most:
            while slow.received < 448 * MIB:
                self.assertEqual(len(slow.take(MIB)), MIB)
            self.until("the download to end", self.held)
        self.whole(slow)
        self.assertLess(most[0] - idle, 16 * MIB)
        self.assertEqual(self.incoming(), [])

    def test_peer_bug_92_many_clients_of_a_cold_blob(self):
        """128 MiB for 20 GiB: more than the memory that is allowed in any case."""
        self.blob, self.digest = self.cold(self.LIMIT, "large")
        idle = self.anonymous()
        with self.watched() as most:
            self.crowd(64)
        self.assertLess(most[0] - idle, self.LIMIT)
        print(f"RssAnon {most[0] / MIB:.1f} MiB with 64 clients, {idle / MIB:.1f} MiB before")

    def test_peer_bug_93_no_growth(self):
        """Eight crowds for a soak of a day."""
        after = []
        for i in range(8):
            self.blob, self.digest = self.cold(2 * MIB, f"round-{i}")
            self.crowd(64)
            self.all_read(0)
            after.append(self.anonymous())
        self.assertLess(after[-1] - after[2], 8 * MIB, after)
        self.assertLess(after[-1], self.LIMIT)


if os.environ.get("WEIGHBRIDGE_BUILD") == "tsan":
    del SlowAndMany  # another sanitizer's turn has run it


class Table(unittest.TestCase):
    """docs/testing.md says which test proves which row."""

    HEADING = "## Faults of other products"

    def rows(self):
        """{row: [(file, test)]}"""
        with open(os.path.join(ROOT, "docs", "testing.md"), encoding="utf-8") as f:
            section = f.read().split(self.HEADING)[1].split("\n## ")[0]
        return {int(row): re.findall(r"`([\w/.]+): (\w+)`", tests) for row, tests in re.findall(
            r"^\| (\d+) \|[^|]*\|([^|]*)\|$", section, re.M)}

    def test_each_test_exists_and_is_named_after_its_row(self):
        rows = self.rows()
        self.assertGreater(len(rows), 40)
        for row, tests in rows.items():
            self.assertTrue(tests, row)
            for path, name in tests:
                with self.subTest(row=row, name=name):
                    numbers = re.match(r"(?:test_)?peer_bug_((?:\d+_)+)", name)[1]
                    self.assertIn(row, map(int, numbers.strip("_").split("_")))
                    with open(os.path.join(ROOT, "tests", path), encoding="utf-8") as f:
                        self.assertRegex(f.read(), rf"(?:def |, ){name}\b")

    def test_each_row_that_has_a_test_is_listed(self):
        rows = self.rows()
        for folder, _, names in os.walk(os.path.join(ROOT, "tests", "e2e")):
            for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
                with open(path, encoding="utf-8") as f:
                    for number in re.findall(r"def test_peer_bug_0*(\d+)_", f.read()):
                        self.assertIn(int(number), rows, path)


if __name__ == "__main__":
    unittest.main()
