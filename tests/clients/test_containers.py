#!/usr/bin/env python3
"""docker, podman and containerd push images and pull them again. Each has its own folders for all
that it keeps, so that it meets neither another of its kind nor an earlier run."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import ClientCase, Daemon, Layout, random_bytes, tarball  # noqa: E402

FILES = {"weights": random_bytes(6_000_000, "a container's"), "etc/name": b"weighed\n"}


def contents(path):
    """{member: sha256} of an archive's files."""
    with tarfile.open(path) as archive:
        return {member.name: hashlib.sha256(archive.extractfile(member).read()).hexdigest()
                for member in archive if member.isfile()}


class ContainerCase(ClientCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.geteuid() != 0:
            raise unittest.SkipTest("it has to be run by root")

    @classmethod
    def daemon(cls, command, answers):
        """Runs a server for the tests of this class."""
        def answered():
            return subprocess.run(answers, env=cls.environment(), stdin=subprocess.DEVNULL,
                                  capture_output=True, check=False).returncode == 0
        try:
            daemon = Daemon(command, os.path.join(cls.scratch, "log"), cls.environment(), answered)
        except RuntimeError as error:
            raise unittest.SkipTest(str(error)) from error
        cls.addClassCleanup(daemon.stop)

    def setUp(self):
        self.wb = self.make_weighbridge(self.make_hub().url)
        self.name = f"{self.wb.host}/team/image"
        self.files = os.path.join(self.folder("files"), "fs.tar")
        Path(self.files).write_bytes(tarball(FILES))

    def mounted(self, repository):
        """How many blobs a repository got without their bytes being sent."""
        return len(self.wb.log_lines(method="POST", status=201, repo=repository))


class Docker(ContainerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        socket = f"unix://{cls.scratch}/docker.sock"
        cls.program = [cls.tool("docker"), "-H", socket]
        config = os.path.join(cls.scratch, "daemon.json")
        Path(config).write_text("{}")  # not what the machine's own daemon is told
        cls.daemon([
            cls.tool("dockerd"), "--config-file", config, "--data-root", f"{cls.scratch}/root",
            "--exec-root", f"{cls.scratch}/exec", "--pidfile", f"{cls.scratch}/pid", "-H", socket,
            "--storage-driver", "vfs", "--bridge", "none", "--iptables=false",
            "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"],
            [*cls.program, "version"])

    def docker(self, *arguments):
        return self.run_client(*self.program, *arguments).decode()

    def image_id(self, ref):
        return self.docker("image", "inspect", "--format", "{{.Id}}", ref).strip()

    def forget_images(self):
        self.docker("rmi", "-f", *self.docker("images", "-q", "--no-trunc").split())
        self.assertEqual(self.docker("images", "-q"), "")

    def digest(self, ref):
        return json.loads(self.docker("image", "inspect", ref))[0]["RepoDigests"][0].split("@")[1]

    def saved(self, ref):
        path = os.path.join(self.folder("saved"), "image.tar")
        self.docker("save", "-o", path, ref)
        return contents(path)

    def test_push_pull_and_save(self):
        ref = f"{self.name}:v1"
        self.docker("import", self.files, ref)
        image, before = self.image_id(ref), self.saved(ref)
        self.docker("push", ref)
        digest = self.digest(ref)
        for which in (ref, f"{self.name}@{digest}"):
            self.forget_images()
            self.docker("pull", which)
            self.assertEqual(self.image_id(which), image)
        self.docker("tag", which, ref)
        self.assertEqual(self.saved(ref), before)

    def test_layers_are_mounted_in_a_second_repository(self):
        self.docker("import", self.files, f"{self.name}:v1")
        self.docker("push", f"{self.name}:v1")
        second = f"{self.wb.host}/team/second:v1"
        self.docker("tag", f"{self.name}:v1", second)
        self.assertIn("Mounted from team/image", self.docker("push", second))
        image = self.image_id(second)
        self.forget_images()
        self.docker("pull", second)
        self.assertEqual(self.image_id(second), image)

    def test_all_tags(self):
        self.docker("import", self.files, f"{self.name}:v1")
        self.docker("tag", f"{self.name}:v1", f"{self.name}:v2")
        self.docker("push", "--all-tags", self.name)
        self.forget_images()
        self.docker("pull", "--all-tags", self.name)
        self.assertEqual(self.image_id(f"{self.name}:v1"), self.image_id(f"{self.name}:v2"))


    def test_a_name_of_the_hubs_is_not_for_images(self):
        ref = f"{self.wb.host}/hf/org/name:v1"
        self.docker("import", self.files, ref)
        said = self.run_refused(*self.program, "push", ref)
        self.assertIn("denied", said)
        self.assertIn("local/org/name", said)


class Podman(ContainerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        policy = os.path.join(cls.scratch, "policy.json")
        Path(policy).write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        cls.program = [
            cls.tool("podman"), "--root", f"{cls.scratch}/root", "--runroot", f"{cls.scratch}/run",
            "--tmpdir", f"{cls.scratch}/tmp", "--storage-driver", "vfs",
            "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        cls.policy = f"--signature-policy={policy}"

    def podman(self, *arguments):
        return self.run_client(*self.program, *arguments).decode()

    def push(self, ref):
        """Pushes an image; returns the digest that the registry has."""
        path = os.path.join(self.folder("digest"), "digest")
        self.podman("push", self.policy, "--tls-verify=false", "--digestfile", path, ref)
        return Path(path).read_text().strip()

    def image_id(self, ref):
        return self.podman("image", "inspect", "--format", "{{.Id}}", ref).strip()

    def saved(self, ref):
        path = os.path.join(self.folder("saved"), "image.tar")
        self.podman("save", self.policy, "--format", "docker-archive", "-o", path, ref)
        return contents(path)

    def test_push_and_pull(self):
        ref = f"{self.name}:v1"
        self.podman("import", self.files, ref)
        image, before = self.image_id(ref), self.saved(ref)
        digest = self.push(ref)
        for which in (ref, f"{self.name}@{digest}"):
            self.podman("rmi", "-f", image)
            self.podman("pull", self.policy, "--tls-verify=false", which)
            self.assertEqual(self.image_id(which), image)
        self.podman("tag", which, ref)
        self.assertEqual(self.saved(ref), before)

    def test_layers_are_mounted_in_a_second_repository(self):
        self.podman("import", self.files, f"{self.name}:v1")
        self.push(f"{self.name}:v1")
        second = f"{self.wb.host}/team/second:v1"
        self.podman("tag", f"{self.name}:v1", second)
        digest = self.push(second)
        self.until("the log to tell of a mount", lambda: self.mounted("team/second"))
        self.podman("rmi", "-f", self.image_id(second))
        self.podman("pull", self.policy, "--tls-verify=false",
                    f"{self.wb.host}/team/second@{digest}")

    def test_manifest_list(self):
        layout = Layout(self.folder("layout"))
        listed = f"localhost/list:{os.path.basename(layout.folder)}"
        self.podman("manifest", "create", listed)
        for architecture in ("amd64", "arm64"):
            layout.tag(layout.image({"arch": architecture.encode()}, architecture), architecture)
            self.podman("manifest", "add", listed, f"oci:{layout.folder}:{architecture}")
        self.podman("manifest", "push", "--all", "--tls-verify=false", listed,
                    f"docker://{self.name}:list")
        for architecture in ("amd64", "arm64"):
            self.podman("pull", self.policy, "--tls-verify=false", "--arch", architecture,
                        f"{self.name}:list")
            self.assertEqual(self.podman("image", "inspect", "--format", "{{.Architecture}}",
                                         f"{self.name}:list").strip(), architecture)


class Containerd(ContainerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        socket = f"{cls.scratch}/containerd.sock"
        config = os.path.join(cls.scratch, "config.toml")
        Path(config).write_text(f"""version = 2
root = "{cls.scratch}/root"
state = "{cls.scratch}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{socket}"
""")
        cls.program = [cls.tool("ctr"), "--address", socket]
        cls.daemon([cls.tool("containerd"), "--config", config], [*cls.program, "version"])

    def ctr(self, *arguments):
        return self.run_client(*self.program, *arguments).decode()

    def pull(self, ref):
        # The native snapshotter copies files: it needs no file system of a certain kind.
        self.ctr("images", "pull", "--plain-http", "--snapshotter", "native", ref)

    def digests(self):
        return {line.split()[0]: line.split()[2] for line in
                self.ctr("images", "ls").splitlines()[1:]}

    def test_pull_and_push_again(self):
        layout = Layout(self.folder("layout"))
        digest = layout.tag(layout.index([
            layout.image(FILES), layout.image({"arch": b"arm64"}, "arm64")]), "v1")
        path = os.path.join(self.folder("archive"), "layout.tar")
        self.run_client("tar", "-cf", path, "-C", layout.folder, ".")
        self.ctr("images", "import", "--all-platforms", "--no-unpack", "--index-name",
                 f"{self.name}:v1", path)
        self.ctr("images", "push", "--plain-http", f"{self.name}:v1", f"{self.name}:v1")
        pushed = self.digests()[f"{self.name}:v1"]
        self.forget_images()
        for ref in (f"{self.name}:v1", f"{self.name}@{pushed}"):
            self.pull(ref)
            self.assertEqual(self.digests(), {ref: pushed})
            self.assertIn(digest, self.ctr("content", "ls", "-q").split())
            self.forget_images()

    def forget_images(self):
        self.ctr("images", "rm", "--sync", *self.digests())
        self.assertEqual(self.digests(), {})


if __name__ == "__main__":
    unittest.main()
