#!/usr/bin/env python3
"""What ollama's client sends to a registry, and in which order, replayed: its pull with parallel
parts, its push in parts, and the newer push of whole blobs."""

import concurrent.futures
import hashlib
import json
import os
import random
import sys
import unittest
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "registry")]

from harness import EndToEnd, paths_of, safetensors_file, sha256  # noqa: E402
from registry import StandInRegistry  # noqa: E402

AGENT = {"User-Agent": "ollama/0.33.0 (amd64 linux) Go/go1.26"}
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
PARTS = 16
WEIGHTS = random.Random(7).randbytes(8_000_001)
CONFIG = b'{"model_format":"gguf","model_family":"llama"}'
TEMPLATE = b"{{ .Prompt }}"


def describe(data, kind):
    return {"mediaType": kind, "size": len(data), "digest": sha256(data)}


MANIFEST = json.dumps({
    "schemaVersion": 2, "mediaType": DOCKER,
    "config": describe(CONFIG, "application/vnd.docker.container.image.v1+json"),
    "layers": [describe(WEIGHTS, "application/vnd.ollama.image.model"),
               describe(TEMPLATE, "application/vnd.ollama.image.template")]}).encode()


def spans(size, parts=PARTS):
    """(first, last) of the parts that a client cuts a blob into."""
    step = -(-size // parts)
    return [(at, min(at + step, size) - 1) for at in range(0, size, step)]


class Ollama(EndToEnd):
    name = "library/tiny"

    def send(self, url, method="GET", headers=(), body=None):
        """A request to an absolute URL, which has to be one of this server's."""
        parts = urllib.parse.urlsplit(url)
        self.assertEqual((parts.scheme, parts.netloc), ("http", self.wb.host), url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        return self.wb.request(method, target, {**AGENT, **dict(headers)}, body)

    def v2(self, path, name=None):
        return f"{self.wb.url}/v2/{name or self.name}/{path}"

    # --- push ---

    def begin(self, query=""):
        """The URL of an upload, used as it is: the client does not resolve it against anything."""
        status, headers, body = self.send(self.v2("blobs/uploads/") + query, "POST")
        self.assertEqual(status, 202, body)
        return headers["Docker-Upload-Location"] or headers["Location"]

    def push_in_parts(self, data, query=""):
        digest = sha256(data)
        self.assertEqual(self.send(self.v2(f"blobs/{digest}"), "HEAD")[0], 404)
        url, sums = self.begin(query), b""
        for first, last in spans(len(data)):
            piece = data[first:last + 1]
            status, headers, body = self.send(url, "PATCH", {
                "Content-Type": "application/octet-stream", "X-Redirect-Uploads": "1",
                "Content-Range": f"{first}-{last}"}, piece)
            self.assertEqual(status, 202, body)
            url = headers["Docker-Upload-Location"] or headers["Location"]
            sums += hashlib.md5(piece).digest()
        etag = f"{hashlib.md5(sums).hexdigest()}-{len(spans(len(data)))}"
        closing = urllib.parse.urlsplit(url)
        query = urllib.parse.parse_qsl(closing.query) + [("digest", digest), ("etag", etag)]
        status, _, body = self.send(
            closing._replace(query=urllib.parse.urlencode(query)).geturl(), "PUT",
            {"Content-Type": "application/octet-stream", "Content-Length": "0"})
        self.assertEqual(status, 201, body)

    def push_whole(self, data):
        digest = sha256(data)
        url = urllib.parse.urlsplit(self.begin(f"?digest={digest}"))
        query = urllib.parse.parse_qsl(url.query) + [("digest", digest)]
        status, _, body = self.send(url._replace(query=urllib.parse.urlencode(query)).geturl(),
                                    "PUT", {"Content-Type": "application/octet-stream"}, data)
        self.assertEqual(status, 201, body)

    def push_manifest(self):
        status, _, body = self.send(self.v2("manifests/latest"), "PUT", {"Content-Type": DOCKER},
                                    MANIFEST)
        self.assertEqual(status, 201, body)

    # --- pull ---

    def direct_url(self, url):
        """What the client is told by the GET that it then closes without reading the body."""
        connection = self.wb.connect()
        self.addCleanup(connection.close)
        connection.request("GET", urllib.parse.urlsplit(url).path, headers=AGENT)
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        location = answer.headers["Location"]
        connection.close()
        self.assertIsNotNone(location, "a 200 without a Location is an error to this client")
        return location

    def part(self, url, first, last):
        """Without Authorization, whatever the other requests have."""
        status, headers, body = self.send(url, headers={"Range": f"bytes={first}-{last}"})
        self.assertEqual((status, len(body)), (206, last - first + 1))
        self.assertRegex(headers["Content-Range"], rf"^bytes {first}-{last}/\d+$")
        return body

    def pull_blob(self, digest, name=None):
        url = self.v2(f"blobs/{digest}", name)
        status, headers, _ = self.send(url, "HEAD")
        self.assertEqual(status, 200)
        size = int(headers["Content-Length"])
        direct = self.direct_url(url)
        with concurrent.futures.ThreadPoolExecutor(PARTS) as pool:
            pieces = pool.map(lambda span: self.part(direct, *span), spans(size))
            return b"".join(pieces)

    def pull_manifest_of(self, name, reference):
        status, headers, body = self.send(self.v2(f"manifests/{reference}", name),
                                          headers={"Accept": DOCKER})
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["Content-Length"], str(len(body)))
        return headers["Content-Type"], body

    def check_pull(self):
        self.assertEqual(self.pull_manifest_of(self.name, "latest"), (DOCKER, MANIFEST))
        for data in (WEIGHTS, TEMPLATE, CONFIG):
            self.assertEqual(hashlib.sha256(self.pull_blob(sha256(data))).hexdigest(),
                             hashlib.sha256(data).hexdigest())
        self.assertEqual(self.wb.log_lines(event="request", level="error"), [])


class Local(Ollama):
    def setUp(self):
        self.wb = self.make_weighbridge()

    def test_push_in_parts_and_pull(self):
        for data in (WEIGHTS, TEMPLATE, CONFIG):
            self.push_in_parts(data)
        self.push_manifest()
        self.check_pull()

    def test_push_of_whole_blobs_and_pull(self):
        """The newer client says the digest at the POST, which has no body."""
        for data in (WEIGHTS, TEMPLATE, CONFIG):
            self.push_whole(data)
        self.push_manifest()
        self.check_pull()

    def test_a_mount_that_is_none(self):
        self.push_in_parts(TEMPLATE, f"?mount={sha256(TEMPLATE)}&from=library/other")

    def test_a_mount(self):
        self.push_in_parts(TEMPLATE)
        status, headers, body = self.send(
            f"{self.wb.url}/v2/library/copy/blobs/uploads/?mount={sha256(TEMPLATE)}"
            f"&from={self.name}", "POST")
        self.assertEqual(status, 201, body)
        self.assertEqual(self.send(headers["Location"])[2], TEMPLATE)

    def test_a_wrong_digest_is_refused_in_both_ways(self):
        for query in ("", f"?digest={sha256(b'another')}"):
            url = urllib.parse.urlsplit(self.begin(query))
            more = f"digest={sha256(b'another')}"
            status, _, body = self.send(
                url._replace(query="&".join(filter(None, (url.query, more)))).geturl(), "PUT",
                body=TEMPLATE)
            self.assertEqual((status, json.loads(body)["errors"][0]["code"]),
                             (400, "DIGEST_INVALID"))

    def test_the_location_is_by_the_address_that_the_client_used(self):
        self.push_whole(TEMPLATE)
        path = f"/v2/{self.name}/blobs/{sha256(TEMPLATE)}"
        status, headers, _ = self.wb.get(path, {"Host": "models.example:8080"})
        self.assertEqual((status, headers["Location"]), (200, f"http://models.example:8080{path}"))
        outside = self.make_weighbridge(args=("--external-url", "https://models.example"))
        status, headers, _ = outside.request("POST", "/v2/library/tiny/blobs/uploads/")
        self.assertEqual(status, 202)
        self.assertRegex(headers["Location"],
                         "^https://models.example/v2/library/tiny/blobs/uploads/[0-9a-f]{32}$")


class Cold(Ollama):
    def test_parallel_parts_of_a_file_that_is_not_here(self):
        hub = self.make_hub()
        weights = safetensors_file({"w": ("F32", (1_500_000,))}, fill=b"\x07")
        hub.add_repo("org/name", {"model.safetensors": weights})
        self.wb = self.make_weighbridge(hub.url)
        _, body = self.pull_manifest_of("hf/org/name", "main")
        layer = paths_of(json.loads(body))["model.safetensors"]
        self.assertEqual(sha256(self.pull_blob(layer["digest"], "hf/org/name")), sha256(weights))


class Through(Ollama):
    """From another registry: one that, like ollama's own, has nothing at /v2/."""

    def setUp(self):
        self.registry = StandInRegistry(ping=404)
        for name in ("library/tiny", "team/tiny"):
            repo = self.registry.add_repo(name)
            for data in (WEIGHTS, TEMPLATE, CONFIG):
                repo.add_blob(data)
            repo.add_manifest(MANIFEST, DOCKER, tag="latest")
        self.registry.start()
        self.addCleanup(self.registry.stop)
        self.wb = self.make_weighbridge(config={
            "default_upstream": "ollama",
            "upstreams": [{"prefix": "ollama", "kind": "oci", "url": self.registry.url,
                           "single_names": "library"}]})

    def test_its_names_have_two_parts(self):
        """So the prefix leaves one, and default_upstream is for the others."""
        for name in ("ollama/tiny", "team/tiny"):
            self.name = name
            self.check_pull()
        self.assertEqual(self.registry.bytes_sent("registry", kind="blob"),
                         len(WEIGHTS + TEMPLATE + CONFIG), "each blob came once, for both")
        self.registry.stop()
        for name in ("ollama/tiny", "team/tiny"):
            self.name = name
            self.check_pull()


if __name__ == "__main__":
    unittest.main()
