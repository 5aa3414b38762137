#!/usr/bin/env python3
"""Tags of a registry that is mirrored: they move and go; and lists of tags and referrers."""

import json
import unittest

from mirror_case import PREFIX, REPO, MirrorCase


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

    NOT_ITS_OWN = ({"html": True}, {"body": "404 page not found"}, {"body": ""},
                   {"body": '{"message": "no Route matched with those values"}'},
                   {"body": '{"errors": [{"status": 404, "message": "File not found."}]}'})

    def test_peer_bug_57_a_404_of_somebody_elses_drops_nothing(self):
        """A proxy on the way that broke, a url that leads to another web server."""
        self.pulls(self.image)
        for status in (404, 403):
            for how in self.NOT_ITS_OWN:
                with self.subTest(status=status, **how):
                    if "html" not in how:
                        self.registry.fault("headers", drop=["Docker-Distribution-Api-Version"])
                    self.registry.fault("status", status=status, **how)
                    self.pulls(self.image, warning=f"answered {status}")
                    if status == 404:
                        self.fails(404, "MANIFEST_UNKNOWN", "never-pulled")
                    self.registry.clear_faults()
                    self.pulls(self.image)

    def test_peer_bug_57_a_registrys_own_404_drops(self):
        """With its header or its errors alone, and with Harbor's code."""
        for how, header in (({"code": "MANIFEST_UNKNOWN"}, False), ({"code": "NOT_FOUND"}, False),
                            ({"code": "NAME_UNKNOWN"}, False), ({"body": "no such thing"}, True)):
            for status in (404, 403):
                with self.subTest(status=status, header=header, **how):
                    self.pulls(self.image)
                    if not header:
                        self.registry.fault("headers", drop=["Docker-Distribution-Api-Version"])
                    self.registry.fault("status", status=status, kind="manifest", **how)
                    self.assertEqual(self.get_manifest()[0], status)
                    self.registry.clear_faults()
                    self.registry.refuse("registry")
                    self.assertNotEqual(self.get_manifest()[0], 200, "it was dropped")
                    self.registry.serve("registry")

    def test_peer_bug_64_a_tag_that_has_gone_costs_no_pull(self):
        self.pulls(self.image)
        before = self.registry.pulls()
        self.repo.delete_tag("v1")
        self.fails(404, "MANIFEST_UNKNOWN")
        self.assertEqual(self.registry.pulls(), before)

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

    def lists_must_fail(self, said):
        """The list of tags is refused; that of referrers has what is here, and a warning."""
        status, _, body = self.wb.get(f"/v2/{PREFIX}/{REPO}/tags/list")
        self.assertIn(said, self.error_text(502, "UNAVAILABLE", status, body))
        _, headers = self.referrers()
        self.assertIn("may be missing", headers["Warning"])
        self.assertIn(said, headers["Warning"])

    def test_a_list_whose_next_page_is_itself(self):
        self.registry.fault("page_loop", kind="tags,referrers")
        self.lists_must_fail("its pages lead in a circle")
        self.assertEqual(self.requests(kind="tags"), 1)

    def test_a_list_that_leads_in_a_circle(self):
        """Over three pages, and back to the second."""
        for kind in ("tags", "referrers"):
            for page in ("?at=1", "?at=2", "?at=1"):
                self.registry.fault("page_next", url=page, kind=kind, times=1)
        self.lists_must_fail("its pages lead in a circle")
        self.assertEqual(self.requests(kind="tags"), 3)
        self.assertEqual(self.requests(kind="referrers"), 3)

    def test_a_list_that_leads_to_another_host(self):
        self.registry.fault("page_next", url="https://evil.invalid/v2/x?token=abc",
                            kind="tags,referrers")
        self.lists_must_fail("names a next page that is not its own, on https://evil.invalid/v2/x")
        self.assertNotIn("token=abc", self.wb.log)
        self.registry.clear_faults()
        # Behind a proxy that does TLS for it, a registry may think that it is on another scheme.
        self.registry.fault("page_next", url=self.registry.url.replace("http:", "https:") + "/v2/x",
                            kind="tags")
        status, _, body = self.wb.get(f"/v2/{PREFIX}/{REPO}/tags/list")
        self.assertIn("not its own", self.error_text(502, "UNAVAILABLE", status, body))

    def test_a_list_that_never_ends(self):
        """Each page has another name."""
        for i in range(1001):
            self.repo.move_tag(f"t{i:04}", self.other)
        self.registry.set_options(page_size=1)
        status, _, body = self.wb.get(f"/v2/{PREFIX}/{REPO}/tags/list")
        self.assertIn("more than 1000 pages", self.error_text(502, "UNAVAILABLE", status, body))
        self.assertEqual(self.requests(kind="tags"), 1000)

    def test_a_broken_list_hides_nothing_that_is_here(self):
        self.pulls(self.image)
        self.registry.fault("page_loop", kind="tags")
        status, headers, body = self.wb.get(f"/v2/{PREFIX}/{REPO}/tags/list")
        self.assertEqual((status, json.loads(body)["tags"]), (200, ["v1"]))
        self.assertIn("tags of the upstream may be missing", headers["Warning"])

    def test_peer_bug_85_a_404_of_somebody_elses_takes_no_referrer(self):
        self.wb.stop()
        wb = self.mirror()
        self.pulls(self.image, wb=wb)
        self.sees_both(wb)
        wb.stop()
        wb = self.mirror(data=wb.data, tag_ttl="0s")
        self.registry.fault("status", status=404, html=True)
        self.assertIn("not in a registry's words", self.sees_both(wb)["Warning"])
        self.registry.clear_faults()
        self.repo.delete_manifest(self.sbom.digest)
        self.assertEqual(list(self.referrers(wb=wb)[0]), [self.signature.digest])

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


if __name__ == "__main__":
    unittest.main()
