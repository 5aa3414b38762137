"""What a client is told that takes any answer to its GET of a file for the file: the crate hf-hub
1.0.0, which looks at no status then, but whether the body is whole."""

import http.client
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import EndToEnd  # noqa: E402

FILES = {"config.json": b'{"model_type": "llama"}', "w.bin": b"weights" * 9000, "empty.txt": b""}
AGENTS = ("hf-hub/1.0.0", "hf-hub/1.0.0; some-program")
OTHERS = ("unknown/None; hf-hub/0.5.0; rust/unknown", "hf-hub/10.0", "python-requests/2", "")


class Unfinished(EndToEnd):
    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Model", FILES)
        self.hub.add_repo("Org/Gated", FILES, gated="manual", tokens=["hf_x"])
        self.wb = self.make_weighbridge(config={
            "upstreams": [{"prefix": "hf", "kind": "huggingface", "url": self.hub.url,
                           "tag_ttl": "1h"}],
            "policies": [{"repositories": "hf/org/denied", "deny": True}]})

    def ask(self, path, agent, method="GET", **headers):
        """(status, headers, the body as far as it came, whether that was all)"""
        host, port = self.wb.host.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        try:
            connection.request(method, path, headers={**headers, **(
                {"User-Agent": agent} if agent else {})})
            answer = connection.getresponse()
            try:
                return answer.status, answer.headers, answer.read(), True
            except http.client.IncompleteRead as error:
                return answer.status, answer.headers, error.partial, False
        finally:
            connection.close()

    def check(self, path, status, code=None, **headers):
        for agent in (*AGENTS, *OTHERS):
            got, said, body, whole = self.ask(path, agent, **headers)
            self.assertEqual((got, said["X-Error-Code"], whole), (status, code, agent in OTHERS),
                             f"{agent} {path} {body}")
            self.assertTrue(json.loads(body)["error"])
            self.assertTrue(said["X-Error-Message"])
            self.assertEqual(int(said["Content-Length"]) - len(body), agent not in OTHERS)
            if agent not in OTHERS:
                self.assertEqual(said["Connection"], "close")
            got, said, body, whole = self.ask(path, agent, "HEAD", **headers)
            self.assertEqual((body, whole), (b"", True))

    def test_refusals(self):
        for kind in ("resolve", "raw"):
            self.check(f"/hf/Org/Model/{kind}/main/nope", 404, "EntryNotFound")
            self.check(f"/hf/Org/Model/{kind}/nope/w.bin", 404, "RevisionNotFound")
            self.check(f"/hf/Org/Nothing/{kind}/main/w.bin", 404, "RepoNotFound")
            self.check(f"/hf/Org/Denied/{kind}/main/w.bin", 403)
        self.check("/hf/Org/Model/resolve/main/w.bin", 416, Range="bytes=900000-")

    def test_a_file_that_everybody_may_list_and_nobody_read(self):
        self.assertEqual(self.wb.get("/hf/api/models/Org/Gated/tree/main")[0], 200)
        self.check("/hf/Org/Gated/resolve/main/w.bin", 403, "GatedRepo")

    def test_without_the_hub(self):
        self.assertEqual(self.wb.get("/hf/api/models/Org/Model/tree/main")[0], 200)
        self.hub.stop()
        self.addCleanup(self.hub.start)
        self.check("/hf/Org/Model/resolve/main/w.bin", 429)

    def test_what_is_no_error_is_whole(self):
        for agent in (*AGENTS, *OTHERS):
            for path, data in FILES.items():
                got, said, body, whole = self.ask(f"/hf/Org/Model/resolve/main/{path}", agent)
                self.assertEqual((got, body, whole), (200, data, True), f"{agent} {path}")
            got, _, body, whole = self.ask("/hf/Org/Model/resolve/main/w.bin", agent,
                                           Range="bytes=7-13")
            self.assertEqual((got, body, whole), (206, b"weights", True))
            got, _, _, whole = self.ask(f"/hf/Org/Model/resolve/main/{path}", agent,
                                        **{"If-None-Match": said["ETag"]})
            self.assertEqual((got, whole), (304, True))

    def test_errors_of_other_questions_are_whole(self):
        for agent in AGENTS:
            for path in ("/hf/api/models/Org/Nothing", "/hf/api/models/Org/Model/tree/nope",
                         "/hf/api/models/Org/Model/refs/x", "/v2/hf/org/nothing/manifests/main"):
                got, _, body, whole = self.ask(path, agent)
                self.assertGreaterEqual(got, 400)
                self.assertTrue(whole and body, path)


if __name__ == "__main__":
    unittest.main()
