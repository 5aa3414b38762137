#!/usr/bin/env python3
"""Registries that are mirrored: tags that move and go, upstreams that fail and lie, logins, and
what of it clients get to see. Tests named peer_bug_NN are about faults that users reported of other
products."""

import http.client
import json
import os
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from harness import MANIFEST_TYPE, sha256
from mirror_case import LAYER, PASSWORD, PREFIX, REPO, SIZE, USER, Authority, MirrorCase, Noise


class Pulls(MirrorCase):
    UPSTREAM = {"tag_ttl": "1h"}

    def test_image_is_the_upstreams_byte_for_byte(self):
        self.pulls_image()
        index = self.repo.add_index({"amd64": self.image, "arm64": self.other}, tag="multi")
        self.pulls(index, "multi")
        self.pulls(self.other, self.other.digest)
        docker = self.repo.add_image([{"a": b"b"}], tag="docker", docker=True)
        self.pulls_image(docker, "docker")
        listed = self.repo.add_index({"amd64": docker}, tag="list", docker=True)
        self.pulls(listed, "list")

    def test_head_says_what_get_says(self):
        for reference in ("v1", self.image.digest):
            got, want = (self.get_manifest(reference, method=method) for method in ("HEAD", "GET"))
            self.assertEqual(got[0], 200)
            for name in ("Content-Length", "Content-Type", "Docker-Content-Digest", "ETag"):
                self.assertEqual(got[1][name], want[1][name], name)

    def test_peer_bug_59_an_index_stays_as_it_is(self):
        """Though only one of its children is ever asked for."""
        index = self.repo.add_index({"amd64": self.image, "arm64": self.other}, tag="multi")
        self.pulls(index, "multi")
        self.pulls(self.image, self.image.digest)
        self.pulls(index, "multi")
        self.pulls(index, index.digest)
        self.assertEqual(self.requests(kind="manifest", path=self.other.digest), 0)

    def test_peer_bug_28_a_cold_manifest_waits_for_no_layer(self):
        self.registry.hold(kind="blob")
        self.pulls(self.image)
        self.assertEqual(self.requests(), 1, "one request, and it is for the manifest")

    def test_peer_bug_67_one_request_for_a_cold_blob(self):
        self.pulls(self.image)
        before = self.requests()
        self.pulls_blob()
        self.assertEqual(self.requests(), before + 1)
        self.pulls_blob()
        self.assertEqual(self.requests(), before + 1)

    def test_peer_bug_20_a_crowd_asks_once(self):
        def pull(i):
            status, _, _ = self.get_manifest(method="HEAD" if i % 2 else "GET")
            return status
        with ThreadPoolExecutor(64) as pool:
            self.assertEqual(set(pool.map(pull, range(64))), {200})
        self.assertEqual(self.requests(kind="manifest"), 1)

    def test_peer_bug_82_both_forms_of_a_name_are_one(self):
        self.wb.stop()
        wb = self.mirror(single_names="library", tag_ttl="1h")
        repo = self.registry.add_repo("library/alpine")
        image = repo.add_image([{"a": b"alpine"}], tag="3")
        self.pulls(image, "3", repo="alpine", wb=wb)
        self.pulls(image, "3", repo="library/alpine", wb=wb)
        for name in ("alpine", "library/alpine"):
            self.pulls_blob(image.blobs[-1], repo=name, wb=wb)
            self.pulls(image, image.digest, repo=name, wb=wb)
        self.assertEqual(self.requests(), 2, "the manifest and the blob")
        status, _, body = wb.get("/v2/_catalog")
        self.assertEqual(json.loads(body)["repositories"], [f"{PREFIX}/library/alpine"])

    def test_a_blob_that_no_manifest_here_names(self):
        """docker asks for blobs of a manifest that it has from before."""
        headers = self.pulls_blob(data=LAYER)
        self.assertEqual(int(headers["Content-Length"]), SIZE)
        status, _, body = self.get_blob("sha256:" + "0" * 64)
        self.assertIn("blob", self.error_text(404, "BLOB_UNKNOWN", status, body))

    def test_a_link_of_another_repository_is_none(self):
        self.pulls_image()
        self.registry.add_repo("team/empty")
        status, _, body = self.get_blob(repo="team/empty")
        self.error_text(404, "BLOB_UNKNOWN", status, body)

    def test_ranges_of_a_cold_blob(self):
        self.pulls(self.image)
        status, headers, body = self.get_blob(Range="bytes=1000-1999")
        self.assertEqual((status, body), (206, LAYER[1000:2000]))
        self.pulls_blob(data=LAYER)

    def test_a_layer_that_need_not_be_distributed(self):
        data = b"only there"
        image = self.repo.add_image(foreign={"https://elsewhere.invalid/layer": data}, tag="f")
        digest = image.json["layers"][-1]["digest"]
        self.pulls(image, "f")
        status, _, body = self.get_blob(digest)
        self.error_text(404, "BLOB_UNKNOWN", status, body)

    def test_what_is_not_there(self):
        self.assertIn("has no tag nope of team/app", self.fails(404, "MANIFEST_UNKNOWN", "nope"))
        self.fails(404, "MANIFEST_UNKNOWN", "nope")
        self.assertEqual(self.requests(kind="manifest", path="nope"), 1, "remembered")
        self.fails(404, "MANIFEST_UNKNOWN", "sha256:" + "0" * 64)
        self.fails(404, "MANIFEST_UNKNOWN", repo="team/nowhere")

    def test_peer_bug_61_a_mirror_of_a_mirror(self):
        edge = self.make_weighbridge(config={"upstreams": [{
            "prefix": PREFIX, "kind": "oci", "url": f"{self.wb.url}/v2/{PREFIX}",
            "tag_ttl": "1h"}]})
        self.pulls_image(wb=edge)
        self.registry.stop()
        self.wb.stop()
        self.pulls_image(wb=edge)


