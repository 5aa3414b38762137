#!/usr/bin/env python3
"""Clients pull through the server from another registry, Debian's docker-registry, as the files in
docs/clients/ set them up: only addresses are put in. Then that registry is stopped, and what was
pulled is pulled again, by tag and by digest."""

import hashlib
import json
import os
import shutil
import socket
import sys
import tarfile
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import (IMAGE_TYPE, LAYER_TYPE, Daemon, Layout, random_bytes,  # noqa: E402
                         sha256_of)
from harness import ROOT, Weighbridge  # noqa: E402
from test_containers import ContainerCase  # noqa: E402

DOCUMENTED = Path(ROOT, "docs", "clients")
SERVER = "127.0.0.1:5000"  # in the files
NOWHERE = "http://127.0.0.1:9"  # clients that do not get it from us must not get it elsewhere
OFFICIAL, MODEL = "library/alpine", "example/model"
FILES = {"weights": random_bytes(3_000_000, "mirrored"), "etc/name": b"mirrored\n"}
REGISTRY = """version: 0.1
log:
  level: error
storage:
  filesystem:
    rootdirectory: {folder}
http:
  addr: 127.0.0.1:{port}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class MirrorCase(ContainerCase):
    """A registry with an official image and a model in it, and the server before it: for each test
    anew, so that none meets what another has left."""

    @classmethod
    def environment(cls):
        proxies = {name: NOWHERE for name in ("HTTP_PROXY", "HTTPS_PROXY")}
        return {**super().environment(), **proxies, "NO_PROXY": "127.0.0.1,localhost"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.registry_program = cls.tool("docker-registry")
        cls.port = free_port()
        folder = os.path.join(cls.scratch, "registry")
        cls.registry_config = os.path.join(cls.scratch, "registry.yml")
        Path(cls.registry_config).write_text(REGISTRY.format(folder=folder, port=cls.port))
        cls.start_registry()
        cls.addClassCleanup(lambda: cls.registry.stop())
        cls.wb = cls.start_weighbridge()
        cls.addClassCleanup(cls.check_weighbridge)

    @classmethod
    def start_registry(cls):
        cls.registry = Daemon([cls.registry_program, "serve", cls.registry_config],
                              os.path.join(cls.scratch, "registry.log"), cls.environment(),
                              lambda: answers(cls.port))

    @classmethod
    def start_weighbridge(cls):
        config = json.loads((DOCUMENTED / "weighbridge.json").read_text())
        for upstream in config["upstreams"]:
            if upstream.get("kind") == "oci":
                upstream["url"] = f"http://127.0.0.1:{cls.port}"
            if upstream["prefix"] == "docker.io":
                upstream["single_names"] = "library"  # as it is by itself for Docker Hub's URL
        try:
            return Weighbridge(config=config)
        except RuntimeError as error:
            if "serves no upstreams of the kind" in str(error):
                raise unittest.SkipTest("this build serves no upstreams of the kind oci") from error
            raise

    @classmethod
    def check_weighbridge(cls):
        code, log = cls.wb.stop(), cls.wb.log
        cls.wb.clean()
        if code != 0 or "Sanitizer" in log:
            raise AssertionError(f"the server ended with {code}; its log:\n{log[-20000:]}")

    @classmethod
    def documented(cls, name, to):
        """Puts a file of docs/clients/ in its place, with this server's address in it."""
        os.makedirs(os.path.dirname(to), exist_ok=True)
        text = (DOCUMENTED / name).read_text()
        assert SERVER in text, name
        Path(to).write_text(text.replace(SERVER, cls.wb.host))
        return to

    def setUp(self):
        """Fills the registry, under names that this test alone uses by their tags."""
        layout = Layout(self.folder("layout"))
        self.image = layout.tag(layout.image(FILES), "v1")
        self.seed(layout, f"{OFFICIAL}:3.20")
        model = Layout(self.folder("layout"))
        config = model.add(b"{}", "application/vnd.oci.empty.v1+json")
        layer = model.add(FILES["weights"], LAYER_TYPE.replace("tar+gzip", "tar"), annotations={
            "org.opencontainers.image.title": "model.safetensors"})
        self.model = model.tag(model.add({
            "schemaVersion": 2, "mediaType": IMAGE_TYPE, "config": config, "layers": [layer]},
            IMAGE_TYPE), "v1")
        self.seed(model, f"{MODEL}:v1")
        self.addCleanup(self.revive)

    def seed(self, layout, name):
        self.run_client(self.tool("skopeo"), "--insecure-policy", "copy", "--quiet",
                        "--dest-tls-verify=false", f"oci:{layout.folder}:v1",
                        f"docker://127.0.0.1:{self.port}/{name}")

    def stop_registry(self):
        self.registry.stop()
        self.assertFalse(answers(self.port))

    def revive(self):
        if not answers(self.port):
            self.start_registry()

    def check_log(self, repository):
        """Each request was for the one name that the repository has here, and was answered."""
        lines = self.wb.log_lines(event="request", repo=repository, method="GET", status=200)
        self.assertNotEqual(lines, [], self.wb.log)


