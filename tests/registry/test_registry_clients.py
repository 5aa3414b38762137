#!/usr/bin/env python3
"""Real clients pull from the stand-in registry: what it plays is what they know. And its headers
beside those of docker-registry, with the same content."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "clients")]

from registry import Authority, StandInRegistry, sha256_of  # noqa: E402
from registry_case import (LAYER, PASSWORD, SIZE, USER, RegistryCase, basic,  # noqa: E402
                           send)
from registry_proxy import ForwardProxy  # noqa: E402
from standin_wire import keep_port  # noqa: E402
from tools import SERVERS, CannotInstall, tool  # noqa: E402

PATIENCE_S = 60
START_S = 20
# What differs by its nature: the time, who answers, and what only a security audit asks for.
PASSED_OVER = {"date", "x-content-type-options", "vary"}
PEER = """version: 0.1
log:
  level: error
storage:
  filesystem:
    rootdirectory: {folder}
http:
  addr: 127.0.0.1:{port}
"""


def find(name):
    try:
        return tool(name)
    except CannotInstall as error:
        raise unittest.SkipTest(
            ("unreachable: " if error.offline else "") + f"{name}: {error}") from error


class ClientCase(RegistryCase):
    """Clients at home in the scratch folder, with a login of docker's if asked for."""

    def environment(self):
        return {"PATH": os.environ["PATH"] + SERVERS, "HOME": str(self.scratch),
                "TMPDIR": str(self.scratch), "DOCKER_CONFIG": str(self.scratch / "docker"),
                "REGISTRY_AUTH_FILE": str(self.scratch / "docker" / "config.json"),
                "SSL_CERT_FILE": str(self.scratch / "ca.pem")}

    def log_in(self):
        folder = self.scratch / "docker"
        folder.mkdir(exist_ok=True)
        login = {"auth": basic().partition(" ")[2]}
        (folder / "config.json").write_text(json.dumps(
            {"auths": {self.registry.host: login, self.localhost: login}}))

    @property
    def localhost(self):
        return self.registry.host.replace("127.0.0.1", "localhost")

    def attempt(self, *command):
        return subprocess.run(command, cwd=self.scratch, env=self.environment(),
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S,
                              check=False)

    def run_client(self, *command):
        done = self.attempt(*command)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-2000:]!r}\n"
                                             f"{done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout

    # Each returns the digests of the blobs that it has pulled whole.

    def skopeo(self, reference, repo="team/app"):
        to = tempfile.mkdtemp(dir=self.scratch)
        self.run_client(find("skopeo"), "--insecure-policy", "copy", "-q", *self.PLAIN_SKOPEO,
                        f"docker://{self.registry.host}/{repo}{reference}", f"dir:{to}")
        return {sha256_of(p.read_bytes()) for p in Path(to).iterdir()}

    def oras(self, reference, repo="team/app"):
        to = tempfile.mkdtemp(dir=self.scratch)
        self.run_client(find("oras"), "copy", *self.PLAIN_ORAS, "--to-oci-layout",
                        f"{self.registry.host}/{repo}{reference}", f"{to}:x")
        return {sha256_of(p.read_bytes()) for p in Path(to, "blobs", "sha256").iterdir()}

    def crane(self, reference, repo="team/app"):
        to = tempfile.mkdtemp(dir=self.scratch)
        by_name = self.registry.options["auth"] == "bearer"
        self.run_client(find("crane"), "pull", "--format", "oci", *self.PLAIN_CRANE,
                        f"{self.localhost if by_name else self.registry.host}/{repo}{reference}",
                        to)
        return {sha256_of(p.read_bytes()) for p in Path(to, "blobs", "sha256").iterdir()}

    PLAIN_ORAS = ("--from-plain-http",)
    PLAIN_CRANE = ("--insecure",)
    PLAIN_SKOPEO = ("--src-tls-verify=false",)

    def clients(self):
        return (self.skopeo, self.oras, self.crane)


