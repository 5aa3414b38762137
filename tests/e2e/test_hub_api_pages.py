"""Pages of what the Hub's own API lists, for the few who ask for them, and the manifest that
llama.cpp asks for."""

import hashlib
import json
import os
import re
import sys
import unittest
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import EndToEnd, gguf_file  # noqa: E402

ROOT = "/api/models/Org/Model"
LLAMA = {"User-Agent": "llama-cpp", "Accept": "application/json"}


class Pages(EndToEnd):
    FILES = ["a+b c.txt", "d-x.txt", "d/a.txt", "d/e/f.txt", "d/z.txt", "\u00e9&<1>.txt"]
    ALL = ["a+b c.txt", "d", "d-x.txt", "d/a.txt", "d/e", "d/e/f.txt", "d/z.txt", "\u00e9&<1>.txt"]

    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Model", {path: b"x" for path in self.FILES})
        self.commits = [self.hub.add_commit("Org/Model", {"a+b c.txt": b"%d" % i}, keep=True)
                        for i in range(4)]
        self.wb = self.serve()

    def serve(self, **config):
        return self.make_weighbridge(config={"upstreams": [
            {"prefix": "hf", "kind": "huggingface", "url": self.hub.url, "tag_ttl": "1h"}],
            **config})

    def pages(self, path, host=None, wb=None):
        """The paths of each page; each Link is followed as it is."""
        wb, pages, seen = wb or self.wb, [], set()
        while path:
            self.assertNotIn(path, seen)
            seen.add(path)
            status, headers, body = wb.get(path, {"Host": host} if host else {})
            self.assertEqual(status, 200, body)
            pages.append([row["path"] for row in json.loads(body)])
            link = headers["Link"]
            if not link:
                break
            url = re.fullmatch(r'<([^<>]+)>; rel="next"', link)[1]
            parts = urlsplit(url)
            self.base = f"{parts.scheme}://{parts.netloc}"
            self.query = parts.query
            path = url[len(self.base):]
        return pages

    def test_whole_unless_asked_otherwise(self):
        for query in ("recursive=true", "recursive=true&limit=8", "recursive=true&limit=1000"):
            self.assertEqual(self.pages(f"{ROOT}/tree/main?{query}"), [self.ALL], query)

    def test_pages(self):
        for limit in range(1, 8):
            pages = self.pages(f"{ROOT}/tree/main?recursive=true&limit={limit}")
            self.assertEqual(sum(pages, []), self.ALL)
            self.assertEqual({len(page) for page in pages[:-1]}, {limit})
        self.assertEqual(self.pages(f"{ROOT}/tree/main/d?limit=2"),
                         [["d/a.txt", "d/e"], ["d/z.txt"]])
        self.assertEqual(self.pages(f"{ROOT}/tree/main/d%2Fe?limit=1"), [["d/e/f.txt"]])

    def test_the_next_page_is_where_the_client_came_from(self):
        self.pages(f"{ROOT}/tree/main?limit=2&x=%2F+y", host="models.example:8080")
        self.assertEqual(self.base, "http://models.example:8080")
        self.assertIn("limit=2&x=%2F+y&cursor=", self.query)
        self.assertEqual(self.query.count("cursor="), 1)
        wb = self.serve(external_url="https://models.example")
        pages = self.pages(f"/hf{ROOT}/tree/main?recursive=1&limit=3", wb=wb)
        self.assertEqual(self.base, "https://models.example")
        self.assertEqual(sum(pages, []), self.ALL)

    def test_what_is_no_page(self):
        for query in ("limit=0", "limit=x", "limit=-1", "limit=", "cursor=%00", "cursor=a%0ab",
                      "cursor=" + "x" * 5000):
            status, headers, body = self.wb.get(f"{ROOT}/tree/main?{query}")
            self.assertEqual(status, 400, query)
            self.assertTrue(json.loads(body)["error"])
        self.assertEqual(self.wb.get(f"{ROOT}/tree/main/d?cursor=e%2Ff")[0], 400)
        self.assertEqual(self.pages(f"{ROOT}/tree/main/d?cursor=d%2Fzz"), [[]])

    def test_commits(self):
        path = f"{ROOT}/commits/main"
        status, headers, body = self.wb.get(path)
        self.assertEqual((status, headers["X-Total-Count"], headers["Link"]), (200, "5", None))
        everything = json.loads(body)
        self.assertEqual(len(everything), 5)
        for query, n in (("limit=1", 1), ("limit=3", 3), ("limit=100", 5), ("p=0", 5), ("p=1", 0),
                         ("p=7&limit=2", 0), ("expand[]=formatted", 5)):
            status, headers, body = self.wb.get(f"{path}?{query}")
            self.assertEqual((status, headers["X-Total-Count"]), (200, "5"), query)
            self.assertEqual(json.loads(body), everything[:n], query)

    def test_head_says_what_get_says(self):
        for path in (ROOT, f"{ROOT}?blobs=1", f"{ROOT}?expand=sha", f"{ROOT}/tree/main",
                     f"{ROOT}/tree/main?limit=2", f"{ROOT}/tree/main?expand=true",
                     f"{ROOT}/tree/main/nope", f"{ROOT}/refs", f"{ROOT}/commits/main",
                     f"{ROOT}/auth-check", "/api/whoami-v2"):
            told = []
            for method in ("GET", "HEAD"):
                status, headers, body = self.wb.request(method, path)
                told.append((status, {k: v for k, v in headers.items()
                                      if k not in ("X-Request-Id", "Date")}))
                self.assertEqual(len(body) == 0, method == "HEAD", path)
            self.assertEqual(told[0], told[1], path)