class Tags(MirrorCase):
    UPSTREAM = {"negative_ttl": "0s"}

    def test_peer_bug_64_revalidation_is_one_head(self):
        self.pulls_image()
        self.assertEqual(self.registry.pulls(), 1)
        self.registry.reset()
        self.pulls_image()
        self.assertEqual(self.registry.pulls(), 0, "a warm pull costs nothing")
        self.assertEqual(self.requests(), 1)
        self.assertEqual(self.requests(method="HEAD"), 1)
        self.assertEqual(self.requests(status=304), 1, "asked with what is known")

    def test_peer_bug_56_a_moved_tag_is_seen(self):
        self.pulls(self.image)
        self.repo.move_tag("v1", self.other)
        self.pulls(self.other)
        self.pulls(self.image, self.image.digest)
        self.repo.move_tag("v1", self.image)
        before = self.registry.pulls()
        self.pulls(self.image)
        self.assertEqual(self.registry.pulls(), before, "it is here already")

    def test_peer_bug_56_not_before_its_ttl(self):
        self.wb.stop()
        wb = self.mirror(tag_ttl="1h")
        self.pulls(self.image, wb=wb)
        self.repo.move_tag("v1", self.other)
        self.pulls(self.image, wb=wb)

    def test_peer_bug_57_a_deleted_tag_is_dropped(self):
        self.pulls_image()
        self.repo.delete_tag("v1")
        self.assertIn("has no tag v1", self.fails(404, "MANIFEST_UNKNOWN"))
        self.pulls(self.image, self.image.digest)
        self.registry.refuse("registry")
        status, _, _ = self.get_manifest()
        self.assertNotEqual(status, 200, "it was dropped for good")
        self.registry.serve("registry")
        self.repo.move_tag("v1", self.image)

    def test_peer_bug_57_or_kept(self):
        self.wb.stop()
        wb = self.mirror(on_gone="keep", negative_ttl="1h")
        self.pulls(self.image, wb=wb)
        self.repo.delete_tag("v1")
        self.pulls(self.image, wb=wb, warning="has no tag v1")
        self.pulls(self.image, wb=wb, warning="has no tag v1")

    def test_a_registry_without_head(self):
        self.registry.set_options(head_manifests=False)
        self.pulls(self.image)
        self.repo.move_tag("v1", self.other)
        self.pulls(self.other)

    def test_a_registry_without_digests(self):
        self.registry.set_options(content_digest=False, etag=False)
        self.pulls(self.image)
        self.pulls(self.image)
        self.repo.move_tag("v1", self.other)
        self.pulls(self.other)

    def test_a_strict_registry(self):
        self.registry.set_options(accept="strict")
        docker = self.repo.add_image([{"a": b"b"}], tag="docker", docker=True)
        for wanted in (None, "text/html", docker.media_type):
            headers = {"Accept": wanted} if wanted else {}
            status, _, body = self.get_manifest("docker", headers=headers)
            self.assertEqual((status, body), (200, docker.body))
        self.pulls(self.image)


