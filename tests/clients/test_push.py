#!/usr/bin/env python3
"""oras, crane, skopeo and regctl push, copy, list and delete, and pull again what they pushed."""

import hashlib
import json
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import (  # noqa: E402
    INDEX_TYPE, ClientCase, Layout, random_bytes, sha256_of, tarball, tree)

WEIGHTS_TYPE = "application/vnd.cncf.model.weight.v1.raw"
CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
MODEL_TYPE = "application/vnd.cncf.model.manifest.v1+json"
DOC_TYPE = "application/vnd.cncf.model.doc.v1.raw"
SBOM_TYPE = "application/spdx+json"
SIGNATURE_TYPE = "application/vnd.dev.cosign.artifact.sig.v1+json"
PAYLOAD_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
DOCKER_TYPE = "application/vnd.docker.distribution.manifest.v2+json"

MODEL = {"model.safetensors": random_bytes(5_000_000, "weights"), "README.md": b"# Tiny\n",
         "tokenizer/vocab.json": b'{"a": 0}'}
SBOM = json.dumps({"spdxVersion": "SPDX-2.3", "name": "tiny"}).encode()


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def signature_of(digest, name):
    """What cosign signs."""
    return json.dumps({"critical": {"identity": {"docker-reference": name},
                                    "image": {"docker-manifest-digest": digest},
                                    "type": "cosign container image signature"},
                       "optional": {}}).encode()


