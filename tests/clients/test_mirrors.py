#!/usr/bin/env python3
"""Clients pull through the server from other registries, as the files in docs/clients/ set them up:
only addresses are put in. Each way in is gone with Debian's docker-registry and with a current
distribution, each with and without tokens. Then that registry is stopped, and what was pulled is
pulled again, by tag and by digest."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tarfile
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import (IMAGE_TYPE, LAYER_TYPE, Layout, random_bytes, sha256_of,  # noqa: E402
                         tarball)
from harness import ROOT, Weighbridge  # noqa: E402
from registries import PASSWORD, PULLER, PUSHER, Registry, TokenServer, free_port  # noqa: E402
from test_containers import ContainerCase  # noqa: E402

DOCUMENTED = Path(ROOT, "docs", "clients")
SERVER = "127.0.0.1:5000"  # in the files
NOWHERE = "http://127.0.0.1:9"  # clients that do not get it from us must not get it elsewhere
OFFICIAL, MODEL = "library/alpine", "example/model"
FILES = {"weights": random_bytes(3_000_000, "mirrored"), "etc/name": b"mirrored\n"}
WEIGHTS = random_bytes(5_000_000, "a model")
REGISTRIES = [(program, with_tokens) for program in ("docker-registry", "registry")
              for with_tokens in (False, True)]


class MirrorCase(ContainerCase):
    """The server, at one address for the whole class, before one registry after the other, each
    with an official image for two platforms and a model in it."""

    @classmethod
    def environment(cls):
        proxies = {name: NOWHERE for name in ("HTTP_PROXY", "HTTPS_PROXY")}
        return {**super().environment(), **proxies, "NO_PROXY": "127.0.0.1,localhost"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.wb_port = free_port()
        cls.host = f"127.0.0.1:{cls.wb_port}"

    @classmethod
    def documented(cls, name, to):
        """Puts a file of docs/clients/ in its place, with this server's address in it."""
        os.makedirs(os.path.dirname(to), exist_ok=True)
        text = (DOCUMENTED / name).read_text()
        assert SERVER in text, name
        Path(to).write_text(text.replace(SERVER, cls.host))
        return to

    def setUp(self):
        official = Layout(self.folder("layout"))
        self.child = official.image(FILES)
        self.image = official.tag(official.index([
            self.child, official.image({"etc/name": b"arm64"}, "arm64")]), "v1")
        model = Layout(self.folder("layout"))
        config = model.add(b"{}", "application/vnd.oci.empty.v1+json")
        layer = model.add(WEIGHTS, LAYER_TYPE.replace("tar+gzip", "tar"), annotations={
            "org.opencontainers.image.title": "model.safetensors"})
        self.model = model.tag(model.add({
            "schemaVersion": 2, "mediaType": IMAGE_TYPE, "config": config, "layers": [layer]},
            IMAGE_TYPE), "v1")
        self.layouts = {f"{OFFICIAL}:3.20": official, f"{MODEL}:v1": model}

    def from_each_registry(self, check):
        for program, with_tokens in REGISTRIES:
            with self.subTest(registry=program, with_tokens=with_tokens):
                with self.mirroring(program, with_tokens):
                    check()

    @contextlib.contextmanager
    def mirroring(self, program, with_tokens):
        """self.wb before a registry that has the two, and neither afterwards."""
        with contextlib.ExitStack() as stack:
            folder = self.folder("registry")
            self.tokens = None
            if with_tokens:
                self.tokens = TokenServer(folder)
                stack.callback(self.tokens.stop)
            self.registry = Registry(self.tool(program), folder, self.environment(), self.tokens)
            stack.callback(self.registry.stop)
            self.assertEqual(self.registry.status("/v2/"), 401 if with_tokens else 200)
            for name, layout in self.layouts.items():
                self.seed(layout, name)
            self.wb = self.start_weighbridge(folder)
            stack.callback(self.end_weighbridge, self.wb)
            yield
        if with_tokens:
            self.assertIn(PULLER, self.tokens.issued)

    def seed(self, layout, name):
        login = ["--dest-creds", f"{PUSHER}:{PASSWORD}"] if self.tokens else []
        self.run_client(self.tool("skopeo"), "--insecure-policy", "copy", "--quiet", "--all",
                        "--dest-tls-verify=false", *login, f"oci:{layout.folder}:v1",
                        f"docker://{self.registry.host}/{name}")

    def start_weighbridge(self, folder):
        config = json.loads((DOCUMENTED / "weighbridge.json").read_text())
        for upstream in config["upstreams"]:
            if upstream.get("kind") == "oci":
                upstream["url"] = f"http://{self.registry.host}"
                if self.tokens:
                    secret = os.path.join(folder, "password")
                    Path(secret).write_text(PASSWORD)
                    upstream.update(username=PULLER, password_file=secret)
            if upstream["prefix"] == "docker.io":
                upstream["single_names"] = "library"  # as it is by itself for Docker Hub's URL
        return Weighbridge(config=config, port=self.wb_port)

    def check_log(self, repository):
        """Manifest and blobs came from here, under the one name that the repository has here."""
        for route in ("manifest", "blob"):
            self.until(f"the log to tell of a {route} of {repository}", lambda route=route:
                       self.wb.log_lines(event="request", repo=repository, method="GET",
                                         status=200, route=route))
        self.assertNotIn(PASSWORD, self.wb.log)


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

    def pull(self, ref, name="alpine"):
        self.docker("pull", "--quiet", ref)
        inspected = json.loads(self.docker("image", "inspect", ref))[0]
        self.assertEqual(inspected["RepoDigests"], [f"{name}@{self.image}"])
        self.docker("rmi", "-f", inspected["Id"])
        self.assertEqual(self.docker("images", "-q"), "")
        self.assertEqual(inspected["RootFS"]["Layers"],
                         ["sha256:" + hashlib.sha256(tarball(FILES)).hexdigest()])

    def test_peer_bug_83_registry_mirror(self):
        def check():
            self.pull("alpine:3.20")
            self.check_log("docker.io/library/alpine")
            self.registry.stop()
            for ref in ("alpine:3.20", f"alpine@{self.image}", "docker.io/library/alpine:3.20"):
                self.pull(ref)
        self.from_each_registry(check)

    def test_by_prefix_and_by_default(self):
        """As a registry of its own, not as a mirror."""
        def check():
            for name in ("docker.io/library/alpine", "docker.io/alpine", "alpine"):
                self.pull(f"{self.host}/{name}:3.20", f"{self.host}/{name}")
            self.check_log("docker.io/library/alpine")
            self.registry.stop()
            for name in ("docker.io/library/alpine", "docker.io/alpine", "alpine"):
                for ref in (":3.20", f"@{self.image}"):
                    self.pull(f"{self.host}/{name}{ref}", f"{self.host}/{name}")
        self.from_each_registry(check)


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
        steps = ((self.pull, "docker.io/library/alpine", ":3.20", "image"),
                 (self.fetch, "ghcr.io/example/model", ":v1", "model"))

        def check():
            for pull, name, tag, digest in steps:
                pull(name + tag, getattr(self, digest))
                self.check_log(name)
            self.registry.stop()
            for pull, name, tag, digest in steps:
                for ref in (tag, f"@{getattr(self, digest)}"):
                    pull(name + ref, getattr(self, digest))
        self.from_each_registry(check)


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

    def pull(self, ref, *options):
        self.podman("pull", self.policy, "--quiet", *options, ref)
        inspected = json.loads(self.podman("image", "inspect", ref))[0]
        self.assertIn(self.image, [name.split("@")[1] for name in inspected["RepoDigests"]])
        self.assertEqual(inspected["RootFS"]["Layers"],
                         ["sha256:" + hashlib.sha256(tarball(FILES)).hexdigest()])
        self.podman("rmi", "-f", inspected["Id"])

    def test_peer_bug_83_registries_conf(self):
        def check():
            self.pull("docker.io/library/alpine:3.20")
            self.check_log("docker.io/library/alpine")
            self.registry.stop()
            for ref in ("docker.io/library/alpine:3.20", "docker.io/alpine:3.20",
                        f"docker.io/library/alpine@{self.image}"):
                self.pull(ref)
            for name in ("docker.io/library/alpine", "alpine"):
                self.pull(f"{self.host}/{name}:3.20", "--tls-verify=false")
        self.from_each_registry(check)

    def test_skopeo_reads_the_same_file(self):
        def copy(ref):
            to = self.folder("copy")
            self.run_client(self.tool("skopeo"), "--insecure-policy", "copy", "--quiet",
                            f"docker://ghcr.io/example/model{ref}", f"dir:{to}")
            self.assertEqual(sha256_of(os.path.join(to, "manifest.json")), self.model)

        def check():
            copy(":v1")
            self.check_log("ghcr.io/example/model")
            self.registry.stop()
            copy(":v1")
            copy(f"@{self.model}")
        self.from_each_registry(check)


