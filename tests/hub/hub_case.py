"""What the stand-in's own tests share: a hub per test and a raw HTTP client."""

import hashlib
import http.client
import json
import random
import tempfile
import unittest
from pathlib import Path
from urllib.parse import urlsplit

from hub import File, Sparse, StandInHub

TOKEN = "hf_" + "a1" * 20
OTHER = "hf_" + "b2" * 20
BIG = random.Random(7).randbytes(3_000_000)
CONFIG = b'{"hidden_size": 384}\n' * 100


class Answer:
    """A whole answer, or how far it got: `cut` when the body ended early."""

    def __init__(self, status, headers, body, cut=False):
        self.status = status
        self.headers = headers
        self.body = body
        self.cut = cut

    def __getitem__(self, name):
        return self.headers.get(name)

    @property
    def json(self):
        return json.loads(self.body)


def send(url, method="GET", body=None, **headers):
    """One request, no redirects, nothing sent that is not asked for. Header names
    are given with underscores."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        try:
            data, cut = answer.read(), False
        except http.client.IncompleteRead as short:
            data, cut = short.partial, True
        except ConnectionResetError:
            data, cut = b"", True
        return Answer(answer.status, answer.headers, data, cut)
    finally:
        connection.close()


def start(url, **headers):
    """(connection, answer) with the body not yet read."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    connection.request("GET", parts.path + f"?{parts.query}",
                       headers={k.replace("_", "-"): v for k, v in headers.items()})
    return connection, connection.getresponse()


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
