"""Plumbing of the tests with real clients: their programs, their daemons, what they are given."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "hub")]

from harness import EndToEnd  # noqa: E402
from hub_clients import CannotInstall  # noqa: E402
from tools import SERVERS, tool  # noqa: E402

PATIENCE_S = 300
START_S = 60
STOP_S = 30

IMAGE_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"


def sha256_of(path):
    with open(path, "rb") as f:
        return "sha256:" + hashlib.file_digest(f, "sha256").hexdigest()


def tree(folder):
    """{relative path: sha256} of a folder's files."""
    return {str(p.relative_to(folder)): sha256_of(p)
            for p in sorted(Path(folder).rglob("*")) if p.is_file()}


class ClientCase(EndToEnd):
    """A scratch folder, which is also the clients' home, and ways to run them."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.scratch = tempfile.mkdtemp(prefix="wb-clients-")  # short: sockets are in it
        cls.addClassCleanup(shutil.rmtree, cls.scratch)

    @classmethod
    def tool(cls, name):
        try:
            return tool(name)
        except CannotInstall as error:
            raise unittest.SkipTest(
                ("unreachable: " if error.offline else "") + f"{name}: {error}") from error

    @classmethod
    def environment(cls):
        return {"PATH": os.environ["PATH"] + SERVERS, "HOME": cls.scratch, "TMPDIR": cls.scratch}

    def attempt(self, *command, cwd=None):
        return subprocess.run(command, cwd=cwd or self.scratch, env=self.environment(),
                              capture_output=True, timeout=PATIENCE_S, check=False)

    def run_client(self, *command, cwd=None):
        """Standard output of a command that must succeed."""
        done = self.attempt(*command, cwd=cwd)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-2000:]!r}\n"
                                             f"{done.stderr.decode(errors='replace')[-3000:]}")
        return done.stdout

    def run_refused(self, *command, cwd=None):
        """What a command says that must fail."""
        done = self.attempt(*command, cwd=cwd)
        said = (done.stdout + done.stderr).decode(errors="replace")
        self.assertNotEqual(done.returncode, 0, f"{command}\n{said}")
        return said

    def folder(self, name):
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch)

    def write(self, folder, files):
        """Writes {relative path: bytes} into a folder, and returns it."""
        for path, data in files.items():
            to = Path(folder, path)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
        return folder


class Daemon:
    """A server of somebody else's that a test class needs."""

    def __init__(self, command, log, env, answers):
        """Starts it. `answers` says whether it can be used. Raises RuntimeError with what it said
        when it cannot."""
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, env=env, start_new_session=True)
        deadline = time.monotonic() + START_S
        while not answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{command[0]} did not start: {self.last_words()}")
            time.sleep(0.05)

    def last_words(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()[-3000:]

    def stop(self):
        """Ends it and what it has started."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# --- things to push ------------------------------------------------------------------------------


def random_bytes(size, seed):
    """Bytes that nothing compresses, the same in each run."""
    return b"".join(hashlib.sha256(f"{seed} {i}".encode()).digest()
                    for i in range(-(-size // 32)))[:size]


def tarball(files):
    """A tar of {path: bytes}, the same in each run."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


class Layout:
    """An OCI image layout on disk."""

    def __init__(self, folder):
        self.folder = folder
        self.roots = []
        os.makedirs(os.path.join(folder, "blobs", "sha256"))
        Path(folder, "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def add(self, data, media_type, **more):
        """Stores a blob; returns its descriptor."""
        if not isinstance(data, bytes):
            data = json.dumps(data).encode()
        hexadecimal = hashlib.sha256(data).hexdigest()
        Path(self.folder, "blobs", "sha256", hexadecimal).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{hexadecimal}", "size": len(data),
                **more}

    def image(self, files, architecture="amd64"):
        layer = tarball(files)
        config = {"architecture": architecture, "os": "linux", "config": {},
                  "rootfs": {"type": "layers",
                             "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}
        return self.add({
            "schemaVersion": 2, "mediaType": IMAGE_TYPE, "config": self.add(config, CONFIG_TYPE),
            "layers": [self.add(gzip.compress(layer, mtime=0), LAYER_TYPE)]}, IMAGE_TYPE,
            platform={"architecture": architecture, "os": "linux"})

    def index(self, manifests):
        return self.add({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests},
                        INDEX_TYPE)

    def tag(self, descriptor, name):
        self.roots.append({**descriptor,
                           "annotations": {"org.opencontainers.image.ref.name": name}})
        Path(self.folder, "index.json").write_text(json.dumps(
            {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": self.roots}))
        return descriptor["digest"]

    def blobs(self):
        return set(os.listdir(os.path.join(self.folder, "blobs", "sha256")))
