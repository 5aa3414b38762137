#!/usr/bin/env python3
"""One repository by each of the names that clients have for it: the prefix, ?ns=, default_upstream,
single_names. Of the Hub, of a registry, and of repositories that are here."""

import hashlib
import json
import os
import re
import sys
import unittest
from urllib.parse import urlsplit

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "registry")]

from harness import EndToEnd, Weighbridge, sha256  # noqa: E402
from registry import StandInRegistry  # noqa: E402

IMAGE = "application/vnd.oci.image.manifest.v1+json"
NOBODY = "sha256:" + "9" * 64
FILES = {"config.json": b'{"a": 1}', "README.md": b"# read\n"}


def push(wb, repository, layer, query="", tag="v1"):
    """Pushes an artifact of one layer; returns its manifest."""
    for data in (b"{}", layer):
        status, headers, body = wb.request("POST", f"/v2/{repository}/blobs/uploads/{query}")
        assert status == 202, body
        url = urlsplit(headers["Location"])
        more = f"{url.query}&" if url.query else ""
        status, _, body = wb.request("PUT", f"{url.path}?{more}digest={sha256(data)}", body=data)
        assert status == 201, body
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": IMAGE,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
                   "digest": sha256(b"{}")},
        "layers": [{"mediaType": "application/x", "size": len(layer), "digest": sha256(layer)}],
    }).encode()
    status, _, body = wb.request("PUT", f"/v2/{repository}/manifests/{tag}{query}",
                                 {"Content-Type": IMAGE}, manifest)
    assert status == 201, body
    return manifest


class Names(EndToEnd):
    def next_page(self, headers):
        return re.fullmatch(r'<(/[^>]+)>; rel="next"', headers["Link"]).group(1)

    def repositories_asked(self):
        """Those of the log, which is complete when the server has stopped: it is started again."""
        self.assertEqual(self.wb.stop(), 0, self.wb.log)
        lines = self.wb.log_lines(event="request")
        self.wb.start()
        return {found.group(1) for found in map(re.compile(r" repo=(\S+)").search, lines) if found}

    def pull(self, name, reference, query=""):
        """{digest: body} of a manifest and all its blobs, with every Location followed."""
        status, headers, body = self.wb.get(f"/v2/{name}/manifests/{reference}{query}")
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["OCI-Namespace"], query[4:] or None)
        manifest = json.loads(body)
        got = {headers["Docker-Content-Digest"]: body}
        for part in (manifest["config"], *manifest["layers"]):
            path = f"/v2/{name}/blobs/{part['digest']}{query}"
            self.assertEqual(self.wb.head(path)[1]["Content-Length"], str(part["size"]))
            status, headers, body = self.wb.get(path)
            self.assertEqual(status, 200, body)
            self.assertEqual(headers["Location"], f"{self.wb.url}{path}")
            got[part["digest"]] = body
        for digest, body in got.items():
            self.assertEqual("sha256:" + hashlib.sha256(body).hexdigest(), digest)
        return got

    def error(self, answer, status, code):
        self.assertEqual(answer[0], status, answer[2])
        entry = json.loads(answer[2])["errors"][0]
        self.assertEqual(entry["code"], code)
        return entry["message"]