class Docker(MirrorCase):
    """A registry mirror gets the names of Docker Hub as they are there."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        socket_url = f"unix://{cls.scratch}/docker.sock"
        cls.program = [cls.tool("docker"), "-H", socket_url]
        config = cls.documented("docker/daemon.json", os.path.join(cls.scratch, "daemon.json"))
        cls.daemon([
            cls.tool("dockerd"), "--config-file", config, "--data-root", f"{cls.scratch}/root",
            "--exec-root", f"{cls.scratch}/exec", "--pidfile", f"{cls.scratch}/pid",
            "-H", socket_url, "--storage-driver", "vfs", "--bridge", "none", "--iptables=false",
            "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"],
            [*cls.program, "version"])

    def docker(self, *arguments):
        return self.run_client(*self.program, *arguments).decode()

    def pull(self, ref):
        self.docker("pull", "--quiet", ref)
        inspected = json.loads(self.docker("image", "inspect", ref))[0]
        self.assertEqual(inspected["RepoDigests"], [f"alpine@{self.image}"])
        self.docker("rmi", "-f", inspected["Id"])
        return inspected["RootFS"]["Layers"]

    def test_peer_bug_83_registry_mirror(self):
        layers = self.pull("alpine:3.20")
        self.check_log("docker.io/library/alpine")
        self.stop_registry()
        for ref in ("alpine:3.20", f"alpine@{self.image}", "docker.io/library/alpine:3.20"):
            self.assertEqual(self.pull(ref), layers)


class Containerd(MirrorCase):
    """Says in ?ns= which registry is meant."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        socket_path = f"{cls.scratch}/containerd.sock"
        config = os.path.join(cls.scratch, "config.toml")
        Path(config).write_text(f"""version = 2
root = "{cls.scratch}/root"
state = "{cls.scratch}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{socket_path}"
""")
        cls.hosts = os.path.join(cls.scratch, "certs.d")
        for name in ("docker.io", "_default"):
            cls.documented(f"containerd/certs.d/{name}/hosts.toml",
                           os.path.join(cls.hosts, name, "hosts.toml"))
        cls.program = [cls.tool("ctr"), "--address", socket_path]
        cls.daemon([cls.tool("containerd"), "--config", config], [*cls.program, "version"])

    def ctr(self, *arguments):
        return self.run_client(*self.program, *arguments).decode()

    def pull(self, ref, digest):
        self.ctr("images", "pull", "--hosts-dir", self.hosts, "--snapshotter", "native", ref)
        listed = {line.split()[0]: line.split()[2]
                  for line in self.ctr("images", "ls").splitlines()[1:]}
        self.assertEqual(listed, {ref: digest})
        self.ctr("images", "rm", "--sync", ref)

    def fetch(self, ref, digest):
        """Of what is no image: without unpacking it."""
        self.ctr("content", "fetch", "--hosts-dir", self.hosts, ref)
        self.assertIn(digest, self.ctr("content", "ls", "-q").split())
        self.ctr("images", "rm", "--sync", ref)

    def test_peer_bug_83_hosts_toml(self):
        steps = ((self.pull, "docker.io/library/alpine", ":3.20", self.image),
                 (self.fetch, "ghcr.io/example/model", ":v1", self.model))
        for pull, name, tag, digest in steps:
            pull(name + tag, digest)
            self.check_log(name)
        self.stop_registry()
        for pull, name, tag, digest in steps:
            pull(name + tag, digest)
            pull(f"{name}@{digest}", digest)


