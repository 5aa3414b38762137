#!/usr/bin/env python3
"""The stand-in registry's endpoints, tokens and signed URLs, asked with raw HTTP.
test_registry_faults.py has the switches, test_registry_clients.py real clients."""

import hashlib
import json
import os
import re
import subprocess
import sys
import unittest
from urllib.parse import urlencode

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from registry import Noise, Sparse, StandInRegistry, sha256_of  # noqa: E402
from registry_case import (LAYER, PASSWORD, SIZE, USER, RegistryCase, basic,  # noqa: E402
                           send)
from registry_content import (DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX,  # noqa: E402
                              OCI_MANIFEST)

HERE = os.path.dirname(os.path.abspath(__file__))


class Pulling(RegistryCase):
    def test_ping(self):
        for path in ("/v2/", "/v2"):
            got = self.get(path)
            self.assertEqual((got.status, got.body, got["Docker-Distribution-Api-Version"]),
                             (200, b"{}", "registry/2.0"))
        self.registry.set_options(ping=404)
        self.assertEqual(self.get("/v2/").status, 404)
        self.assertEqual(self.get("/elsewhere").status, 404)

    def test_manifest(self):
        for reference in ("v1", self.image.digest):
            for method in ("GET", "HEAD"):
                got = self.manifest(reference, method=method)
                self.assertEqual(got.status, 200)
                self.assertEqual(got["Content-Type"], OCI_MANIFEST)
                self.assertEqual(got["Docker-Content-Digest"], self.image.digest)
                self.assertEqual(got["Content-Length"], str(len(self.image.body)))
                self.assertEqual(got["ETag"], f'"{self.image.digest}"')
                self.assertEqual(got.body, self.image.body if method == "GET" else b"")
        self.assertEqual(sha256_of(self.image.body), self.image.digest)
        got = self.manifest(If_None_Match=f'"{self.image.digest}"')
        self.assertEqual((got.status, got.body), (304, b""))
        self.registry.set_options(content_digest=False, etag=False)
        got = self.manifest()
        self.assertEqual((got["Docker-Content-Digest"], got["ETag"]), (None, None))
        self.registry.set_options(head_manifests=False)
        self.assertEqual(self.manifest(method="HEAD").status, 405)

    def test_types(self):
        docker = self.repo.add_image(tag="docker", docker=True)
        self.repo.add_index({"amd64": self.image}, tag="multi")
        self.repo.add_index({"amd64": docker}, tag="docker-multi", docker=True)
        for tag, media_type in (("docker", DOCKER_MANIFEST), ("multi", OCI_INDEX),
                                ("docker-multi", DOCKER_LIST)):
            got = self.manifest(tag)
            self.assertEqual((got["Content-Type"], got.json["mediaType"]),
                             (media_type, media_type))
        child = self.manifest("docker-multi").json["manifests"][0]
        self.assertEqual((child["digest"], child["platform"]["architecture"]),
                         (docker.digest, "amd64"))
        self.registry.set_options(accept="strict")
        self.assertEqual(self.manifest("multi", Accept="*/*").status, 404)
        self.assertEqual(
            self.manifest("multi", Accept=f"{OCI_MANIFEST}, {OCI_INDEX};q=0.5").status, 200)

    def test_foreign_layers(self):
        for docker in (False, True):
            image = self.repo.add_image(foreign={"http://example.com/l": b"theirs"}, docker=docker)
            layer = self.manifest(image.digest).json["layers"][-1]
            self.assertEqual((layer["digest"], layer["urls"]),
                             (sha256_of(b"theirs"), ["http://example.com/l"]))
            self.assertRegex(layer["mediaType"], "foreign|nondistributable")
            self.assertEqual(self.blob(layer["digest"]).status, 404)

    def test_unknown(self):
        for path, status, code in (
                ("team/app/manifests/v2", 404, "MANIFEST_UNKNOWN"),
                ("team/app/manifests/sha256:" + "0" * 64, 404, "MANIFEST_UNKNOWN"),
                ("team/app/blobs/sha256:" + "0" * 64, 404, "BLOB_UNKNOWN"),
                ("team/none/manifests/v1", 404, "NAME_UNKNOWN"),
                ("team/none/tags/list", 404, "NAME_UNKNOWN"),
                ("team/app/manifests/sha256:", 400, "DIGEST_INVALID"),
                ("team/app/blobs/none", 400, "DIGEST_INVALID")):
            got = self.get("/v2/" + path)
            self.assertEqual((got.status, got.json["errors"][0]["code"]), (status, code), path)
        for method, path in (("POST", "blobs/uploads/"), ("PUT", "manifests/v1"),
                             ("DELETE", "manifests/v1")):
            self.assertEqual(self.get("/v2/team/app/" + path, method, body=b"").status, 405)

    def test_blob(self):
        for digest in self.image.blobs:
            data = self.blob(digest).body
            self.assertEqual(sha256_of(data), digest)
        got = self.blob()
        self.assertEqual((got.status, got.body), (200, LAYER))
        for name, value in (("Content-Length", str(SIZE)), ("Accept-Ranges", "bytes"),
                            ("Docker-Content-Digest", self.layer),
                            ("ETag", f'"{self.layer}"'),
                            ("Content-Type", "application/octet-stream")):
            self.assertEqual(got[name], value)
        got = self.blob(method="HEAD")
        self.assertEqual((got.status, got["Content-Length"], got.body), (200, str(SIZE), b""))
        self.assertEqual(self.blob(repo="secret/app").status, 404)

    def test_ranges(self):
        for asked, first, last in (("0-9", 0, 9), ("5-", 5, SIZE - 1), ("-7", SIZE - 7, SIZE - 1),
                                   (f"10-{SIZE + 5}", 10, SIZE - 1)):
            got = self.blob(Range=f"bytes={asked}")
            self.assertEqual((got.status, got["Content-Range"]),
                             (206, f"bytes {first}-{last}/{SIZE}"))
            self.assertEqual(got["Content-Length"], str(last - first + 1))
            self.assertEqual(got.body, LAYER[first:last + 1])
        got = self.blob(Range=f"bytes={SIZE}-")
        self.assertEqual((got.status, got["Content-Range"]), (416, f"bytes */{SIZE}"))
        etag = f'"{self.layer}"'
        self.assertEqual(self.blob(Range="bytes=0-9", If_Range=etag).status, 206)
        self.assertEqual(self.blob(Range="bytes=0-9", If_Range='"other"').status, 200)
        self.registry.set_options(ranges=False)
        got = self.blob(Range="bytes=0-9")
        self.assertEqual((got.status, got["Accept-Ranges"], len(got.body)), (200, None, SIZE))

    def test_tags(self):
        for tag in ("v2", "latest", "v10"):
            self.repo.move_tag(tag, self.image)
        every = ["latest", "v1", "v10", "v2"]
        got = self.get("/v2/team/app/tags/list")
        self.assertEqual((got.json, got["Link"]), ({"name": "team/app", "tags": every}, None))
        self.assertEqual(self.get("/v2/team/app/tags/list?last=v1").json["tags"], every[2:])
        got = self.get("/v2/team/app/tags/list?n=0")
        self.assertEqual((got.json["tags"], got["Link"]), ([], None))
        self.assertEqual(self.get("/v2/team/app/tags/list?n=-1").status, 400)
        self.registry.set_options(page_size=3)
        self.assertEqual(self.pages("/v2/team/app/tags/list", "tags"), [every[:3], every[3:]])
        self.assertEqual(self.pages("/v2/team/app/tags/list?n=2", "tags"),
                         [every[:2], every[2:]])

    def pages(self, path, key):
        """All pages, by the Link header."""
        found = []
        while path:
            got = self.get(path)
            found.append(got.json[key])
            link = re.fullmatch(r'<(.*)>; rel="next"', got["Link"] or "")
            path = link and link[1]
        return found

    def test_catalog(self):
        self.assertEqual(self.get("/v2/_catalog").json, {"repositories": ["secret/app",
                                                                           "team/app"]})
        self.registry.set_options(page_size=1)
        self.assertEqual(self.pages("/v2/_catalog", "repositories"),
                         [["secret/app"], ["team/app"]])
        self.registry.set_options(catalog=False)
        self.assertEqual(self.get("/v2/_catalog").status, 404)

    def test_referrers(self):
        path = f"/v2/team/app/referrers/{self.image.digest}"
        got = self.get(path)
        self.assertEqual((got.status, got["Content-Type"], got.json["manifests"]),
                         (200, OCI_INDEX, []))
        added = [self.repo.add_artifact({"sig": b"s%d" % i}, f"type/{i % 2}", subject=self.image,
                                        annotations={"n": str(i)}) for i in range(3)]
        rows = self.get(path).json["manifests"]
        self.assertEqual(rows, [{**m.descriptor, "artifactType": f"type/{i % 2}",
                                 "annotations": {"n": str(i)}} for i, m in enumerate(added)])
        got = self.get(path + "?artifactType=type%2F0")
        self.assertEqual((got["OCI-Filters-Applied"], got.json["manifests"]),
                         ("artifactType", [rows[0], rows[2]]))
        self.registry.set_options(page_size=2)
        self.assertEqual(self.pages(path, "manifests"), [rows[:2], rows[2:]])
        self.registry.set_options(page_size=1)
        self.assertEqual(self.pages(path + "?artifactType=type%2F0", "manifests"),
                         [rows[:1], rows[2:]])
        self.registry.set_options(page_size=None, referrers_filter=False)
        got = self.get(path + "?artifactType=type%2F0")
        self.assertEqual((got["OCI-Filters-Applied"], got.json["manifests"]), (None, rows))
        self.registry.set_options(referrers=False)
        self.assertEqual(self.get(path).status, 404)

    def test_fallback_tag(self):
        self.registry.set_options(referrers=False)
        tag = self.image.digest.replace(":", "-")
        self.assertEqual(self.manifest(tag).status, 404)
        for i in range(2):
            added = self.repo.add_artifact({"sig": b"%d" % i}, subject=self.image, fallback=True)
            got = self.manifest(tag)
            self.assertEqual((got["Content-Type"], len(got.json["manifests"])), (OCI_INDEX, i + 1))
            self.assertEqual(got.json["manifests"][i]["digest"], added.digest)

    def test_changes(self):
        other = self.repo.add_image([{"a": b"other"}])
        self.repo.move_tag("v1", other)
        self.assertEqual(self.manifest().body, other.body)
        self.assertEqual(self.manifest(self.image.digest).body, self.image.body)
        self.repo.delete_tag("v1")
        self.assertEqual((self.manifest().status, self.manifest(other.digest).status), (404, 200))
        self.repo.move_tag("v1", other)
        self.repo.delete_manifest(other.digest)
        self.assertEqual((self.manifest().status, self.manifest(other.digest).status), (404, 404))
        self.repo.replace_blob(self.layer, LAYER[:-1] + b"?")
        self.assertNotEqual(sha256_of(self.blob().body), self.layer)
        self.repo.delete_blob(self.layer)
        self.assertEqual(self.blob().status, 404)
        self.registry.delete_repo("team/app")
        self.assertEqual(self.manifest(self.image.digest).json["errors"][0]["code"],
                         "NAME_UNKNOWN")

    def test_sources(self):
        noise = Noise(3 * Noise.PERIOD + 5, "x")
        whole = bytes(noise.read(0, noise.size))
        self.assertEqual(len(whole), noise.size)
        self.assertEqual(hashlib.sha256(whole).hexdigest(), noise.sha256())
        for offset, count in ((0, 1), (Noise.PERIOD - 3, 9), (7, 2 * Noise.PERIOD),
                              (noise.size - 4, 99)):
            self.assertEqual(bytes(noise.read(offset, count)), whole[offset:offset + count])
        self.assertNotEqual(whole[:1000], bytes(Noise(1000, "y").read(0, 1000)))
        for source in (noise, Sparse(60 << 30, header=b"head")):
            digest = self.repo.add_blob(source)["digest"]
            got = self.blob(digest, Range="bytes=-3")
            self.assertEqual(got.body, bytes(source.read(source.size - 3, 3)))

    def test_counts(self):
        self.manifest()
        self.manifest(method="HEAD")
        self.manifest("none")
        self.blob(Range="bytes=0-999")
        self.assertEqual(self.registry.pulls(), 1)
        self.assertEqual(self.registry.count("registry", kind="manifest"), 3)
        self.assertEqual(self.registry.count(method="HEAD"), 1)
        self.assertEqual(self.registry.bytes_sent(kind="blob", path=self.layer), 1000)
        counters = self.get("/_counters").json
        self.assertEqual((counters["pulls"], counters["totals"]["registry"]["requests"]), (1, 4))
        self.assertEqual(counters["connections"]["registry"]["accepted"], 5)
        self.registry.reset()
        self.assertEqual(self.registry.count(), 0)

    def test_pull_limit(self):
        self.registry.set_options(pull_limit=2)
        self.assertEqual(self.manifest(method="HEAD")["RateLimit-Remaining"], "2;w=21600")
        self.assertEqual([self.manifest().status for _ in range(3)], [200, 200, 429])
        got = self.manifest(method="HEAD")
        self.assertEqual((got.status, got["RateLimit-Remaining"]), (200, "0;w=21600"))
        self.assertEqual(self.manifest().json["errors"][0]["code"], "TOOMANYREQUESTS")
        self.assertEqual(self.blob().status, 200)
        self.registry.reset()
        self.assertEqual(self.manifest().status, 200)

    def test_control(self):
        def control(**asked):
            return send(self.registry.url + "/_control", "POST",
                        body=json.dumps(asked).encode())
        number = control(fault="status", status=500, kind="manifest").json["id"]
        self.assertEqual(self.manifest().status, 500)
        control(remove=number)
        control(options={"auth": "basic"})
        self.assertEqual(self.manifest().status, 401)
        control(options={"auth": "none"})
        other = self.repo.add_image([{"a": b"other"}])
        control(move_tag="team/app", tag="v1", digest=other.digest)
        self.assertEqual(self.manifest().body, other.body)
        control(delete_tag="team/app", tag="v1")
        self.assertEqual(self.manifest().status, 404)
        for order in ("refuse", "serve", "expire_urls", "revoke_tokens"):
            self.assertEqual(control(**{order: "cdn"}).json, {"ok": True})
        self.assertEqual(control(nonsense=1).status, 400)


