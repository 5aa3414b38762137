#!/usr/bin/env python3
"""What goes wrong upstream, on our disk and with our process: no client ends with a complete wrong
file, nothing wrong is under blobs/, the error names the cause, and the next pull succeeds and uses
the bytes that are here."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from blob_case import (BROKEN, FILE, KIB, LAG, MIB, NAME, WITHHELD, BlobCase, Pull, in_threads)
from harness import binary
from hub_clients import CannotInstall, client_env, python_client

SIZE = 6 * MIB + 13
OTHER_COMMIT = "f" * 40


class FaultCase(BlobCase):
    # One connection: requests and bytes are counted. test_transfers.py has several.
    upstream = {"retries": 2, "stall_timeout": "2s", "connect_timeout": "5s",
                "connections_per_blob": 1}

    def setUp(self):
        super().setUp()
        self.wb = self.serve()
        self.model = self.cold(self.wb, SIZE)

    @contextlib.contextmanager
    def fault(self, name, **settings):
        fault = self.hub.fault(name, **settings)
        try:
            yield fault
        finally:
            fault.remove()

    def message(self, pull):
        """The text of an error body."""
        return json.loads(pull.take(64 * KIB))["errors"][0]["message"]

    def downloads(self):
        """The log's lines of those that have ended, which its readers may see first."""
        return self.wb.log_lines(event="transfer", digest=self.model.digest)

    def failing(self, statuses=(502,)):
        """A pull that must not end whole: refused with one of the statuses and a text, or begun
        and cut short of its length with nothing but right bytes. Returns (pull, error text)."""
        seen = len(self.downloads())
        pull = Pull(self.wb, self.model.digest)
        if pull.status != 200:
            self.assertIn(pull.status, statuses, self.wb.log[-2000:])
            text = self.message(pull)
        else:
            body = pull.take(self.model.size + 1)
            self.assertLessEqual(len(body), self.model.size - WITHHELD)
            self.until("the log to say why", lambda: len(self.downloads()) > seen)
            text = self.wb.log
        pull.close()
        self.assertFalse(self.held(self.wb, self.model.digest))
        return pull, text

    def recover(self, reusing=0):
        """With all faults gone, the next pull is whole and fetches only what is not here."""
        self.hub.clear_faults()
        before = self.cdn_bytes()
        self.whole(self.wb, self.model)
        self.assertLessEqual(self.cdn_bytes() - before, self.model.size - reusing)
        self.assertTrue(self.held(self.wb, self.model.digest))
        self.assertEqual(self.incoming(self.wb), [])


