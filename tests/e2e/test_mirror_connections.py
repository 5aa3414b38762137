#!/usr/bin/env python3
"""The bound on the connections to all upstreams together, counted at two registries."""

import hashlib
import unittest

from blob_case import in_threads
from mirror_case import PREFIX, REPO, MirrorCase, Noise

OTHER = "other.test"
BLOBS = 8
LIMIT = 6  # one place is kept for each of the two


class OfAllTogether(MirrorCase):
    def setUp(self):
        super().setUp()
        self.wb.stop()
        self.registries = {PREFIX: self.registry, OTHER: self.make_registry()}
        self.registries[OTHER].add_repo(REPO)
        self.layers = {prefix: [Noise(100_000 + i, f"{prefix} {i}") for i in range(BLOBS)]
                       for prefix in self.registries}
        self.images = {prefix: registry.repos[REPO].add_image(self.layers[prefix], tag="many")
                       for prefix, registry in self.registries.items()}

    def start(self, limit, **settings):
        self.wb = self.make_weighbridge(config={
            "limits": {"upstream_connections": limit, "transfers": 2 * BLOBS},
            "upstreams": [self.upstream(**{"prefix": prefix, "url": registry.url, "retries": 0,
                                           "stall_timeout": "60s", "tag_ttl": "1h", **settings})
                          for prefix, registry in self.registries.items()]})

    def get(self, prefix, what, reference):
        return self.wb.request("GET", f"/v2/{prefix}/{REPO}/{what}/{reference}")

    def manifest(self, prefix, reference="many"):
        status, _, body = self.get(prefix, "manifests", reference)
        self.assertEqual((status, body), (200, self.images[prefix].body))

    def blob(self, prefix, i):
        digest = self.images[prefix].blobs[-BLOBS + i]
        status, _, body = self.get(prefix, "blobs", digest)
        self.assertEqual(status, 200, body[:1000])
        self.assertEqual("sha256:" + hashlib.sha256(body).hexdigest(), digest)

    def open(self):
        return [registry.connections("registry")["open"] for registry in self.registries.values()]

    def metric(self, name):
        line = f"\n{name} "
        return int(self.wb.get("/metrics")[2].decode().split(line)[1].split("\n")[0])

    def test_no_more_than_there_are(self):
        self.start(LIMIT)
        for prefix in self.registries:
            self.manifest(prefix)
        holds = [registry.hold(kind="blob", method="GET", before=True)
                 for registry in self.registries.values()]
        with in_threads(2 * BLOBS, lambda i: self.blob((PREFIX, OTHER)[i % 2], i // 2)):
            try:
                self.until("every download to begin", lambda: self.metric(
                    "weighbridge_transfers_running") == 2 * BLOBS)
                self.until("every place to be taken", lambda: sum(
                    hold.waiting for hold in holds) == LIMIT)
                self.assertEqual(self.metric("weighbridge_upstream_connections"), LIMIT)
                self.assertEqual(self.metric("weighbridge_upstream_connections_max"), LIMIT)
                self.assertEqual(sum(hold.arrived for hold in holds), LIMIT)
                self.until("idle ones to have made room", lambda: sum(self.open()) == LIMIT)
            finally:
                for hold in holds:
                    hold.release()
        self.until("each place to be given back", lambda: self.metric(
            "weighbridge_upstream_connections") == 0)
        self.assertLessEqual(sum(self.open()), LIMIT)

    def test_idle_ones_make_room(self):
        """All that is open to one of them is closed, but for what is kept for it."""
        self.start(LIMIT)
        for prefix, other in ((PREFIX, OTHER), (OTHER, PREFIX)):
            self.manifest(prefix)
            hold = self.registries[prefix].hold(kind="blob", method="GET", before=True)
            with in_threads(BLOBS, lambda i, prefix=prefix: self.blob(prefix, i)):
                try:
                    self.until("all it may have", lambda hold=hold: hold.waiting == LIMIT - 1)
                    self.until("the other's to be closed", lambda: sum(self.open()) <= LIMIT)
                    self.assertEqual(self.registries[prefix].connections("registry")["open"],
                                     LIMIT - 1)
                    self.assertLessEqual(self.registries[other].connections("registry")["open"], 1)
                finally:
                    hold.release()

    def test_one_that_hangs_leaves_the_others_their_share(self):
        self.start(LIMIT)
        self.manifest(PREFIX)
        hold = self.registry.hold(kind="blob", method="GET", before=True)
        with in_threads(BLOBS, lambda i: self.blob(PREFIX, i)):
            try:
                self.assertTrue(hold.wait_held(LIMIT - 1))
                self.until("the others to wait", lambda: self.metric(
                    "weighbridge_transfers_running") == BLOBS)
                self.manifest(OTHER)
                for i in range(BLOBS):
                    self.blob(OTHER, i)
                self.assertEqual(hold.waiting, LIMIT - 1)
            finally:
                hold.release()

    def test_who_gets_none_is_told_which_limit(self):
        """Of a single place none can be kept."""
        self.start(1, stall_timeout="3s")
        self.manifest(PREFIX)
        throttle = self.registry.fault("throttle", kind="blob", rate=15_000)
        with in_threads(1, lambda _: self.blob(PREFIX, 0)):
            try:
                self.until("it to be taken", lambda: self.metric(
                    "weighbridge_upstream_connections") == 1)
                status, headers, body = self.get(OTHER, "manifests", "many")
                self.assertIn("all 1 to all upstreams together are in use",
                              self.error_text(503, "UNAVAILABLE", status, body))
                self.assertIn("limits.upstream_connections", body.decode())
                self.assertGreater(int(headers["Retry-After"]), 0)
            finally:
                throttle.remove()
        self.manifest(OTHER)


if __name__ == "__main__":
    unittest.main()