class Pulls(ClientCase):
    def each_client_pulls(self, repo="team/app", image=None):
        image = image or self.image
        for pull in self.clients():
            for reference in (":v1", f"@{image.digest}"):
                self.registry.reset()
                got = pull(reference, repo)
                self.assertLessEqual({image.digest, *image.blobs}, got, pull.__name__)
                self.assertEqual(self.registry.count(status=400), 0, pull.__name__)

    def test_without_a_login(self):
        self.each_client_pulls()

    def test_without_a_login_from_the_cdn(self):
        self.registry.set_options(redirect_blobs=True)
        self.each_client_pulls()
        self.assertEqual(self.registry.bytes_sent("cdn", path=self.layer), SIZE)

    def test_with_an_anonymous_token(self):
        self.registry.set_options(auth="bearer")
        self.each_client_pulls()
        self.assertGreater(self.registry.count("token", status=200), 0)

    def test_with_a_token_from_the_cdn(self):
        self.registry.set_options(auth="bearer", redirect_blobs=True)
        for pull in (self.skopeo, self.oras):
            self.registry.reset()
            self.assertLessEqual({self.image.digest, *self.image.blobs}, pull(":v1"))
            self.assertEqual(self.registry.count(status=400), 0)
            self.assertGreater(self.registry.count("token", status=200), 0)
            self.assertEqual(self.registry.bytes_sent("cdn", path=self.layer), SIZE)

    def test_with_a_users_token(self):
        self.registry.set_options(auth="bearer")
        self.log_in()
        self.each_client_pulls("secret/app", self.secret)

    def test_with_basic(self):
        self.registry.set_options(auth="basic")
        for pull in self.clients():
            with self.assertRaises(AssertionError):
                pull(":v1")
        self.log_in()
        self.each_client_pulls("secret/app", self.secret)

    def test_refused_without_the_right(self):
        self.registry.set_options(auth="bearer")
        for pull in self.clients():
            with self.assertRaises(AssertionError):
                pull(":v1", "secret/app")

    def test_docker_types_and_indexes(self):
        images = {arch: self.repo.add_image([{"arch": arch.encode()}], architecture=arch,
                                            docker=True) for arch in ("amd64", "arm64")}
        index = self.repo.add_index(images, tag="multi", docker=True)
        whole = {index.digest, *(image.digest for image in images.values())}
        self.assertLessEqual(whole, self.oras(":multi"))
        self.assertLessEqual(whole, self.crane(":multi"))
        self.assertLessEqual(set(images["amd64"].blobs), self.skopeo(":multi"))

    def test_listings(self):
        self.repo.move_tag("v2", self.image)
        self.registry.set_options(page_size=1)
        host = self.registry.host
        tags = json.loads(self.run_client(find("skopeo"), "list-tags", "--tls-verify=false",
                                          f"docker://{host}/team/app"))["Tags"]
        self.assertEqual(tags, ["v1", "v2"])
        for command in ((find("oras"), "repo", "tags", "--plain-http"),
                        (find("crane"), "ls", "--insecure")):
            self.assertEqual(self.run_client(*command, f"{host}/team/app").split(),
                             [b"v1", b"v2"])
        for command in ((find("oras"), "repo", "ls", "--plain-http"),
                        (find("crane"), "catalog", "--insecure")):
            self.assertEqual(self.run_client(*command, host).split(),
                             [b"secret/app", b"team/app"])

    def test_artifacts_and_referrers(self):
        signature = self.repo.add_artifact({"sig.json": b"{}"}, "example/sig", subject=self.image,
                                           fallback=True)
        self.repo.add_artifact({"a/weights.bin": LAYER, "config.json": b"{}"}, tag="model")
        to = tempfile.mkdtemp(dir=self.scratch)
        self.run_client(find("oras"), "pull", "--plain-http", "-o", to,
                        f"{self.registry.host}/team/app:model")
        self.assertEqual(Path(to, "a/weights.bin").read_bytes(), LAYER)
        for referrers in (True, False):
            self.registry.set_options(referrers=referrers)
            said = self.run_client(find("oras"), "discover", "--plain-http", "--format", "json",
                                   f"{self.registry.host}/team/app:v1")
            self.assertIn(signature.digest.encode(), said)


class TlsPulls(ClientCase):
    PLAIN_ORAS = PLAIN_CRANE = PLAIN_SKOPEO = ()

    def make(self):
        return StandInRegistry(auth="bearer", authority=Authority(self.scratch))

    def test_trusting_the_authority(self):
        for pull in self.clients():
            self.assertIn(self.layer, pull(":v1"))

    def test_wrong_certificates(self):
        for kind in ("expired", "wrong_name", "self_signed"):
            self.registry.use_certificate("registry", kind)
            for pull in (self.oras, self.skopeo):  # crane would try for seconds
                with self.assertRaises(AssertionError):
                    pull(":v1")
        self.assertEqual(self.registry.count(), 0)