class BrokenConnections(FaultCase):
    """A break is the proxy's to mend: the client does not notice."""

    def mended(self, at_most=SIZE):
        self.whole(self.wb, self.model)
        self.assertLessEqual(self.cdn_bytes(), at_most)

    def test_peer_bug_23_cut_at_10_50_99_percent(self):
        for i, fraction in enumerate((0.1, 0.5, 0.99)):
            with self.subTest(fraction):
                repo = f"Org/Cut{i}"
                model = self.cold(self.wb, SIZE, i + 1, repo)
                cut = self.hub.fault("cdn_cut", fraction=fraction, path=FILE, times=1)
                self.whole(self.wb, model, f"hf/org/cut{i}")
                self.assertEqual(cut.hits, 1)
                self.assertEqual(self.cdn_bytes(), SIZE, "no byte is fetched twice")
                self.assertEqual(self.hub.count("cdn"), 2)

    def test_many_cuts(self):
        cut = self.hub.fault("cdn_cut", bytes=300_000, path=FILE)
        self.mended()
        self.assertGreaterEqual(cut.hits, 20, "breaks with progress are no reason to give up")

    def test_reset(self):
        self.hub.fault("cdn_reset", fraction=0.5, path=FILE, times=1)
        self.mended(SIZE + MIB)

    def test_no_answer(self):
        self.hub.fault("cdn_drop", path=FILE, times=1)
        self.mended()

    def test_peer_bug_25_stall(self):
        stall = self.hub.fault("cdn_stall", seconds=100, fraction=0.5, path=FILE, times=1)
        self.mended(SIZE + MIB)
        self.assertEqual(stall.hits, 1)

    def test_peer_bug_26_slow_is_not_stalled(self):
        """No limit is on the whole time: this takes longer than the stall time-out."""
        self.hub.fault("cdn_throttle", rate=2 * MIB, path=FILE)
        self.mended()
        self.assertEqual(self.hub.count("cdn"), 1)

    def test_stall_before_the_first_byte(self):
        self.hub.fault("cdn_stall", seconds=100, bytes=0, path=FILE, times=1)
        self.mended(SIZE + MIB)

    def test_an_expired_url_is_asked_for_again(self):
        self.hub.fault("url_expired", path=FILE, times=1)
        self.mended(SIZE + KIB)  # and the body of the refusal
        self.assertEqual(self.hub.count("hub", kind="resolve"), 2)

    def test_a_url_that_expires_on_the_way(self):
        self.hub.fault("url_uses", uses=1, path=FILE)
        self.hub.fault("cdn_cut", fraction=0.5, path=FILE, times=1)
        self.mended()

    def test_one_bad_answer_on_the_way(self):
        for i, status in enumerate((500, 502, 503, 429)):
            with self.subTest(status):
                model = self.cold(self.wb, SIZE, i + 1, f"Org/Bad{i}")
                self.hub.fault("cdn_cut", fraction=0.5, path=FILE, times=1)
                self.hub.fault("cdn_status", status=status, path=FILE, skip=1, times=1)
                self.whole(self.wb, model, f"hf/org/bad{i}")
                self.assertEqual(self.cdn_bytes() - self.hub.bytes_sent("cdn", status=status), SIZE)

    def test_peer_bug_1_a_cut_without_end(self):
        at = SIZE // 2
        self.hub.fault("cdn_cut", offset=at, path=FILE)
        pull, text = self.failing()
        self.assertGreater(pull.received, at - LAG - MIB)
        self.assertIn("127.0.0.1", text)
        self.recover(reusing=at)

    def test_failures_half_way_keep_what_is_there(self):
        """Half of the file comes, its URL is refused then, and the Hub has no better answer."""
        half = SIZE // 2
        for i, (name, settings, words) in enumerate((
                ("hub_status", {"status": 401, "code": "GatedRepo"}, ("gated",)),
                ("hub_status", {"status": 403, "code": "GatedRepo"}, ("gated",)),
                ("hub_status", {"status": 404, "code": "EntryNotFound"}, ()),
                ("hub_status", {"status": 429, "retry_after": 1}, ("429",)),
                ("hub_status", {"status": 500}, ("500",)),
                ("hub_headers", {"set": {"X-Repo-Commit": OTHER_COMMIT}}, ("X-Repo-Commit",)),
                ("hub_headers", {"set": {"X-Linked-Etag": f'"{"a" * 64}"'}}, ("X-Linked-Etag",)),
                ("hub_stall", {"seconds": 100}, ()))):
            with self.subTest(name, **settings):
                repo, seen = f"hf/org/half{i}", len(self.wb.log)
                model = self.cold(self.wb, SIZE, i + 1, f"Org/Half{i}")
                self.hub.fault("cdn_cut", offset=half, path=FILE, times=1)
                self.hub.fault("cdn_status", status=403, path=FILE, skip=1)
                self.hub.fault(name, kind="resolve", skip=1, **settings)
                pull = Pull(self.wb, model.digest, name=repo)
                self.assertIn(pull.status, BROKEN)
                pull.finish()
                self.assertFalse(pull.complete)
                pull.close()
                self.until("the download to end", lambda: "event=transfer" in self.wb.log[seen:])
                for word in words:
                    self.assertIn(word, self.wb.log[seen:])
                self.assertFalse(self.held(self.wb, model.digest))
                self.hub.clear_faults()
                before = self.cdn_bytes()
                self.whole(self.wb, model, repo)
                self.assertEqual(self.cdn_bytes() - before, SIZE - half, "no byte twice")

    def test_peer_bug_5_what_comes_is_a_prefix(self):
        self.hub.fault("cdn_cut", offset=2 * MIB, path=FILE)
        pull = Pull(self.wb, self.model.digest)
        body = pull.take(SIZE)
        self.assertEqual(body, self.model.whole(0, len(body) - 1))
        self.assertFalse(pull.complete)

    def test_a_ranged_client_is_cut_as_well(self):
        self.hub.fault("cdn_cut", offset=2 * MIB, path=FILE)
        pull = Pull(self.wb, self.model.digest, "1000000-")
        body = pull.take(SIZE)
        self.assertEqual(body, self.model.whole(1_000_000, 1_000_000 + len(body) - 1))
        self.assertFalse(pull.complete)
        self.recover(reusing=2 * MIB)

    def test_resumption_is_only_appended_where_it_belongs(self):
        """A 200 to a Range, another range, another total: never spliced in."""
        for i, (name, more) in enumerate((
                ("cdn_ignore_range", {}),
                ("cdn_range_start", {"delta": -1000}),
                ("cdn_range_start", {"delta": 1000}),
                ("cdn_range_start", {"delta": -1000, "body": "asked"}),
                ("cdn_total", {"delta": 1}),
                ("cdn_headers", {"drop": ["Content-Range"]}))):
            for times in (1, None):
                with self.subTest(name, **more, times=times):
                    repo = f"Org/Splice{i}{times or 'x'}"
                    model = self.cold(self.wb, SIZE, i + 1, repo)
                    self.hub.fault("cdn_cut", fraction=0.5, path=FILE, times=1)
                    skip = 0 if name in ("cdn_ignore_range", "cdn_range_start", "cdn_total") else 1
                    self.hub.fault(name, path=FILE, times=times, skip=skip, **more)
                    pull = Pull(self.wb, model.digest, name="hf/" + repo.lower()).finish()
                    if pull.status == 200 and pull.complete:
                        self.assertEqual(pull.digest, model.digest)
                    self.hub.clear_faults()
                    self.whole(self.wb, model, "hf/" + repo.lower())
        self.assertEqual(self.metric(self.wb, "weighbridge_verification_failures_total"), 0)


