#!/usr/bin/env python3
"""A Hub that takes the connection and says nothing: clients of files are told before they give up by
themselves, and the question goes on, so that whoever comes again has its answer."""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from blob_case import in_threads  # noqa: E402
from hub_api_case import HubApiCase  # noqa: E402

FILES = {"config.json": b'{"a":1}', "model.safetensors": b"w" * 200_000}
CLIENTS_GIVE_UP_S = 10


class ASilentHub(HubApiCase):
    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Model", FILES)
        self.wb = self.make_server(self.hub, stall_timeout="60s", breaker_failures=1000)

    def ask(self, method, name):
        began = time.monotonic()
        answer = self.wb.request(method, f"/Org/Model/resolve/main/{name}")
        self.assertLess(time.monotonic() - began, CLIENTS_GIVE_UP_S)
        return answer

    def told(self, method, name, wanted):
        status, headers, body = self.ask(method, name)
        self.assertEqual(status, wanted, body)
        self.assertGreater(int(headers["Retry-After"]), 0)
        self.assertIn("has not answered in time", headers["X-Error-Message"])

    def heads(self):
        return self.hub.count("hub", method="HEAD")

    def comes_in_the_end(self, method, wanted, name, finding, locating):
        """finding, locating: how many HEADs that takes; a download of LFS asks where it is."""
        hold = self.hub.fault("hub_hold", times=1)
        self.told(method, name, wanted)
        self.assertTrue(hold.wait_held(1))
        hold.release()
        self.until("the answer to be there", lambda: self.heads() == finding and
                   all(r.done for r in self.hub.requests("hub")))
        status, _, body = self.ask("GET", name)
        self.assertEqual((status, body), (200, FILES[name]))
        self.assertEqual(self.heads(), finding + locating)

    def test_a_get(self):
        self.comes_in_the_end("GET", 429, "model.safetensors", 1, 1)

    def test_a_head(self):
        self.comes_in_the_end("HEAD", 503, "model.safetensors", 1, 1)

    def test_a_small_file(self):
        self.comes_in_the_end("GET", 429, "config.json", 2, 0)

    def test_many_at_once(self):
        """Those that share a question, too, whenever they came."""
        hold = self.hub.fault("hub_hold")
        with in_threads(12, lambda i: self.told("GET", list(FILES)[i % 2], 429)):
            self.assertTrue(hold.wait_held(2))
        hold.release()


if __name__ == "__main__":
    unittest.main()