class Proxied(ClientCase):
    def through(self, proxy, *more):
        return self.attempt("curl", "-sS", "--proxy", proxy, "--noproxy", "", "--cacert",
                            str(self.scratch / "ca.pem"), *more)

    def test_plain(self):
        with ForwardProxy("user", "word") as proxy:
            url = f"{self.registry.url}/v2/team/app/blobs/{self.layer}"
            inside = proxy.url.replace("//", "//user:word@")
            self.assertEqual(self.through(inside, url).stdout, LAYER)
            self.assertEqual(self.through(inside, "-p", url).stdout, LAYER)
            self.assertEqual(proxy.seen, [("GET", url), ("CONNECT", self.registry.host)])
            self.assertEqual(proxy.refused, 0)
            said = self.through(proxy.url, "-o", "/dev/null", "-w", "%{http_code}", url)
            self.assertEqual((said.stdout, proxy.refused), (b"407", 1))
            gone = self.through(inside, "-o", "/dev/null", "-w", "%{http_code}",
                                "http://127.0.0.1:1/")
            self.assertEqual(gone.stdout, b"502")

    def test_tls(self):
        with StandInRegistry(authority=Authority(self.scratch)) as registry, \
                ForwardProxy() as proxy:
            self.assertEqual(self.through(proxy.url, registry.url + "/v2/").stdout, b"{}")
            self.assertEqual(proxy.seen, [("CONNECT", registry.host)])


class DockerRegistry(ClientCase):
    """The real one: what it says of the same image, and how it pulls through."""

    def run_peer(self, more=""):
        """Its URL."""
        program = find("docker-registry")
        kept = keep_port()
        self.addCleanup(kept.close)
        port = kept.getsockname()[1]
        config = self.scratch / "registry.yml"
        config.write_text(PEER.format(folder=self.scratch / "peer", port=port) + more)
        with open(self.scratch / "peer.log", "wb") as log:
            peer = subprocess.Popen([program, "serve", config], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, env={"PATH": os.environ["PATH"]})
        self.addCleanup(peer.wait)
        self.addCleanup(peer.terminate)
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_S
        while True:
            try:
                send(url + "/v2/")
                return url
            except OSError:
                if peer.poll() is not None or time.monotonic() > deadline:
                    self.fail((self.scratch / "peer.log").read_text())
                time.sleep(0.02)

    def test_headers(self):
        peer = self.run_peer()
        self.run_client(find("skopeo"), "--insecure-policy", "copy", "-q", "--src-tls-verify=false",
                        "--dest-tls-verify=false", "--preserve-digests",
                        f"docker://{self.registry.host}/team/app:v1",
                        f"docker://{peer[7:]}/team/app:v1")
        kind = {"Accept": self.image.media_type}
        for method, path, headers in (
                ("GET", "/v2/", {}), ("GET", "manifests/v1", kind), ("HEAD", "manifests/v1", kind),
                ("GET", f"manifests/{self.image.digest}", kind),
                ("GET", "manifests/none", kind), ("GET", "tags/list", {}),
                ("GET", f"blobs/{self.layer}", {}), ("HEAD", f"blobs/{self.layer}", {}),
                ("GET", f"blobs/{self.layer}", {"Range": "bytes=5-9"}),
                ("GET", "blobs/sha256:" + "0" * 64, {})):
            if not path.startswith("/"):
                path = "/v2/team/app/" + path
            ours, theirs = (send(base + path, method, **headers)
                            for base in (self.registry.url, peer))
            self.assertEqual(ours.status, theirs.status, path)
            if ours.status == 404:  # the texts differ
                self.assertEqual(ours.json["errors"][0]["code"],
                                 theirs.json["errors"][0]["code"])
                continue
            self.assertEqual(self.plain(ours), self.plain(theirs), f"{method} {path}")
            self.assertEqual(ours.body, theirs.body)

    @staticmethod
    def plain(answer):
        shown = {k.lower(): v for k, v in answer.headers.items() if k.lower() not in PASSED_OVER}
        shown["content-type"] = shown.get("content-type", "").partition(";")[0]
        return shown

    def test_pulls_through(self):
        self.registry.set_options(auth="bearer", redirect_blobs=True)
        peer = self.run_peer(f"proxy:\n  remoteurl: {self.registry.url}\n"
                             f"  username: {USER}\n  password: {PASSWORD}\n")
        path = f"{peer}/v2/secret/app/"
        got = send(f"{path}manifests/v1", Accept=self.secret.media_type)
        self.assertEqual((got.status, got.body), (200, self.secret.body))
        for digest in self.secret.blobs:
            self.assertEqual(sha256_of(send(f"{path}blobs/{digest}").body), digest)
            self.assertGreater(self.registry.count("cdn", path=digest, status=200), 0)
        self.assertGreater(self.registry.count("token", status=200), 0)


if __name__ == "__main__":
    unittest.main()
