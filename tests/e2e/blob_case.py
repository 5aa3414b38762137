"""What the blob and fault tests share: files whose every byte is checked by its place, a client that
takes a body piece by piece and says how far it came, and the promises that hold after every test."""

import contextlib
import hashlib
import http.client
import os
import random
import re
import socket
import threading

from harness import EndToEnd, Weighbridge, paths_of, safetensors_header

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
WITHHELD = 64 * KIB  # the end of a blob that waits for the whole digest
LAG = 256 * KIB      # what the server gathers before it writes and publishes
REPO = "Org/Model"
NAME = "hf/org/model"
FILE = "model.safetensors"
PATIENCE_S = 120     # sanitizer builds on a loaded machine
BROKEN = (200, 502)  # the latter when a download has failed before the answer to the client began


class Pattern:
    """A source for the stand-in: a readable safetensors header, then bytes that differ from one
    place to the next, made as they are read. The sha256 is the true one."""

    def __init__(self, size, seed=0):
        whole = random.Random(seed).randbytes(MIB)
        self._twice = memoryview(whole + whole)
        # The header is padded, so that its length does not depend on the digits in it.
        length = size - len(safetensors_header({"w": ("U8", [size])}, pad_to=128)[0])
        self.header = safetensors_header({"w": ("U8", [length])}, pad_to=128)[0]
        self.size = size
        self._hash = None

    def _piece(self, offset, count):
        """Up to count bytes, without a copy."""
        if offset < len(self.header):
            return self.header[offset:offset + count]
        block, within = divmod(offset, MIB)
        start = (block * 7919 + within) % MIB
        return self._twice[start:start + min(count, MIB - within)]

    def read(self, offset, count):
        count = max(0, min(count, self.size - offset))
        out = self._piece(offset, count)
        while len(out) < count:
            out = bytes(out) + self._piece(offset + len(out), count - len(out))
        return out

    def whole(self, first=0, last=None):
        last = self.size - 1 if last is None else last
        return bytes(self.read(first, last + 1 - first))

    def sha256(self):
        if self._hash is None:
            h, at = hashlib.sha256(), 0
            while at < self.size:
                piece = self.read(at, MIB)
                h.update(piece)
                at += len(piece)
            self._hash = h.hexdigest()
        return self._hash

    @property
    def digest(self):
        return "sha256:" + self.sha256()


class Pull:
    """One GET of a blob, taken piece by piece."""

    def __init__(self, wb, digest, range_=None, name=NAME, timeout=PATIENCE_S):
        self.connection = wb.connect(timeout)
        headers = {"Range": f"bytes={range_}"} if range_ else {}
        self.connection.request("GET", f"/v2/{name}/blobs/{digest}", headers=headers)
        self.hash = hashlib.sha256()
        self.received = 0
        self.answer = None

    def begin(self):
        """Waits for status and headers."""
        if self.answer is None:
            self.answer = self.connection.getresponse()
        return self

    @property
    def status(self):
        return self.begin().answer.status

    @property
    def expected(self):
        return int(self.begin().answer.headers["Content-Length"])

    def take(self, count):
        """Exactly `count` further bytes, or fewer when the connection was cut."""
        out = bytearray()
        self.begin()
        while len(out) < count:
            try:
                piece = self.answer.read(min(MIB, count - len(out)))
            except (http.client.IncompleteRead, ConnectionError) as error:
                piece = getattr(error, "partial", b"")
                out += piece
                self.hash.update(piece)
                break
            if not piece:
                break
            out += piece
            self.hash.update(piece)
        self.received += len(out)
        return bytes(out)

    def finish(self):
        """Everything that comes, hashed and dropped; returns self."""
        buffer = bytearray(MIB)
        view = memoryview(buffer)
        self.begin()
        while True:
            try:
                n = self.answer.readinto(view)
            except (http.client.IncompleteRead, ConnectionError):
                break
            if not n:
                break
            self.hash.update(view[:n])
            self.received += n
        self.close()
        return self

    @property
    def complete(self):
        """All of what was asked for; an error that came in one piece is none of it."""
        return self.status in (200, 206) and self.received == self.expected

    @property
    def digest(self):
        return "sha256:" + self.hash.hexdigest()

    def close(self):
        self.connection.close()

    def vanish(self):
        """Closes with RST, as a killed client's machine may."""
        sock = self.connection.sock or self.answer.fp.raw._sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.answer.close()
        sock.close()


