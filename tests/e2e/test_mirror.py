#!/usr/bin/env python3
"""What is pulled through from a registry that is mirrored: images, blobs, what another repository
has, and what the policies let through. Tests named peer_bug_NN are about faults that users reported
of other products."""

import json
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from harness import MANIFEST_TYPE, sha256
from mirror_case import LAYER, PREFIX, SIZE, MirrorCase


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

    def test_peer_bug_69_a_link_of_another_repository_is_none(self):
        self.pulls_image()
        self.registry.add_repo("team/empty")
        status, _, body = self.get_blob(repo="team/empty")
        self.error_text(404, "BLOB_UNKNOWN", status, body)

    def test_peer_bug_21_ranges_of_a_cold_blob(self):
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

    def test_peer_bug_62_what_is_not_there(self):
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


class Claims(MirrorCase):
    """A manifest names what it likes; only its own repository upstream gives it."""

    UPSTREAM = {"negative_ttl": "0s", "stall_timeout": "60s"}  # tests hold answers up
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

    def test_peer_bug_69_70_what_another_repository_has(self):
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

    def test_peer_bug_69_70_what_another_repository_gets_later(self):
        self.claim()
        self.assertEqual(self.get_manifest("v1", repo="corp/secret")[0], 200)
        self.assertEqual(self.status("corp/secret"), 200)
        self.gives_nothing()

    def test_peer_bug_69_70_what_comes_for_another_repository(self):
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
            for path in ("tags/list", f"referrers/{self.image.digest}"):
                status, _, body = wb.get(f"/v2/{PREFIX}/{repo}/{path}")
                self.assertIn(setting, self.error_text(403, "DENIED", status, body))
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


if __name__ == "__main__":
    unittest.main()
