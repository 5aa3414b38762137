#!/usr/bin/env python3
"""An edge server whose upstream is another, the root, which has the registries and the Hub: set up by
the files in docs/scaling/, in which only addresses are changed."""

import json
import os
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from blob_case import BlobCase, Pattern, Pull, in_threads  # noqa: E402
from harness import ROOT, binary, paths_of, sha256  # noqa: E402
from mirror_case import Noise, StandInRegistry  # noqa: E402
from standin_wire import keep_port  # noqa: E402

DOCUMENTED = Path(ROOT, "docs", "scaling")
ROOT_URL = "http://root.example:5000"  # in the files
READERS = 20
SIZE = 6_000_000
LAYER = bytes(Noise(SIZE, "a layer at the far end").read(0, SIZE))
QUICK = {"connect_timeout": "2s", "retries": 1}  # a broken test is not to take minutes


def kept_port(test):
    """For servers that know of each other before they run, and for one that comes back."""
    kept = keep_port()
    test.addCleanup(kept.close)
    return kept.getsockname()[1]


class ChainCase(BlobCase):
    """self.edge before self.root before self.registry (as docker.io and ghcr.io) and self.hub."""

    ROOT_TTL = EDGE_TTL = "1h"

    def setUp(self):
        super().setUp()
        self.registry = StandInRegistry().start()
        self.addCleanup(self.end_registry)
        self.repo = self.registry.add_repo("library/app")
        self.image = self.repo.add_image([{"etc/name": b"one"}, LAYER], tag="v1")
        self.other = self.repo.add_image([{"etc/name": b"two"}])
        self.layer = self.image.blobs[-1]
        self.root = self.make_root()
        self.edge = self.make_edge()

    def end_registry(self):
        self.registry.stop()
        self.assertEqual(self.registry.errors, [], "the stand-in registry itself failed")

    @staticmethod
    def documented(name, url_of, **settings):
        config = json.loads((DOCUMENTED / name).read_text())
        del config["listen"], config["data"]  # the tests' own
        for upstream in config["upstreams"]:
            upstream.update(QUICK, url=url_of(upstream), negative_ttl="0s", **settings)
        return config

    def make_root(self, **settings):
        def url_of(upstream):
            return self.registry.url if upstream.get("kind") == "oci" else self.hub.url
        return self.make_weighbridge(config=self.documented(
            "root.json", url_of, tag_ttl=self.ROOT_TTL, **settings))

    def make_edge(self, **settings):
        def url_of(upstream):
            self.assertTrue(upstream["url"].startswith(ROOT_URL + "/v2/"), upstream)
            return upstream["url"].replace(ROOT_URL, self.root.url)
        return self.make_weighbridge(config=self.documented(
            "edge.json", url_of, tag_ttl=self.EDGE_TTL, **settings))

    def pulls(self, manifest, reference="v1", name="docker.io/library/app", warning=None):
        status, headers, body = self.edge.get(f"/v2/{name}/manifests/{reference}")
        self.assertEqual(status, 200, body)
        self.assertEqual(body, manifest.body)
        self.assertEqual(headers["Docker-Content-Digest"], manifest.digest)
        said = headers["Warning"]
        if warning is None:
            self.assertIsNone(said)
        else:
            self.assertRegex(said or "", '^299 - "served from the store, last confirmed ')
            self.assertIn(warning, said)
        return headers

    def pulls_blob(self, digest=None, name="docker.io/library/app", wb=None):
        digest = digest or self.layer
        status, _, body = (wb or self.edge).blob(name, digest)
        self.assertEqual(status, 200, body[:2000])
        self.assertEqual(sha256(body), digest)

    def pulls_image(self, **more):
        self.pulls(self.image, **more)
        self.pulls(self.image, self.image.digest)
        for digest in self.image.blobs:
            self.pulls_blob(digest)

    def sent(self, digest=None):
        """(requests, bytes) of a blob that the registry has seen and sent."""
        where = {"path": digest or self.layer, "kind": "blob", "method": "GET"}
        return (self.registry.count("registry", **where),
                self.registry.bytes_sent("registry", **where))