class Redirects(RegistryCase):
    OPTIONS = {"redirect_blobs": True}

    def signed(self, **more):
        got = self.blob(**more)
        self.assertEqual(got.status, 307)
        return got["Location"]

    def test_signed_url(self):
        url = self.signed()
        self.assertTrue(url.startswith(self.registry.cdn_url + "/"), url)
        got = send(url)
        self.assertEqual((got.status, got.body, got["Docker-Content-Digest"]), (200, LAYER, None))
        got = send(url, Range="bytes=5-9")
        self.assertEqual((got.status, got.body, got["Content-Range"]),
                         (206, LAYER[5:10], f"bytes 5-9/{SIZE}"))
        self.assertEqual(send(url, Range=f"bytes={SIZE}-").status, 416)
        self.assertEqual(self.registry.count("registry", kind="redirect"), 1)
        self.assertEqual(self.registry.count("registry", kind="blob"), 0)
        self.assertEqual(self.registry.count("cdn", kind="blob", path=self.layer), 3)

    def test_refused(self):
        url = self.signed()
        got = send(url, Authorization="Bearer x")
        self.assertEqual((got.status, b"InvalidArgument" in got.body), (400, True))
        self.assertEqual(send(url, "HEAD").status, 403)
        self.assertEqual(send(self.signed(method="HEAD"), "HEAD")["Content-Length"], str(SIZE))
        self.assertEqual(send(url.replace("Signature=", "Signature=0")).status, 403)
        self.assertEqual(send(self.registry.cdn_url + "/").status, 403)
        self.registry.expire_urls()
        got = send(url)
        self.assertEqual((got.status, b"AccessDenied" in got.body), (403, True))
        self.registry.set_options(url_ttl=0)
        self.assertEqual(send(self.signed()).status, 403)

    def test_which(self):
        self.registry.set_options(redirect_blobs=SIZE, redirect_status=302)
        self.assertEqual(self.blob().status, 302)
        self.assertEqual(self.blob(self.image.blobs[0]).status, 200)
        self.registry.set_options(redirect_head=False)
        self.assertEqual(self.blob(method="HEAD").status, 200)
        self.assertEqual(self.blob("sha256:" + "0" * 64).status, 404)

    def test_touched(self):
        url = self.signed()
        etag = send(url)["ETag"]
        self.assertNotIn(self.layer[7:20], etag)
        self.assertEqual(send(url, Range="bytes=0-0", If_Range=etag).status, 206)
        self.repo.touch_blob(self.layer)
        self.assertEqual(send(url, Range="bytes=0-0", If_Range=etag).status, 200)
        self.assertNotEqual(send(url)["ETag"], etag)