class Lists(MirrorCase):
    """Signatures and SBOMs, and tags."""

    UPSTREAM = {"tag_ttl": "1h"}

    def setUp(self):
        super().setUp()
        self.add_sbom()

    def add_sbom(self, **more):
        self.sbom = self.repo.add_artifact({"sbom.json": b"{}"}, "application/spdx+json",
                                           subject=self.image, annotations={"made": "by test"},
                                           **more)
        self.signature = self.repo.add_artifact({"sig": b"signed"}, "application/signature",
                                                subject=self.image, **more)

    def referrers(self, query="", wb=None):
        """(digests, headers)."""
        status, headers, body = (wb or self.wb).get(
            f"/v2/{PREFIX}/{REPO}/referrers/{self.image.digest}{query}")
        self.assertEqual(status, 200, body)
        return {entry["digest"]: entry for entry in json.loads(body)["manifests"]}, headers

    def sees_both(self, wb=None):
        listed, headers = self.referrers(wb=wb)
        self.assertEqual(set(listed), {self.sbom.digest, self.signature.digest})
        self.assertEqual(listed[self.sbom.digest]["artifactType"], "application/spdx+json")
        self.assertEqual(listed[self.sbom.digest]["annotations"], {"made": "by test"})
        return headers

    def test_peer_bug_85_referrers_of_the_upstream(self):
        self.pulls(self.image)
        self.sees_both()
        before = self.requests(kind="referrers")
        listed, headers = self.referrers("?artifactType=application/signature")
        self.assertEqual(list(listed), [self.signature.digest])
        self.assertEqual(headers["OCI-Filters-Applied"], "artifactType")
        self.assertEqual(self.requests(kind="referrers"), before, "a list counts for a while")
        self.pulls_image(self.sbom, self.sbom.digest)
        self.sees_both()

    def test_peer_bug_85_over_pages(self):
        self.registry.set_options(page_size=1)
        self.sees_both()

    def test_peer_bug_85_by_the_fallback_tag(self):
        self.registry.set_options(referrers=False)
        self.add_sbom(fallback=True)
        self.sees_both()

    def test_peer_bug_85_offline(self):
        self.pulls_image()
        self.sees_both()
        self.pulls_image(self.sbom, self.sbom.digest)
        self.wb.stop()
        wb = self.mirror(data=self.wb.data, offline=True)
        self.assertIn("offline", self.sees_both(wb)["Warning"])
        self.pulls(self.sbom, self.sbom.digest, wb=wb)

    def test_peer_bug_85_while_the_upstream_is_down(self):
        self.wb.stop()
        wb = self.mirror()
        self.pulls_image(wb=wb)
        self.sees_both(wb)
        wb.stop()
        wb = self.mirror(data=wb.data, tag_ttl="0s")
        self.registry.refuse("registry")
        self.assertIn("may be missing", self.sees_both(wb)["Warning"])
        self.registry.serve("registry")

    def test_a_list_that_never_ends(self):
        self.registry.fault("page_loop", kind="tags,referrers")
        status, headers, _ = self.wb.get(f"/v2/{PREFIX}/{REPO}/tags/list")
        self.assertIn(status, (200, 502))
        _, headers = self.referrers()
        self.assertIn("may be missing", headers["Warning"])
        self.registry.clear_faults()
        self.registry.fault("page_next", url="https://evil.invalid/v2/x", kind="tags")
        status, _, _ = self.wb.get(f"/v2/{PREFIX}/{REPO}/tags/list")
        self.assertEqual(status, 502)

    def tags(self, query="", wb=None):
        status, _, body = (wb or self.wb).get(f"/v2/{PREFIX}/{REPO}/tags/list{query}")
        self.assertEqual(status, 200, body)
        return json.loads(body)["tags"]

    def test_tags_of_the_upstream(self):
        for i in range(20):
            self.repo.move_tag(f"v{i:02}", self.other)
        self.registry.set_options(page_size=7)
        want = sorted(["v1", *(f"v{i:02}" for i in range(20))])
        self.assertEqual(self.tags(), want)
        self.assertEqual(self.tags("?n=3&last=v05"), want[6:9])
        self.assertEqual(self.requests(kind="tags"), 3)
        status, _, body = self.wb.get(f"/v2/{PREFIX}/team/nowhere/tags/list")
        self.error_text(404, "NAME_UNKNOWN", status, body)


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

    def test_upstream_gone_after_a_pull(self):
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


