#!/usr/bin/env python3
"""A mirrored registry that is down, that lies, or that fails for many clients at once."""

import http.client
import json
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from mirror_case import LAYER, PREFIX, REPO, SIZE, MirrorCase, Noise


class Down(MirrorCase):
    """The upstream, or what is between it and us, fails."""

    UPSTREAM = {"breaker_failures": 1000, "retries": 0}

    def setUp(self):
        super().setUp()
        self.pulls_image()

    def test_peer_bug_53_stale_by_tag_right_by_digest(self):
        cases = [("status", {"status": status}, str(status)) for status in (500, 502, 503, 429)]
        cases += [("status", {"status": 401}, "login"), ("drop", {}, ""),
                  ("raw", {"text": "nonsense\r\n\r\n"}, "")]
        for fault, settings, said in cases:
            with self.subTest(fault, **settings):
                found = self.registry.fault(fault, kind="manifest", **settings)
                self.pulls_image(warning=said)
                found.remove()
        self.pulls_image()

    def test_peer_bug_53_refused_connection(self):
        self.registry.refuse("registry")
        self.pulls_image(warning="")
        self.fails(502, "UNAVAILABLE", "never-pulled")
        self.registry.serve("registry")

    def test_peer_bug_53_upstream_gone_after_a_pull(self):
        """Everything pulled before pulls again, also after a restart."""
        index = self.repo.add_index({"amd64": self.image, "arm64": self.other}, tag="multi")
        self.pulls(index, "multi")
        self.registry.stop()
        for _ in range(2):
            self.pulls_image(warning="")
            self.pulls(index, "multi", warning="")
            self.pulls(index, index.digest)
            self.wb.stop()
            self.wb.start()

    def test_peer_bug_54_a_black_hole_costs_the_patience_once(self):
        self.registry.close_connections("registry")
        self.registry.blackhole("registry")
        self.wb.stop()
        self.wb = self.mirror(data=self.wb.data, connect_timeout="8s", revalidate_timeout="2s")
        took = self.timed(self.pulls, self.image, warning="has not answered in time")
        self.assertLess(took, 4)
        times = [self.timed(self.pulls, self.image, warning="") for _ in range(20)]
        self.assertLess(sorted(times)[10], 0.2, times)
        self.registry.serve("registry")

    def test_peer_bug_54_then_the_breaker_opens(self):
        self.registry.close_connections("registry")
        self.registry.blackhole("registry")
        status, _, _ = self.get_manifest("never-pulled")  # waits for its time-out
        self.assertIn(status, (502, 504))
        times = [self.timed(self.pulls, self.image, warning="is not asked") for _ in range(20)]
        self.assertLess(sorted(times)[10], 0.2, times)
        took = self.timed(self.get_manifest, "never-pulled")
        self.assertLess(took, 1)
        metrics = self.wb.get("/metrics")[2].decode()
        self.assertRegex(metrics, r'weighbridge_upstream_left_alone\{upstream="[^"]+"\} [01]\n')
        self.assertRegex(metrics, r'weighbridge_upstream_refused_total\{upstream="[^"]+"\} [1-9]')
        self.registry.serve("registry")

    def test_peer_bug_55_starts_while_the_upstream_is_away(self):
        self.registry.stop()
        self.wb.stop()
        self.wb.start()
        self.pulls_image(warning="")
        status, _, _ = self.wb.get("/healthz")
        self.assertIn(status, (200, 404))
        self.fails(502, "UNAVAILABLE", "never-pulled")

    def test_peer_bug_62_statuses_are_told_apart(self):
        for status, (want, code) in {500: (502, "UNAVAILABLE"), 503: (502, "UNAVAILABLE"),
                                     403: (403, "DENIED"), 404: (404, "MANIFEST_UNKNOWN")}.items():
            for reference in (f"new-{status}", "sha256:" + f"{status:064d}"):
                with self.subTest(status, reference=reference):
                    fault = self.registry.fault("status", status=status, html=True, path=reference) \
                        if status >= 500 else \
                        self.registry.fault("status", status=status, path=reference)
                    self.fails(want, code, reference)
                    fault.remove()

    def test_peer_bug_63_retry_after_is_kept(self):
        self.registry.fault("status", status=429, retry_after=60, kind="manifest", path="new")
        status, headers, body = self.get_manifest("new")
        self.error_text(429, "TOOMANYREQUESTS", status, body)
        self.assertIn(int(headers["Retry-After"]), range(50, 61))
        before = self.requests()
        self.pulls_image(warning="is not asked for the next")
        status, headers, _ = self.get_manifest("newer")
        self.assertEqual(status, 502)
        self.assertIn(int(headers["Retry-After"]), range(40, 61))
        self.assertEqual(self.requests(), before, "nothing is asked before the time is over")

    def test_peer_bug_63_retry_after_is_bounded(self):
        """One answer must not shut a registry out for a day."""
        for status, code, bound in ((503, "UNAVAILABLE", 300), (429, "TOOMANYREQUESTS", 21600)):
            with self.subTest(status):
                self.wb.stop()
                self.wb.start()
                self.registry.fault("status", kind="tags", status=status, retry_after=86400, times=1)
                got, headers, body = self.wb.get(f"/v2/{PREFIX}/team/elsewhere/tags/list")
                text = self.error_text(502 if status == 503 else 429, code, got, body)
                self.assertIn(f"answered {status}", text)
                self.assertIn(f"try again in {bound} s", text)
                self.assertEqual(int(headers["Retry-After"]), bound)
                got, headers, body = self.get_manifest("new")
                text = self.error_text(502, "UNAVAILABLE", got, body)
                left = int(headers["Retry-After"])
                self.assertIn(left, range(bound - 60, bound + 1))
                self.assertIn(f"is not asked for the next {left} s", text)

    def test_peer_bug_63_what_a_download_was_told_counts_for_all(self):
        self.pulls(self.other, self.other.digest)
        fault = self.registry.fault("status", kind="blob", status=429, retry_after=60)
        status, headers, body = self.get_blob(self.other.blobs[-1])
        self.error_text(429, "TOOMANYREQUESTS", status, body)
        self.assertIn(int(headers["Retry-After"]), range(50, 61))
        before = self.requests()
        self.pulls_image(warning="is not asked for the next")
        for _ in range(3):
            self.assertEqual(self.get_blob(self.other.blobs[0])[0], 502)
            self.assertEqual(self.get_manifest("new")[0], 502)
        self.assertEqual(self.requests(), before)
        fault.remove()

    def test_peer_bug_63_a_download_goes_on_after_a_short_wait(self):
        self.pulls(self.other, self.other.digest)
        self.registry.fault("status", kind="blob", status=429, retry_after=1, times=1)
        self.pulls_blob(self.other.blobs[-1])
        self.assertEqual(self.requests(kind="blob", status=429), 1)
        self.pulls_image()

    def test_peer_bug_63_then_one_tries(self):
        self.registry.fault("status", kind="manifest", status=503, retry_after=1, times=1)
        self.assertEqual(self.get_manifest("new")[0], 502)
        self.until("a trial passes", lambda: self.get_manifest("new")[0] == 404)
        self.pulls_image()

    def test_peer_bug_64_the_limit_of_pulls(self):
        self.registry.set_options(pull_limit=0)
        self.pulls_image()
        self.fails(429, "TOOMANYREQUESTS", self.other.digest)

    def test_offline(self):
        self.wb.stop()
        for settings in ({"offline": True}, {"root": {"offline": True}}):
            self.registry.reset()
            wb = self.mirror(data=self.wb.data, **settings)
            self.pulls_image(wb=wb, warning="offline by configuration")
            self.assertIn("offline", self.fails(404, "MANIFEST_UNKNOWN", "new", wb=wb))
            self.assertIn("offline",
                          self.fails(404, "MANIFEST_UNKNOWN", self.other.digest, wb=wb))
            status, _, _ = self.get_blob(self.other.blobs[-1], wb=wb)
            self.assertEqual(status, 404)
            self.assertEqual(self.requests(), 0)
            wb.stop()


