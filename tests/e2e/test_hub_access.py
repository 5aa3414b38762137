"""Whose rights count, and what policies allow, for registry names under a Hub's prefix."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import (MANIFEST_TYPE, binary, gguf_file, paths_of,  # noqa: E402
                     safetensors_file, sha256)
from hub_api_case import OTHER_TOKEN, PATIENT, TOKEN, HubApiCase, bearer  # noqa: E402

WEIGHTS = safetensors_file({"a": ("F32", (300, 100))}, fill=b"weights!")
TINY = {"t": (32, 2)}
CONFIG = b'{"model_type":"llama"}\n'
README = b"# A model\n" * 2000
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "README.md": README}
HEADER = 65536  # of a weight file is read first by an import
STRANGER = "hf_" + "NobodyKnowsThisOneNobodyKnowsThisO"


def basic(token):
    return {"Authorization": "Basic " + base64.b64encode(f"me:{token}".encode()).decode()}


class RegistryCase(HubApiCase):
    def v2(self, path, token=None, method="GET", headers=None, body=None):
        return self.wb.request(method, f"/v2/{path}",
                               {"Accept": MANIFEST_TYPE, **bearer(token), **(headers or {})}, body)

    def files_of(self, name, token=None):
        status, _, body = self.v2(name, token)
        self.assertEqual(status, 200, body)
        return paths_of(json.loads(body))


class Forwarded(RegistryCase):
    def setUp(self):
        self.hub = self.make_hub()
        self.private = self.hub.add_repo("Org/Private", FILES, private=True, tokens=[TOKEN])
        self.hub.add_repo("Org/Gated", FILES, gated="manual", tokens=[TOKEN])
        self.hub.add_repo("Org/Public", FILES)
        self.hub.add_token(OTHER_TOKEN)

    def serve(self, **settings):
        self.wb = self.make_server(self.hub, credentials="forward", **{
            "tag_ttl": "1h", "auth_ttl": "1h", "negative_ttl": "1h", **settings})

    def nothing_leaks(self):
        self.assertLessEqual({r.headers.get("authorization") for r in self.hub.requests("cdn")},
                             {None})
        for token in (TOKEN, OTHER_TOKEN, STRANGER):
            self.assertNotIn(token, self.wb.log)
            self.holds_no(token, self.wb)

    def pull(self, name, token):
        """Everything of a model; its layers' paths and digests."""
        layers = self.files_of(f"hf/{name}/manifests/main", token)
        for path, layer in layers.items():
            status, _, body = self.v2(f"hf/{name}/blobs/{layer['digest']}", token)
            self.assertEqual((status, sha256(body)), (200, layer["digest"]), path)
        return layers

    def test_what_is_held_is_asked_for_each_caller(self):
        self.serve()
        layers = self.pull("org/private", TOKEN)
        digest = layers["model.safetensors"]["digest"]
        _, headers, _ = self.v2("hf/org/private/manifests/main", TOKEN)
        manifest = headers["Docker-Content-Digest"]
        paths = [f"hf/org/private/manifests/{r}" for r in
                 ("main", "latest", self.private.branches["main"], manifest, "nothing")]
        paths += [f"hf/org/private/blobs/{digest}", "hf/org/private/tags/list",
                  f"hf/org/private/referrers/{manifest}",
                  f"hf/org/private/blobs/{layers['config.json']['digest']}"]
        for token in (None, OTHER_TOKEN, STRANGER):
            for method in ("GET", "HEAD"):
                for path in paths:
                    with self.subTest(token=token, method=method, path=path):
                        status, headers, body = self.v2(path, token, method)
                        wanted = 404 if token == OTHER_TOKEN else 401
                        self.assertEqual(status, wanted, body)
                        self.assertEqual(headers["WWW-Authenticate"],
                                         'Basic realm="weighbridge"' if wanted == 401 else None)
                        self.assertNotIn(b"sha256", body)
        status, _, _ = self.v2(f"hf/org/private/blobs/{digest}", OTHER_TOKEN,
                               headers={"Range": "bytes=5-9"})
        self.assertEqual(status, 404)
        self.assertEqual(self.hub.bytes_sent("cdn", path="model.safetensors"), len(WEIGHTS) + HEADER,
                         "one copy, and the header")
        self.nothing_leaks()

    def test_a_password_will_do(self):
        self.serve()
        for headers in (basic(TOKEN), bearer(TOKEN)):
            status, _, body = self.wb.get("/v2/hf/org/private/manifests/main", headers)
            self.assertEqual(status, 200, body)
        for headers in (basic(""), basic(OTHER_TOKEN), {"Authorization": "Basic ?"}, {}):
            status, _, body = self.wb.get("/v2/hf/org/private/manifests/main", headers)
            self.assertIn(status, (401, 404), body)
        self.nothing_leaks()

    def test_a_login_is_asked_for(self):
        """Else podman and skopeo never send theirs; docker, without one, would pull nothing."""
        self.serve()
        for headers, wanted in (({}, 401), (bearer(TOKEN), 200), (basic("x"), 200),
                                ({"User-Agent": "docker/27.0 go/1.22"}, 200),
                                ({"User-Agent": "skopeo/1.9.3"}, 401)):
            status, answer, _ = self.wb.get("/v2/", headers)
            self.assertEqual(status, wanted, headers)
            self.assertEqual(answer["WWW-Authenticate"],
                             'Basic realm="weighbridge"' if wanted == 401 else None)
        self.assertEqual(self.make_server(self.hub).get("/v2/")[0], 200, "nobody's token counts")

    @unittest.skipUnless(shutil.which("skopeo"), "skopeo is not installed")
    def test_skopeo(self):
        self.serve()
        for name, login, wanted in (("private", f"me:{TOKEN}", 0), ("public", None, 0),
                                    ("private", None, 1), ("private", f"me:{OTHER_TOKEN}", 1)):
            done = subprocess.run(
                ["skopeo", "inspect", "--raw", "--tls-verify=false",
                 *(["--creds", login] if login else []),
                 f"docker://{self.wb.host}/hf/org/{name}:main"],
                env={**os.environ, "HOME": self.wb.scratch}, capture_output=True, text=True,
                timeout=60, check=False)
            self.assertEqual(done.returncode, wanted, done.stderr)
        self.nothing_leaks()

    def test_gated(self):
        self.serve()
        self.pull("org/gated", TOKEN)
        status, headers, body = self.v2("hf/org/gated/manifests/main")
        self.assertEqual(status, 401, body)
        self.assertIn("Basic", headers["WWW-Authenticate"])
        status, headers, body = self.v2("hf/org/gated/manifests/main", OTHER_TOKEN)
        self.assertEqual(status, 403, body)
        self.assertIsNone(headers["WWW-Authenticate"])
        self.assertIn(b"gated", body)
        self.nothing_leaks()

    def test_public_is_for_all(self):
        self.serve()
        for token in (None, TOKEN, OTHER_TOKEN):
            self.pull("org/public", token)
        self.assertEqual(self.hub.bytes_sent("cdn", path="model.safetensors"), len(WEIGHTS) + HEADER,
                         "one copy, and the header")
        status, _, _ = self.v2("hf/org/public/manifests/main", STRANGER)
        self.assertEqual(status, 401)
        self.nothing_leaks()

    def test_a_refusal_is_nobody_elses(self):
        """What the Hub hides from one caller is not said to be missing to another."""
        self.serve()
        for token in (OTHER_TOKEN, None, STRANGER):
            self.assertIn(self.v2("hf/org/private/manifests/main", token)[0], (401, 404))
        self.pull("org/private", TOKEN)

    def test_together(self):
        """At the same time, too."""
        self.serve(**PATIENT)
        hold = self.hub.hold("hub", kind="auth-check")
        got, threads = self.together(6, lambda i: self.v2(
            "hf/org/private/manifests/main", (TOKEN, OTHER_TOKEN, None)[i % 3]))
        self.assertTrue(hold.wait_held(3))
        hold.release()
        hold.remove()
        for thread in threads:
            thread.join()
        for i, answer in enumerate(got):
            self.assertEqual(answer[0], (200, 404, 401)[i % 3], answer[2])
        self.nothing_leaks()

    def test_rights_are_cached(self):
        self.serve()
        self.pull("org/private", TOKEN)
        self.hub.reset()
        self.pull("org/private", TOKEN)
        self.assertEqual(self.hub.requests(), [])
        self.assertIn(self.v2("hf/org/private/tags/list", OTHER_TOKEN)[0], (401, 404))
        asked = self.hub.count("hub")
        self.assertIn(self.v2("hf/org/private/tags/list", OTHER_TOKEN)[0], (401, 404))
        self.assertEqual(self.hub.count("hub"), asked, "nor is a refusal asked for at once again")

    def test_the_catalog_does_not_tell(self):
        self.serve()
        self.pull("org/private", TOKEN)
        for token in (None, TOKEN):
            _, _, body = self.v2("_catalog", token)
            self.assertEqual(json.loads(body), {"repositories": []})

    def test_other_names(self):
        """An alias, and a name from before a renaming, are of the repository that they lead to."""
        self.hub.add_repo("Org/New", FILES, private=True, tokens=[TOKEN], renamed_from=["Org/Old"])
        self.serve(aliases={"org/alias": "Org/Private"})
        for name in ("org/alias", "org/old", "org/new"):
            self.pull(name, TOKEN)
            for token in (None, OTHER_TOKEN):
                with self.subTest(name=name, token=token):
                    self.assertIn(self.v2(f"hf/{name}/manifests/main", token)[0], (401, 404))
        self.nothing_leaks()

    def test_no_way_round_by_a_mount(self):
        self.serve()
        digest = self.pull("org/private", TOKEN)["model.safetensors"]["digest"]
        for source in ("&from=hf/org/private", ""):
            for token in (OTHER_TOKEN, None):
                status, _, _ = self.v2(f"mine/model/blobs/uploads/?mount={digest}{source}", token,
                                       "POST")
                self.assertEqual(status, 202, "not mounted")
        status, _, _ = self.v2(f"mine/model/blobs/uploads/?mount={digest}&from=hf/org/private",
                               TOKEN, "POST")
        self.assertEqual(status, 201)

    def test_the_hub_is_gone(self):
        self.serve()
        self.pull("org/private", TOKEN)
        self.pull("org/public", TOKEN)
        self.wb.get("/Org/Public/resolve/main/config.json", bearer(TOKEN))
        self.hub.stop()
        self.pull("org/private", TOKEN)
        for token in (None, OTHER_TOKEN):
            self.assertGreaterEqual(self.v2("hf/org/private/manifests/main", token)[0], 400)

    def test_warming(self):
        """On behalf of who asks for it."""
        self.serve()
        path = "/admin/v1/warm/hf/org/private:main"
        status, _, body = self.wb.request("POST", path)
        self.assertEqual(status, 401, body)
        status, _, body = self.wb.request("POST", path, bearer(TOKEN))
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(body.splitlines()[-1]), {"done": True}, body)
        self.nothing_leaks()

    def warm_command(self, **env):
        done = subprocess.run(
            [binary(), "warm", "hf/org/private:main", "--server", self.wb.url],
            env={"PATH": os.environ["PATH"], "HOME": self.home, **env},
            capture_output=True, text=True, timeout=120, check=False)
        for token in (TOKEN, OTHER_TOKEN):
            self.assertNotIn(token, done.stdout + done.stderr)
        return done.returncode, done.stderr

    def token_at_home(self, *path, token=TOKEN):
        file = os.path.join(self.home, *path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w", encoding="utf-8") as f:
            f.write(f"{token}\n")
        return file

    def test_warming_by_the_command_sends_the_users_token(self):
        """It is found where the Hub's own clients find it."""
        self.serve(auth_ttl="1s")
        self.home = self.enterContext(tempfile.TemporaryDirectory())
        status, text = self.warm_command()
        self.assertEqual(status, 1, text)
        self.assertIn("hf/org/private does not exist on the Hub", text)
        self.assertEqual(self.warm_command(HF_TOKEN=TOKEN), (0, ""))
        self.assertEqual(self.warm_command(HF_TOKEN=OTHER_TOKEN)[0], 1)
        self.assertEqual(self.warm_command(HUGGING_FACE_HUB_TOKEN=f" {TOKEN} "), (0, ""))
        elsewhere = self.token_at_home("secret", "hub")
        self.assertEqual(self.warm_command(HF_TOKEN_PATH=elsewhere), (0, ""))
        self.assertEqual(self.warm_command(HF_TOKEN_PATH="~/secret/hub"), (0, ""))
        self.assertEqual(self.warm_command(HF_TOKEN=OTHER_TOKEN, HF_TOKEN_PATH=elsewhere)[0], 1)
        self.token_at_home("models", "token")
        self.assertEqual(self.warm_command(HF_HOME=f"{self.home}/models"), (0, ""))
        self.token_at_home("cache", "huggingface", "token")
        self.assertEqual(self.warm_command(XDG_CACHE_HOME=f"{self.home}/cache"), (0, ""))
        self.token_at_home(".cache", "huggingface", "token")
        self.assertEqual(self.warm_command(), (0, ""))
        self.assertEqual(self.warm_command(HF_HUB_DISABLE_IMPLICIT_TOKEN="YES")[0], 1)
        self.nothing_leaks()

    def test_warming_by_the_command_with_what_is_no_token(self):
        self.serve()
        self.home = self.enterContext(tempfile.TemporaryDirectory())
        for env, text in (({"HF_TOKEN": "a\nb"}, "HF_TOKEN is no token"),
                          ({"HF_TOKEN": "a" * 1025}, "more than 1024 bytes"),
                          ({"HF_TOKEN_PATH": self.home}, self.home)):
            with self.subTest(env=list(env)):
                status, said = self.warm_command(**env)
                self.assertEqual(status, 1)
                self.assertIn(text, said)

    def test_an_import_goes_on_with_the_rights_of_who_asks(self):
        """The CDN's addresses run out while it is fetched; the next one is asked for likewise."""
        self.serve()
        layers = self.files_of("hf/org/private/manifests/main", TOKEN)
        self.hub.fault("cdn_cut", fraction=0.5, path="model.safetensors", times=1)
        self.hub.fault("url_uses", uses=1)
        status, _, body = self.v2(f"hf/org/private/blobs/{layers['model.safetensors']['digest']}",
                                  TOKEN)
        self.assertEqual((status, body), (200, WEIGHTS))
        self.nothing_leaks()


class Shared(RegistryCase):
    """One copy and one fetch of each small file, by whatever API."""

    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Model", FILES)
        self.wb = self.make_server(self.hub, tag_ttl="1h")

    def small_requests(self):
        return [r for r in self.hub.requests("hub", method="GET") if r.kind == "resolve"
                and r.path in ("config.json", "README.md")]

    def test_the_registry_first(self):
        self.files_of("hf/org/model/manifests/main")
        fetched = len(self.small_requests())
        self.assertEqual(fetched, 2)
        for path in ("config.json", "README.md"):
            answer = self.get(f"/Org/Model/resolve/main/{path}")
            self.assertEqual(answer.body, FILES[path])
        self.assertEqual(len(self.small_requests()), fetched)

    def test_the_hubs_api_first(self):
        for path in ("config.json", "README.md"):
            answer = self.get(f"/Org/Model/resolve/main/{path}")
            self.assertEqual(answer.body, FILES[path])
        fetched = len(self.small_requests())
        layers = self.files_of("hf/org/model/manifests/main")
        self.assertEqual(len(self.small_requests()), fetched)
        self.assertEqual(layers["config.json"]["digest"], sha256(CONFIG))


    def test_a_slow_hub(self):
        """Clients give an answer ten seconds to begin, and take up one that pauses later on. The
        Hub itself is given longer."""
        self.wb = self.make_server(self.hub, tag_ttl="1h", stall_timeout="30s")
        paths = ("README.md", "model.safetensors")
        for path in paths:
            self.head(f"/Org/Model/resolve/main/{path}")
        hold = self.hub.hold("hub", kind="resolve,small")
        began, connections = time.monotonic(), []
        for path in paths:
            connections.append(self.wb.connect())
            connections[-1].request("GET", f"/Org/Model/resolve/main/{path}")
        self.assertTrue(hold.wait_held(2))
        for path, connection in zip(paths, connections):
            answer = connection.getresponse()
            self.assertLess(time.monotonic() - began, 10)
            self.assertEqual(answer.status, 200)
            hold.release()
            self.assertEqual(answer.read(), FILES[path])
            connection.close()


class Policies(RegistryCase):
    def setUp(self):
        self.hub = self.make_hub()
        self.repo = self.hub.add_repo("Org/Model", {
            **FILES, "tiny-Q4_K_M.gguf": gguf_file(TINY, fill=b"q4"),
            "tiny-Q8_0.gguf": gguf_file(TINY, fill=b"q8")})
        self.commit = self.repo.branches["main"]

    def serve(self, *rules, data=None, **settings):
        self.wb = self.make_server(self.hub, data=data, root={"policies": [
            {"repositories": "hf/org/*", **r} for r in rules]}, **settings)

    def refused(self, path, *words):
        status, _, body = self.v2(path)
        self.assertEqual(status, 403, body)
        for word in ("policies[0]", *words):
            self.assertIn(word, body.decode())

    def test_only_commits(self):
        self.serve({"pinned_only": True})
        for tag in ("main", "latest", "Q4_K_M", "main--Q4_K_M", "latest--q8_0", "nothing"):
            self.refused(f"hf/org/model/manifests/{tag}", "commit")
        self.assertEqual(self.hub.requests(), [])
        self.assertIn("model.safetensors", self.files_of(f"hf/org/model/manifests/{self.commit}"))
        layers = self.files_of(f"hf/org/model/manifests/{self.commit}--Q4_K_M")
        self.assertIn("tiny-Q4_K_M.gguf", layers)
        self.assertNotIn("tiny-Q8_0.gguf", layers)

    def test_only_some_revisions(self):
        self.hub.set_tag("Org/Model", "v1", self.commit)
        later = self.repo.add_commit({"config.json": b"2"}, keep=True)
        self.serve({"revisions": ["v*"]})
        self.assertIn("tiny-Q8_0.gguf", self.files_of("hf/org/model/manifests/v1"))
        self.assertNotIn("tiny-Q8_0.gguf", self.files_of("hf/org/model/manifests/v1--Q4_K_M"))
        for tag in ("main", "latest", "Q4_K_M", "main--Q4_K_M", later):
            self.refused(f"hf/org/model/manifests/{tag}", "v*")

    def test_commits_of_revisions_that_are_allowed(self):
        """The same by both ways, whichever has found out what the name means."""
        first = self.commit
        self.hub.set_tag("Org/Model", "v1", first)
        self.hub.set_tag("Org/Model", "v2", self.repo.add_commit({"config.json": b"2"}, keep=True))
        second, other = self.repo.tags["v2"], self.repo.add_commit(
            {"config.json": b"3"}, branch="other", keep=True)
        third = self.repo.add_commit({"config.json": b"4"}, keep=True)
        rules = {"revisions": ["main", "v*"]}
        self.serve(rules, tag_ttl="0s")

        def opens(*commits):
            for commit in (first, second, third, other):
                tags = (commit, f"{commit}--Q4_K_M")
                url = f"/Org/Model/resolve/{commit}/config.json"
                if commit in commits:
                    layers = self.files_of(f"hf/org/model/manifests/{tags[0]}")
                    self.assertIn("tiny-Q8_0.gguf", layers)
                    layers = self.files_of(f"hf/org/model/manifests/{tags[1]}")
                    self.assertNotIn("tiny-Q8_0.gguf", layers)
                    self.assertEqual(self.wb.get(url)[0], 200)
                    continue
                for tag in tags:
                    self.refused(f"hf/org/model/manifests/{tag}", "v*")
                self.assertEqual(self.wb.get(url)[0], 403)
        opens()
        self.assertIn("config.json", self.files_of("hf/org/model/manifests/v1--q4_k_m"))
        opens(first)
        self.assertEqual(self.wb.get("/Org/Model/resolve/v2/config.json")[0], 200)
        opens(first, second)
        self.files_of("hf/org/model/manifests/main")
        self.hub.set_tag("Org/Model", "v1", third)
        self.files_of("hf/org/model/manifests/v1")
        self.refused("hf/org/model/manifests/other", "v*")
        opens(first, second, third)
        self.wb.stop()
        self.serve({"revisions": ["v2"]}, data=self.wb.data)
        self.refused(f"hf/org/model/manifests/{first}", "v2")
        self.assertIn("config.json", self.files_of(f"hf/org/model/manifests/{second}"))
        self.wb.stop()
        self.serve({"pinned_only": True, "revisions": ["v2"]}, data=self.wb.data)
        self.refused(f"hf/org/model/manifests/{second}", "v2")

    def test_formats_leave_files_out(self):
        self.serve({"formats": ["safetensors"]})
        layers = self.files_of("hf/org/model/manifests/main")
        self.assertIn("model.safetensors", layers)
        self.assertIn("config.json", layers)
        self.assertFalse([path for path in layers if path.endswith(".gguf")])
        self.refused("hf/org/model/manifests/Q4_K_M", "gguf")

    def test_no_weights_of_an_allowed_format(self):
        self.serve({"formats": ["onnx"]})
        self.refused("hf/org/model/manifests/main", "onnx")

    def test_a_file_is_too_large(self):
        self.serve({"max_file": len(WEIGHTS) - 1})
        self.refused("hf/org/model/manifests/main", "model.safetensors", str(len(WEIGHTS)))
        self.assertIn("tiny-Q8_0.gguf", self.files_of("hf/org/model/manifests/Q8_0"))

    def test_by_an_old_name(self):
        """An alias or a renaming is no way round."""
        self.hub.add_repo("Secret/Thing", FILES, renamed_from=["Org/Thing"])
        self.wb = self.make_server(
            self.hub, root={"policies": [{"repositories": "hf/secret/*", "pinned_only": True}]},
            aliases={"org/other": "Secret/Thing"})
        for name in ("org/thing", "org/other", "secret/thing"):
            self.refused(f"hf/{name}/manifests/main")

    def test_what_came_before_the_policy(self):
        self.wb = self.make_server(self.hub)
        layers = self.files_of("hf/org/model/manifests/main")
        for layer in layers.values():
            self.v2(f"hf/org/model/blobs/{layer['digest']}")
        _, headers, _ = self.v2("hf/org/model/manifests/main")
        manifest = headers["Docker-Content-Digest"]
        self.wb.stop()
        data = self.wb.data
        self.serve({"formats": ["safetensors"]}, data=data, tag_ttl="0s")
        self.refused(f"hf/org/model/blobs/{layers['tiny-Q8_0.gguf']['digest']}", "gguf")
        status, _, body = self.v2(f"hf/org/model/blobs/{layers['model.safetensors']['digest']}")
        self.assertEqual((status, body), (200, WEIGHTS))
        self.assertFalse([path for path in self.files_of("hf/org/model/manifests/main")
                          if path.endswith(".gguf")])
        self.wb.stop()
        self.serve({"deny": True}, data=data)
        for path in (f"manifests/{manifest}", "manifests/main", "tags/list",
                     f"manifests/{self.commit}", f"referrers/{manifest}",
                     f"blobs/{layers['config.json']['digest']}"):
            self.refused(f"hf/org/model/{path}")
        _, _, body = self.v2("_catalog")
        self.assertEqual(json.loads(body), {"repositories": []})
        self.wb.stop()

    def test_warming_is_pulling(self):
        self.serve({"deny": True})
        status, _, body = self.wb.request("POST", "/admin/v1/warm/hf/org/model:main")
        self.assertEqual(status, 403, body)


if __name__ == "__main__":
    unittest.main()