class Claims(MirrorCase):
    """A manifest names what it likes; only its own repository upstream gives it."""

    UPSTREAM = {"negative_ttl": "0s"}
    SECRET = b"secret weights" * 1000

    def setUp(self):
        super().setUp()
        self.private = self.registry.add_repo("corp/secret")
        self.private.add_image([self.SECRET], tag="v1")
        self.digest = sha256(self.SECRET)
        self.evil = self.registry.add_repo("evil/x")
        config = b"{}"
        self.evil.add_blob(config)
        self.evil.add_manifest(json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": "a/config", "digest": sha256(config), "size": len(config)},
            "layers": [{"mediaType": "a/layer", "digest": self.digest,
                        "size": len(self.SECRET)}]}).encode(), MANIFEST_TYPE, tag="v1")

    def status(self, repo, method="GET"):
        return self.get_blob(self.digest, repo=repo, method=method)[0]

    def claim(self):
        self.assertEqual(self.get_manifest("v1", repo="evil/x")[0], 200)

    def gives_nothing(self):
        for method in ("HEAD", "GET"):
            self.assertEqual(self.status("evil/x", method), 404)
        status, _, _ = self.wb.request(
            "POST", f"/v2/local/mine/blobs/uploads/?mount={self.digest}&from={PREFIX}/evil/x")
        self.assertEqual(status, 202)

    def test_what_another_repository_has(self):
        self.assertEqual(self.get_manifest("v1", repo="corp/secret")[0], 200)
        self.assertEqual(self.status("corp/secret"), 200)
        self.claim()
        self.gives_nothing()
        self.wb.stop()
        self.wb.start()
        self.gives_nothing()
        self.assertEqual(self.status("corp/secret"), 200)
        # As soon as it has the blob itself, it is its own, for good.
        self.evil.add_blob(self.SECRET)
        self.assertEqual(self.status("evil/x"), 200)
        self.registry.refuse("registry")
        self.wb.stop()
        self.wb.start()
        self.assertEqual(self.status("evil/x"), 200)

    def test_what_another_repository_gets_later(self):
        self.claim()
        self.assertEqual(self.get_manifest("v1", repo="corp/secret")[0], 200)
        self.assertEqual(self.status("corp/secret"), 200)
        self.gives_nothing()

    def test_what_comes_for_another_repository(self):
        self.claim()
        self.assertEqual(self.get_manifest("v1", repo="corp/secret")[0], 200)
        hold = self.registry.hold(kind="blob", path=self.digest, bytes=10, times=1)
        reader = threading.Thread(target=self.status, args=("corp/secret",))
        reader.start()
        self.assertTrue(hold.wait_held(1))
        self.assertEqual(self.status("evil/x"), 404)
        hold.release()
        reader.join()
        self.gives_nothing()


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

    def test_a_blob_of_another_size(self):
        """Of a blob that no manifest here names, HEAD is all that is known. A lie does not stay."""
        self.registry.fault("length", kind="blob", method="HEAD", delta=-1)
        self.blob_must_fail((502, 409))
        self.registry.clear_faults()
        self.pulls(self.image)
        self.pulls_blob(data=LAYER)

    def test_a_blob_of_another_size_over_a_restart(self):
        self.registry.fault("length", kind="blob", method="HEAD", delta=-1)
        self.assertEqual(self.get_blob(method="HEAD")[0], 200)
        self.registry.clear_faults()
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()
        self.blob_must_fail((502, 409))
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