class OrasCase(ClientCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = cls.tool("oras")

    def oras(self, *arguments, cwd=None):
        return self.run_client(self.program, *arguments, cwd=cwd).decode()

    def push_model(self, ref):
        """Pushes the files of a model; returns the manifest's digest."""
        folder = self.write(self.folder("model"), MODEL)
        Path(folder, "config.json").write_text('{"descriptor": {"name": "tiny"}}')
        # Without a time of its own it writes the time of day, and each push is another manifest.
        self.oras("push", "--plain-http", ref, "--artifact-type", MODEL_TYPE,
                  "--annotation", "org.opencontainers.image.created=2026-01-01T00:00:00Z",
                  "--config", f"config.json:{CONFIG_TYPE}",
                  *(f"{path}:{WEIGHTS_TYPE if 'model' in path else DOC_TYPE}" for path in MODEL),
                  cwd=folder)
        return self.oras("resolve", "--plain-http", ref).strip()

    def attach(self, ref, artifact_type, name, media_type, data):
        """Attaches one file; returns the digest of the manifest that holds it."""
        folder = self.write(self.folder("attached"), {name: data})
        said = self.oras("attach", "--plain-http", "--format", "json", "--artifact-type",
                         artifact_type, ref, f"{name}:{media_type}", cwd=folder)
        return json.loads(said)["digest"]

    def attach_both(self, ref, digest):
        """{artifact type: digest} of an SBOM and a signature."""
        return {
            SBOM_TYPE: self.attach(ref, SBOM_TYPE, "sbom.spdx.json", SBOM_TYPE, SBOM),
            SIGNATURE_TYPE: self.attach(ref, SIGNATURE_TYPE, "signature.json", PAYLOAD_TYPE,
                                        signature_of(digest, ref)),
        }

    def discover(self, ref, *options):
        said = json.loads(self.oras("discover", "--plain-http", "--format", "json",
                                    *options, ref))
        return {each["artifactType"]: each["digest"] for each in said.get("referrers") or []}

    def check_model(self, ref):
        to = self.folder("pulled")
        self.oras("pull", "--plain-http", ref, "-o", to)
        self.assertEqual(tree(to), {path: sha256(data) for path, data in MODEL.items()})

    def check_attached(self, ref, attached):
        """The SBOM and the signature are found, and hold what was attached."""
        name = ref.rpartition(":")[0]
        self.assertEqual(self.discover(ref), attached)
        for artifact_type, digest in attached.items():
            self.assertEqual(self.discover(ref, "--artifact-type", artifact_type),
                             {artifact_type: digest})
        to = self.folder("attached")
        self.oras("pull", "--plain-http", f"{name}@{attached[SBOM_TYPE]}", "-o", to)
        self.assertEqual(tree(to), {"sbom.spdx.json": sha256(SBOM)})


class Oras(OrasCase):
    def test_push_and_pull(self):
        wb = self.make_weighbridge()
        ref = f"{wb.host}/team/tiny:v1"
        digest = self.push_model(ref)
        self.check_model(ref)
        self.check_model(f"{wb.host}/team/tiny@{digest}")
        manifest = json.loads(self.oras("manifest", "fetch", "--plain-http", ref))
        self.assertEqual(manifest["artifactType"], MODEL_TYPE)
        self.assertEqual({layer["digest"] for layer in manifest["layers"]},
                         {sha256(data) for data in MODEL.values()})
        wb.kill()
        wb.start()
        self.check_model(f"{wb.host}/team/tiny:v1")

    def test_signatures_and_boms_travel_with_the_model(self):
        wb, other = self.make_weighbridge(), self.make_weighbridge()
        ref = f"{wb.host}/team/tiny:v1"
        digest = self.push_model(ref)
        self.assertEqual(self.discover(ref), {})
        attached = self.attach_both(ref, digest)
        self.check_attached(ref, attached)
        for to in (f"{wb.host}/prod/tiny:v1", f"{other.host}/prod/tiny:v1"):
            self.oras("cp", "-r", "--from-plain-http", "--to-plain-http", ref, to)
            self.assertEqual(self.oras("resolve", "--plain-http", to).strip(), digest)
            self.check_model(to)
            self.check_attached(to, attached)
        # One signature less is seen at once, and elsewhere stays.
        self.oras("manifest", "delete", "--plain-http", "--force",
                  f"{wb.host}/team/tiny@{attached[SIGNATURE_TYPE]}")
        self.assertEqual(self.discover(ref), {SBOM_TYPE: attached[SBOM_TYPE]})
        self.check_attached(f"{wb.host}/prod/tiny:v1", attached)

    def test_backup_and_restore_with_all_that_is_attached(self):
        wb, other = self.make_weighbridge(), self.make_weighbridge()
        ref, to = f"{wb.host}/team/tiny:v1", f"{other.host}/back/tiny"
        attached = self.attach_both(ref, self.push_model(ref))
        archive = os.path.join(self.folder("backup"), "tiny.tar")
        self.oras("backup", "--plain-http", "--include-referrers", "-o", archive, ref)
        self.oras("restore", "--plain-http", "--input", archive, f"{to}:v1")
        self.check_model(f"{to}:v1")
        self.check_attached(f"{to}:v1", attached)

    def test_a_client_that_does_not_trust_the_api(self):
        """It keeps its own list of what it attached, under a tag made of the digest."""
        wb = self.make_weighbridge()
        ref = f"{wb.host}/team/tiny:v1"
        digest = self.push_model(ref)
        old = ("--distribution-spec", "v1.1-referrers-tag")
        folder = self.write(self.folder("attached"), {"sbom.spdx.json": SBOM})
        said = json.loads(self.oras(
            "attach", "--plain-http", *old, "--format", "json", "--artifact-type", SBOM_TYPE, ref,
            f"sbom.spdx.json:{SBOM_TYPE}", cwd=folder))
        self.assertIn(digest.replace(":", "-"),
                      self.oras("repo", "tags", "--plain-http", ref.rpartition(":")[0]).split())
        self.check_attached(ref, {SBOM_TYPE: said["digest"]})
        self.assertEqual(self.discover(ref, *old), {SBOM_TYPE: said["digest"]})

    def test_tags_that_may_not_move(self):
        wb = self.make_weighbridge(config={"immutable_tags": [{"repositories": "team/*",
                                                               "tags": "v*"}]})
        ref = f"{wb.host}/team/tiny:v1"
        digest = self.push_model(ref)
        folder = self.write(self.folder("other"), {"README.md": b"# Other\n"})
        said = self.run_refused(self.program, "push", "--plain-http", ref, "README.md", cwd=folder)
        self.assertIn("immutable_tags", said)
        for what in (ref, f"{wb.host}/team/tiny@{digest}"):
            self.assertIn("immutable_tags", self.run_refused(
                self.program, "manifest", "delete", "--plain-http", "--force", what))
        self.assertEqual(self.push_model(ref), digest, "the same again is no move")
        self.oras("push", "--plain-http", f"{wb.host}/team/tiny:latest", "README.md", cwd=folder)
        self.check_model(ref)

    def test_parts_one_by_one(self):
        wb = self.make_weighbridge()
        name = f"{wb.host}/team/parts"
        data = random_bytes(100_000, "a part")
        path = os.path.join(self.write(self.folder("part"), {"part": data}), "part")
        self.oras("blob", "push", "--plain-http", f"{name}@{sha256(data)}", path)
        self.oras("blob", "push", "--plain-http", name,
                  os.path.join(self.write(self.folder("empty"), {"{}": b"{}"}), "{}"))
        got = os.path.join(self.folder("got"), "blob")
        self.oras("blob", "fetch", "--plain-http", "-o", got, f"{name}@{sha256(data)}")
        self.assertEqual(sha256_of(got), sha256(data))
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.example",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
                       "digest": sha256(b"{}")},
            "layers": [{"mediaType": "application/octet-stream", "size": len(data),
                        "digest": sha256(data)}]}).encode()
        path = os.path.join(self.write(self.folder("manifest"), {"m": manifest}), "m")
        self.oras("manifest", "push", "--plain-http", f"{name}:one,two", path)
        self.oras("tag", "--plain-http", f"{name}:one", "three")
        self.assertEqual(self.oras("repo", "tags", "--plain-http", name).split(),
                         ["one", "three", "two"])
        self.assertIn("team/parts", self.oras("repo", "ls", "--plain-http", wb.host).split())
        for tag in ("one", "two", "three"):
            self.assertEqual(self.oras("manifest", "fetch", "--plain-http", f"{name}:{tag}")
                             .encode(), manifest)
        self.oras("manifest", "delete", "--plain-http", "--force", f"{name}:two")
        self.assertIn("not found", self.run_refused(
            self.program, "resolve", "--plain-http", f"{name}@{sha256(manifest)}"))
        self.oras("blob", "delete", "--plain-http", "--force", f"{name}@{sha256(data)}")
        self.assertIn("not found", self.run_refused(
            self.program, "blob", "fetch", "--plain-http", "-o", got, f"{name}@{sha256(data)}"))

    def test_what_is_not_all_there_is_refused(self):
        wb = self.make_weighbridge()
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 2,
                "digest": sha256(b"never pushed")}]}).encode()
        path = os.path.join(self.write(self.folder("manifest"), {"m": manifest}), "m")
        said = self.run_refused(self.program, "manifest", "push", "--plain-http",
                                f"{wb.host}/team/sparse:v1", path)
        self.assertIn(sha256(b"never pushed"), said)


