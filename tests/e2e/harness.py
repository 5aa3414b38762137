"""Plumbing of the end-to-end tests: a real `weighbridge serve` in front of a
stand-in Hub, both in temporary places, and an HTTP client that hides nothing.

    class TestX(EndToEnd):
        def test_y(self):
            hub = self.make_hub()
            hub.add_repo("Org/Name", {"config.json": b"{}"})
            wb = self.make_weighbridge(hub.url)
            status, headers, body = wb.get("/v2/hf/org/name/manifests/main")

WEIGHBRIDGE_BIN names the binary; without it build/release/weighbridge is run.
A server that ends badly, or with a sanitizer's report in its log, fails the test.
"""

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))

from hub import Sparse, StandInHub, git_blob_id  # noqa: E402

START_S = 60   # sanitizer builds on a loaded machine are slow to start
STOP_S = 60
REPORTS = re.compile(r"(?:ERROR|WARNING|SUMMARY): \w*Sanitizer|runtime error: |"
                     r"Assertion .* failed|\*\*\* stack smashing")
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS",
             "LSAN_OPTIONS", "TMPDIR", "LANG")

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def binary():
    path = os.environ.get("WEIGHBRIDGE_BIN") or os.path.join(
        ROOT, "build", "release", "weighbridge")
    if not os.access(path, os.X_OK):
        raise RuntimeError(f"no weighbridge binary at {path}: build it, or set WEIGHBRIDGE_BIN")
    return path


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Weighbridge:
    """One running server. start() again after stop() or kill() runs a new one on
    the same data (and, unless `port` was given, on another port)."""

    def __init__(self, hub_url=None, data=None, args=(), env=None, config=None, port=0,
                 program=None):
        self.scratch = tempfile.mkdtemp(prefix="weighbridge-e2e-")
        self.data = data or os.path.join(self.scratch, "data")
        self.args = ["serve", "--listen", f"127.0.0.1:{port}", "--data", self.data]
        if hub_url:
            self.args += ["--hub", hub_url]
        if config is not None:
            path = os.path.join(self.scratch, "config.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(config, f)
            self.args += ["--config", path]
        self.args += list(args)
        # Nothing of the caller's own set-up may leak in: no token, no proxy, no home.
        self.env = {k: os.environ[k] for k in PASSED_ON if k in os.environ}
        self.env["HOME"] = self.scratch
        self.env.update(env or {})
        self.log_path = os.path.join(self.scratch, "log")
        self.program = program or binary()
        self.process = self.url = None
        self.start()

    # --- life ---

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, *self.args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=log, env=self.env, cwd=self.scratch)
        watchdog = threading.Timer(START_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline().decode()
        watchdog.cancel()
        found = re.fullmatch(r"listening on (http://\S+)\n", line)
        if not found:
            self.process.kill()
            code = self.process.wait()
            self.process.stdout.close()
            raise RuntimeError(f"the server did not start (exit {code}, said {line!r}):\n"
                               f"{self.log}")
        self.url = found.group(1)
        self.host = urllib.parse.urlsplit(self.url).netloc
        return self

    @property
    def pid(self):
        return self.process.pid

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout=STOP_S):
        """SIGTERM; returns the exit status. Negative: it had to be killed."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        """SIGKILL: what a power cut looks like to the process."""
        if self.running:
            self.process.kill()
        return self.wait(STOP_S)

    def wait(self, timeout=STOP_S):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process.stdout.close()
        return code

    @property
    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def log_lines(self, **fields):
        """The log lines that hold all of these logfmt fields."""
        wanted = [f"{k}={v}" for k, v in fields.items()]
        return [line for line in self.log.splitlines()
                if all(w in line.split() for w in wanted)]

    def clean(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    # --- HTTP ---

    def connect(self, timeout=120):
        return http.client.HTTPConnection(self.host, timeout=timeout)

    def request(self, method, path, headers=None, body=None, timeout=120):
        """(status, headers, body); a body cut short raises IncompleteRead. The path
        is sent as it is."""
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path, headers=None, timeout=120):
        return self.request("GET", path, headers, timeout=timeout)

    def head(self, path, headers=None, timeout=120):
        return self.request("HEAD", path, headers, timeout=timeout)

    def manifest(self, repository, reference, timeout=120):
        """(status, digest or None, manifest or the error body as a dict)."""
        status, headers, body = self.get(
            f"/v2/{repository}/manifests/{reference}", {"Accept": MANIFEST_TYPE}, timeout)
        try:
            document = json.loads(body)
        except ValueError:
            document = {"raw": body.decode(errors="replace")}
        if status == 200 and headers["Docker-Content-Digest"] != sha256(body):
            raise AssertionError(f"the manifest of {repository}:{reference} does not hash to "
                                 f"its Docker-Content-Digest {headers['Docker-Content-Digest']}")
        return status, headers["Docker-Content-Digest"], document

    def blob(self, repository, digest, headers=None, timeout=120):
        return self.get(f"/v2/{repository}/blobs/{digest}", headers, timeout)


class EndToEnd(unittest.TestCase):
    """Gives hubs and servers that are stopped, and looked over, after the test."""

    @classmethod
    def setUpClass(cls):
        binary()  # without one: a single complaint for the class

    def make_hub(self, **options):
        hub = StandInHub(**options).start()
        self.addCleanup(self.end_hub, hub)
        return hub

    def end_hub(self, hub):
        hub.stop()
        self.assertEqual(hub.errors, [], "the stand-in Hub itself failed")

    def make_weighbridge(self, hub_url=None, **settings):
        wb = Weighbridge(hub_url, **settings)
        self.addCleanup(self.end_weighbridge, wb)
        return wb

    def end_weighbridge(self, wb):
        try:
            # The test may have killed it; one that still runs has to end when it is asked to.
            good = (0,) if wb.running else (0, -signal.SIGKILL)
            code = wb.stop()
            if code not in good or REPORTS.search(wb.log):
                self.fail(f"the server ended with {code}; its log:\n{wb.log[-20000:]}")
        finally:
            wb.clean()

    def until(self, what, condition, timeout=120):
        """Polls for something that has no barrier; gives up loudly."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                self.fail(f"waited {timeout} s for {what}")
            time.sleep(0.02)

    def pull_manifest(self, wb, repository, reference):
        """(digest, manifest) of a pull that must succeed."""
        status, digest, manifest = wb.manifest(repository, reference)
        self.assertEqual(status, 200, manifest)
        return digest, manifest

    def pull_error(self, wb, repository, reference, status, code=None):
        """The message of a pull that must fail with this status."""
        got, _, document = wb.manifest(repository, reference)
        self.assertEqual(got, status, document)
        if code:
            self.assertEqual(document["errors"][0]["code"], code, document)
        error = document["errors"][0]
        return f"{error.get('message', '')} {json.dumps(error.get('detail', ''))}"