class Pulls(ChainCase):
    def test_files_are_valid_as_they_are(self):
        for name in ("root.json", "edge.json"):
            done = subprocess.run([binary(), "config", "show", "--config", DOCUMENTED / name],
                                  capture_output=True, text=True, env={}, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_peer_bug_61_chain(self):
        """A first pull through both is right, and costs the registry one copy."""
        self.pulls_image()
        self.assertEqual(self.sent(), (1, SIZE))
        self.assertEqual(self.registry.pulls(), 1)
        self.pulls_image()
        self.assertEqual(self.sent(), (1, SIZE))
        for wb in (self.edge, self.root):
            self.until("the layer to be held", lambda wb=wb: self.held(wb, self.layer))

    def test_peer_bug_61_chain_streams(self):
        """The edge's client has bytes while the registry still sends: the root waits for no end."""
        self.pulls(self.image)
        hold = self.registry.hold(kind="blob", path=self.layer, bytes=SIZE // 2)
        pull = Pull(self.edge, self.layer, name="docker.io/library/app")
        self.assertEqual(pull.status, 200)
        self.assertEqual(pull.expected, SIZE)
        self.assertEqual(pull.take(1_000_000), LAYER[:1_000_000])
        self.assertTrue(hold.wait_held(1))
        for wb in (self.edge, self.root):
            self.assertFalse(self.held(wb, self.layer))
        hold.release()
        self.assertTrue(pull.finish().complete)
        self.assertEqual(pull.digest, self.layer)

    def test_a_crowd_at_the_edge_costs_one_copy(self):
        self.pulls(self.image)
        hold = self.registry.hold(kind="blob", path=self.layer, before=True)

        def read(_):
            pull = Pull(self.edge, self.layer, name="docker.io/library/app").finish()
            self.assertEqual((pull.status, pull.digest), (200, self.layer))
        with in_threads(READERS, read):
            self.assertTrue(hold.wait_held(1))
            self.until("every reader to wait", lambda: self.metric(
                self.edge, "weighbridge_transfer_readers") == READERS)
            hold.release()
        self.assertEqual(self.sent(), (1, SIZE))
        self.until("the root to log it", lambda: self.root.log_lines(
            event="request", digest=self.layer, method="GET"))
        self.assertEqual(self.root.stop(), 0)  # now its log is complete
        self.assertEqual(len(self.root.log_lines(event="request", digest=self.layer,
                                                 method="GET")), 1)

    def test_several_edges_cost_one_copy(self):
        edges = [self.edge, self.make_edge(), self.make_edge()]
        hold = self.registry.hold(kind="blob", path=self.layer, bytes=SIZE // 2)

        def read(i):
            self.assertEqual(edges[i].get("/v2/docker.io/library/app/manifests/v1")[0], 200)
            pull = Pull(edges[i], self.layer, name="docker.io/library/app").finish()
            self.assertEqual((pull.status, pull.digest), (200, self.layer))
        with in_threads(len(edges), read):
            self.assertTrue(hold.wait_held(1))
            self.until("every edge to read", lambda: self.metric(
                self.root, "weighbridge_transfer_readers") == len(edges))
            hold.release()
        self.assertEqual(self.sent(), (1, SIZE))

    def test_several_connections_cost_one_copy(self):
        """Where one is slow both servers open more, the edge into what the root does not have."""
        size = 120_000_000
        digest = self.repo.add_blob(Noise(size, "a large layer"))["digest"]
        self.registry.set_options(rate=20_000_000)
        pull = Pull(self.edge, digest, name="docker.io/library/app").finish()
        self.assertEqual((pull.status, pull.digest), (200, digest))
        requests, sent = self.sent(digest)
        self.assertGreater(requests, 1)
        for wb in (self.root, self.edge):
            fetched = self.metric(wb, 'weighbridge_upstream_bytes_total{upstream="docker.io"}')
            self.assertLess(fetched, 1.05 * size)
        # What was on its way in a connection that was given up is in the kernel's buffers.
        self.assertLess(sent, 1.5 * size)

    def test_ranges_of_a_cold_blob(self):
        self.pulls(self.image)
        for first, last in ((0, 99_999), (SIZE // 2, SIZE // 2 + 99_999), (SIZE - 1000, SIZE - 1)):
            status, headers, body = self.edge.blob("docker.io/library/app", self.layer,
                                                   {"Range": f"bytes={first}-{last}"})
            self.assertEqual((status, body), (206, LAYER[first:last + 1]))
            self.assertEqual(headers["Content-Range"], f"bytes {first}-{last}/{SIZE}")
        self.pulls_blob()

    def test_a_range_far_ahead_waits_for_nothing(self):
        """Neither at the edge nor at the root, whose download stands still."""
        self.pulls(self.image)
        hold = self.registry.hold(kind="blob", path=self.layer, bytes=300_000, times=1)
        first = Pull(self.edge, self.layer, name="docker.io/library/app")
        self.assertEqual(first.take(1000), LAYER[:1000])
        self.assertTrue(hold.wait_held(1))
        status, _, body = self.edge.blob("docker.io/library/app", self.layer,
                                         {"Range": "bytes=4000000-4099999"})
        self.assertEqual((status, body), (206, LAYER[4_000_000:4_100_000]))
        self.assertFalse(self.held(self.root, self.layer))
        hold.release()
        self.assertEqual(first.finish().digest, self.layer)

    def test_names_are_the_same_on_the_way(self):
        """By the prefix, by ?ns= and by default_upstream, in the short form and the long one."""
        for name, query in (("docker.io/library/app", ""), ("docker.io/app", ""), ("app", ""),
                            ("library/app", "?ns=docker.io"), ("app", "?ns=docker.io")):
            with self.subTest(name, query=query):
                status, headers, body = self.edge.get(f"/v2/{name}/manifests/v1{query}")
                self.assertEqual((status, body), (200, self.image.body))
                self.assertEqual(headers["OCI-Namespace"], "docker.io" if query else None)
                status, _, body = self.edge.get(f"/v2/{name}/blobs/{self.layer}{query}")
                self.assertEqual((status, sha256(body)), (200, self.layer))
        self.assertEqual(self.sent(), (1, SIZE))
        for wb in (self.edge, self.root):
            _, _, body = wb.get("/v2/_catalog")
            self.assertEqual(json.loads(body)["repositories"], ["docker.io/library/app"])

    def test_another_registry_of_the_roots(self):
        image = self.registry.add_repo("org/tool").add_image([{"a": b"b"}], tag="v2")
        self.pulls(image, "v2", name="ghcr.io/org/tool")
        for digest in image.blobs:
            self.pulls_blob(digest, name="ghcr.io/org/tool")
        status, headers, body = self.edge.get("/v2/org/tool/manifests/v2?ns=ghcr.io")
        self.assertEqual((status, body, headers["OCI-Namespace"]), (200, image.body, "ghcr.io"))
        status, _, body = self.edge.get("/v2/org/tool/manifests/v2?ns=quay.io")
        self.assertEqual(status, 404, body)

    def test_what_is_not_there(self):
        for name, reference in (("docker.io/library/app", "nope"), ("docker.io/no/such", "v1"),
                                ("docker.io/library/app", "sha256:" + "0" * 64)):
            status, _, body = self.edge.get(f"/v2/{name}/manifests/{reference}")
            self.assertEqual(status, 404, body)
            self.assertEqual(json.loads(body)["errors"][0]["code"], "MANIFEST_UNKNOWN")

    def test_tags_and_referrers(self):
        sbom = self.repo.add_artifact({"sbom.json": b"{}"}, "application/spdx+json",
                                      subject=self.image)
        self.repo.move_tag("v2", self.other)
        name = "docker.io/library/app"
        _, _, body = self.edge.get(f"/v2/{name}/tags/list")
        self.assertEqual(json.loads(body)["tags"], ["v1", "v2"])
        _, headers, body = self.edge.get(f"/v2/{name}/referrers/{self.image.digest}")
        self.assertIsNone(headers["Warning"])
        self.assertEqual([d["digest"] for d in json.loads(body)["manifests"]], [sbom.digest])
        self.pulls(sbom, sbom.digest)
        for digest in sbom.blobs:
            self.pulls_blob(digest)


class Models(ChainCase):
    """The Hub, two servers away."""

    def test_a_model_has_the_same_digests_everywhere(self):
        model = self.add_model(SIZE)
        digest, manifest = self.pull_manifest(self.edge, "hf/org/model", "main")
        self.assertEqual(self.pull_manifest(self.root, "hf/org/model", "main"), (digest, manifest))
        alone = self.make_weighbridge(self.hub.url)
        self.assertEqual(self.pull_manifest(alone, "hf/org/model", "main"), (digest, manifest))
        self.assertEqual(self.pull_manifest(self.edge, "hf/org/model", digest)[0], digest)
        self.hub.reset()
        self.assertEqual(paths_of(manifest)["model.safetensors"]["digest"], model.digest)
        for part in [manifest["config"], *manifest["layers"]]:
            self.pulls_blob(part["digest"], name="hf/org/model")
        self.assertEqual(self.cdn_bytes(), SIZE)
        self.hub.stop()
        self.root.stop()
        for part in [manifest["config"], *manifest["layers"]]:
            self.pulls_blob(part["digest"], name="hf/org/model")

    def test_revisions(self):
        self.add_model(100_000)
        commit = self.hub.repo("Org/Model").branches["main"]
        by_commit = self.pull_manifest(self.edge, "hf/org/model", commit)
        self.assertEqual(self.pull_manifest(self.edge, "hf/org/model", "latest"), by_commit)
        status, _, body = self.edge.get("/v2/hf/org/model/manifests/v9")
        self.assertEqual(status, 404, body)
        tags = [json.loads(wb.get("/v2/hf/org/model/tags/list")[2])["tags"]
                for wb in (self.edge, self.root)]
        self.assertEqual(tags[0], tags[1])
        self.assertIn(commit, tags[0])

    def test_a_cold_weight_file_streams(self):
        model = Pattern(SIZE, 7)
        self.hub.add_repo("Org/Model", {"config.json": b'{"model_type": "llama"}',
                                        "model.safetensors": model})
        self.pull_manifest(self.edge, "hf/org/model", "main")
        hold = self.hub.hold("cdn", path="model.safetensors", bytes=SIZE // 2)
        pull = Pull(self.edge, model.digest)
        self.assertEqual(pull.take(1_000_000), model.whole(0, 999_999))
        self.assertTrue(hold.wait_held(1))
        hold.release()
        self.assertEqual(pull.finish().digest, model.digest)


class Local(ChainCase):
    """What is pushed to the root is pulled at the edges."""

    def make_root(self, **settings):
        root = super().make_root(**settings)
        path = root.args[root.args.index("--config") + 1]
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["access"].insert(0, {"repositories": "models/**", "allow": ["pull", "push"]})
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        root.stop()
        return root.start()

    def push(self, wb, data, tag):
        """(status, manifest)."""
        blob = {"mediaType": "application/octet-stream", "digest": sha256(data), "size": len(data)}
        status, headers, _ = wb.request("POST", "/v2/models/tiny/blobs/uploads/",
                                        {"Content-Length": "0"})
        if status != 202:
            return status, None
        path = headers["Location"].split(wb.host)[-1]
        path += ("&" if "?" in path else "?") + f"digest={blob['digest']}"
        self.assertEqual(wb.request("PUT", path, body=data)[0], 201)
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": blob,
                               "layers": [blob]}).encode()
        return wb.request("PUT", f"/v2/models/tiny/manifests/{tag}", {"Content-Type": kind},
                          manifest)[0], manifest

    def test_pushed_to_the_root_and_pulled_at_the_edge(self):
        data = bytes(Noise(200_000, "pushed").read(0, 200_000))
        status, manifest = self.push(self.root, data, "v1")
        self.assertEqual(status, 201)
        self.assertEqual(self.edge.get("/v2/models/tiny/manifests/v1")[2], manifest)
        self.assertEqual(self.edge.blob("models/tiny", sha256(data))[2], data)
        status, _ = self.push(self.edge, data, "v2")
        self.assertEqual(status, 403)


class Moves(ChainCase):
    """A tag is believed for as long as both of them believe it."""

    def moved(self):
        self.pulls(self.image)
        self.repo.move_tag("v1", self.other)

    def test_peer_bug_56_after_both_ttls(self):
        for root, edge, seen in (("0s", "0s", self.other), ("0s", "1h", self.image),
                                 ("1h", "0s", self.image)):
            with self.subTest(root=root, edge=edge):
                self.ROOT_TTL, self.EDGE_TTL = root, edge
                self.root = self.make_root()
                self.edge = self.make_edge()
                self.moved()
                self.pulls(seen)
                self.repo.move_tag("v1", self.image)

    def test_a_tag_that_is_gone(self):
        self.ROOT_TTL = self.EDGE_TTL = "0s"
        self.root = self.make_root()
        self.edge = self.make_edge()
        self.pulls_image()
        self.repo.delete_tag("v1")
        status, _, body = self.edge.get("/v2/docker.io/library/app/manifests/v1")
        self.assertEqual(status, 404, body)
        self.pulls(self.image, self.image.digest)


class Down(ChainCase):
    EDGE_TTL = ROOT_TTL = "0s"

    def test_peer_bug_53_the_root_is_down(self):
        self.pulls_image()
        self.root.stop()
        self.pulls_image(warning="docker.io")
        status, _, body = self.edge.get("/v2/docker.io/library/app/manifests/never-pulled")
        self.assertEqual(status, 502, body)

    def test_the_root_comes_back(self):
        port = kept_port(self)
        self.root.args[self.root.args.index("--listen") + 1] = f"127.0.0.1:{port}"
        self.root.stop()
        self.root.start()
        edge = self.edge = self.make_edge(breaker_failures=1000)
        self.pulls_image()
        self.root.kill()
        self.pulls(self.image, warning="")
        self.root.start()
        self.pulls(self.image)
        self.assertTrue(edge.running)

    def test_the_root_dies_in_the_middle_of_a_blob(self):
        port = kept_port(self)
        self.root.args[self.root.args.index("--listen") + 1] = f"127.0.0.1:{port}"
        self.root.stop()
        self.root.start()
        self.edge = self.make_edge(retries=20)
        self.pulls(self.image)
        hold = self.registry.hold(kind="blob", path=self.layer, bytes=SIZE // 2, times=1)
        pull = Pull(self.edge, self.layer, name="docker.io/library/app")
        self.assertEqual(pull.take(1_000_000), LAYER[:1_000_000])
        self.root.kill()
        hold.release()
        self.root.start()
        self.assertEqual(pull.finish().digest, self.layer)

    def test_the_registry_is_down_behind_the_root(self):
        """The root's word that it could not ask comes through."""
        self.pulls_image()
        self.registry.refuse("registry")
        self.pulls_image(warning="127.0.0.1")
        self.registry.serve("registry")

    def test_a_first_pull_while_the_registry_is_down(self):
        """Of what the root has from before."""
        name = "docker.io/library/app"
        self.assertEqual(self.root.get(f"/v2/{name}/manifests/v1")[0], 200)
        self.pulls_blob(wb=self.root)
        self.registry.refuse("registry")
        self.pulls(self.image, warning="127.0.0.1")
        self.pulls(self.image, warning="127.0.0.1")
        self.pulls_blob()
        self.registry.serve("registry")
        self.until("news of the tag", lambda: self.edge.get(
            f"/v2/{name}/manifests/v1")[1]["Warning"] is None)

    def test_offline(self):
        self.pulls_image()
        self.root.stop()
        self.edge.stop()
        path = self.edge.args[self.edge.args.index("--config") + 1]
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**config, "offline": True}, f)
        self.edge.start()
        self.pulls_image(warning="offline")


class Circles(BlobCase):
    """Servers that are each other's upstream."""

    TTL = "0s"

    def circle(self, count, stall="2s"):
        """As many servers, each the upstream of the one before it."""
        ports = [kept_port(self) for _ in range(count)]
        return [self.make_weighbridge(port=port, config={"upstreams": [{
            "prefix": "up", "kind": "oci", "tag_ttl": self.TTL, "negative_ttl": "0s", **QUICK,
            "stall_timeout": stall,
            "url": f"http://127.0.0.1:{ports[(i + 1) % count]}/v2/up"}]})
            for i, port in enumerate(ports)]

    def asked(self, servers):
        return sum(len(wb.log_lines(event="request")) for wb in servers)

    def check(self, count):
        servers = self.circle(count)
        digest = "sha256:" + "0" * 64
        for path in ("manifests/v1", f"manifests/{digest}", f"blobs/{digest}", "tags/list"):
            with self.subTest(path, servers=count):
                before = self.asked(servers)
                status, _, body = servers[0].get(f"/v2/up/team/app/{path}")
                self.assertEqual(status, 508, body)
                self.assertIn("circle", json.loads(body)["errors"][0]["message"])
                # The first one twice: at the second time it sees that it is a circle.
                self.until("log lines", lambda before=before: self.asked(servers) > before + count)
                self.assertEqual(self.asked(servers), before + count + 1)

    def test_a_server_that_is_its_own_upstream(self):
        self.check(1)

    def test_two(self):
        self.check(2)

    def test_three(self):
        self.check(3)

    def test_a_crowd(self):
        """Questions that meet wait for each other."""
        servers = self.circle(2)
        with ThreadPoolExecutor(READERS) as pool:
            answers = list(pool.map(lambda i: servers[i % 2].get(
                f"/v2/up/team/app{i // 4}/manifests/v1"), range(READERS)))
        for status, _, body in answers:
            self.assertIn(status, (502, 504, 508), body)

    def test_questions_that_meet_are_seen_through(self):
        for count in (2, 3):
            servers = self.circle(count, stall="100s")
            with self.subTest(servers=count), ThreadPoolExecutor(4 * count) as pool:
                began = time.monotonic()
                answers = list(pool.map(lambda i, n=count, to=servers: to[i % n].get(
                    f"/v2/up/team/app{i // n}/manifests/v1"), range(4 * count)))
                self.assertLess(time.monotonic() - began, 90)
                for status, _, body in answers:
                    self.assertEqual(status, 508, body)
                    self.assertIn("circle", json.loads(body)["errors"][0]["message"])


if __name__ == "__main__":
    unittest.main()