class Policies(MirrorCase):
    def test_peer_bug_76_names(self):
        self.wb.stop()
        wb = self.mirror(repositories=["team/*"], exclude_repositories=["team/secret*"])
        self.registry.add_repo("team/secret").add_image(tag="v1")
        self.registry.add_repo("other/app").add_image(tag="v1")
        self.pulls_image(wb=wb)
        before = self.requests()
        for repo, setting in (("team/secret", "exclude_repositories"), ("other/app", "repositories")):
            for reference in ("v1", self.image.digest):
                self.assertIn(setting, self.fails(403, "DENIED", reference, repo=repo, wb=wb))
            for method in ("GET", "HEAD"):
                status, _, _ = self.get_blob(repo=repo, wb=wb, method=method)
                self.assertEqual(status, 403)
        self.assertEqual(self.requests(), before, "nothing is asked about what is denied")

    def test_types_and_sizes(self):
        self.wb.stop()
        wb = self.mirror(media_types=["*.config.v1+json", "*.never"])
        self.assertIn("media_types", self.fails(403, "DENIED", wb=wb))
        wb.stop()
        wb = self.mirror(max_blob=SIZE - 1)
        text = self.fails(413, "SIZE_INVALID", wb=wb)
        self.assertIn(f"has {SIZE} bytes, and max_blob of upstream {PREFIX} is {SIZE - 1}", text)
        status, _, body = self.get_blob(wb=wb)
        self.assertIn("max_blob", self.error_text(413, "SIZE_INVALID", status, body))
        self.assertEqual(self.requests(kind="blob", method="GET"), 0)


