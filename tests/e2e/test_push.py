#!/usr/bin/env python3
"""Manifests that are pushed, and what hangs on them: tags and their history, referrers,
deletes. Against the real server and its store."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import select
import socket
import sys
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import EndToEnd, sha256  # noqa: E402

IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
ARTIFACT = "application/vnd.oci.artifact.manifest.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
EMPTY = b"{}"
NOBODY = "sha256:" + "9" * 64
MIB = 1 << 20


def sha512(data):
    return "sha512:" + hashlib.sha512(data).hexdigest()


def part(data, media_type=LAYER, digest=sha256):
    return {"mediaType": media_type, "digest": digest(data), "size": len(data)}


def image(layers=(), digest=sha256, **more):
    document = {"schemaVersion": 2, "mediaType": IMAGE, "config": part(EMPTY, CONFIG, digest),
                "layers": [part(layer, LAYER, digest) for layer in layers]}
    return json.dumps({**document, **more}).encode()


def index(*manifests, media_type=INDEX, **more):
    return json.dumps({"schemaVersion": 2, "mediaType": media_type, "manifests": [
        part(m, json.loads(m)["mediaType"]) for m in manifests], **more}).encode()


class PushCase(EndToEnd):
    repository = "team/model"

    def blob(self, wb, *blobs, digest=sha256, repository=None):
        for data in blobs:
            path = f"/v2/{repository or self.repository}/blobs/uploads/?digest={digest(data)}"
            status, _, body = wb.request("POST", path, body=data)
            self.assertEqual(status, 201, body)

    def put(self, wb, reference, manifest, media_type=None, repository=None, headers=None):
        """The whole answer, whatever it is."""
        if media_type is None:
            media_type = json.loads(manifest)["mediaType"]
        return wb.request("PUT", f"/v2/{repository or self.repository}/manifests/{reference}",
                          {"Content-Type": media_type, **(headers or {})}, manifest)

    def push(self, wb, reference, manifest, **options):
        """The headers of a push that must succeed."""
        status, headers, body = self.put(wb, reference, manifest, **options)
        self.assertEqual(status, 201, body)
        return headers

    def refused(self, answer, status, code, *texts):
        got, _, body = answer
        self.assertEqual(got, status, body[:2000])
        errors = json.loads(body)["errors"]
        self.assertEqual(errors[0]["code"], code, body)
        for text in texts:
            self.assertIn(text, errors[0]["message"])
        return errors

    def get(self, wb, reference, repository=None):
        return wb.get(f"/v2/{repository or self.repository}/manifests/{reference}")

    def tags(self, wb, repository=None):
        status, _, body = wb.get(f"/v2/{repository or self.repository}/tags/list")
        self.assertEqual(status, 200, body)
        return json.loads(body)["tags"]

    def delete(self, wb, what, repository=None):
        return wb.request("DELETE", f"/v2/{repository or self.repository}/{what}")

    def referrers(self, wb, digest, query="", repository=None):
        """(entries of all pages, how many pages)."""
        first = target = f"/v2/{repository or self.repository}/referrers/{digest}{query}"
        entries, pages = [], 0
        while target:
            status, headers, body = wb.get(target)
            self.assertEqual(status, 200, body[:1000])
            self.assertEqual(headers["Content-Type"], INDEX)
            self.assertLess(len(body), 4 * MIB)
            document = json.loads(body)
            self.assertEqual(set(document), {"schemaVersion", "mediaType", "manifests"})
            self.assertEqual((document["schemaVersion"], document["mediaType"]), (2, INDEX))
            entries += document["manifests"]
            pages += 1
            link = headers["Link"]
            target = None
            if link:
                target = re.fullmatch(r'<(/[^>]+)>; rel="next"', link).group(1)
                self.assertTrue(target.startswith(first.split("?")[0]))
        return entries, pages

    def history(self, wb, tag, query="", repository=None):
        status, _, body = wb.get(f"/admin/v1/history/{repository or self.repository}:{tag}{query}")
        self.assertEqual(status, 200, body)
        return json.loads(body)["events"]


class Manifests(PushCase):
    def setUp(self):
        self.wb = self.make_weighbridge()
        self.blob(self.wb, EMPTY, b"layer")

    def check_held(self, reference, manifest, digest=sha256):
        for method in ("GET", "HEAD"):
            status, headers, body = self.wb.request(
                method, f"/v2/{self.repository}/manifests/{reference}")
            self.assertEqual(status, 200, body)
            self.assertEqual(headers["Docker-Content-Digest"], digest(manifest))
            self.assertEqual(headers["Content-Length"], str(len(manifest)))
            self.assertEqual(headers["Content-Type"], json.loads(manifest)["mediaType"])
            self.assertEqual(body, manifest if method == "GET" else b"")

    def test_every_kind(self):
        """peer_bug_59: the very bytes, under the very type"""
        plain = image([b"layer"])
        docker = json.dumps({"schemaVersion": 2, "mediaType": DOCKER, "config": part(
            EMPTY, "application/vnd.docker.container.image.v1+json"), "layers": []}).encode()
        artifact = json.dumps({"mediaType": ARTIFACT, "artifactType": "a/b",
                               "blobs": [part(b"layer")]}).encode()
        for name, manifest in {
                "image": plain, "none": image(), "docker": docker, "artifact": artifact,
                "index": index(plain), "list": index(docker, media_type=DOCKER_LIST),
                "nested": index(index(plain), plain), "unknown": image(future={"a": [None]}),
                "spaces": json.dumps(json.loads(plain), indent=3).encode() + b"\n "}.items():
            with self.subTest(name):
                headers = self.push(self.wb, name, manifest)
                self.assertEqual(headers["Docker-Content-Digest"], sha256(manifest))
                self.assertEqual(headers["Location"], f"{self.wb.url}/v2/{self.repository}"
                                                      f"/manifests/{sha256(manifest)}")
                self.check_held(name, manifest)
                self.check_held(sha256(manifest), manifest)
        self.wb.kill()
        self.wb.start()
        self.check_held("spaces", json.dumps(json.loads(plain), indent=3).encode() + b"\n ")
        self.check_held("nested", index(index(plain), plain))

    def test_by_sha512(self):
        self.blob(self.wb, EMPTY, b"layer", digest=sha512)
        manifest = image([b"layer"], digest=sha512)
        headers = self.push(self.wb, sha512(manifest) + "?tag=long", manifest)
        self.assertEqual(headers["Docker-Content-Digest"], sha512(manifest))
        self.assertEqual(headers["OCI-Tag"], "long")
        self.check_held(sha512(manifest), manifest, sha512)
        self.check_held("long", manifest, sha512)
        self.assertEqual(self.get(self.wb, sha256(manifest))[0], 404)
        subject = part(manifest, IMAGE, sha512)
        signature = image(digest=sha512, subject=subject, artifactType="a/signature")
        headers = self.push(self.wb, sha512(signature), signature)
        self.assertEqual(headers["OCI-Subject"], subject["digest"])
        entries, _ = self.referrers(self.wb, subject["digest"])
        self.assertEqual([e["digest"] for e in entries], [sha512(signature)])
        self.assertEqual(self.delete(self.wb, f"manifests/{sha512(signature)}")[0], 202)
        self.assertEqual(self.referrers(self.wb, subject["digest"])[0], [])
        self.refused(self.put(self.wb, sha512(b"x"), manifest), 400, "DIGEST_INVALID", "sha512:")

    def test_a_wrong_digest(self):
        """peer_bug_08"""
        manifest = image([b"layer"])
        errors = self.refused(self.put(self.wb, NOBODY, manifest), 400, "DIGEST_INVALID",
                              sha256(manifest), NOBODY)
        self.assertEqual(errors[0]["detail"]["error"], "digest_mismatch")
        self.assertEqual(self.get(self.wb, NOBODY)[0], 404)
        self.assertEqual(self.get(self.wb, sha256(manifest))[0], 404)
        self.refused(self.put(self.wb, "sha256:baddigeststring", manifest), 400, "DIGEST_INVALID")

    def test_missing_parts_are_named(self):
        manifest = image([b"layer", b"one", b"two"])
        errors = self.refused(self.put(self.wb, "v1", manifest), 404, "MANIFEST_BLOB_UNKNOWN")
        self.assertEqual({e["detail"]["digest"] for e in errors}, {sha256(b"one"), sha256(b"two")})
        self.assertEqual({e["code"] for e in errors}, {"MANIFEST_BLOB_UNKNOWN"})
        self.assertEqual(self.get(self.wb, "v1")[0], 404)
        self.blob(self.wb, b"one")
        errors = self.refused(self.put(self.wb, "v1", manifest), 404, "MANIFEST_BLOB_UNKNOWN",
                              sha256(b"two"), "push it to")
        self.assertEqual(len(errors), 1)
        self.blob(self.wb, b"two", repository="another/repository")
        self.refused(self.put(self.wb, "v1", manifest), 404, "MANIFEST_BLOB_UNKNOWN")
        self.blob(self.wb, b"two")
        self.push(self.wb, "v1", manifest)
        child = image([b"one"])
        self.refused(self.put(self.wb, "v2", index(manifest, child)), 404,
                     "MANIFEST_BLOB_UNKNOWN", sha256(child))
        many = image([str(i).encode() for i in range(300)])
        errors = self.refused(self.put(self.wb, "v3", many), 404, "MANIFEST_BLOB_UNKNOWN")
        self.assertEqual(len(errors), 101)
        self.assertEqual(errors[100]["message"], "and 200 more")
        blake = json.loads(image())
        blake["layers"] = [{"mediaType": LAYER, "digest": "blake3:" + "c" * 64, "size": 1}]
        self.refused(self.put(self.wb, "v4", json.dumps(blake).encode()), 404,
                     "MANIFEST_BLOB_UNKNOWN", "blake3:", "only sha256 and sha512")

    def test_a_size_that_is_another(self):
        wrong = json.loads(image([b"layer"]))
        wrong["layers"][0]["size"] = 6
        self.refused(self.put(self.wb, "v1", json.dumps(wrong).encode()), 400, "MANIFEST_INVALID")
        self.assertEqual(self.get(self.wb, "v1")[0], 404)

    def test_layers_that_are_not_distributed(self):
        document = json.loads(image())
        document["layers"] = [{
            "mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
            "digest": NOBODY, "size": 5, "urls": ["https://example.invalid/layer"]}]
        manifest = json.dumps(document).encode()
        self.push(self.wb, "v1", manifest)
        self.check_held("v1", manifest)

    def test_tags_in_the_query(self):
        manifest = image([b"layer"])
        tags = [f"v{i}" for i in range(100)]
        query = "?" + "&".join(f"tag={tag}" for tag in tags)
        headers = self.push(self.wb, sha256(manifest) + query, manifest)
        self.assertEqual(", ".join(headers.get_all("OCI-Tag")).split(", "), tags)
        self.assertEqual(self.tags(self.wb), sorted(tags))
        self.refused(self.put(self.wb, sha256(manifest) + query + "&tag=more", manifest), 400,
                     "MANIFEST_INVALID", "100 tags")
        self.refused(self.put(self.wb, sha256(manifest) + "?tag=a&tag=-b", manifest), 400,
                     "MANIFEST_INVALID", "-b")
        self.assertEqual(self.get(self.wb, "a")[0], 404)
        headers = self.push(self.wb, "main?tag=also", manifest)
        self.assertEqual(headers["OCI-Tag"], "also")
        self.assertEqual(self.get(self.wb, "main")[2], self.get(self.wb, "also")[2])

    def test_tags_that_leave_no_room_for_the_answer(self):
        """They come back in its headers; it was dropped when it did not fit beside the request, and
        what was pushed was there all the same."""
        manifest = image([b"layer"])
        reference = sha256(manifest)
        seen = set()
        for n, length in ((100, 80), (60, 128), (70, 128), (100, 100), (100, 128)):
            tags = [f"{n}-{length}-{i}".ljust(length, "x") for i in range(n)]
            query = "?" + "&".join(f"tag={tag}" for tag in tags)
            answer = self.put(self.wb, reference + query, manifest)
            seen.add(answer[0])
            if answer[0] == 201:
                self.assertEqual(", ".join(answer[1].get_all("OCI-Tag")).split(", "), tags)
                self.assertEqual(self.get(self.wb, tags[-1])[0], 200)
            else:
                self.refused(answer, 431, "UNSUPPORTED", "16 KiB")
                self.assertEqual(self.get(self.wb, tags[0])[0], 404)
        self.assertEqual(seen, {201, 431})

    def test_heads_that_leave_no_room_for_the_answer(self):
        manifest = image([b"layer"])
        for fields, size in ((1, 15000), (1, 18000), (1, 31000), (200, 18500)):
            headers = {f"X-{i}": "y" * (size // fields - 8) for i in range(fields)}
            tag = f"head-{fields}-{size}"
            connection = self.wb.connect()
            connection.putrequest("PUT", f"/v2/{self.repository}/manifests/{tag}")
            for name, value in {"Content-Type": IMAGE, "Content-Length": str(len(manifest)),
                                **headers}.items():
                connection.putheader(name, value)
            connection.endheaders(manifest)
            status = connection.getresponse().status
            connection.close()
            self.assertEqual(status, 201 if size < 16000 else 431, tag)
            self.assertEqual(self.get(self.wb, tag)[0], 200 if status == 201 else 404)

    def test_a_tag_moves(self):
        old, new = image([b"layer"]), image()
        self.push(self.wb, "v1", old)
        self.push(self.wb, "v1", new)
        self.check_held("v1", new)
        self.check_held(sha256(old), old)
        self.push(self.wb, "v1", new)
        events = self.history(self.wb, "v1")
        self.assertEqual([(e["digest"], e["source"]) for e in events],
                         [(sha256(m), "push 127.0.0.1") for m in (new, old)])
        for event in events:
            self.assertRegex(event["at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(set(event), {"at", "digest", "source"})
        self.assertGreaterEqual(events[0]["at"], events[1]["at"])
        self.assertEqual(self.history(self.wb, "v1", "?n=1"), events[:1])
        self.delete(self.wb, "manifests/v1")
        newest = self.history(self.wb, "v1")
        self.assertEqual(newest[1:], events)
        self.assertEqual((newest[0]["removed"], newest[0]["source"]), (True, "delete 127.0.0.1"))
        self.assertNotIn("digest", newest[0])
        self.wb.kill()
        self.wb.start()
        self.assertEqual(self.history(self.wb, "v1"), newest)
        self.refused(self.wb.get(f"/admin/v1/history/{self.repository}:never"), 404,
                     "MANIFEST_UNKNOWN")
        self.refused(self.wb.get(f"/admin/v1/history/{self.repository}:v1",
                                 {"Origin": "http://example.invalid"}), 403, "DENIED")

    def test_many_at_once_to_one_tag(self):
        manifests = [image([b"layer"], annotations={"n": str(i)}) for i in range(32)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda m: self.push(self.wb, "v1", m), manifests))
        self.assertIn(self.get(self.wb, "v1")[2], manifests)
        for manifest in manifests:
            self.check_held(sha256(manifest), manifest)
        events = self.history(self.wb, "v1")
        self.assertEqual({e["digest"] for e in events}, {sha256(m) for m in manifests})
        self.assertEqual(events[0]["digest"], sha256(self.get(self.wb, "v1")[2]))


class Hostile(PushCase):
    def setUp(self):
        self.wb = self.make_weighbridge()
        self.blob(self.wb, EMPTY)

    def padded(self, size):
        pad = size - len(image(annotations={"pad": ""}))
        return image(annotations={"pad": "x" * pad})

    def chunked(self, body, piece):
        return self.wb.request(  # without a length http.client sends it in chunks
            "PUT", f"/v2/{self.repository}/manifests/big", {"Content-Type": IMAGE},
            (body[at:at + piece] for at in range(0, len(body), piece)))

    def test_the_largest(self):
        fits, over = self.padded(4 * MIB), self.padded(4 * MIB + 1)
        self.assertEqual(len(fits), 4 * MIB)
        self.push(self.wb, "big", fits)
        self.assertEqual(self.get(self.wb, "big")[2], fits)
        self.assertEqual(self.chunked(fits, 100_000)[0], 201)
        self.refused(self.put(self.wb, "big", over), 413, "SIZE_INVALID", "limits.manifest")
        self.refused(self.chunked(over, 100_000), 413, "SIZE_INVALID", "limits.manifest")
        self.assertEqual(self.get(self.wb, "big")[2], fits)

    def test_a_limit_of_ones_own(self):
        wb = self.make_weighbridge(config={"limits": {"manifest": 1024}})
        self.blob(wb, EMPTY)
        self.push(wb, "v1", self.padded(1024))
        self.refused(self.put(wb, "v2", self.padded(1025)), 413, "SIZE_INVALID", "1024 bytes")

    def test_what_is_no_manifest(self):
        good = image()
        text = good.decode()
        config = json.dumps(part(EMPTY, CONFIG))
        cases = {
            "empty": (IMAGE, b""),
            "no JSON": (IMAGE, b"manifest"),
            "a list": (IMAGE, b"[" + good + b"]"),
            "cut": (IMAGE, good[:-1]),
            "more behind it": (IMAGE, good + b"{}"),
            "a NUL behind it": (IMAGE, good + b"\0"),
            "NULs": (IMAGE, b"\0" * 1000),
            "a NUL inside": (IMAGE, text.replace('"layers"', '"a\0b": 1, "layers"').encode()),
            "a BOM": (IMAGE, b"\xef\xbb\xbf" + good),
            "bad UTF-8": (IMAGE, good.replace(b"layers", b"\xff\xfe\xfd", 1)),
            "deep": (IMAGE, b'{"schemaVersion":2,"x":' + b"[" * (3 * MIB)),
            "deep objects": (IMAGE, b'{"a":' * (MIB // 2)),
            "deep and closed": (IMAGE, text[:-1].encode() + b', "x": ' + b"[" * 200 + b"]" * 200
                                + b"}"),
            "a key twice": (IMAGE, text.replace('"layers"', '"layers": [], "layers"').encode()),
            "another case": (IMAGE, text.replace('"layers"', '"Layers"').encode()),
            "image and index": (IMAGE, (text[:-1] + ', "manifests": []}').encode()),
            "another type": (INDEX, good),
            "no type of ours": ("application/json", good),
            "schema 1": ("application/vnd.docker.distribution.manifest.v1+prettyjws",
                         b'{"schemaVersion": 1, "fsLayers": []}'),
            "version 1": (IMAGE, text.replace('"schemaVersion": 2', '"schemaVersion": 1').encode()),
            "a size below 0": (IMAGE, text.replace('"size": 2', '"size": -2').encode()),
            "half a byte": (IMAGE, text.replace('"size": 2', '"size": 2.5').encode()),
            "a huge size": (IMAGE, text.replace('"size": 2', '"size": 1e400').encode()),
            "a digest that is none": (IMAGE, re.sub(r"sha256:\w+", "sha256:../../x", text)
                                      .encode()),
            "no digest": (IMAGE, text.replace('"digest"', '"dig"').encode()),
            "annotations": (IMAGE, image(annotations={"a": 1})),
            "config is a list": (IMAGE, text.replace(config, f"[{config}]").encode()),
        }
        for name, (media_type, body) in cases.items():
            with self.subTest(name):
                self.refused(self.put(self.wb, "bad", body, media_type), 400, "MANIFEST_INVALID")
        self.assertEqual(self.get(self.wb, "bad")[0], 404)
        self.push(self.wb, "good", good, media_type=IMAGE + "; charset=utf-8")
        self.push(self.wb, "good", good, media_type="")
        self.assertEqual(self.get(self.wb, "good")[1]["Content-Type"], IMAGE)

    def test_forty_thousand_layers(self):
        one = json.dumps(part(EMPTY), separators=(",", ":"))
        head = json.dumps({"schemaVersion": 2, "mediaType": IMAGE, "config": part(EMPTY, CONFIG),
                           "layers": []})
        n = (4 * MIB - len(head)) // (len(one) + 1)
        body = head.replace('"layers": []', '"layers": [' + ",".join([one] * n) + "]").encode()
        self.push(self.wb, "many", body)
        self.assertEqual(self.get(self.wb, "many")[2], body)
        self.assertEqual(self.delete(self.wb, "manifests/" + sha256(body))[0], 202)
        names = [json.dumps({"mediaType": "a/b", "digest": f"sha256:{i:064x}", "size": 1})
                 for i in range(20_000)]
        body = head.replace('"layers": []', '"layers": [' + ",".join(names) + "]").encode()
        errors = self.refused(self.put(self.wb, "many", body), 404, "MANIFEST_BLOB_UNKNOWN")
        self.assertEqual(errors[-1]["message"], "and 19900 more")

    def test_many_large_ones_at_once(self):
        bodies = [self.padded(4 * MIB - i) for i in range(24)]
        def send(body):
            while True:
                status, headers, _ = self.put(self.wb, sha256(body), body)
                if status != 503:
                    return status
                self.assertTrue(headers["Retry-After"])
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            self.assertEqual(set(pool.map(send, bodies)), {201})
        for body in bodies[::6]:
            self.assertEqual(self.get(self.wb, sha256(body))[2], body)


class Stalled(PushCase):
    def test_large_pushes_that_stall_keep_no_small_one_out(self):
        """Thirty-odd of them take all the memory for manifests that are being received, for as long
        as a byte comes now and then."""
        wb = self.make_weighbridge()
        self.blob(wb, EMPTY)
        head = (f"PUT /v2/{self.repository}/manifests/large HTTP/1.1\r\nHost: {wb.host}\r\n"
                f"Content-Type: {IMAGE}\r\nContent-Length: {4 * MIB}\r\n\r\n").encode()
        most = bytes(4 * MIB - 1)
        with contextlib.ExitStack() as stack:
            stalled = []
            for _ in range(40):
                connection = stack.enter_context(socket.create_connection(
                    wb.host.split(":"), timeout=120))
                with contextlib.suppress(ConnectionError):  # refused in the middle of it
                    connection.sendall(head + most)
                stalled.append(connection)
            full, _, _ = select.select(stalled, [], [], 120)
            self.assertIn(b" 503 ", full[0].recv(100))
            self.push(wb, "small", image())
        self.push(wb, "small", image())


class Deletes(PushCase):
    def setUp(self):
        self.wb = self.make_weighbridge()
        self.blob(self.wb, EMPTY, b"layer")
        self.manifest = image([b"layer"])

    def gone(self, what, repository=None):
        for method in ("HEAD", "GET"):
            status = self.wb.request(method, f"/v2/{repository or self.repository}/{what}")[0]
            self.assertEqual(status, 404, what)

    def test_a_tag(self):
        self.push(self.wb, "v1", self.manifest)
        self.push(self.wb, "v2", self.manifest)
        status, _, body = self.delete(self.wb, "manifests/v1")
        self.assertEqual((status, body), (202, b""))
        self.gone("manifests/v1")
        self.assertEqual(self.tags(self.wb), ["v2"])
        self.assertEqual(self.get(self.wb, sha256(self.manifest))[0], 200)
        self.refused(self.delete(self.wb, "manifests/v1"), 404, "MANIFEST_UNKNOWN")

    def test_a_manifest_with_its_tags(self):
        self.push(self.wb, "v1", self.manifest)
        self.push(self.wb, "v2", self.manifest)
        self.push(self.wb, "other", image())
        self.assertEqual(self.delete(self.wb, f"manifests/{sha256(self.manifest)}")[0], 202)
        for name in ("v1", "v2", sha256(self.manifest)):
            self.gone(f"manifests/{name}")
        self.assertEqual(self.tags(self.wb), ["other"])
        self.refused(self.delete(self.wb, f"manifests/{sha256(self.manifest)}"), 404,
                     "MANIFEST_UNKNOWN")
        # Its blobs are still there for a push that is under way.
        self.push(self.wb, "v1", self.manifest)
        self.assertEqual(self.tags(self.wb), ["other", "v1"])

    def test_a_blob(self):
        """peer_bug_12, peer_bug_46"""
        self.push(self.wb, "v1", self.manifest)
        self.blob(self.wb, EMPTY, b"layer", repository="other/one")
        self.push(self.wb, "v1", self.manifest, repository="other/one")
        digest = sha256(b"layer")
        self.assertEqual(self.delete(self.wb, f"blobs/{digest}")[0], 202)
        self.gone(f"blobs/{digest}")
        self.refused(self.wb.get(f"/v2/{self.repository}/blobs/{digest}"), 404, "BLOB_UNKNOWN",
                     f"{self.repository} has no blob {digest}")
        self.refused(self.delete(self.wb, f"blobs/{digest}"), 404, "BLOB_UNKNOWN")
        self.assertEqual(self.wb.get(f"/v2/other/one/blobs/{digest}")[2], b"layer")
        self.refused(self.put(self.wb, "v2", self.manifest), 404, "MANIFEST_BLOB_UNKNOWN", digest)
        self.blob(self.wb, b"layer")
        self.push(self.wb, "v2", self.manifest)
        self.refused(self.delete(self.wb, "blobs/sha256:short"), 400, "DIGEST_INVALID")

    def test_what_never_was(self):
        self.refused(self.delete(self.wb, "manifests/v1", "no/such"), 404, "MANIFEST_UNKNOWN")
        self.refused(self.delete(self.wb, f"manifests/{NOBODY}", "no/such"), 404,
                     "MANIFEST_UNKNOWN")
        self.refused(self.delete(self.wb, f"blobs/{NOBODY}", "no/such"), 404, "BLOB_UNKNOWN")

    def test_denied(self):
        wb = self.make_weighbridge(config={"delete": "deny"})
        self.blob(wb, EMPTY, b"layer")
        self.push(wb, "v1", self.manifest)
        for what in ("manifests/v1", f"manifests/{sha256(self.manifest)}",
                     f"blobs/{sha256(b'layer')}"):
            answer = self.delete(wb, what)
            self.refused(answer, 405, "UNSUPPORTED", '"delete"')
            self.assertIn("GET", answer[1]["Allow"])
        self.assertEqual(self.get(wb, "v1")[0], 200)

    def test_rules(self):
        wb = self.make_weighbridge(config={"access": [
            {"repositories": "open/**", "allow": ["pull", "push", "delete"]},
            {"repositories": "write/**", "allow": ["pull", "push"]},
            {"repositories": "**", "allow": ["pull"]}]})
        for repository in ("open/a", "write/a"):
            self.blob(wb, EMPTY, repository=repository)
            self.push(wb, "v1", image(), repository=repository)
        self.refused(self.put(wb, "v1", image()), 403, "DENIED", "push to")
        self.refused(self.delete(wb, "manifests/v1", "write/a"), 403, "DENIED", "delete from")
        self.refused(self.delete(wb, f"blobs/{sha256(EMPTY)}", "write/a"), 403, "DENIED")
        self.assertEqual(self.delete(wb, "manifests/v1", "open/a")[0], 202)


class ImmutableTags(PushCase):
    def setUp(self):
        self.wb = self.make_weighbridge(config={"immutable_tags": [
            {"repositories": "team/*", "tags": "v[0-9]*"}]})
        self.blob(self.wb, EMPTY, b"layer")
        self.manifest, self.other = image([b"layer"]), image()
        self.push(self.wb, "v1", self.manifest)

    def check(self):
        self.assertEqual(self.get(self.wb, "v1")[2], self.manifest)
        self.assertEqual(self.get(self.wb, sha256(self.manifest))[2], self.manifest)

    def test_they_stay(self):
        self.push(self.wb, "v1", self.manifest)  # nothing moves
        self.refused(self.put(self.wb, "v1", self.other), 409, "DENIED", "v1",
                     sha256(self.manifest), "immutable_tags")
        # All or nothing.
        answer = self.put(self.wb, sha256(self.other) + "?tag=free&tag=v1", self.other)
        self.refused(answer, 409, "DENIED", "v1")
        self.assertEqual(self.get(self.wb, "free")[0], 404)
        self.assertEqual(self.get(self.wb, sha256(self.other))[0], 404)
        self.refused(self.delete(self.wb, "manifests/v1"), 409, "DENIED", "v1", "immutable_tags")
        self.refused(self.delete(self.wb, f"manifests/{sha256(self.manifest)}"), 409, "DENIED",
                     "v1", "immutable_tags")
        self.check()
        self.assertEqual(len(self.history(self.wb, "v1")), 1)

    def test_nor_do_their_parts_go(self):
        for data in (EMPTY, b"layer"):
            self.refused(self.delete(self.wb, f"blobs/{sha256(data)}"), 409, "DENIED", "v1",
                         "immutable_tags")
        child = image([b"layer"], annotations={"of": "an index"})
        self.push(self.wb, sha256(child), child)
        parent = index(child)
        self.push(self.wb, "v2", parent)
        self.refused(self.delete(self.wb, f"manifests/{sha256(child)}"), 409, "DENIED", "v2")
        self.assertEqual(self.get(self.wb, sha256(child))[2], child)
        self.assertEqual(self.wb.get(f"/v2/{self.repository}/blobs/{sha256(b'layer')}")[2],
                         b"layer")

    def test_other_tags_move(self):
        self.push(self.wb, "latest", self.manifest)
        self.push(self.wb, "latest", self.other)
        self.assertEqual(self.delete(self.wb, "manifests/latest")[0], 202)
        self.assertEqual(self.delete(self.wb, f"manifests/{sha256(self.other)}")[0], 202)
        self.blob(self.wb, EMPTY, b"layer", repository="else/model")
        for manifest in (self.manifest, self.other):
            self.push(self.wb, "v1", manifest, repository="else/model")
        self.check()

    def test_one_of_many_wins(self):
        manifests = [image([b"layer"], annotations={"n": str(i)}) for i in range(24)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            statuses = list(pool.map(lambda m: self.put(self.wb, "v2", m)[0], manifests))
        self.assertEqual(sorted(statuses), [201] + [409] * 23)
        self.assertEqual(self.get(self.wb, "v2")[2], manifests[statuses.index(201)])

    def test_the_operator_can(self):
        status, _, body = self.wb.request("DELETE",
                                          f"/admin/v1/references/{self.repository}:v1")
        self.assertEqual(status, 200, body)
        self.push(self.wb, "v1", self.other)
        self.assertEqual([e["source"] for e in self.history(self.wb, "v1")],
                         ["push 127.0.0.1", "rm", "push 127.0.0.1"])


class Referrers(PushCase):
    def setUp(self):
        self.wb = self.make_weighbridge()
        self.blob(self.wb, EMPTY, b"layer")
        self.model = image([b"layer"])
        self.subject = part(self.model, IMAGE)
        self.digest = self.subject["digest"]

    def attach(self, artifact_type="a/signature", **more):
        manifest = image(subject=self.subject, artifactType=artifact_type, **more)
        headers = self.push(self.wb, sha256(manifest), manifest)
        self.assertEqual(headers["OCI-Subject"], self.digest)
        return manifest

    def test_none(self):
        for repository in (self.repository, "no/such"):
            self.assertEqual(self.referrers(self.wb, NOBODY, repository=repository), ([], 1))
            status, headers, body = self.wb.head(f"/v2/{repository}/referrers/{NOBODY}")
            self.assertEqual((status, headers["Content-Type"], body), (200, INDEX, b""))
        for bad in ("sha256:short", "latest", "sha256:" + "A" * 64):
            self.refused(self.wb.get(f"/v2/{self.repository}/referrers/{bad}"), 400,
                         "DIGEST_INVALID")

    def test_entries(self):
        notes = {"org.example.a": "ä \u2028 <&>\"\\", "b": ""}
        typed = self.attach("a/signature", annotations=notes)
        by_config = image(subject=self.subject)
        listed = index(self.push_model(), subject=self.subject)
        typed_index = index(subject=self.subject, artifactType="a/index", annotations={"x": "y"})
        for manifest in (by_config, listed, typed_index):
            self.push(self.wb, sha256(manifest), manifest)
        def entry(manifest, media_type, **more):
            return {**part(manifest, media_type), **more}
        expected = [entry(typed, IMAGE, artifactType="a/signature", annotations=notes),
                    entry(by_config, IMAGE, artifactType=CONFIG),
                    entry(listed, INDEX),
                    entry(typed_index, INDEX, artifactType="a/index", annotations={"x": "y"})]
        entries, _ = self.referrers(self.wb, self.digest)
        self.assertEqual(entries, sorted(expected, key=lambda e: e["digest"]))
        for wanted in ("a/signature", CONFIG, "a/index"):
            quoted = urllib.parse.quote(wanted, safe="")
            path = f"/v2/{self.repository}/referrers/{self.digest}?artifactType={quoted}"
            status, headers, body = self.wb.get(path)
            self.assertEqual((status, headers["OCI-Filters-Applied"]), (200, "artifactType"))
            self.assertEqual(json.loads(body)["manifests"],
                             [e for e in expected if e.get("artifactType") == wanted])
        self.assertEqual(self.referrers(self.wb, self.digest, "?artifactType=no/such")[0], [])
        # They are of one repository.
        self.assertEqual(self.referrers(self.wb, self.digest, repository="other/x")[0], [])

    def push_model(self):
        self.push(self.wb, "v1", self.model)
        return self.model

    def test_they_come_before_their_subject_and_stay_after_it(self):
        signature = self.attach()
        self.assertEqual(self.get(self.wb, self.digest)[0], 404)
        self.push_model()
        self.assertEqual(self.delete(self.wb, f"manifests/{self.digest}")[0], 202)
        entries, _ = self.referrers(self.wb, self.digest)
        self.assertEqual([e["digest"] for e in entries], [sha256(signature)])
        self.wb.kill()
        self.wb.start()
        self.assertEqual(self.referrers(self.wb, self.digest)[0], entries)
        self.assertEqual(self.delete(self.wb, f"manifests/{sha256(signature)}")[0], 202)
        self.assertEqual(self.referrers(self.wb, self.digest)[0], [])

    def test_hundreds(self):
        self.push_model()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            pushed = list(pool.map(lambda i: self.attach(f"a/{i % 3}", annotations={"n": str(i)}),
                                   range(330)))
        digests = sorted(sha256(m) for m in pushed)
        for query, pages in (("", 1), ("?n=330", 1), ("?n=100", 4), ("?n=0", 1), ("?n=329", 2),
                             ("?n=99999999999999999999", 1)):
            entries, n = self.referrers(self.wb, self.digest, query)
            self.assertEqual([e["digest"] for e in entries], digests, query)
            self.assertEqual(n, pages, query)
        entries, n = self.referrers(self.wb, self.digest, "?n=20&artifactType=a%2F1")
        self.assertEqual((len(entries), n), (110, 6))
        self.assertEqual({e["artifactType"] for e in entries}, {"a/1"})
        last = digests[200]
        entries, _ = self.referrers(self.wb, self.digest, f"?last={last}")
        self.assertEqual([e["digest"] for e in entries], digests[201:])
        for bad in ("n=-1", "n=x", "last=v1", "last=sha256:1", "artifactType=%0"):
            self.refused(self.wb.get(f"/v2/{self.repository}/referrers/{self.digest}?{bad}"),
                         400, "UNSUPPORTED")

    def test_megabytes_of_annotations(self):
        pushed = [self.attach(annotations={"n": str(i), "x": "y" * size})
                  for i, size in enumerate([3 * MIB, 3_900_000, 2 * MIB, *[MIB // 2] * 12, 0])]
        entries, pages = self.referrers(self.wb, self.digest)
        self.assertEqual([e["digest"] for e in entries], sorted(sha256(m) for m in pushed))
        self.assertGreater(pages, 3)
        by_digest = {sha256(m): json.loads(m)["annotations"] for m in pushed}
        for entry in entries:
            self.assertEqual(entry["annotations"], by_digest[entry["digest"]])

    def test_a_client_that_keeps_the_list_itself(self):
        """The fallback tag: an index of descriptors, made by clients that know no API."""
        self.push_model()
        signature = image(subject=self.subject, artifactType="a/signature")
        stranger = image(artifactType="a/stranger")  # says nothing of a subject
        for manifest in (signature, stranger):
            self.push(self.wb, sha256(manifest), manifest)
        tag = self.digest.replace(":", "-")
        fallback = index(signature, stranger)
        self.push(self.wb, tag, fallback)
        self.assertEqual(self.get(self.wb, tag)[2], fallback)
        entries, _ = self.referrers(self.wb, self.digest)
        self.assertEqual([e["digest"] for e in entries], [sha256(signature)])
        # Neither the tag's end nor a list that names nobody changes what is there.
        self.push(self.wb, tag, index())
        self.assertEqual(self.referrers(self.wb, self.digest)[0], entries)
        self.delete(self.wb, f"manifests/{tag}")
        self.assertEqual(self.referrers(self.wb, self.digest)[0], entries)


class Mirrored(PushCase):
    """Names under an upstream's prefix: what is imported can be signed, and no more."""

    repository = "hf/org/tiny"

    def setUp(self):
        self.hub = self.make_hub()
        self.commit = self.hub.add_repo("Org/Tiny", {"config.json": b'{"model_type": "llama"}',
                                                     "README.md": b"# Tiny\n"})
        self.wb = self.make_weighbridge(self.hub.url)

    def signature(self, manifest, **more):
        return image([b"signed"], subject=part(manifest, IMAGE), artifactType="a/signature",
                     **more)

    def test_signatures(self):
        model = self.get(self.wb, "main")[2]
        signature = self.signature(model)
        self.refused(self.put(self.wb, sha256(signature), signature), 404,
                     "MANIFEST_BLOB_UNKNOWN")
        self.blob(self.wb, EMPTY, b"signed")
        headers = self.push(self.wb, sha256(signature), signature)
        self.assertEqual(headers["OCI-Subject"], sha256(model))
        self.assertEqual(self.get(self.wb, sha256(signature))[2], signature)
        entries, _ = self.referrers(self.wb, sha256(model))
        self.assertEqual([e["digest"] for e in entries], [sha256(signature)])
        self.assertEqual(self.tags(self.wb), sorted([self.commit_of_main(), "main"]))
        # An imported blob counts though its bytes are elsewhere.
        layer = json.loads(model)["layers"][0]
        document = json.loads(self.signature(model))
        document["layers"].append({k: layer[k] for k in ("mediaType", "digest", "size")})
        self.push(self.wb, sha256(json.dumps(document).encode()), json.dumps(document).encode())
        # It outlives the model's own removal and its next import.
        self.assertEqual(self.delete(self.wb, f"manifests/{sha256(model)}")[0], 202)
        self.assertEqual(self.get(self.wb, "main")[2], model)
        self.assertEqual(len(self.referrers(self.wb, sha256(model))[0]), 2)
        self.assertEqual(self.delete(self.wb, f"manifests/{sha256(signature)}")[0], 202)
        self.assertEqual(len(self.referrers(self.wb, sha256(model))[0]), 1)
        self.assertEqual(self.get(self.wb, "main")[2], model)

    def commit_of_main(self):
        return self.hub.repo("Org/Tiny").branches["main"]

    def test_a_signature_that_is_here_first(self):
        other = self.make_weighbridge(self.hub.url)
        model = self.get(other, "main")[2]
        signature = self.signature(model)
        self.blob(self.wb, EMPTY, b"signed")
        self.push(self.wb, sha256(signature), signature)
        self.assertEqual(self.get(self.wb, "main")[2], model)
        layer = json.loads(model)["layers"][0]["digest"]
        self.assertEqual(self.wb.blob(self.repository, layer)[0], 200)
        self.assertEqual(len(self.referrers(self.wb, sha256(model))[0]), 1)

    def test_everything_else_is_refused(self):
        model = self.get(self.wb, "main")[2]
        self.blob(self.wb, EMPTY, b"signed")
        signature = self.signature(model)
        for reference, manifest in (
                ("main", signature), ("mine", signature), ("mine", image([b"signed"])),
                (sha256(image([b"signed"])), image([b"signed"])), (sha256(model), model),
                (sha256(signature) + "?tag=mine", signature)):
            self.refused(self.put(self.wb, reference, manifest, media_type=IMAGE), 403, "DENIED",
                         'prefix "hf"', '"local/org/tiny"')
        self.assertEqual(self.get(self.wb, "main")[2], model)
        self.assertEqual(self.tags(self.wb), sorted([self.commit_of_main(), "main"]))

    def test_deletes_forget_a_copy(self):
        model = self.get(self.wb, "main")[2]
        layer = json.loads(model)["layers"][0]["digest"]
        self.refused(self.delete(self.wb, f"blobs/{layer}"), 403, "DENIED", "delete the manifest")
        self.assertEqual(self.wb.blob(self.repository, layer)[0], 200)
        self.assertEqual(self.delete(self.wb, "manifests/main")[0], 202)
        self.assertEqual(self.get(self.wb, "main")[2], model)
        self.assertEqual(self.delete(self.wb, f"manifests/{sha256(model)}")[0], 202)
        self.assertEqual(self.get(self.wb, "main")[2], model)
        events = self.history(self.wb, "main")
        self.assertEqual([e["source"] for e in events],
                         ["import hf Org/Tiny", "delete 127.0.0.1"] * 2 + ["import hf Org/Tiny"])
        self.assertEqual({e.get("commit") for e in events}, {self.commit_of_main(), None})