class BlobCase(EndToEnd):
    """One hub, and servers whose data directory is looked over when they end."""

    upstream = {}  # further settings of the upstream
    settings = {}  # further settings of the server

    def setUp(self):
        self.hub = self.make_hub()

    def config(self, **more):
        upstream = {"prefix": "hf", "kind": "huggingface", "url": self.hub.url,
                    "negative_ttl": "0s", **self.upstream}
        return {"upstreams": [upstream], "timeouts": {"drain": "1s"}, **self.settings, **more}

    def serve(self, config=None, **settings):
        return self.make_weighbridge(config=config or self.config(), **settings)

    def end_weighbridge(self, wb):
        try:
            if wb.running:
                self.assertEqual(wb.stop(), 0, wb.log[-4000:])
            self.assert_blobs_are_what_they_say(wb)
            self.assert_no_secret(wb)
        finally:
            super().end_weighbridge(wb)

    def assert_blobs_are_what_they_say(self, wb):
        """Rule 1 of the store: a file under blobs/ hashes to its name."""
        top = os.path.join(wb.data, "blobs")
        for folder, _, names in os.walk(top):
            algorithm = os.path.relpath(folder, top).split(os.sep)[0]
            for name in names:
                with open(os.path.join(folder, name), "rb") as f:
                    self.assertEqual(hashlib.file_digest(f, algorithm).hexdigest(), name)

    def assert_no_secret(self, wb):
        """Signed URLs of the stand-in all have these in their query."""
        for secret in ("Signature=", "Key-Pair-Id", "hf_secret"):
            self.assertNotIn(secret, wb.log)

    def held(self, wb, digest):
        algorithm, hex_ = digest.split(":")
        return os.path.exists(os.path.join(wb.data, "blobs", algorithm, hex_[:2], hex_))

    def incoming(self, wb):
        return os.listdir(os.path.join(wb.data, "incoming"))

    def add_model(self, size, seed=0, repo=REPO):
        model = Pattern(size, seed)
        self.hub.add_repo(repo, {"config.json": b'{"model_type": "llama"}', FILE: model})
        return model

    def cold(self, wb, size, seed=0, repo=REPO):
        """A model that is imported, and of which no byte has been pulled; counts start at 0."""
        model = self.add_model(size, seed, repo)
        _, manifest = self.pull_manifest(wb, "hf/" + repo.lower(), "main")
        self.assertEqual(paths_of(manifest)[FILE]["digest"], model.digest)
        self.hub.reset()
        return model

    def cdn_bytes(self):
        return self.hub.bytes_sent("cdn", path=FILE)

    def whole(self, wb, model, name=NAME):
        """A pull that must give the right bytes."""
        pull = Pull(wb, model.digest, name=name).finish()
        self.assertEqual(pull.status, 200)
        self.assertEqual(pull.received, model.size, wb.log[-3000:])
        self.assertEqual(pull.digest, model.digest)
        return pull

    def metric(self, wb, name):
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\d+)", wb.get("/metrics")[2].decode(), re.M)
        self.assertIsNotNone(found, f"no metric {name}")
        return int(found[1])


@contextlib.contextmanager
def in_threads(count, work):
    """Runs work(i) in threads while the block runs, then joins them and raises what they raised."""
    errors = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:  # an assertion of a thread must not get lost
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


__all__ = ["BlobCase", "FILE", "GIB", "KIB", "LAG", "MIB", "NAME", "Pattern", "PATIENCE_S", "Pull",
           "REPO", "WITHHELD", "Weighbridge", "in_threads"]
