#!/usr/bin/env python3
"""ollama itself pulls a model through the server from a registry like its own, and pushes one.

What its pull asks for, in which order, is replayed request by request in tests/e2e/test_ollama.py;
here it is seen that the real thing does so."""

import json
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import ClientCase, Daemon, sha256_of  # noqa: E402
from registries import answers, free_port  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "registry"))

from registry import Noise, StandInRegistry  # noqa: E402

DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
SIZE = 210_000_000  # it cuts at 100 MB: three parts, asked for at once
WEIGHTS = Noise(SIZE, "an ollama model")
CONFIG = b'{"model_format":"gguf","model_family":"llama"}'
TEMPLATE = b"{{ .Prompt }}"


class Ollama(ClientCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = cls.tool("ollama")
        cls.port = free_port()
        daemon = Daemon([cls.program, "serve"], os.path.join(cls.scratch, "ollama.log"),
                        cls.environment(), lambda: answers(cls.port))
        cls.addClassCleanup(daemon.stop)

    @classmethod
    def environment(cls):
        return {**super().environment(), "OLLAMA_MODELS": os.path.join(cls.scratch, "models"),
                "OLLAMA_HOST": f"127.0.0.1:{getattr(cls, 'port', 0)}", "OLLAMA_NOPRUNE": "1"}

    def setUp(self):
        self.registry = StandInRegistry(ping=404)  # as registry.ollama.ai
        for name in ("library/tiny", "team/tiny"):
            repo = self.registry.add_repo(name)
            layers = [repo.add_blob(data) for data in (WEIGHTS, TEMPLATE)]
            config = repo.add_blob(CONFIG)
            self.digests = [config["digest"], *(layer["digest"] for layer in layers)]
            kinds = ("application/vnd.ollama.image.model", "application/vnd.ollama.image.template")
            repo.add_manifest(json.dumps({
                "schemaVersion": 2, "mediaType": DOCKER,
                "config": {"mediaType": "application/vnd.docker.container.image.v1+json",
                           "digest": config["digest"], "size": len(CONFIG)},
                "layers": [{"mediaType": kind, "digest": layer["digest"], "size": layer["size"]}
                           for kind, layer in zip(kinds, layers)]}).encode(), DOCKER, tag="latest")
        self.registry.start()
        self.addCleanup(self.registry.stop)
        self.wb = self.make_weighbridge(config={
            "default_upstream": "ollama",
            "upstreams": [{"prefix": "ollama", "kind": "oci", "url": self.registry.url,
                           "single_names": "library"}]})

    def ollama(self, *arguments):
        return self.run_client(self.program, *arguments)

    def pull(self, name):
        """It checks the digests itself, and so do we."""
        self.ollama("pull", "--insecure", f"{self.wb.host}/{name}")
        for digest in self.digests:
            path = Path(self.scratch, "models", "blobs", digest.replace(":", "-"))
            self.assertEqual(sha256_of(path), digest)

    def remove(self, *names):
        self.ollama("rm", *(f"{self.wb.host}/{name}" for name in names))
        self.assertEqual(os.listdir(os.path.join(self.scratch, "models", "blobs")), [])

    def test_pull_through(self):
        for name in ("ollama/tiny", "team/tiny"):
            self.pull(name)
            self.remove(name)
        sent = self.registry.bytes_sent("registry", kind="blob")
        self.assertGreaterEqual(sent, SIZE)
        # What was on its way in a connection that met another's part is thrown away: that is as
        # much as the kernel's buffers hold.
        self.assertLess(sent, 1.5 * SIZE, "once, for both")
        self.until("the log to tell of the parts that it asks for", lambda: len(
            self.wb.log_lines(event="request", digest=self.digests[1], status=206)) >= 3)
        self.registry.stop()
        for name in ("ollama/tiny", "team/tiny"):
            self.pull(name)
            self.remove(name)

    def test_push_and_pull(self):
        self.pull("ollama/tiny")
        self.ollama("cp", f"{self.wb.host}/ollama/tiny", f"{self.wb.host}/mine/tiny")
        self.ollama("push", "--insecure", f"{self.wb.host}/mine/tiny")
        self.remove("ollama/tiny", "mine/tiny")
        self.registry.stop()
        self.pull("mine/tiny")
        self.remove("mine/tiny")


if __name__ == "__main__":
    unittest.main()
