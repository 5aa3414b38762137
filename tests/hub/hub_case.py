"""What the stand-in's own tests share: a hub per test."""

import hashlib
import random
import tempfile
import unittest
from pathlib import Path

from hub import File, Sparse, StandInHub
from standin_client import send, start  # noqa: F401 (for the tests)

TOKEN = "hf_" + "a1" * 20
OTHER = "hf_" + "b2" * 20
BIG = random.Random(7).randbytes(3_000_000)
CONFIG = b'{"hidden_size": 384}\n' * 100


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def sha1_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class HubCase(unittest.TestCase):
    """A started hub with one repository, Org/Name: small files, weights in memory
    and on disk, a huge sparse file, a tag and a pull request."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.disk = self.scratch / "disk.safetensors"
        self.disk.write_bytes(BIG)
        self.hub = StandInHub()
        self.repo = self.hub.add_repo("Org/Name", renamed_from=["Old/Name"])
        self.old = self.repo.add_commit({"config.json": b"{}"}, tag="v1")
        self.main = self.repo.add_commit({
            "config.json": CONFIG, "empty.txt": b"", "a b+c/d.txt": b"plus",
            "dir/sub/x.txt": b"x", "w.bin": BIG, "disk.safetensors": self.disk,
            "huge.gguf": Sparse(60 << 30, sha256="5" * 64, header=b"GGUFhead"),
            "old.onnx": File(b"old store", xet=False),
        }, parent="v1")
        self.pr = self.repo.add_commit({"config.json": b"pr"}, ref="refs/pr/1", keep=True)
        self.hub.start()
        self.addCleanup(self.finish)

    def finish(self):
        self.hub.stop()
        self.assertEqual(self.hub.errors, [])

    def get(self, path, method="GET", **more):
        return send(self.hub.url + path, method, **more)

    def resolve(self, path, revision="main", repo="Org/Name", **more):
        return self.get(f"/{repo}/resolve/{revision}/{path}", **more)

    def signed(self, path="w.bin", repo="Org/Name", **more):
        answer = self.resolve(path, repo=repo, **more)
        self.assertEqual(answer.status, 302)
        return answer["Location"]

    def cdn(self, path="w.bin", **more):
        return send(self.signed(path), **more)

    def tree(self, query="recursive=true", repo="Org/Name", **more):
        return self.get(f"/api/models/{repo}/tree/main?{query}", **more)