class Lists(PushCase):
    def setUp(self):
        self.wb = self.make_weighbridge()
        self.blob(self.wb, EMPTY)
        self.names = sorted(f"{letter}{i}" for letter in "aZ_" for i in range(40))
        manifest = image()
        for at in range(0, len(self.names), 60):
            query = "&".join(f"tag={name}" for name in self.names[at:at + 60])
            self.push(self.wb, f"{sha256(manifest)}?{query}", manifest)

    def page(self, path, key):
        status, headers, body = self.wb.get(path)
        self.assertEqual(status, 200, body)
        link = headers["Link"]
        return json.loads(body)[key], link and re.fullmatch(r'<(/[^>]+)>; rel="next"',
                                                            link).group(1)

    def walk(self, path, key):
        names, pages = [], 0
        while path:
            more, path = self.page(path, key)
            names += more
            pages += 1
        return names, pages

    def test_tags(self):
        path = f"/v2/{self.repository}/tags/list"
        self.assertEqual(self.page(path, "tags"), (self.names, None))
        self.assertEqual(self.walk(path + "?n=7", "tags"), (self.names, 18))
        self.assertEqual(self.walk(path + "?n=120", "tags"), (self.names, 1))
        self.assertEqual(self.page(path + "?n=0", "tags"), ([], None))
        self.assertEqual(self.page(path + "?n=0&last=a1", "tags"), ([], None))
        self.assertEqual(self.page(path + "?last=a1", "tags"),
                         (self.names[self.names.index("a1") + 1:], None))
        self.assertEqual(self.page(path + "?last=a10x&n=2", "tags")[0], ["a11", "a12"])
        self.assertEqual(self.page(path + "?last=zzz", "tags"), ([], None))
        for bad in ("n=-1", "n=x", "n=", "n=1.5", "n=%31x"):
            self.refused(self.wb.get(f"{path}?{bad}"), 400, "UNSUPPORTED")
        self.refused(self.wb.get("/v2/no/such/tags/list"), 404, "NAME_UNKNOWN")
        self.refused(self.wb.get("/v2/no/such/tags/list?n=0"), 404, "NAME_UNKNOWN")

    def test_catalog(self):
        repositories = [self.repository]
        for i in range(12):
            name = f"many/r{i:02}"
            self.blob(self.wb, EMPTY, repository=name)
            self.push(self.wb, "v1", image(), repository=name)
            repositories.append(name)
        repositories.sort()
        path, key = "/v2/_catalog", "repositories"
        self.assertEqual(self.page(path, key), (repositories, None))
        for n in (1, 5, 12, 13, 14):
            self.assertEqual(self.walk(f"{path}?n={n}", key), (repositories, -(-13 // n)))
        self.assertEqual(self.page(path + "?n=0", key), ([], None))
        self.assertEqual(self.page(path + "?last=many/r10", key)[0], ["many/r11", "team/model"])
        self.blob(self.wb, EMPTY, repository="blobs/only")
        self.assertEqual(self.page(path, key)[0], repositories)

    def test_the_last_tag_leaves_an_empty_list(self):
        self.blob(self.wb, EMPTY, repository="one/tag")
        manifest = image()
        self.push(self.wb, "v1", manifest, repository="one/tag")
        self.delete(self.wb, "manifests/v1", "one/tag")
        self.assertEqual(self.tags(self.wb, "one/tag"), [])


if __name__ == "__main__":
    unittest.main()