class WrongBytes(FaultCase):
    """Same length, other content."""

    def mismatch(self, **where):
        self.hub.fault("cdn_flip", path=FILE, times=1, **where)
        pull = Pull(self.wb, self.model.digest).finish()
        self.assertIn(pull.status, BROKEN)
        self.assertFalse(pull.complete)
        self.assertLessEqual(pull.received, SIZE - WITHHELD)
        self.assertFalse(self.held(self.wb, self.model.digest))
        self.assertEqual(self.metric(self.wb, "weighbridge_verification_failures_total"), 1)
        wanted = self.model.digest.split(":")[1]
        self.until("the log to say why", self.downloads)
        lines = [line for line in self.wb.log.splitlines() if "digest_mismatch" in line]
        self.assertTrue(lines, self.wb.log)
        digests = {word for line in lines for word in line.replace('"', " ").replace(":", " ")
                   .replace("=", " ").replace(",", " ").split() if len(word) == 64}
        self.assertIn(wanted, digests)
        self.assertGreaterEqual(len(digests), 2, "the log names both digests")

    def test_peer_bug_6_first_byte(self):
        self.mismatch(offset=0)
        self.recover()

    def test_middle_byte(self):
        self.mismatch(offset=SIZE // 2)
        self.recover()

    def test_last_byte(self):
        self.mismatch(offset=-1)
        self.recover()

    def test_all_clients_are_cut(self):
        self.hub.fault("cdn_flip", offset=3 * MIB, path=FILE, times=1)
        hold = self.hub.hold(bytes=2 * MIB, path=FILE)
        pulls = [Pull(self.wb, self.model.digest) for _ in range(5)]
        pulls.append(Pull(self.wb, self.model.digest, f"{4 * MIB}-"))
        self.until("every client to read along", lambda: self.metric(
            self.wb, "weighbridge_transfer_readers") == len(pulls))
        hold.release()
        with in_threads(len(pulls), lambda i: pulls[i].finish()):
            pass
        for pull in pulls:
            self.assertFalse(pull.complete)
        self.recover()

    def test_a_client_cannot_resume_into_right_bytes(self):
        self.mismatch(offset=100)
        for wanted in ("1-", f"{5 * MIB}-", "-1", f"{SIZE - 1}-{SIZE - 1}", "500-999"):
            with self.subTest(wanted):
                status, _, body = self.wb.blob(NAME, self.model.digest,
                                               {"Range": f"bytes={wanted}"})
                self.assertEqual(status, 502, body)
                self.assertIn("byte 0", json.loads(body)["errors"][0]["message"])
        self.recover()
        # Right bytes are held now; what a client has from before may still be wrong.
        self.assertEqual(self.wb.blob(NAME, self.model.digest, {"Range": "bytes=1-"})[0], 502)
        self.assertEqual(self.wb.blob(NAME, self.model.digest, {"Range": "bytes=0-99"})[0], 206)
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()
        self.assertEqual(self.wb.blob(NAME, self.model.digest, {"Range": "bytes=1-"})[0], 502)
        self.whole(self.wb, self.model)

    def test_wrong_again_and_again(self):
        self.hub.fault("cdn_flip", offset=1000, path=FILE)
        for _ in range(3):
            pull = Pull(self.wb, self.model.digest).finish()
            self.assertIn(pull.status, BROKEN)
            self.assertFalse(pull.complete)
        self.recover()

    def test_the_range_0_of_everything_is_withheld_too(self):
        self.hub.fault("cdn_flip", offset=1000, path=FILE, times=1)
        pull = Pull(self.wb, self.model.digest, "0-").finish()
        self.assertIn(pull.status, (206, 502))
        self.assertFalse(pull.complete)
        self.recover()

    def test_a_forged_header_of_the_cdn_changes_nothing(self):
        self.hub.fault("cdn_headers", path=FILE, set={
            "X-Linked-Etag": '"' + "0" * 64 + '"', "X-Linked-Size": "1", "X-Repo-Commit": "0" * 40})
        self.recover()


class WrongAnswers(FaultCase):
    """What can be known before the first byte is a status, with the cause in the text."""

    def refused(self, *words, statuses=(502,), bytes_=0):
        pull, text = self.failing(statuses)
        for word in words:
            self.assertIn(word, text)
        self.assertLessEqual(self.cdn_bytes(), bytes_)
        return pull

    def test_peer_bug_7_lengths(self):
        for i, (delta, shown) in enumerate(((10, SIZE + 10), (-10, SIZE - 10), (-SIZE, 0),
                                            (1 << 40, SIZE + (1 << 40)))):
            with self.subTest(delta):
                self.model = self.cold(self.wb, SIZE, i + 1, f"Org/Len{i}")
                self.hub.fault("cdn_length", delta=delta, path=FILE)
                pull = Pull(self.wb, self.model.digest, name=f"hf/org/len{i}")
                if pull.status == 200:
                    pull.finish()
                    self.assertFalse(pull.complete)
                else:
                    self.assertEqual(pull.status, 502)
                    text = self.message(pull)
                    self.assertIn(str(shown), text)
                    self.assertIn(str(SIZE), text)
                pull.close()
                self.assertFalse(self.held(self.wb, self.model.digest))
                self.hub.clear_faults()
                self.whole(self.wb, self.model, f"hf/org/len{i}")

    def test_an_empty_answer(self):
        for status in (200, 204):
            with self.subTest(status), self.fault("cdn_status", status=status, body="", path=FILE):
                self.refused()
        self.recover()

    def test_another_commit(self):
        self.hub.fault("hub_headers", set={"X-Repo-Commit": OTHER_COMMIT}, kind="resolve")
        self.refused("X-Repo-Commit", OTHER_COMMIT)
        self.recover()

    def test_another_etag(self):
        other = "a" * 64
        self.hub.fault("hub_headers", set={"X-Linked-Etag": f'"{other}"'}, kind="resolve")
        self.refused("X-Linked-Etag", other, self.model.sha256())
        self.recover()

    def test_another_size(self):
        self.hub.fault("hub_headers", set={"X-Linked-Size": str(SIZE + 1)}, kind="resolve")
        self.refused("X-Linked-Size", str(SIZE), str(SIZE + 1))
        self.recover()

    def test_missing_headers(self):
        for header in ("X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size"):
            with self.subTest(header), self.fault("hub_headers", drop=[header], kind="resolve"):
                self.refused(header)
        self.recover()

    def test_places_that_are_none(self):
        for url in ("file:///etc/passwd", "ftp://127.0.0.1/x", "", "http://", "//"):
            with self.subTest(url), self.fault("resolve_location", url=url, path=FILE):
                self.refused()
        with self.fault("redirect_loop", path=FILE):
            self.refused()
        self.recover()

    def test_peer_bug_62_statuses_of_the_hub(self):
        for status, code, shown in ((401, "GatedRepo", 403), (401, "RepoNotFound", 404),
                                    (403, "GatedRepo", 403), (404, "EntryNotFound", 404),
                                    (500, None, 502), (503, None, 502)):
            with self.subTest(status, code=code), self.fault(
                    "hub_status", status=status, code=code, kind="resolve"):
                self.refused(statuses=(shown,))
        self.recover()

    def test_the_hub_asks_to_wait(self):
        """Its word is kept, also for those who come later: no request before its time."""
        for status, shown in ((429, 429), (503, 502)):
            with self.subTest(status):
                self.model = self.cold(self.wb, SIZE, status, f"Org/Wait{status}")
                name = f"hf/org/wait{status}"
                fault = self.hub.fault("hub_status", status=status, retry_after=5, kind="resolve")
                for _ in range(3):
                    pull = Pull(self.wb, self.model.digest, name=name)
                    self.assertEqual(pull.status, shown)
                    self.assertIn(int(pull.answer.headers["Retry-After"]), range(2, 6))
                    pull.close()
                self.assertEqual(self.hub.count(kind="resolve"), 1)
                fault.remove()
                self.until("the time that the Hub asked for to be over", lambda: Pull(
                    self.wb, self.model.digest, name=name).finish().status == 200)
                self.whole(self.wb, self.model, name)

    def test_statuses_of_the_cdn(self):
        for status, shown in ((401, (403, 502)), (403, (403, 502)), (404, (404, 502)),
                              (429, (429,)), (500, (502,)), (503, (502,))):
            with self.subTest(status), self.fault("cdn_status", status=status, path=FILE):
                _, text = self.failing(shown)
                self.assertIn(str(status), text)
        self.recover()

    def test_the_hub_is_silent(self):
        stall = self.hub.fault("hub_stall", seconds=100, kind="resolve")
        pull, text = self.failing((504,))
        self.assertEqual(pull.status, 504, text)
        stall.remove()
        self.recover()

    def test_the_hub_drops_connections(self):
        fault = self.hub.fault("hub_drop", kind="resolve")
        self.refused()
        fault.remove()
        self.recover()

    def test_peer_bug_55_the_hub_is_down(self):
        self.hub.stop()
        self.refused()
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()
        self.refused()
        self.assertEqual(self.wb.get("/healthz")[0], 200)
        self.hub.start()
        self.recover()


class Secrets(BlobCase):
    TOKEN = "hf_secret0123456789"

    def test_peer_bug_72_the_token_goes_to_the_hub_alone(self):
        self.hub.add_repo("Org/Gated", {"config.json": b"{}", FILE: b"x"}, gated="auto",
                          tokens=[self.TOKEN])
        wb = self.serve(env={"HF_TOKEN": self.TOKEN})
        model = self.add_model(2 * MIB)
        self.hub.repo("Org/Gated").add_commit({"config.json": b"{}", FILE: model})
        self.pull_manifest(wb, "hf/org/gated", "main")
        self.whole(wb, model, "hf/org/gated")
        self.assertTrue(any("authorization" in r.headers for r in self.hub.requests("hub")))
        for record in self.hub.requests("cdn"):
            self.assertNotIn("authorization", record.headers)
        # Nor does it stand in an error.
        self.hub.fault("hub_status", status=500, kind="info,refs,tree,resolve")
        status, _, body = wb.get("/v2/hf/org/gated/manifests/other")
        self.assertGreaterEqual(status, 400)
        self.assertNotIn(self.TOKEN.encode(), body)


class Crashes(FaultCase):
    """A process that is gone leaves nothing wrong and little to do again."""

    BIG = 256 * MIB

    def setUp(self):
        BlobCase.setUp(self)
        self.wb = self.serve()

    def pull_until_held(self, size, at):
        self.model = self.cold(self.wb, size)
        hold = self.hub.hold(bytes=at, path=FILE)
        pull = Pull(self.wb, self.model.digest)
        pull.take(at - 2 * LAG)
        self.assertEqual(pull.received, at - 2 * LAG)
        self.assertTrue(hold.wait_held(1))
        return pull

    def test_sigkill_in_mid_transfer(self):
        pull = self.pull_until_held(self.BIG, 220 * MIB)
        self.wb.kill()
        pull.finish()
        self.assertFalse(pull.complete)
        self.hub.reset()
        self.wb.start()
        # The machine has not crashed: all that was written is used, synced or not.
        written = 220 * MIB - 2 * LAG
        self.recover(reusing=written)
        self.assertGreaterEqual(self.metric(self.wb, "weighbridge_transfer_resumed_bytes_total"),
                                written)

    def test_sigkill_again_and_again(self):
        self.model = self.cold(self.wb, 24 * MIB)
        for at in (1, 5, 9, 13, 17):
            hold = self.hub.hold(offset=at * MIB, path=FILE)
            pull = Pull(self.wb, self.model.digest)
            pull.take(at * MIB - 2 * LAG)
            self.assertTrue(hold.wait_held(1))
            self.wb.kill()
            pull.close()
            self.hub.reset()
            self.assertFalse(self.held(self.wb, self.model.digest))
            self.wb.start()
        self.recover()

    def test_sigterm_keeps_what_is_there(self):
        pull = self.pull_until_held(16 * MIB, 12 * MIB)
        self.assertEqual(self.wb.stop(), 0)
        pull.finish()
        self.assertFalse(pull.complete)
        self.hub.reset()
        self.wb.start()
        self.recover(reusing=12 * MIB - LAG)

    def test_sigterm_lets_running_answers_finish(self):
        self.wb = self.serve(self.config(timeouts={"drain": "100s"}))
        self.model = self.cold(self.wb, 4 * MIB)
        hold = self.hub.hold(fraction=0.5, path=FILE)
        pull = Pull(self.wb, self.model.digest)
        pull.take(MIB)
        self.wb.process.send_signal(signal.SIGTERM)
        self.until("new connections to be refused", self.refuses)
        hold.release()
        pull.finish()
        self.assertTrue(pull.complete)
        self.assertEqual(pull.digest, self.model.digest)
        self.assertEqual(self.wb.stop(), 0)

    def refuses(self):
        try:
            self.wb.get("/healthz", timeout=5)
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
        return False

    def test_bytes_that_changed_on_the_disk_are_found(self):
        """A partial is hashed again before anything is built on it."""
        pull = self.pull_until_held(16 * MIB, 12 * MIB)
        self.assertEqual(self.wb.stop(), 0)
        pull.close()
        self.hub.reset()
        names = self.incoming(self.wb)
        self.assertEqual(len(names), 1)
        with open(os.path.join(self.wb.data, "incoming", names[0]), "r+b") as f:
            f.seek(MIB)
            byte = f.read(1)[0]
            f.seek(MIB)
            f.write(bytes([byte ^ 1]))
        self.wb.start()
        pull = Pull(self.wb, self.model.digest).finish()
        self.assertFalse(pull.complete)
        self.assertFalse(self.held(self.wb, self.model.digest))
        self.recover()

    def test_a_file_of_ours_without_its_row_is_removed(self):
        self.pull_until_held(4 * MIB, 2 * MIB).close()
        self.assertEqual(self.wb.stop(), 0)
        self.hub.reset()
        folder = os.path.join(self.wb.data, "incoming")
        name, = self.incoming(self.wb)
        orphan = name[::-1] if name != name[::-1] else "0" * len(name)
        for path in (orphan, "not-ours"):
            with open(os.path.join(folder, path), "wb") as f:
                f.write(b"x" * 1000)
        self.wb.start()
        self.assertEqual(sorted(self.incoming(self.wb)), sorted([name, "not-ours"]))
        os.unlink(os.path.join(folder, "not-ours"))
        self.recover()

    def test_two_servers_on_one_data_directory(self):
        done = subprocess.run(
            [binary(), "serve", "--listen", "127.0.0.1:0", "--data", self.wb.data,
             "--hub", self.hub.url], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(str(self.wb.pid), done.stderr)
        self.assertIn(self.wb.data, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.wb.get("/healthz")[0], 200)


class FreeSpace(BlobCase):
    def test_peer_bug_36_below_the_floor(self):
        wb = self.serve()
        held = self.cold(wb, 2 * MIB)
        self.whole(wb, held)
        other = self.cold(wb, 2 * MIB, 1, "Org/Other")
        self.assertEqual(wb.stop(), 0)
        wb.env["WEIGHBRIDGE_LIMITS_FREE_PERCENT"] = "100"
        wb.start()
        self.whole(wb, held)
        self.pull_manifest(wb, NAME, "main")
        self.whole(wb, other, "hf/org/other")  # passed through
        self.until("the log to say why", lambda: "limits.free_percent" in wb.log)
        self.assertFalse(self.held(wb, other.digest))
        self.until("its space to be given back", lambda: self.incoming(wb) == [])
        self.assertEqual(wb.stop(), 0)
        del wb.env["WEIGHBRIDGE_LIMITS_FREE_PERCENT"]
        wb.start()
        self.whole(wb, other, "hf/org/other")


HF_GET = """
import sys
from huggingface_hub.file_download import http_get
url, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(path, "wb") as f:
    http_get(url, f, expected_size=size)
"""


class ResumingClient(BlobCase):
    """huggingface_hub resumes a cut body by Range and hashes nothing."""

    SIZE = 25 * MIB

    def setUp(self):
        super().setUp()
        try:
            self.python = python_client("newest")
        except CannotInstall as error:
            self.skipTest(("unreachable: " if error.offline else "") + str(error))
        self.wb = self.serve()
        self.model = self.cold(self.wb, self.SIZE)
        self.scratch = tempfile.mkdtemp(prefix="weighbridge-hf-")
        self.addCleanup(shutil.rmtree, self.scratch)

    def hf_get(self):
        """(exit status, what it says, the bytes that it has)."""
        path = os.path.join(self.scratch, "file")
        done = subprocess.run(
            [self.python, "-c", HF_GET, f"{self.wb.url}/v2/{NAME}/blobs/{self.model.digest}", path,
             str(self.SIZE)], env=client_env(self.wb.url, self.scratch), capture_output=True,
            text=True, timeout=300, check=False)
        with open(path, "rb") as f:
            return done.returncode, done.stderr, f.read()

    def test_a_mismatch_an_upstream_that_heals_and_its_resume(self):
        whole = self.model.whole()
        for offset in (1000, 12 * MIB, -1):
            with self.subTest(offset):
                flip = self.hub.fault("cdn_flip", offset=offset, path=FILE, times=1)
                status, said, got = self.hf_get()
                self.assertEqual(flip.hits, 1)
                self.assertTrue(got != whole or status == 0)
                self.assertFalse(len(got) == self.SIZE and got != whole,
                                 "it has a complete wrong file")
                if status:
                    self.assertIn("502", said)
                if status:
                    self.until("the line of its resume, which was refused",
                               lambda: self.wb.log_lines(event="request", status="502"))
                # Whatever it got, a whole fresh pull is right.
                status, said, got = self.hf_get()
                self.assertEqual(status, 0, said)
                self.assertTrue(got == whole)
                self.forget()

    def forget(self):
        """The blob cold again: in another server."""
        self.wb = self.serve()
        self.pull_manifest(self.wb, NAME, "main")
        self.hub.reset()

    def test_it_pulls_a_right_file(self):
        status, said, got = self.hf_get()
        self.assertEqual(status, 0, said)
        self.assertTrue(got == self.model.whole())


if __name__ == "__main__":
    unittest.main()