class OfTheHub(Names):
    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Name", FILES)
        self.ns = f"?ns={urlsplit(self.hub.url).netloc}"

    def start(self, **config):
        self.wb = self.make_weighbridge(self.hub.url, config=config)

    def test_ns(self):
        self.start()
        usual = self.pull("hf/org/name", "main")
        for name in ("Org/Name", "org/name", "hf/org/name", "HF/Org/Name"):
            self.assertEqual(self.pull(name, "main", self.ns), usual)
        self.assertEqual(self.repositories_asked(), {"hf/org/name"})
        status, headers, body = self.wb.get(f"/v2/Org/Name/tags/list{self.ns}&n=1")
        self.assertEqual((status, json.loads(body)["name"]), (200, "Org/Name"))
        status, _, body = self.wb.get(self.next_page(headers))
        self.assertEqual((status, json.loads(body)["tags"]), (200, ["main"]))

    def test_peer_bug_78_ns_of_nobody_is_never_dialled(self):
        self.start()
        asked = self.hub.count()
        for ns in ("evil.example", "127.0.0.1:1", "169.254.169.254", "huggingface.co"):
            said = self.error(self.wb.get(f"/v2/org/name/manifests/main?ns={ns}"), 404,
                              "NAME_UNKNOWN")
            self.assertIn(f"ns={ns}: no upstream of this server has that host; there are: hf", said)
        self.assertEqual(self.hub.count(), asked)

    def test_ns_of_this_server(self):
        self.start()
        push(self.wb, "team/model", b"layer", f"?ns={self.wb.host}")
        self.assertEqual(self.pull("team/model", "v1"), {
            **self.pull("team/model", "v1"), **{sha256(b"layer"): b"layer"}})
        status, headers, _ = self.wb.get(f"/v2/team/model/manifests/v1?ns={self.wb.host}")
        self.assertEqual((status, headers["OCI-Namespace"]), (200, None))

    def test_pushes_with_ns_are_pushes_to_the_upstream(self):
        """Only what has a subject is taken there, by whatever name."""
        self.start()
        self.pull("hf/org/name", "main")
        said = self.error(self.wb.request("PUT", f"/v2/org/name/manifests/v1{self.ns}",
                                          {"Content-Type": IMAGE}, b"{}"), 403, "DENIED")
        self.assertIn("hf", said)

    def test_default_upstream(self):
        self.start(default_upstream="hf")
        usual = self.pull("hf/org/name", "main")
        self.assertEqual(self.pull("Org/Name", "main"), usual)
        digest = next(iter(usual))
        self.assertEqual(self.wb.head(f"/v2/org/name/manifests/{digest}")[0], 200)
        self.assertEqual(self.wb.get(f"/v2/org/name/referrers/{digest}")[0], 200)
        status, headers, body = self.wb.get("/v2/org/name/tags/list?n=1")
        self.assertEqual((status, json.loads(body)["name"]), (200, "org/name"))
        self.assertTrue(self.next_page(headers).startswith("/v2/org/name/tags/list?"))
        self.assertEqual(self.repositories_asked(), {"hf/org/name"})
        self.assertEqual(self.wb.get("/v2/")[0], 200)
        self.error(self.wb.get("/v2/no/such/manifests/main"), 404, "MANIFEST_UNKNOWN")

    def test_what_is_here_goes_before_the_default_upstream(self):
        self.start(default_upstream="hf")
        manifest = push(self.wb, "org/name", b"of our own")
        self.assertEqual(self.wb.get("/v2/org/name/manifests/v1")[2], manifest)
        self.error(self.wb.get("/v2/org/name/manifests/main"), 404, "MANIFEST_UNKNOWN")
        self.assertNotIn(manifest, self.pull("hf/org/name", "main").values())

    def test_a_push_asks_no_default_upstream_for_its_blobs(self):
        """Neither are names of ours told, nor is a blob that the upstream has a reason not to push."""
        self.start(default_upstream="hf")
        path = f"/v2/team/secret/blobs/{sha256(b'layer')}"
        self.assertEqual(self.wb.head(path)[0], 404)
        self.assertEqual(self.repositories_asked(), {"team/secret"})
        self.assertEqual(self.hub.count(), 0)
        push(self.wb, "team/secret", b"layer")
        self.assertEqual(self.wb.head(f"/v2/team/secret/blobs/{sha256(b'layer')}")[0], 200)
        self.assertEqual(self.repositories_asked(), {"team/secret"})

    def test_a_blob_of_a_push_under_way_is_here(self):
        self.start(default_upstream="hf")
        status, headers, _ = self.wb.request("POST", "/v2/team/new/blobs/uploads/")
        self.assertEqual(status, 202)
        self.assertEqual(self.wb.request(
            "PUT", f"{urlsplit(headers['Location']).path}?digest={sha256(b'x')}", body=b"x")[0],
            201)
        self.assertEqual(self.wb.get(f"/v2/team/new/blobs/{sha256(b'x')}")[2], b"x")
        self.assertEqual(self.hub.count(), 0)