class Tokens(RegistryCase):
    OPTIONS = {"auth": "bearer"}

    def post(self, **form):
        return send(self.registry.token_url + "/token", "POST", urlencode(form).encode(),
                    Content_Type="application/x-www-form-urlencoded")

    def test_challenge(self):
        realm = f'Bearer realm="{self.registry.token_url}/token",service="registry.test"'
        scope = ',scope="repository:team/app:pull"'
        got = self.get("/v2/")
        self.assertEqual((got.status, got["WWW-Authenticate"]), (401, realm))
        self.assertEqual(got.json["errors"][0]["code"], "UNAUTHORIZED")
        for got in (self.manifest(), self.blob(), self.get("/v2/team/app/tags/list")):
            self.assertEqual((got.status, got["WWW-Authenticate"]), (401, realm + scope))
        got = self.manifest(Authorization="Bearer wrong")
        self.assertEqual(got["WWW-Authenticate"], realm + scope + ',error="invalid_token"')
        self.assertIn("registry:catalog:*", self.get("/v2/_catalog")["WWW-Authenticate"])
        self.registry.set_options(challenge_scope=False)
        self.assertEqual(self.manifest()["WWW-Authenticate"], realm)
        self.registry.set_options(realm="file:///etc/passwd")
        self.assertIn('realm="file:///etc/passwd"', self.manifest()["WWW-Authenticate"])
        self.registry.set_options(ping_challenge=False)
        self.assertEqual((self.get("/v2/").status, self.manifest().status), (200, 401))

    def test_several_challenges(self):
        self.registry.set_options(challenge="two")
        two = self.manifest().headers.get_all("WWW-Authenticate")
        self.assertEqual([v.split()[0] for v in two], ["Basic", "Bearer"])
        self.registry.set_options(challenge="line")
        self.assertEqual(self.manifest().headers.get_all("WWW-Authenticate"), [", ".join(two)])
        self.registry.set_options(challenge="odd")
        self.assertRegex(self.manifest()["WWW-Authenticate"],
                         r'^Negotiate , bEARER x=1 , SCOPE = ".*" , REALM = ')

    def test_get(self):
        query = "service=registry.test&scope=repository:team/app:pull"
        got = send(f"{self.registry.token_url}/token?{query}").json
        self.assertEqual(got["token"], got["access_token"])
        self.assertEqual(got["expires_in"], 300)
        self.assertRegex(got["issued_at"], r"^20..-..-..T..:..:..Z$")
        self.assertNotIn("refresh_token", got)
        token = "Bearer " + got["token"]
        self.assertEqual(self.get("/v2/", Authorization=token).status, 200)
        self.assertEqual(self.manifest(Authorization=token).status, 200)
        got = self.manifest(repo="secret/app", Authorization=token)
        self.assertEqual(got.status, 401)
        self.assertIn('error="insufficient_scope"', got["WWW-Authenticate"])
        self.registry.set_options(insufficient=403)
        self.assertEqual(self.manifest(repo="secret/app", Authorization=token).status, 403)
        self.assertEqual(self.registry.count("token", kind="token"), 1)

    def test_who_may(self):
        secret = "repository:secret/app:pull"
        for user, status in ((None, 401), (("bob", "builder"), 401), ((USER, PASSWORD), 200)):
            token = self.token(secret, user)
            self.assertEqual(self.manifest(repo="secret/app", Authorization=token).status, status)
        self.assertEqual(self.token(user=(USER, "wrong")).status, 401)
        both = self.token(f"{secret} repository:team/app:pull,push", (USER, PASSWORD))
        for repo in ("secret/app", "team/app"):
            self.assertEqual(self.manifest(repo=repo, Authorization=both).status, 200)
        self.registry.set_options(anonymous=False)
        self.assertEqual(self.token().status, 401)
        self.assertEqual(self.token(service="other", user=(USER, PASSWORD)).status, 400)
        self.assertEqual(self.manifest(Authorization=basic()).status, 401)
        catalog = self.token("registry:catalog:*", (USER, PASSWORD))
        self.assertEqual(self.get("/v2/_catalog", Authorization=catalog).status, 200)

    def test_unknown_repository(self):
        token = self.token("repository:team/none:pull")
        self.assertEqual(self.manifest(repo="team/none", Authorization=token).status, 404)
        self.registry.set_options(hide_unknown=True)
        token = self.token("repository:team/none:pull")
        self.assertEqual(self.manifest(repo="team/none", Authorization=token).status, 401)

    def test_post(self):
        more = {"service": "registry.test", "client_id": "test",
                "scope": "repository:secret/app:pull repository:none/such:push"}
        got = self.post(grant_type="password", username=USER, password=PASSWORD,
                        access_type="offline", **more)
        self.assertEqual(got.status, 200)
        self.assertIn("repository:secret/app:pull", got.json["scope"])
        self.assertEqual(self.manifest(
            repo="secret/app", Authorization="Bearer " + got.json["access_token"]).status, 200)
        again = self.post(grant_type="refresh_token", refresh_token=got.json["refresh_token"],
                          **more)
        self.assertEqual(self.manifest(
            repo="secret/app", Authorization="Bearer " + again.json["access_token"]).status, 200)
        self.assertNotIn("refresh_token", again.json)
        for wrong in ({"grant_type": "password", "username": USER, "password": "x"},
                      {"grant_type": "refresh_token", "refresh_token": "x"}, {}):
            self.assertEqual(self.post(**wrong).status, 400)
        self.registry.set_options(token_post=405)
        self.assertEqual(self.post(grant_type="password").status, 405)
        self.registry.set_options(token_post=True, token_get=404)
        self.assertEqual(self.token().status, 404)

    def test_what_tokens_look_like(self):
        for name in ("token", "access_token"):
            self.registry.set_options(token_name=name, expires_in=None, issued_at=False)
            got = self.registry.token_url + "/token?scope=repository:team/app:pull"
            self.assertEqual(list(send(got).json), [name])
        self.registry.set_options(token_name="both", token_size=5000)
        token = self.token()
        self.assertGreaterEqual(len(token), 5000)
        self.assertEqual(self.manifest(Authorization=token).status, 200)
        self.registry.set_options(issued_at=True, clock_skew=86400 * 400)
        year = send(self.registry.token_url + "/token").json["issued_at"][:4]
        self.assertGreater(int(year), 2026)

    def test_a_tokens_end(self):
        self.registry.set_options(expires_in=300, token_life=0)
        self.assertEqual(self.manifest(Authorization=self.token()).status, 401)
        self.registry.set_options(token_life=None, expires_in=0)
        self.assertEqual(self.manifest(Authorization=self.token()).status, 401)
        self.registry.set_options(expires_in=60)
        token = self.token()
        self.assertEqual(self.manifest(Authorization=token).status, 200)
        self.registry.revoke_tokens()
        self.assertEqual(self.manifest(Authorization=token).status, 401)
        self.assertEqual(self.manifest(
            Authorization="Bearer " + self.registry.add_token("team/app")).status, 200)

    def test_realm_on_the_registry(self):
        self.registry.set_options(realm_host="registry")
        self.assertIn(f'realm="{self.registry.url}/token"', self.manifest()["WWW-Authenticate"])
        got = self.get("/token?scope=repository:team/app:pull")
        self.assertEqual(
            self.manifest(Authorization="Bearer " + got.json["token"]).status, 200)

    def test_basic(self):
        self.registry.set_options(auth="basic")
        got = self.manifest()
        self.assertEqual((got.status, got["WWW-Authenticate"]), (401, 'Basic realm="stand-in"'))
        self.assertEqual(self.manifest(Authorization=basic()).status, 200)
        self.assertEqual(self.manifest(repo="secret/app", Authorization=basic()).status, 200)
        self.assertEqual(self.manifest(repo="secret/app",
                                       Authorization=basic("bob", "builder")).status, 403)
        for wrong in (basic(USER, "x"), "Basic ???", "Bearer x"):
            self.assertEqual(self.manifest(Authorization=wrong).status, 401)