def paths_of(manifest):
    """File path -> layer descriptor."""
    return {layer["annotations"]["org.cncf.model.filepath"]: layer
            for layer in manifest["layers"]}


# --- small weight files, made to measure ------------------------------------

SIZES = {"F64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1}


def safetensors_header(tensors, metadata=None, pad_to=0):
    """(header bytes, size of the data behind it) for {name: (dtype, shape)}."""
    table, offset = {}, 0
    if metadata:
        table["__metadata__"] = metadata
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for n in shape:
            size *= n
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * max(-len(text) % 8, pad_to - len(text))
    return struct.pack("<Q", len(text)) + text, offset


def safetensors_file(tensors, metadata=None, fill=b"\0"):
    header, size = safetensors_header(tensors, metadata)
    return header + (fill * size)[:size]


def safetensors_sparse(tensors, metadata=None, pad_to=0):
    """A file of any size for the stand-in; its declared sha256 is made up."""
    header, size = safetensors_header(tensors, metadata, pad_to)
    return Sparse(len(header) + size, header=header)


def gguf_string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_header(tensors, architecture="llama", strings=None, vocabulary=0):
    """(header bytes, size of the data) for {name: shape} of F32 tensors."""
    values = {"general.architecture": architecture, **(strings or {})}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values) + bool(vocabulary))
    for key, value in values.items():
        out += gguf_string(key) + struct.pack("<I", 8) + gguf_string(value)
    if vocabulary:
        out += gguf_string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, vocabulary)
        out += b"".join(gguf_string(f"token-{i:08d}") for i in range(vocabulary))
    offset = 0
    for name, shape in tensors.items():
        out += gguf_string(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", n) for n in shape) + struct.pack("<IQ", 0, offset)
        size = 4
        for n in shape:
            size *= n
        offset += size + -size % 32
    return out + b"\0" * (-len(out) % 32), offset


def gguf_file(tensors, fill=b"\0", **settings):
    header, size = gguf_header(tensors, **settings)
    return header + (fill * size)[:size]


def gguf_sparse(tensors, **settings):
    header, size = gguf_header(tensors, **settings)
    return Sparse(len(header) + size, header=header)


__all__ = ["EndToEnd", "MANIFEST_TYPE", "Sparse", "StandInHub", "Weighbridge", "binary",
           "git_blob_id", "gguf_file", "gguf_sparse", "paths_of", "safetensors_file",
           "safetensors_header", "safetensors_sparse", "sha256"]
