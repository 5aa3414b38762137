"""What the tests of mirrored registries share: a stand-in registry with an image in it, and a
server that mirrors it under `reg.test/`."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time

from harness import ROOT, EndToEnd

sys.path.insert(0, os.path.join(ROOT, "tests", "registry"))

from registry import Authority, Noise, StandInRegistry  # noqa: E402

PREFIX = "reg.test"
REPO = "team/app"
SIZE = 3_000_000
LAYER = bytes(Noise(SIZE, "a mirrored layer").read(0, SIZE))
USER, PASSWORD = "alice", "wonder:land-of-secrets"


class MirrorCase(EndToEnd):
    """self.registry with team/app:v1 (config, a small layer, LAYER), self.wb in front of it."""

    OPTIONS = {}    # of the registry
    UPSTREAM = {}   # of weighbridge's configuration
    PRIVATE = False

    def setUp(self):
        self.registry = self.make_registry(**self.OPTIONS)
        self.repo = self.registry.add_repo(REPO, private=self.PRIVATE)
        self.image = self.repo.add_image([{"etc/name": b"one"}, LAYER], tag="v1")
        self.layer = self.image.blobs[-1]
        self.other = self.repo.add_image([{"etc/name": b"two"}])
        self.wb = self.mirror(**self.UPSTREAM)

    def make_registry(self, **options):
        registry = StandInRegistry(**options)
        registry.add_user(USER, PASSWORD)
        registry.start()
        self.addCleanup(self.end_registry, registry)
        return registry

    def end_registry(self, registry):
        registry.stop()
        self.assertEqual(registry.errors, [], "the stand-in registry itself failed")

    def upstream(self, **settings):
        """None takes a setting out."""
        wanted = {"prefix": PREFIX, "kind": "oci", "url": self.registry.url, "tag_ttl": "0s",
                  "connect_timeout": "2s", "stall_timeout": "2s", "retries": 1, **settings}
        return {key: value for key, value in wanted.items() if value is not None}

    def mirror(self, env=None, data=None, root=None, **settings):
        return self.make_weighbridge(
            config={"upstreams": [self.upstream(**settings)], **(root or {})}, env=env, data=data)

    def scratch(self, name):
        """A path in a folder of the test's own."""
        if not hasattr(self, "_scratch"):
            self._scratch = tempfile.mkdtemp(prefix="weighbridge-mirror-")
            self.addCleanup(shutil.rmtree, self._scratch, ignore_errors=True)
        return os.path.join(self._scratch, name)

    # --- pulling ---

    def get_manifest(self, reference="v1", repo=REPO, wb=None, method="GET", headers=None):
        """(status, headers, body)."""
        return (wb or self.wb).request(method, f"/v2/{PREFIX}/{repo}/manifests/{reference}",
                                       headers)

    def pulls(self, manifest, reference="v1", repo=REPO, wb=None, warning=None):
        """A manifest that must come byte for byte, with or without a warning that has the text."""
        status, headers, body = self.get_manifest(reference, repo, wb)
        self.assertEqual(status, 200, body)
        self.assertEqual(body, manifest.body)
        self.assertEqual(headers["Docker-Content-Digest"], manifest.digest)
        self.assertEqual(headers["Content-Type"], manifest.media_type)
        said = headers["Warning"]
        if warning is None:
            self.assertIsNone(said)
        else:
            self.assertRegex(said or "", r'^299 - "served from the store, last confirmed \d+ s ago')
            self.assertIn(warning, said)
        return headers

    def fails(self, status, code, reference="v1", repo=REPO, wb=None):
        """The text of a pull of a manifest that must fail so."""
        got, headers, body = self.get_manifest(reference, repo, wb)
        return self.error_text(status, code, got, body)

    def error_text(self, status, code, got, body):
        self.assertEqual(got, status, body)
        error = json.loads(body)["errors"][0]
        self.assertEqual(error["code"], code, error)
        return error["message"]

    def get_blob(self, digest=None, repo=REPO, wb=None, method="GET", **headers):
        return (wb or self.wb).request(
            method, f"/v2/{PREFIX}/{repo}/blobs/{digest or self.layer}", headers)

    def pulls_blob(self, digest=None, repo=REPO, wb=None, data=None):
        digest = digest or self.layer
        status, headers, body = self.get_blob(digest, repo, wb)
        self.assertEqual(status, 200, body[:2000])
        self.assertEqual("sha256:" + hashlib.sha256(body).hexdigest(), digest)
        if data is not None:
            self.assertEqual(body, data)
        return headers

    def pulls_image(self, image=None, reference="v1", wb=None, warning=None):
        image = image or self.image
        self.pulls(image, reference, wb=wb, warning=warning)
        self.pulls(image, image.digest, wb=wb)
        for digest in image.blobs:
            self.pulls_blob(digest, wb=wb)

    def requests(self, **where):
        return self.registry.count("registry", **where)

    @staticmethod
    def timed(fn, *args, **kwargs):
        start = time.monotonic()
        fn(*args, **kwargs)
        return time.monotonic() - start


__all__ = ["Authority", "LAYER", "PASSWORD", "PREFIX", "REPO", "SIZE", "USER", "MirrorCase", "Noise",
           "StandInRegistry"]
