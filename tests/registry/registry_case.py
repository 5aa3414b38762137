"""What the stand-in registry's own tests share: a registry per test, with something in it."""

import tempfile
import unittest
from base64 import b64encode
from pathlib import Path
from urllib.parse import urlencode

from registry import Noise, StandInRegistry
from standin_client import connect, send, start  # noqa: F401 (for the tests)

SIZE = 3_000_000
LAYER = bytes(Noise(SIZE, "a layer").read(0, SIZE))
USER, PASSWORD = "alice", "wonder:land"


def basic(user=USER, password=PASSWORD):
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


class RegistryCase(unittest.TestCase):
    """A started registry. team/app has the image v1 with two layers, one in memory and one on
    disk, its index multi, a docker image and list; secret/app is for alice."""

    OPTIONS = {}

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        disk = self.scratch / "layer"
        disk.write_bytes(LAYER)
        self.registry = self.make()
        self.repo = self.registry.add_repo("team/app")
        self.image = self.repo.add_image([{"etc/name": b"one"}, disk], tag="v1")
        self.layer = self.image.blobs[-1]
        self.secret = self.registry.add_repo("secret/app", private=True, users={USER}).add_image(
            tag="v1")
        self.registry.add_user(USER, PASSWORD)
        self.registry.add_user("bob", "builder")
        self.registry.start()
        self.addCleanup(self.finish)

    def make(self):
        return StandInRegistry(**self.OPTIONS)

    def finish(self):
        self.registry.stop()
        self.assertEqual(self.registry.errors, [])

    def get(self, path, method="GET", **more):
        return send(self.registry.url + path, method, **more)

    def manifest(self, reference="v1", repo="team/app", **more):
        return self.get(f"/v2/{repo}/manifests/{reference}", **more)

    def blob(self, digest=None, repo="team/app", **more):
        return self.get(f"/v2/{repo}/blobs/{digest or self.layer}", **more)

    def token(self, scope="repository:team/app:pull", user=None, **more):
        """A token by GET, or the answer that refused it."""
        headers = {"Authorization": basic(*user)} if user else {}
        query = urlencode({"service": "registry.test", "scope": scope, **more})
        got = send(f"{self.registry.token_url}/token?{query}", **headers)
        return "Bearer " + got.json["token"] if got.status == 200 else got