class Llama(EndToEnd):
    def setUp(self):
        self.hub = self.make_hub()
        self.gguf = gguf_file({"t": (32, 2)}, fill=b"gguf")
        names = ["imatrix.gguf", "m-Q4_K_M.gguf", "m-Q6_K-00001-of-00002.gguf",
                 "m-Q6_K-00002-of-00002.gguf", "m & <1>-Q8_0.gguf", "mmproj-F16.gguf"]
        self.hub.add_repo("Org/Eyes-GGUF", {name: self.gguf for name in names})
        self.hub.add_repo("Org/Model", {"config.json": b"{}"})
        self.wb = self.make_weighbridge(config={"upstreams": [
            {"prefix": "hf", "kind": "huggingface", "url": self.hub.url, "tag_ttl": "1h"}]})

    def manifest(self, tag, repo="Org/Eyes-GGUF", prefix="", headers=None):
        return self.wb.get(f"{prefix}/v2/{repo}/manifests/{tag}", {**LLAMA, **(headers or {})})

    def test_what_it_reads(self):
        """With a regular expression, and without undoing escapes."""
        for tag, name in (("latest", "m-Q4_K_M.gguf"), ("q6_k", "m-Q6_K-00001-of-00002.gguf"),
                          ("Q8_0", "m & <1>-Q8_0.gguf"), ("q4", "m-Q4_K_M.gguf"),
                          ("m-Q4_K_M.gguf", "m-Q4_K_M.gguf")):
            for prefix in ("", "/hf"):
                status, headers, body = self.manifest(tag, prefix=prefix)
                self.assertEqual(status, 200, body)
                for key, want in (("ggufFile", name), ("mmprojFile", "mmproj-F16.gguf")):
                    found = re.search(rf'"{key}"[\s\S]*?"rfilename"\s*:\s*"([^"]+)"', body.decode())
                    self.assertEqual(found[1], want)
                    said = json.loads(body)[key]
                    self.assertEqual(said["rfilename"], want)
                    self.assertEqual(said["size"], len(self.gguf))
                    self.assertEqual(said["lfs"]["sha256"], hashlib.sha256(self.gguf).hexdigest())
                    self.assertRegex(said["blobId"], "^[0-9a-f]{40}$")
                self.assertRegex(headers["ETag"], '^"[0-9a-f]{64}"$')
                status, again, body = self.manifest(tag, headers={"If-None-Match": headers["ETag"]})
                self.assertEqual((status, again["ETag"], body), (304, headers["ETag"], b""))

    def test_what_is_not_there(self):
        for tag in ("Q5_K_M", "nonsense"):
            status, headers, body = self.manifest(tag)
            self.assertEqual(status, 404)
            self.assertRegex(json.loads(body)["error"], "Org/Eyes-GGUF.*Q4_K_M, Q6_K, Q8_0")
        status, _, body = self.manifest("latest", "Org/Model")
        self.assertEqual(status, 404)
        self.assertRegex(json.loads(body)["error"], "Org/Model: no GGUF file")
        self.assertEqual(self.manifest("latest", "Org/Nothing")[0], 404)


if __name__ == "__main__":
    unittest.main()
