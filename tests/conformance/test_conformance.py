#!/usr/bin/env python3
"""The conformance suites of the OCI distribution specification, run against the program as it is
shipped. Anything but a pass of everything that a suite can try is a failure."""

import http.server
import json
import os
import shutil
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "clients"),
                os.path.join(HERE, "..", "hub")]

import suites  # noqa: E402
from harness import EndToEnd  # noqa: E402
from hub_clients import CannotInstall  # noqa: E402
from tools import tool  # noqa: E402

CHECKS_AT_LEAST = 900  # with every option on; fewer means that options have got other names
SPECS = 79
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
# Of these specs each has a sibling for a registry, or a run, of the other kind.
SIBLINGS = {
    "Get tag name from environment",
    "Populate registry with test tags (no push)",
    "Cross-mounting of nonexistent blob should yield session id",
    "Cross-mounting without from, and automatic content discovery disabled should return a 202",
}


class SuiteCase(EndToEnd):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="weighbridge-conformance-")
        self.addCleanup(shutil.rmtree, self.scratch)

    def program(self, name):
        try:
            return tool(name)
        except CannotInstall as error:
            self.skipTest(("unreachable: " if error.offline else "") + f"{name}: {error}")

    def newest(self, host, version, **settings):
        return suites.newest(self.program("conformance"), host, self.scratch, version,
                             {**suites.EVERYTHING, **settings})


class Newest(SuiteCase):
    def everything_passes(self, version):
        verdict = self.newest(self.make_weighbridge().host, version)
        print(f"\nOCI_VERSION={version}: {verdict.counts}", file=sys.stderr)
        passed = verdict.counts.get("Pass", 0)
        self.assertEqual(verdict.counts, {"Pass": passed, "FAIL": 0, "Error": 0, "Skip": 0,
                                          "Disabled": 0}, verdict)
        self.assertEqual((verdict.status, verdict.checks), (0, []), verdict)
        self.assertGreater(passed, CHECKS_AT_LEAST)

    def test_version_1_1(self):
        self.everything_passes("1.1")

    def test_version_in_development(self):
        self.everything_passes("dev")

    def test_sparse_manifests_are_refused_and_nothing_else(self):
        verdict = self.newest(self.make_weighbridge().host, "dev", OCI_DATA_SPARSE="true")
        self.assertGreater(verdict.counts["FAIL"], 0)
        self.assertEqual([name for name, _, _ in verdict.checks if "/sparse/" not in name], [],
                         verdict)

    def test_without_deletion_nothing_else_is_missing(self):
        wb = self.make_weighbridge(config={"delete": "deny"})
        verdict = self.newest(wb.host, "dev")
        counts = dict(verdict.counts)
        self.assertEqual((counts.pop("FAIL"), counts.pop("Error"), counts.pop("Disabled")),
                         (0, 0, 0), verdict)
        self.assertGreater(counts["Skip"], 0, "deletion is denied, and all was deleted")
        self.assertEqual([name for name, _, _ in verdict.checks if "delete" not in name], [])

    def test_a_bad_registry_does_not_pass(self):
        """What runs the suite sees it fail, too."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotFound)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            verdict = self.newest(f"127.0.0.1:{server.server_port}", "1.1")
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
        self.assertEqual(verdict.status, 1)
        self.assertGreater(verdict.counts["FAIL"], 100)
        self.assertGreater(verdict.counts["Pass"], 0)  # it asks for absent things as well
        self.assertIn("OCI Conformance Test/empty/referrers",
                      [name for name, _, _ in verdict.checks])


class ReadOnly(SuiteCase):
    """A model of the Hub's, asked for what a registry gives that takes nothing."""

    def test_imported_model(self):
        hub = self.make_hub()
        hub.add_repo("Org/Tiny", {"config.json": b'{"model_type": "llama"}',
                                  "README.md": b"# Tiny\n" * 900})
        wb = self.make_weighbridge(hub.url)
        digest, manifest = self.pull_manifest(wb, "hf/org/tiny", "main")
        blobs = [part["digest"] for part in (manifest["config"], *manifest["layers"])]
        off = ("API_PUSH", "API_BLOBS_DELETE", "API_MANIFESTS_DELETE", "API_TAGS_DELETE",
               # In this mode the suite looks for the header where it has kept no answer.
               "API_MANIFESTS_DIGEST_HEADER")
        verdict = self.newest(wb.host, "dev", OCI_REPO1="hf/org/tiny", OCI_RO_DATA_TAGS="main",
                              OCI_RO_DATA_MANIFESTS=digest, OCI_RO_DATA_BLOBS=" ".join(blobs),
                              OCI_RO_DATA_REFERRERS=digest, **{f"OCI_{name}": "false"
                                                               for name in off})
        print(f"\nread-only: {verdict.counts}", file=sys.stderr)
        counts = {name: verdict.counts.get(name) for name in ("FAIL", "Error", "Skip")}
        self.assertEqual(counts, {"FAIL": 0, "Error": 0, "Skip": 0}, verdict.output)
        # The tag list; the manifest by both names and each blob, HEAD and GET; then absent ones.
        self.assertGreaterEqual(verdict.counts["Pass"], 5 + 2 * len(blobs))
        # It breaks down over its own report, once it has printed what it found.
        self.assertIn(verdict.status, (0, 2))


class NotFound(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.close_connection = True  # what the body holds is nobody's next request
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *args):
        pass


class Ginkgo(SuiteCase):
    """The older kind of suite. WEIGHBRIDGE_GINKGO_SUITE names another build of one, such as that of
    the tag v1.1.1, which the Go module proxy does not serve (docs/testing.md)."""

    def all_specs_pass(self, **settings):
        wb, prefix = self.make_weighbridge(), suites.fresh_prefix()
        program = os.environ.get("WEIGHBRIDGE_GINKGO_SUITE")
        if not program:
            program = self.program("conformance-ginkgo")
            # This one wants 200 for the tags of a repository that it has emptied. Later ones know
            # that such a repository may be gone, as ours is. Here it keeps one manifest.
            status, _, said = wb.request(
                "PUT", f"/v2/{prefix}/one/manifests/kept", {"Content-Type": INDEX_TYPE},
                json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}))
            self.assertEqual(status, 201, said)
        verdict = suites.ginkgo(program, wb.host, self.scratch, prefix,
                                {"OCI_AUTOMATIC_CROSSMOUNT": "1", **settings})
        print(f"\n{settings}: {verdict.counts}", file=sys.stderr)
        self.assertEqual((verdict.status, verdict.checks), (0, []), verdict)
        self.assertEqual(verdict.skipped, SIBLINGS)
        self.assertEqual(verdict.counts, {"all": SPECS, "run": SPECS - len(SIBLINGS),
                                          "Pass": SPECS - len(SIBLINGS), "Skip": len(SIBLINGS),
                                          "FAIL": 0, "Pending": 0}, verdict)

    def test_manifests_deleted_before_blobs(self):
        self.all_specs_pass(OCI_DELETE_MANIFEST_BEFORE_BLOBS="1")

    def test_blobs_deleted_before_manifests(self):
        self.all_specs_pass(OCI_DELETE_MANIFEST_BEFORE_BLOBS="0")


if __name__ == "__main__":
    unittest.main()
