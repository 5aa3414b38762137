#!/usr/bin/env python3
"""The files in docs/kubernetes/: that they are what Kubernetes would read, agree with each other, and
that the configuration and the commands in them work against a real server."""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path
from urllib.parse import urlsplit

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import ROOT, EndToEnd, binary, safetensors_file  # noqa: E402

FOLDER = Path(ROOT, "docs", "kubernetes")
FILES = sorted(FOLDER.glob("*.yaml"))
COMMIT = re.compile(r"[0-9a-f]{40}")


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def of_kind(name, kind):
    found = [d for d in documents(name) if d["kind"] == kind]
    assert len(found) == 1, f"{name}: {len(found)} of kind {kind}"
    return found[0]


def containers(name):
    """Every container of a file, wherever it stands."""
    def walk(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key in ("containers", "initContainers"):
                    yield from value
                elif key in ("container", "model") and isinstance(value, dict):
                    yield value
                yield from walk(value)
        elif isinstance(node, list):
            for value in node:
                yield from walk(value)
    return [c for d in documents(name) for c in walk(d)]


class Files(EndToEnd):
    def test_every_file_is_in_the_table_and_has_objects(self):
        table = (FOLDER / "README.md").read_text()
        self.assertTrue(FILES)
        for path in FILES:
            self.assertIn(f"]({path.name})", table)
            for document in documents(path.name):
                self.assertLessEqual({"apiVersion", "kind", "metadata"}, set(document), path.name)

    def service(self):
        service = of_kind("weighbridge.yaml", "Service")
        name, space = service["metadata"]["name"], service["metadata"]["namespace"]
        return f"{name}.{space}.svc.cluster.local", service["spec"]["ports"][0]["port"]

    def test_everybody_asks_the_service(self):
        host, port = self.service()
        seen = 0
        for path in FILES:
            for container in containers(path.name):
                for variable in container.get("env", []):
                    if variable["name"] == "HF_ENDPOINT":
                        url = urlsplit(variable["value"])
                        self.assertEqual((url.hostname, url.port, url.path), (host, port, "/hf"))
                        seen += 1
                for word in container.get("args", []):
                    if "@sha256:" in word:
                        self.assertTrue(word.startswith(f"{host}:{port}/hf/"), word)
                        seen += 1
        self.assertEqual(seen, 4)

    def test_the_policy_lets_nothing_else_out(self):
        host, port = self.service()
        server = of_kind("weighbridge.yaml", "StatefulSet")["spec"]["template"]["metadata"]["labels"]
        policy = next(d for d in documents("network-policy.yaml")
                      if d["metadata"]["namespace"] == "models")["spec"]
        self.assertEqual((policy["podSelector"], policy["policyTypes"]), ({}, ["Egress"]))
        to_server, to_dns = policy["egress"]
        self.assertEqual(to_server["to"][0]["podSelector"]["matchLabels"], server)
        self.assertIn(to_server["to"][0]["namespaceSelector"]["matchLabels"]
                      ["kubernetes.io/metadata.name"], host)
        self.assertEqual(to_server["ports"], [{"protocol": "TCP", "port": port}])
        self.assertEqual({p["port"] for p in to_dns["ports"]}, {53})

    def test_pods_ask_for_commits_and_digests(self):
        for name in ("vllm-hf-endpoint.yaml", "kserve.yaml"):
            self.assertTrue(COMMIT.search((FOLDER / name).read_text()), name)
        volume = documents("vllm-image-volume.yaml")[0]["spec"]["template"]["spec"]["volumes"][0]
        self.assertRegex(volume["image"]["reference"], r"@sha256:[0-9a-f]{64}$")


class Configured(EndToEnd):
    """The server with the ConfigMap's own text; only addresses and files are the test's."""

    def setUp(self):
        self.hub = self.make_hub(xet=True)
        self.repo = self.hub.add_repo("Qwen/Qwen3-8B", {
            "config.json": b'{"model_type": "qwen3"}', "model.bin": b"\x80\x02." * 9,
            "model.safetensors": safetensors_file({"w": ("F32", [2, 2])})})
        self.hub.add_repo("Other/Model", {"config.json": b"{}"})
        self.commit = self.repo.branches["main"]

    def serve(self):
        text = of_kind("weighbridge.yaml", "ConfigMap")["data"]["weighbridge.json"]
        checked = subprocess.run([binary(), "config", "show", "--config", "/dev/stdin"],
                                 input=text.replace("/secrets/hf-token", "none"), text=True,
                                 capture_output=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        config = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
        del config["listen"], config["data"], config["external_url"]
        config["upstreams"][0].update(url=self.hub.url, token_file="none", negative_ttl="0s")
        return self.make_weighbridge(config=config)

    def test_what_the_pods_ask_for(self):
        wb = self.serve()
        model = "/hf/Qwen/Qwen3-8B"
        status, headers, body = wb.get(f"{model}/resolve/{self.commit}/config.json")
        self.assertEqual((status, body), (200, b'{"model_type": "qwen3"}'))
        self.assertEqual(headers["X-Repo-Commit"], self.commit)
        self.assertEqual(wb.get(f"/hf/api/models/Qwen/Qwen3-8B/revision/{self.commit}")[0], 200)
        status, _, manifest = wb.manifest("hf/qwen/qwen3-8b", self.commit)
        self.assertEqual(status, 200, manifest)

    def test_what_the_operator_asks(self):
        """The commands of README.md."""
        wb = self.serve()
        done = subprocess.run([binary(), "warm", "--server", wb.url,
                               f"hf/qwen/qwen3-8b:{self.commit}"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        asked = len(self.hub.requests())
        status, digest, _ = wb.manifest("hf/qwen/qwen3-8b", self.commit)
        self.assertEqual((status, digest in done.stdout), (200, True), done.stdout)
        path = f"/hf/Qwen/Qwen3-8B/resolve/{self.commit}/model.safetensors"
        self.assertEqual(wb.get(path)[0], 200)
        self.assertEqual(len(self.hub.requests()), asked)

    def test_what_they_must_not_have(self):
        wb = self.serve()
        for path, words in ((f"/hf/Qwen/Qwen3-8B/resolve/main/config.json", "commit"),
                            (f"/hf/Qwen/Qwen3-8B/resolve/{self.commit}/model.bin", "safetensors"),
                            ("/hf/Other/Model/resolve/main/config.json", "policies[2]")):
            with self.subTest(path):
                status, headers, _ = wb.get(path)
                self.assertEqual(status, 403)
                self.assertIn(words, headers["X-Error-Message"])
        status, _, document = wb.manifest("hf/other/model", "main")
        self.assertEqual(status, 403, document)
        self.assertEqual(self.hub.count("hub", repo="Other/Model"), 0)


if __name__ == "__main__":
    unittest.main()