class ImportedModel(OrasCase):
    """Models of the Hub's can be signed, and nothing else be pushed to their names."""

    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Tiny", {"config.json": b'{"model_type": "llama"}',
                                       "README.md": b"# Tiny\n"})
        self.wb = self.make_weighbridge(self.hub.url)
        self.ref = f"{self.wb.host}/hf/org/tiny:main"

    def test_signature_and_bom(self):
        digest = self.oras("resolve", "--plain-http", self.ref).strip()
        self.assertEqual(self.discover(self.ref), {})
        attached = self.attach_both(self.ref, digest)
        self.check_attached(self.ref, attached)
        self.assertEqual(self.oras("resolve", "--plain-http", self.ref).strip(), digest)
        # They go along to a local name, and stay when the Hub is away.
        local = f"{self.wb.host}/team/tiny:v1"
        self.oras("cp", "-r", "--from-plain-http", "--to-plain-http", self.ref, local)
        self.hub.stop()
        self.check_attached(self.ref, attached)
        self.check_attached(local, attached)
        self.oras("pull", "--plain-http", local, "-o", self.folder("local"))

    def test_other_pushes_are_refused(self):
        folder = self.write(self.folder("other"), {"README.md": b"# Mine\n"})
        for tag in ("main", "mine"):
            said = self.run_refused(self.program, "push", "--plain-http",
                                    f"{self.wb.host}/hf/org/tiny:{tag}", "README.md", cwd=folder)
            self.assertRegex(said, r"(?i)denied")
            self.assertIn("local/org/tiny", said, "no name is offered that it could have instead")
        to = self.folder("pulled")
        self.oras("pull", "--plain-http", self.ref, "-o", to)
        self.assertEqual(Path(to, "README.md").read_bytes(), b"# Tiny\n")