class OfARegistry(Names):
    """A stand-in for Docker Hub: official images have names of one part."""

    def setUp(self):
        self.registry = StandInRegistry()
        self.alpine = self.registry.add_repo("library/alpine")
        self.image = self.alpine.add_image([{"etc/name": b"alpine"}], tag="v1")
        self.alpine.add_image(tag="v2")
        self.registry.start()
        self.addCleanup(self.registry.stop)
        self.start()

    def start(self, **more):
        config = {"upstreams": [{"prefix": "docker.io", "kind": "oci", "url": self.registry.url,
                                 "single_names": "library"}], **more}
        try:
            self.wb = Weighbridge(config=config)
        except RuntimeError as error:
            if "serves no upstreams of the kind" in str(error):
                raise unittest.SkipTest("this build serves no upstreams of the kind oci") from error
            raise
        self.addCleanup(self.end_weighbridge, self.wb)

    def test_peer_bug_82_one_entry_for_all_ways_in(self):
        self.start(default_upstream="docker.io")
        first = self.pull("docker.io/library/alpine", "v1")
        pulls, sent = self.registry.pulls(), self.registry.bytes_sent("registry", kind="blob")
        own = f"?ns={urlsplit(self.registry.url).netloc}"
        for name, query in (("docker.io/alpine", ""), ("library/alpine", "?ns=docker.io"),
                            ("alpine", "?ns=docker.io"), ("alpine", "?ns=registry-1.docker.io"),
                            ("library/alpine", "?ns=index.docker.io"), ("alpine", own),
                            ("docker.io/library/alpine", "?ns=docker.io"),
                            ("library/alpine", ""), ("alpine", "")):
            self.assertEqual(self.pull(name, "v1", query), first, (name, query))
            self.assertEqual(self.pull(name, self.image.digest, query), first, (name, query))
        self.assertEqual(self.registry.pulls(), pulls)
        self.assertEqual(self.registry.bytes_sent("registry", kind="blob"), sent)
        self.assertEqual(self.repositories_asked(), {"docker.io/library/alpine"})
        status, _, body = self.wb.get("/v2/_catalog")
        self.assertEqual((status, json.loads(body)["repositories"]),
                         (200, ["docker.io/library/alpine"]))

    def test_peer_bug_79_many_upstreams_in_one_process(self):
        """The same names, of two registries."""
        other = StandInRegistry()
        theirs = other.add_repo("library/alpine").add_image([{"etc/name": b"theirs"}], tag="v1")
        other.start()
        self.addCleanup(other.stop)
        self.start(upstreams=[
            {"prefix": "docker.io", "kind": "oci", "url": self.registry.url},
            {"prefix": "quay", "kind": "oci", "url": other.url, "hosts": ["quay.io"]}])
        for name, query, image in (("library/alpine", "?ns=docker.io", self.image),
                                   ("library/alpine", "?ns=quay.io", theirs),
                                   ("quay/library/alpine", "", theirs),
                                   ("docker.io/library/alpine", "", self.image)):
            self.assertEqual(next(iter(self.pull(name, "v1", query))), image.digest)
            self.error(self.wb.get(f"/v2/{name}/manifests/v9{query}"), 404, "MANIFEST_UNKNOWN")
        mine, yours = (f"/v2/library/alpine/blobs/{image.blobs[-1]}" for image in
                       (self.image, theirs))
        self.assertEqual(self.wb.get(f"{mine}?ns=docker.io")[0], 200)
        self.assertEqual(self.wb.get(f"{yours}?ns=quay.io")[0], 200)
        self.error(self.wb.get(f"{yours}?ns=docker.io"), 404, "BLOB_UNKNOWN")
        self.error(self.wb.get(f"{mine}?ns=quay.io"), 404, "BLOB_UNKNOWN")

    def test_tags_and_referrers(self):
        self.start(default_upstream="docker.io")
        sbom = self.alpine.add_artifact({"sbom": b"{}"}, "application/x.sbom", subject=self.image)
        for name, query in (("docker.io/alpine", "?"), ("alpine", "?ns=docker.io&"),
                            ("library/alpine", "?")):
            status, headers, body = self.wb.get(f"/v2/{name}/tags/list{query}n=1")
            self.assertEqual((status, json.loads(body)), (200, {"name": name, "tags": ["v1"]}))
            status, _, body = self.wb.get(self.next_page(headers))
            self.assertEqual((status, json.loads(body)), (200, {"name": name, "tags": ["v2"]}))
            status, _, body = self.wb.get(
                f"/v2/{name}/referrers/{self.image.digest}{query.rstrip('?&')}")
            self.assertEqual(status, 200)
            self.assertEqual([entry["digest"] for entry in json.loads(body)["manifests"]],
                             [sbom.digest])
        self.assertEqual(self.repositories_asked(), {"docker.io/library/alpine"})

    def test_old_lists_say_so(self):
        """The lists of an upstream that is down are what was known of them."""
        self.alpine.add_artifact({"sbom": b"{}"}, "application/x.sbom", subject=self.image)
        self.start(upstreams=[{"prefix": "docker.io", "kind": "oci", "url": self.registry.url,
                               "single_names": "library", "tag_ttl": 0}])
        paths = ("/v2/docker.io/library/alpine/tags/list",
                 f"/v2/docker.io/library/alpine/referrers/{self.image.digest}")
        before = [self.wb.get(path) for path in paths]
        for status, headers, body in before:
            self.assertEqual((status, headers["Warning"]), (200, None), body)
        self.registry.stop()
        for path, (_, _, was) in zip(paths, before):
            status, headers, body = self.wb.get(path)
            self.assertEqual((status, body), (200, was))
            self.assertRegex(headers["Warning"] or "", '^299 - ".+"$')
        self.registry.start()

    def test_a_push_hides_the_default_upstreams(self):
        self.start(default_upstream="docker.io")
        pulled = self.pull("library/alpine", "v1")
        manifest = push(self.wb, "library/alpine", b"of our own")
        self.assertEqual(self.wb.get("/v2/library/alpine/manifests/v1")[2], manifest)
        self.assertEqual(self.pull("docker.io/library/alpine", "v1"), pulled)
        self.assertEqual(self.pull("library/alpine", "v1", "?ns=docker.io"), pulled)

    def test_what_was_pulled_by_a_name_is_pushed_to_it(self):
        """Tagged anew by a client that was told that the blobs are there."""
        self.start(default_upstream="docker.io")
        self.wb.get("/v2/library/alpine/manifests/v1")
        pushing = ("PUT", "/v2/library/alpine/manifests/mine", {"Content-Type": IMAGE},
                   self.image.body)
        self.error(self.wb.request(*pushing), 404, "MANIFEST_BLOB_UNKNOWN")  # none is held so far
        self.assertEqual(self.wb.get("/v2/library/alpine/manifests/v1")[0], 200,
                         "nothing is here under the name")
        pulled = self.pull("library/alpine", "v1")
        for digest in self.image.blobs:
            self.assertEqual(self.wb.head(f"/v2/library/alpine/blobs/{digest}")[0], 200)
        self.assertEqual(self.wb.request(*pushing)[0], 201)
        self.registry.stop()
        self.assertEqual(self.pull("library/alpine", "mine"), pulled)
        self.registry.start()


if __name__ == "__main__":
    unittest.main()