class Podman(MirrorCase):
    """Puts a path of ours in the place of the registry's host."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        policy = os.path.join(cls.scratch, "policy.json")
        Path(policy).write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        cls.policy = f"--signature-policy={policy}"
        cls.documented("podman/registries.conf",
                       os.path.join(cls.scratch, ".config", "containers", "registries.conf"))
        cls.program = [
            cls.tool("podman"), "--root", f"{cls.scratch}/root", "--runroot", f"{cls.scratch}/run",
            "--tmpdir", f"{cls.scratch}/tmp", "--storage-driver", "vfs",
            "--cgroup-manager", "cgroupfs", "--events-backend", "none"]

    def podman(self, *arguments):
        return self.run_client(*self.program, *arguments).decode().strip()

    def pull(self, ref):
        self.podman("pull", self.policy, "--quiet", ref)
        self.assertEqual(self.podman("image", "inspect", "--format", "{{.Digest}}", ref),
                         self.image)
        image = self.podman("image", "inspect", "--format", "{{.Id}}", ref)
        self.podman("rmi", "-f", image)
        return image

    def test_peer_bug_83_registries_conf(self):
        image = self.pull("docker.io/library/alpine:3.20")
        self.check_log("docker.io/library/alpine")
        self.stop_registry()
        for ref in ("docker.io/library/alpine:3.20", "docker.io/alpine:3.20",
                    f"docker.io/library/alpine@{self.image}"):
            self.assertEqual(self.pull(ref), image)

    def test_skopeo_reads_the_same_file(self):
        def copy(ref):
            to = self.folder("copy")
            self.run_client(self.tool("skopeo"), "--insecure-policy", "copy", "--quiet",
                            f"docker://ghcr.io/example/model{ref}", f"dir:{to}")
            self.assertEqual(sha256_of(os.path.join(to, "manifest.json")), self.model)
        copy(":v1")
        self.check_log("ghcr.io/example/model")
        self.stop_registry()
        copy(":v1")
        copy(f"@{self.model}")


class ByPrefix(MirrorCase):
    """skopeo, crane and oras, which need to be told nothing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.programs = os.path.join(cls.scratch, "bin")
        os.makedirs(cls.programs)
        for name in ("skopeo", "crane", "oras"):
            os.symlink(cls.tool(name), os.path.join(cls.programs, name))
        cls.script = cls.documented("by-prefix.sh", os.path.join(cls.scratch, "by-prefix.sh"))

    @classmethod
    def environment(cls):
        inherited = super().environment()
        return {**inherited, "PATH": f"{cls.scratch}/bin:{inherited['PATH']}"}

    def pull(self):
        to = self.folder("pulled")
        self.run_client("sh", self.script, cwd=to)
        self.assertEqual(sha256_of(os.path.join(to, "alpine", "manifest.json")), self.image)
        with tarfile.open(os.path.join(to, "alpine.tar")) as archive:
            layers = json.load(archive.extractfile("manifest.json"))[0]["Layers"]
            self.assertEqual(len(layers), 1)
        self.assertEqual(hashlib.sha256(Path(to, "model.safetensors").read_bytes()).digest(),
                         hashlib.sha256(FILES["weights"]).digest())
        shutil.rmtree(to)

    def test_peer_bug_83_script(self):
        self.pull()
        self.check_log("docker.io/library/alpine")
        self.check_log("ghcr.io/example/model")
        self.stop_registry()
        self.pull()

    def test_by_digest(self):
        self.pull()
        self.stop_registry()
        for name, digest in (("docker.io/library/alpine", self.image),
                             ("docker.io/alpine", self.image),
                             ("ghcr.io/example/model", self.model)):
            said = self.run_client("crane", "manifest", "--insecure",
                                   f"{self.wb.host}/{name}@{digest}")
            self.assertEqual("sha256:" + hashlib.sha256(said).hexdigest(), digest)


if __name__ == "__main__":
    unittest.main()