class Crane(ClientCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = cls.tool("crane")

    def crane(self, *arguments, cwd=None):
        return self.run_client(self.program, "--insecure", *arguments, cwd=cwd).decode()

    def exported(self, ref, *options):
        """{path: sha256} of an image's file system."""
        to = self.folder("exported")
        path = os.path.join(to, "fs.tar")
        self.crane(*options, "export", ref, path)
        files = os.path.join(to, "fs")
        os.mkdir(files)
        self.run_client("tar", "-xf", path, "-C", files)
        return tree(files)

    def test_images_and_their_layers(self):
        wb = self.make_weighbridge()
        one = {"weights": random_bytes(3_000_000, "one"), "etc/name": b"one\n"}
        two = {"more": random_bytes(1_000_000, "two")}
        folder = self.write(self.folder("layers"), {"one.tar": tarball(one),
                                                    "two.tar": tarball(two)})
        name = f"{wb.host}/team/image"
        self.crane("append", "-f", "one.tar", "-t", f"{name}:made", "-o", "image.tar", cwd=folder)
        self.crane("push", "image.tar", f"{name}:v1", cwd=folder)
        self.assertEqual(self.exported(f"{name}:v1"), {p: sha256(d) for p, d in one.items()})
        self.crane("append", "-b", f"{name}:v1", "-f", "two.tar", "-t", f"{name}:v2", cwd=folder)
        both = {p: sha256(d) for p, d in {**one, **two}.items()}
        self.assertEqual(self.exported(f"{name}:v2"), both)
        self.crane("validate", "--remote", f"{name}:v2")
        self.crane("tag", f"{name}:v2", "newest")
        digest = self.crane("digest", f"{name}:newest").strip()
        self.assertEqual(self.crane("ls", name).split(), ["newest", "v1", "v2"])
        copy = f"{wb.host}/prod/image"
        self.crane("copy", "--all-tags", name, copy)
        self.assertEqual(self.crane("digest", f"{copy}:v2").strip(), digest)
        self.assertEqual(self.exported(f"{copy}@{digest}"), both)
        self.assertEqual(self.crane("catalog", wb.host).split(), ["prod/image", "team/image"])
        self.crane("pull", f"{name}:v1", os.path.join(folder, "pulled.tar"))
        self.crane("validate", "--tarball", os.path.join(folder, "pulled.tar"))
        self.crane("delete", f"{name}@{digest}")
        self.assertEqual(self.crane("ls", name).split(), ["v1"])
        self.assertIn("MANIFEST_UNKNOWN", self.run_refused(
            self.program, "--insecure", "pull", f"{name}:v2", os.path.join(folder, "no.tar")))
        self.assertEqual(self.exported(f"{copy}:v2"), both)

    def test_deletion_denied(self):
        wb = self.make_weighbridge(config={"delete": "deny"})
        folder = self.write(self.folder("layers"), {"one.tar": tarball({"one": b"1"})})
        ref = f"{wb.host}/team/image:v1"
        self.crane("append", "-f", "one.tar", "-t", ref, cwd=folder)
        said = self.run_refused(self.program, "--insecure", "delete", ref)
        self.assertIn("UNSUPPORTED", said)
        self.assertEqual(self.exported(ref), {"one": sha256(b"1")})

    def test_layout_of_several_platforms(self):
        wb = self.make_weighbridge()
        layout = Layout(self.folder("layout"))
        for architecture in ("amd64", "arm64"):
            layout.tag(layout.image({"arch": architecture.encode()}, architecture), architecture)
        ref = f"{wb.host}/team/platforms:v1"
        self.crane("push", "--index", layout.folder, ref)
        for architecture in ("amd64", "arm64"):
            self.assertEqual(self.exported(ref, "--platform", f"linux/{architecture}"),
                             {"arch": sha256(architecture.encode())})
        to = self.folder("pulled")
        self.crane("pull", "--format", "oci", ref, to)
        self.assertLess(layout.blobs(), {p.name for p in Path(to, "blobs", "sha256").iterdir()})


class Skopeo(ClientCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = cls.tool("skopeo")

    def setUp(self):
        self.wb = self.make_weighbridge()
        self.layout = Layout(self.folder("layout"))
        self.digest = self.layout.tag(self.layout.index([
            self.layout.image({"weights": random_bytes(2_000_000, "skopeo"), "arch": b"amd64"}),
            self.layout.image({"arch": b"arm64"}, "arm64")]), "v1")
        self.name = f"docker://{self.wb.host}/team/image"

    def skopeo(self, *arguments):
        return self.run_client(self.program, "--insecure-policy", *arguments).decode()

    def copy(self, source, target, *options):
        self.skopeo("copy", "--src-tls-verify=false", "--dest-tls-verify=false", *options, source,
                    target)

    def inspect(self, ref):
        return json.loads(self.skopeo("inspect", "--tls-verify=false", ref))

    def push(self, tag):
        self.copy(f"oci:{self.layout.folder}:v1", f"{self.name}:{tag}", "--all")

    def test_copy_there_and_back(self):
        self.push("v1")
        self.assertEqual(self.inspect(f"{self.name}:v1")["Digest"], self.digest)
        to = self.folder("dir")
        self.copy(f"{self.name}:v1", f"dir:{to}", "--all")
        self.assertEqual(sha256_of(os.path.join(to, "manifest.json")), self.digest)
        files = {sha256_of(p).split(":")[1] for p in Path(to).iterdir()}
        self.assertEqual(self.layout.blobs() - files, set())
        # From one of its repositories to another, and from the folder to a third.
        self.copy(f"{self.name}:v1", f"docker://{self.wb.host}/prod/image:v1", "--all")
        self.copy(f"dir:{to}", f"docker://{self.wb.host}/third/image@{self.digest}", "--all",
                  "--preserve-digests")
        for ref in (f"docker://{self.wb.host}/prod/image:v1",
                    f"docker://{self.wb.host}/third/image@{self.digest}"):
            self.assertEqual(self.inspect(ref)["Digest"], self.digest)

    def test_docker_format(self):
        ref = f"docker://{self.wb.host}/team/docker:v1"
        self.copy(f"oci:{self.layout.folder}:v1", ref, "--format", "v2s2")
        raw = json.loads(self.skopeo("inspect", "--raw", "--tls-verify=false", ref))
        self.assertEqual(raw["mediaType"], DOCKER_TYPE)
        self.copy(ref, f"dir:{self.folder('dir')}")

    def test_tags_and_deletion(self):
        for tag in ("v1", "v2"):
            self.push(tag)
        listed = json.loads(self.skopeo("list-tags", "--tls-verify=false", self.name))
        self.assertEqual(listed["Tags"], ["v1", "v2"])
        self.skopeo("delete", "--tls-verify=false", f"{self.name}:v1")  # the manifest itself
        for tag in ("v1", "v2"):
            self.assertIn("manifest unknown", self.run_refused(
                self.program, "inspect", "--tls-verify=false", f"{self.name}:{tag}"))

    def test_sync(self):
        for tag in ("v1", "v2"):
            self.push(tag)
        to = self.folder("synced")
        self.skopeo("sync", "--all", "--src-tls-verify=false", "--src", "docker", "--dest", "dir",
                    self.name.removeprefix("docker://"), to)
        self.assertEqual(sorted(os.listdir(to)), ["image:v1", "image:v2"])
        other = self.make_weighbridge()
        self.skopeo("sync", "--all", "--dest-tls-verify=false", "--src", "dir", "--dest", "docker",
                    to, f"{other.host}/mirror")
        self.assertEqual(self.inspect(f"docker://{other.host}/mirror/image:v2")["Digest"],
                         self.digest)


class Regctl(ClientCase):
    """The client that uses most of the API: chunks, sha512, tags with a push by digest."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.program = cls.tool("regctl")

    def setUp(self):
        self.wb = self.make_weighbridge()
        self.name = f"{self.wb.host}/team/image"
        self.layout = Layout(self.folder("layout"))
        self.digest = self.layout.tag(self.layout.index([
            self.layout.image({"weights": random_bytes(1_000_000, "regctl")}),
            self.layout.image({"arch": b"arm64"}, "arm64")]), "v1")

    def regctl(self, *arguments):
        return self.run_client(self.program, *arguments).decode().strip()

    def push(self, *settings):
        self.regctl("registry", "set", self.wb.host, "--tls", "disabled", *settings)
        self.regctl("image", "copy", f"ocidir://{self.layout.folder}:v1", f"{self.name}:v1")
        self.assertEqual(self.regctl("image", "digest", f"{self.name}:v1"), self.digest)

    def test_blobs_in_chunks(self):
        self.push("--blob-max", "100000", "--blob-chunk", "150000")
        self.until("the log to tell of the chunks", lambda: len(self.wb.log_lines(
            method="PATCH", received=150_000)) >= 6)
        back = self.folder("back")
        self.regctl("image", "copy", f"{self.name}:v1", f"ocidir://{back}:v1")
        self.assertEqual(tree(os.path.join(back, "blobs")),
                         tree(os.path.join(self.layout.folder, "blobs")))

    def test_sha512(self):
        self.push("--blob-chunk", "1000000")
        self.regctl("image", "mod", f"{self.name}:v1", "--digest-algo", "sha512", "--create",
                    "long")
        digest = self.regctl("manifest", "head", f"{self.name}:long")
        self.assertRegex(digest, "^sha512:[0-9a-f]{128}$")
        sbom = os.path.join(self.write(self.folder("sbom"), {"sbom.json": SBOM}), "sbom.json")
        self.regctl("artifact", "put", "--artifact-type", SBOM_TYPE, "--subject",
                    f"{self.name}:long", "-f", sbom)
        to = f"{self.wb.host}/prod/image"
        self.regctl("image", "copy", "--referrers", f"{self.name}:long", f"{to}:long")
        self.assertEqual(self.regctl("manifest", "head", f"{to}:long"), digest)
        self.assertIn(SBOM_TYPE, self.regctl("artifact", "list", f"{to}@{digest}"))
        back = self.folder("back")
        self.regctl("image", "copy", f"{to}:long", f"ocidir://{back}:long")
        blobs = list(Path(back, "blobs", "sha512").iterdir())
        self.assertEqual(len(blobs), len(self.layout.blobs()))
        for path in blobs:
            self.assertEqual(hashlib.sha512(path.read_bytes()).hexdigest(), path.name)

    def test_one_tag_of_several_is_removed(self):
        self.push("--blob-chunk", "1000000")
        self.regctl("image", "copy", f"{self.name}:v1", f"{self.name}:v2")
        self.regctl("tag", "rm", f"{self.name}:v1")
        self.assertEqual(self.regctl("tag", "ls", self.name).split(), ["v2"])
        self.assertEqual(self.regctl("image", "digest", f"{self.name}:v2"), self.digest)
        self.assertEqual(self.regctl("repo", "ls", self.wb.host).split(), ["team/image"])


if __name__ == "__main__":
    unittest.main()