class FromAShell(unittest.TestCase):
    def test_serves_files(self):
        with subprocess.Popen(
                [sys.executable, os.path.join(HERE, "registry.py"), "--artifact",
                 f"team/thing:v1={__file__}", "--auth", "basic", "--user", f"{USER}:{PASSWORD}",
                 "--redirect-blobs", "true"], stdout=subprocess.PIPE, text=True) as process:
            try:
                said = dict(line.split(None, 1) for line in
                            (process.stdout.readline() for _ in range(5)))
                url = said["registry"].strip()
                _, digest, size = said["layer"].split()
                self.assertEqual(send(url + "/v2/team/thing/manifests/v1").status, 401)
                got = send(url + f"/v2/team/thing/blobs/{digest}", Authorization=basic())
                self.assertEqual(sha256_of(send(got["Location"]).body), digest)
                self.assertEqual(int(size), os.path.getsize(__file__))
            finally:
                process.terminate()
        self.assertEqual(process.returncode, 0)


class Clean(unittest.TestCase):
    def test_stops_and_starts_again_on_its_ports(self):
        registry = StandInRegistry()
        registry.add_repo("a").add_image(tag="v1")
        registry.start()
        url = registry.url + "/v2/a/manifests/v1"
        self.assertEqual(send(url).status, 200)
        registry.stop()
        with self.assertRaises(ConnectionRefusedError):
            send(url)
        registry.start()
        self.assertEqual(send(url).status, 200)
        registry.stop()
        self.assertEqual(registry.errors, [])


if __name__ == "__main__":
    unittest.main()