class Logins(MirrorCase):
    OPTIONS = {"auth": "bearer", "expires_in": 60}
    PRIVATE = True
    UPSTREAM = {"username": USER, "negative_ttl": "0s"}

    def mirror(self, *args, **settings):
        secret = self.scratch("password")
        if not os.path.exists(secret):
            with open(secret, "w", encoding="ascii") as f:
                f.write(PASSWORD + "\n")
        return super().mirror(*args, password_file=secret, **settings)

    def test_peer_bug_66_a_new_token_when_one_is_refused(self):
        self.pulls_image()
        self.registry.revoke_tokens()
        self.pulls(self.image)
        self.registry.revoke_tokens()
        self.pulls(self.other, self.other.digest)
        self.pulls_blob(self.other.blobs[0])

    def test_peer_bug_74_tokens_that_live_shorter_than_they_say(self):
        self.registry.set_options(token_life=1)
        for _ in range(3):
            self.pulls(self.image)

    def test_peer_bug_67_one_token_serves_many_requests(self):
        self.pulls_image()
        self.pulls_image()
        self.assertEqual(self.registry.count("token"), 1)

    def test_peer_bug_72_no_credential_to_another_host(self):
        self.registry.set_options(redirect_blobs=True)
        self.pulls_image()
        sent = self.registry.requests("cdn")
        self.assertGreater(len(sent), 0)
        for record in sent:
            self.assertNotIn("Authorization", record.headers)

    def test_peer_bug_53_our_login_is_refused(self):
        self.pulls_image()
        self.registry.add_user(USER, "changed")
        self.registry.revoke_tokens()
        self.pulls_image(warning="login")
        self.assertIn("login", self.fails(502, "UNAVAILABLE", "new"))

    def test_peer_bug_53_the_token_server_is_down(self):
        self.pulls_image()
        self.registry.refuse("token")
        self.registry.revoke_tokens()
        self.pulls_image(warning="login")
        self.registry.serve("token")

    def test_peer_bug_57_a_repository_that_we_may_not_read_any_more(self):
        self.pulls_image()
        self.repo.users = {"somebody else"}
        self.registry.revoke_tokens()
        self.fails(403, "DENIED")
        self.pulls(self.image, self.image.digest)

    def test_peer_bug_77_no_secret_is_shown(self):
        self.pulls_image()
        self.registry.set_options(redirect_blobs=True)
        self.registry.fault("status", status=401, kind="manifest", path="echo",
                            message="you sent " + PASSWORD)
        self.fails(403, "DENIED", "echo")
        for fault in ("url_expired", "cut"):
            self.registry.fault(fault, host="cdn", kind="blob")
            self.get_blob(self.other.blobs[0])
            self.registry.clear_faults()
        for secret in (PASSWORD, "X-Amz-Signature", "Bearer "):
            self.assertNotIn(secret, self.wb.log)

    def test_basic(self):
        self.registry.set_options(auth="basic")
        self.pulls_image()

    def test_peer_bug_68_what_our_login_reads_is_not_for_everybody(self):
        self.wb.stop()
        access = [{"repositories": "elsewhere/**", "allow": ["pull"]}]
        open_to_all = self.mirror(username=USER)
        self.pulls_image(wb=open_to_all)
        open_to_all.stop()
        wb = self.mirror(username=USER, data=open_to_all.data, root={"access": access})
        self.registry.reset()
        for reference in ("v1", self.image.digest):
            self.assertNotEqual(self.get_manifest(reference, wb=wb)[0], 200)
        self.assertNotEqual(self.get_blob(wb=wb)[0], 200)
        self.assertEqual(self.requests(), 0)


class Certificates(MirrorCase):
    TLS = ("registry", "token", "cdn")
    UPSTREAM = {"tag_ttl": "1h"}

    def make_registry(self, **options):
        self.authority = Authority(self.scratch(""))
        return super().make_registry(auth="bearer", redirect_blobs=True, authority=self.authority,
                                     tls=self.TLS, **options)

    def mirror(self, *args, **settings):
        return super().mirror(*args, **{"ca_file": self.authority.ca_file, **settings})


class AuthorityOfOurOwn(Certificates):
    def test_peer_bug_90_counts_for_tokens_and_redirects_too(self):
        self.pulls_image()
        self.assertGreater(self.registry.count("cdn"), 0)
        self.assertGreater(self.registry.count("token"), 0)

    def test_peer_bug_90_is_needed(self):
        self.wb.stop()
        wb = self.mirror(ca_file=None)
        self.assertIn("ca_file", self.fails(502, "UNAVAILABLE", wb=wb))

    def test_wrong_certificates(self):
        self.pulls_image()
        for host, kind in (("registry", "wrong_name"), ("registry", "expired"),
                           ("token", "self_signed")):
            with self.subTest(host, kind=kind):
                self.registry.use_certificate(host, kind)
                self.registry.close_connections(host)
                wb = self.mirror()
                self.fails(502, "UNAVAILABLE", wb=wb)
                self.registry.use_certificate(host)
                wb.stop()


class InTheClear(Certificates):
    TLS = ("registry", "token")

    def test_peer_bug_72_no_way_from_https_to_http(self):
        self.pulls(self.image)
        status, _, body = self.get_blob()
        self.error_text(502, "UNAVAILABLE", status, body)
        self.assertEqual(self.registry.count("cdn"), 0)


if __name__ == "__main__":
    unittest.main()