class Scripts(MirrorCase):
    """skopeo, crane and oras, which need to be told nothing."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs = os.path.join(cls.scratch, "bin")
        os.makedirs(programs)
        for name in ("skopeo", "crane", "oras"):
            os.symlink(cls.tool(name), os.path.join(programs, name))

    @classmethod
    def environment(cls):
        inherited = super().environment()
        return {**inherited, "PATH": f"{cls.scratch}/bin:{inherited['PATH']}"}

    def pull(self, script):
        to = self.folder("pulled")
        self.run_client("sh", script, cwd=to)
        self.assertEqual(sha256_of(os.path.join(to, "alpine", "manifest.json")),
                         self.child["digest"])
        with tarfile.open(os.path.join(to, "alpine.tar")) as archive:
            layers = json.load(archive.extractfile("manifest.json"))[0]["Layers"]
            self.assertEqual(len(layers), 1)
        self.assertEqual(Path(to, "model.safetensors").read_bytes(), WEIGHTS)
        shutil.rmtree(to)

    def check(self, name, official, model, names):
        script = self.documented(name, os.path.join(self.scratch, name))

        def check():
            self.pull(script)
            for repository in (official, model):
                self.check_log(repository)
            self.registry.stop()
            self.pull(script)
            for short, digest in names:
                said = self.run_client("crane", "manifest", "--insecure",
                                       f"{self.host}/{short}@{digest}")
                self.assertEqual("sha256:" + hashlib.sha256(said).hexdigest(), digest)
        self.from_each_registry(check)

    def test_peer_bug_83_by_prefix(self):
        self.check("by-prefix.sh", "docker.io/library/alpine", "ghcr.io/example/model",
                   (("docker.io/library/alpine", self.image), ("docker.io/alpine", self.image),
                    ("ghcr.io/example/model", self.model)))

    def test_peer_bug_83_by_default(self):
        self.check("by-default.sh", "docker.io/library/alpine", "docker.io/example/model",
                   (("library/alpine", self.image), ("alpine", self.image),
                    ("example/model", self.model)))


if __name__ == "__main__":
    unittest.main()