class Liars(MirrorCase):
    """An upstream that says what is not so."""

    UPSTREAM = {"breaker_failures": 1000, "retries": 0}

    def test_manifests(self):
        cases = [("empty", {}, "nothing in it"), ("empty", {"status": 204}, "204"),
                 ("replace", {"text": "<html>", "type": "text/html"}, "a page"),
                 ("replace", {"text": "{}", "type": self.image.media_type}, "hashes to"),
                 ("digest_header", {"value": "sha256:" + "0" * 64}, "hashes to"),
                 ("digest_header", {"value": "latest"}, "is none"),
                 ("media_type", {"value": self.repo.add_index({}).media_type}, "no manifest"),
                 ("flip", {"offset": 20}, "hashes to"), ("truncate", {}, "hashes to"),
                 ("append", {"bytes": 5}, "hashes to"), ("cut", {"fraction": 0.5}, "cut short"),
                 ("endless", {}, ""), ("gzip", {}, "gzip"),
                 ("redirect_loop", {}, "more than 5 redirects"),
                 ("location", {"url": "file:///etc/passwd"}, "no http or https URL")]
        for reference in ("v1", self.image.digest):
            for fault, settings, said in cases:
                with self.subTest(fault, reference=reference[:6], **settings):
                    found = self.registry.fault(fault, kind="manifest", **settings)
                    status, _, body = self.get_manifest(reference)
                    self.assertIn(status, (502, 504, 413), body)
                    self.assertIn(said, body.decode())
                    self.assertEqual(found.hits > 0, True)
                    found.remove()
        self.pulls(self.image)

    def test_a_held_tag(self):
        """It is given out as it is; the log says why, and it is counted."""
        self.pulls(self.image)
        self.repo.move_tag("v1", self.other)
        self.registry.fault("flip", kind="manifest", method="GET", offset=20)
        self.pulls(self.image, warning="hashes to")
        counted = 'weighbridge_stale_answers_total{route="manifest"} 1\n'
        self.until("it to be counted", lambda: counted in self.wb.get("/metrics")[2].decode())
        self.until("it to be logged", lambda: self.wb.log_lines(event="request", cache="stale"))
        line, = self.wb.log_lines(event="request", cache="stale")
        self.assertRegex(line, 'warning="served from the store, .*: the manifest hashes to')
        self.assertIn("\nweighbridge_verification_failures_total 1\n",
                      self.wb.get("/metrics")[2].decode())
        self.registry.clear_faults()
        self.pulls(self.other)

    def test_a_manifest_of_another_type(self):
        """Refused, logged, counted; and the truth is believed after it."""
        self.registry.fault("media_type", kind="manifest", value=self.repo.add_index({}).media_type)
        self.assertIn("no manifest", self.fails(502, "UNAVAILABLE"))
        self.until("it to be logged", lambda: self.wb.log_lines(event="request", status="502"))
        line, = self.wb.log_lines(event="request", status="502")
        self.assertIn("sent no manifest", line)
        self.assertIn("\nweighbridge_verification_failures_total 1\n",
                      self.wb.get("/metrics")[2].decode())
        self.registry.clear_faults()
        self.until("the refusal to be forgotten", lambda: self.get_manifest()[0] == 200)
        self.pulls(self.image)

    def blob_must_fail(self, statuses=(502,)):
        """Refused, or begun and cut short of its length, with nothing but right bytes."""
        connection = http.client.HTTPConnection(self.wb.host, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/v2/{PREFIX}/{REPO}/blobs/{self.layer}")
        answer = connection.getresponse()
        if answer.status != 200:
            self.assertIn(answer.status, statuses)
            answer.read()
            return
        try:
            body = answer.read()
        except http.client.IncompleteRead as e:
            body = e.partial
        self.assertLess(len(body), SIZE)
        return body

    def test_peer_bug_05_no_error_text_in_a_blob(self):
        self.pulls(self.image)
        self.registry.fault("cut", kind="blob", fraction=0.5)
        body = self.blob_must_fail()
        if body is not None:
            self.assertEqual(body, LAYER[:len(body)])
        self.registry.clear_faults()
        self.pulls_blob(data=LAYER)

    def test_peer_bug_06_other_bytes_of_the_right_length(self):
        self.pulls(self.image)
        self.registry.fault("flip", kind="blob", path=self.layer, offset=SIZE // 2)
        self.blob_must_fail()
        self.registry.clear_faults()
        self.pulls_blob(data=LAYER)
        self.assertEqual(self.requests(kind="blob", path=self.layer), 2)

    def test_peer_bug_07_an_empty_blob(self):
        self.pulls(self.image)
        for status in (200, 204):
            self.registry.fault("empty", kind="blob", status=status)
            self.blob_must_fail((502,))
            self.registry.clear_faults()
        self.pulls_blob(data=LAYER)

    def test_peer_bug_07_a_blob_of_another_size(self):
        """Of a blob that no manifest here names, HEAD is all that is known. A lie does not stay."""
        self.registry.fault("length", kind="blob", method="HEAD", delta=-1)
        self.blob_must_fail((502,))
        self.registry.clear_faults()
        self.pulls(self.image)
        self.pulls_blob(data=LAYER)

    def test_peer_bug_07_a_blob_of_another_size_over_a_restart(self):
        self.registry.fault("length", kind="blob", method="HEAD", delta=-1)
        self.assertEqual(self.get_blob(method="HEAD")[0], 200)
        self.registry.clear_faults()
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()
        self.pulls_blob(data=LAYER)


class Crowds(MirrorCase):
    """Whatever goes wrong for many at once: right bytes or a clear error, soon, for each."""

    UPSTREAM = {"tag_ttl": "1h", "retries": 0, "negative_ttl": "0s", "breaker_failures": 1000}
    CLIENTS = 30
    FAULTS = (("cut", {"fraction": 0.5}), ("reset", {"fraction": 0.5}), ("drop", {}),
              ("stall", {"seconds": 60, "fraction": 0.5}), ("stall", {"seconds": 60, "before": True}),
              ("flip", {"offset": 100}), ("truncate", {}), ("append", {"bytes": 7}),
              ("status", {"status": 401}), ("status", {"status": 500}), ("status", {"status": 503}),
              ("status", {"status": 429}), ("url_expired", {}), ("slow_head", {"interval": 0.01}),
              ("endless", {"limit": 20_000_000}), ("redirect_loop", {}), ("raw", {"text": "?"}))

    def read(self, path):
        """(status, body, whole)."""
        connection = http.client.HTTPConnection(self.wb.host, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            try:
                return answer.status, answer.read(), True
            except http.client.IncompleteRead as e:
                return answer.status, e.partial, False
        finally:
            connection.close()

    def crowd(self, fault, path, right):
        with ThreadPoolExecutor(self.CLIENTS) as pool:
            for status, body, whole in pool.map(self.read, [path] * self.CLIENTS):
                if status != 200:
                    self.assertIn(status, (403, 413, 429, 502, 503, 504), body)
                    self.assertTrue(json.loads(body)["errors"][0]["message"])
                    continue
                if whole or fault != "flip":  # which is found out at the end
                    self.assertEqual(body, right[:len(body)])
                self.assertEqual(whole, len(body) == len(right))

    def recovers(self, repo):
        """The upstream was left alone for a while."""
        end = time.monotonic() + 30
        while self.get_manifest(repo=repo)[0] != 200 and time.monotonic() < end:
            time.sleep(0.1)

    def under(self, fault, settings, path, right, repo):
        found = self.registry.fault(fault, kind="manifest,blob", **settings)
        try:
            self.crowd(fault, path, right)
        finally:
            found.remove()
            self.recovers(repo)

    def test_faults(self):
        self.registry.set_options(redirect_blobs=True)
        for i, (fault, settings) in enumerate(self.FAULTS):
            for times in (1, 1000):
                with self.subTest(fault, times=times, **settings):
                    repo = self.registry.add_repo(f"crowd/{i}-{times}")
                    image = repo.add_image([{"a": b"%d %d" % (i, times)}], tag="v1")
                    data = bytes(Noise(300_000, f"{i} {times}").read(0, 300_000))
                    layer = repo.add_blob(data)["digest"]
                    base = f"/v2/{PREFIX}/{repo.name}"
                    more = {"times": times, **settings}
                    self.under(fault, more, f"{base}/manifests/v1", image.body, repo.name)
                    self.under(fault, more, f"{base}/blobs/{layer}", data, repo.name)
                    self.pulls(image, repo=repo.name)
                    if fault in ("truncate", "append"):  # a size that it told, and that is wrong
                        self.read(f"{base}/blobs/{layer}")
                    self.pulls_blob(layer, repo=repo.name, data=data)


if __name__ == "__main__":
    unittest.main()
