"""Ways round who may read what of a Hub: each of them has to be closed."""

import base64
import json
import os
import re
import socket
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import MANIFEST_TYPE, gguf_file, paths_of, safetensors_file, sha256  # noqa: E402
from hub_api_case import OTHER_TOKEN, PATIENT, TOKEN, HubApiCase, bearer, upstream  # noqa: E402

WEIGHTS = safetensors_file({"a": ("F32", (300, 100))}, fill=b"weights!")
GGUF = gguf_file({"t": (32, 2)}, fill=b"gguf")
CONFIG = b'{"model_type":"llama","secret":"of the owner"}\n'
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "tiny-Q8_0.gguf": GGUF}
STRANGER = "hf_" + "NobodyKnowsThisOneNobodyKnowsThisO"
THIRD_TOKEN = "hf_" + "ThirdThirdThirdThirdThirdThirdThir"
MANIFEST = {"Accept": MANIFEST_TYPE}
LLAMA = {"User-Agent": "llama-cpp/b1", "Accept": "application/json"}


def ways(name, revision="main", kind="models"):
    """(method, path, headers, body) of all that the Hub's API tells of a repository."""
    files = name if kind == "models" else f"{kind}/{name}"
    api = f"/api/{kind}/{name}"
    at = f"{api}/revision/{revision}"
    tree = f"{api}/tree/{revision}"
    asked = [(method, path, {}, None)
             for path in (api, at, f"{at}?blobs=true", f"{api}?revision={revision}", f"{api}/refs",
                          f"{api}/refs?include_prs=1", tree, f"{tree}?recursive=true",
                          f"{tree}?recursive=true&expand=true", f"{api}/commits/{revision}")
             for method in ("GET", "HEAD")]
    asked.append(("POST", f"{api}/paths-info/{revision}",
                  {"Content-Type": "application/x-www-form-urlencoded"}, b"paths=config.json"))
    for file in ("config.json", "model.safetensors"):
        for way in ("resolve", "raw"):
            path = f"/{files}/{way}/{revision}/{file}"
            for headers in ({}, {"Range": "bytes=0-9"}, {"If-None-Match": "*"}):
                asked += [("GET", path, headers, None), ("HEAD", path, headers, None)]
    if re.fullmatch("[0-9a-f]{40}", revision):
        asked.append(("GET", f"/api/resolve-cache/{kind}/{name}/{revision}/config.json", {}, None))
    if kind == "models":
        asked.append(("GET", f"/v2/{name}/manifests/latest", LLAMA, None))
    return asked


def contents(name, revision="main", kind="models"):
    """Those of them that give what a gated repository keeps back."""
    return [w for w in ways(name, revision, kind)
            if "/resolve" in w[1] or "/raw/" in w[1]] + [
                ("GET", f"/api/{kind}/{name}/auth-check", {}, None)]


class AttackCase(HubApiCase):
    SECRETS = (b"of the owner", b"safetensors", b"weights!", b"rfilename", b"targetCommit")

    def closed(self, token, asked, canonical=None, statuses=(401, 403, 404)):
        """None of these tells anything; canonical: nor this name."""
        for method, path, headers, body in asked:
            with self.subTest(token=token, method=method, path=path, headers=headers):
                answer = self.ask(method, path, {**headers, **bearer(token)}, body)
                self.assertIn(answer.status, statuses, answer.body[:600])
                told = answer.body + str(dict(answer.headers)).encode()
                for secret in self.SECRETS:
                    if secret.decode() not in path:
                        self.assertNotIn(secret, told)
                for header in ("X-Repo-Commit", "ETag", "Content-Range"):
                    self.assertIsNone(answer.headers[header], header)
                if canonical:
                    self.assertNotIn(canonical.encode(), told)

    def open(self, token, asked):
        for method, path, headers, body in asked:
            with self.subTest(token=token, method=method, path=path, headers=headers):
                answer = self.ask(method, path, {**headers, **bearer(token)}, body)
                self.assertIn(answer.status, (200, 206, 304), answer.body[:600])

    def v2(self, path, token=None, method="GET", headers=None):
        return self.wb.request(method, f"/v2/{path}", {**MANIFEST, **bearer(token),
                                                       **(headers or {})})

    def tokens_sent(self, **where):
        return {r.headers.get("authorization", "")[7:] for r in self.hub.requests(**where)}

    def nothing_leaks(self, *tokens):
        self.assertLessEqual({r.headers.get("authorization") for r in self.hub.requests("cdn")},
                             {None})
        _, _, metrics = self.wb.get("/metrics")
        for token in tokens or (TOKEN, OTHER_TOKEN, STRANGER, THIRD_TOKEN):
            for part in (token, token[3:19], token[-16:]):
                self.holds_no(part, self.wb)
                self.assertNotIn(part.encode(), metrics)


class Forwarded(AttackCase):
    def setUp(self):
        self.hub = self.make_hub()
        self.private = self.hub.add_repo("Org/Private", FILES, private=True, tokens=[TOKEN],
                                         renamed_from=["Old/Private"])
        self.gated = self.hub.add_repo("Org/Gated", FILES, gated="manual", tokens=[TOKEN],
                                       renamed_from=["Old/Gated"])
        self.public = self.hub.add_repo("Org/Public", FILES)
        self.hub.add_repo("Org/Data", FILES, kind="dataset", private=True, tokens=[TOKEN])
        self.hub.add_repo("Org/Room", FILES, kind="space", private=True, tokens=[TOKEN])
        self.hub.add_token(OTHER_TOKEN)
        self.commit = self.private.branches["main"]

    def serve(self, root=None, **settings):
        self.wb = self.make_server(self.hub, credentials="forward", root=root, **{
            "tag_ttl": "1h", "auth_ttl": "1h", "negative_ttl": "1h", **settings})

    OTHERS = (None, OTHER_TOKEN, STRANGER)

    def test_every_way_to_what_is_held(self):
        self.serve()
        for kind, name in (("models", "Org/Private"), ("datasets", "Org/Data"),
                           ("spaces", "Org/Room")):
            commit = self.hub.repo(name, kind[:-1]).branches["main"]
            self.open(TOKEN, ways(name, "main", kind) + ways(name, commit, kind))
            for token in self.OTHERS:
                self.closed(token, ways(name, "main", kind) + ways(name, commit, kind))
        self.nothing_leaks()

    def test_the_name_itself_after_another_one(self):
        """Only another spelling was asked for before; the commit is known, and no secret."""
        self.serve()
        for before, name in (("old/private", "Org/Private"), ("ORG/gated", "Org/Gated")):
            commit = self.hub.repo(name).branches["main"]
            self.open(TOKEN, ways(before, "main"))
            asked = ways if name == "Org/Private" else contents
            for token in self.OTHERS:
                for revision in (commit, "main"):
                    self.closed(token, asked(name, revision))
                    self.closed(token, asked(name.lower(), revision))
                    self.closed(token, asked(before, revision))
        self.nothing_leaks()

    def test_names_known_by_the_registry(self):
        self.serve()
        self.assertEqual(self.v2("hf/org/private/manifests/main", TOKEN)[0], 200)
        for token in self.OTHERS:
            for name in ("Org/Private", "org/private", "ORG/PRIVATE"):
                for revision in (self.commit, "main"):
                    self.closed(token, ways(name, revision))

    def test_the_hub_is_gone(self):
        self.serve()
        self.open(TOKEN, ways("old/private") + ways("Org/Public") + contents("Org/Gated"))
        self.hub.stop()
        for token in self.OTHERS:
            for name in ("Org/Private", "old/private", "org/PRIVATE"):
                for revision in ("main", self.commit):
                    self.closed(token, ways(name, revision), statuses=(401, 403, 404, 429, 503))
            self.closed(token, contents("Org/Gated"), statuses=(401, 403, 404, 429, 503))
        self.open(TOKEN, ways("old/private"))
        self.open(None, ways("Org/Public"))

    def test_nobody_hears_of_the_others_failures(self):
        """Why the Hub is left alone is told to all who ask meanwhile."""
        self.serve(tag_ttl="0s", auth_ttl="0s", breaker_failures=2)
        self.open(TOKEN, ways("Org/Private"))
        self.hub.stop()
        for _ in range(8):
            self.get("/Org/Private/resolve/main/config.json", bearer(TOKEN))
        for token in (None, STRANGER):
            answer = self.get("/Org/Public/resolve/main/config.json", bearer(token))
            self.assertIn(answer.status, (429, 503))
            self.assertIn(b"is not asked for", answer.body)
            self.assertNotIn(b"Private", answer.body)
            _, _, body = self.v2("hf/org/public/manifests/main", token)
            self.assertNotIn(b"Private", body)

    def test_offline(self):
        """By configuration: then nobody can be asked about."""
        self.serve()
        self.open(TOKEN, ways("old/private") + ways("Org/Public"))
        self.assertEqual(self.v2("hf/org/private/manifests/main", TOKEN)[0], 200)
        self.wb.stop()
        self.wb = self.make_server(self.hub, data=self.wb.data, credentials="forward",
                                   tag_ttl="1h", offline=True)
        for token in (TOKEN, *self.OTHERS):
            for name in ("Org/Private", "old/private", "org/PRIVATE"):
                for revision in ("main", self.commit):
                    self.closed(token, ways(name, revision), statuses=(401, 403, 404, 429, 503))
            self.assertIn(self.v2("hf/org/private/manifests/main", token)[0], (401, 403, 404, 503))
        self.open(None, ways("Org/Public"))
        self.wb.stop()

    def test_turned_private_and_gone(self):
        """What the Hub hides from anybody at all is not public any more, for nobody."""
        self.serve(auth_ttl="0s", tag_ttl="0s")
        for repo, settings in ((self.public, {"private": True}),
                               (self.hub.add_repo("Org/Public2", FILES), {"gated": "manual"})):
            self.open(None, ways(repo.id))
            for name, value in settings.items():
                setattr(repo, name, value)
            self.closed(OTHER_TOKEN, contents(repo.id)[:1])
        self.hub.stop()
        for token in (None, STRANGER, THIRD_TOKEN):
            for name in ("Org/Public", "Org/Public2"):
                self.closed(token, contents(name), statuses=(401, 403, 404, 429, 503))

    def test_a_hub_that_does_not_say(self):
        """Public is what the Hub calls so, not what it calls nothing."""
        self.serve(auth_ttl="0s", tag_ttl="1h")
        info = json.dumps({"id": "Org/Public", "sha": self.public.branches["main"],
                           "siblings": [{"rfilename": n} for n in FILES]})
        self.hub.fault("hub_body", mode="raw", raw=info, kind="info", repo="Org/Public")
        self.open(TOKEN, ways("Org/Public"))
        self.hub.stop()
        for token in (None, STRANGER):
            self.closed(token, ways("Org/Public"), statuses=(401, 403, 404, 429, 503))

    def test_one_file_opens_no_other(self):
        """An answer about a file that is not there, or open to all, is no right to the weights."""
        self.serve()
        self.open(TOKEN, contents("Org/Gated"))
        commit = self.gated.branches["main"]
        self.hub.fault("hub_status", status=404, code="EntryNotFound", kind="resolve",
                       repo="Org/Gated", path="nothing.txt", headers={"X-Repo-Commit": commit})
        for name in ("oRG/Gated", "Org/gated", "old/gated"):
            for path in ("nothing.txt", "nothing.txt"):
                answer = self.head(f"/{name}/resolve/main/{path}", bearer(OTHER_TOKEN))
                self.assertIn(answer.status, (403, 404))
            self.closed(OTHER_TOKEN, contents("Org/Gated") + contents(name))

    def test_no_name_is_told(self):
        """Not even that there is something behind a name that was guessed."""
        self.serve(root={"policies": [{"repositories": "hf/org/private", "pinned_only": True}]})
        self.open(TOKEN, [("GET", f"/api/models/old/private/revision/{self.commit}", {}, None)])
        self.assertEqual(self.v2(f"hf/org/private/manifests/{self.commit}", TOKEN)[0], 200)
        for token in self.OTHERS:
            there = self.ask("GET", f"/api/models/old/private/revision/{self.commit}",
                             bearer(token))
            nowhere = self.ask("GET", f"/api/models/old/nothing/revision/{self.commit}",
                               bearer(token))
            self.assertEqual(there.status, nowhere.status)
            self.assertEqual(there.body.replace(b"private", b"nothing"),
                             nowhere.body.replace(b"private", b"nothing"))
            self.assertEqual(there.headers.keys(), nowhere.headers.keys())
            self.closed(token, ways("old/private"), canonical="Org/Private")
            self.closed(token, ways("org/private", self.commit), canonical="Org/Private")
            _, _, body = self.v2("hf/org/private/manifests/main", token)
            self.assertNotIn(b"Org/Private", body)

    def test_registry_answers_are_the_same_for_nothing(self):
        self.serve(negative_ttl="0s", auth_ttl="0s")
        status, headers, body = self.v2("hf/org/private/manifests/main", TOKEN)
        self.assertEqual(status, 200, body)
        digest = headers["Docker-Content-Digest"]
        for token in self.OTHERS:
            for path in ("manifests/main", f"manifests/{digest}", "tags/list", f"blobs/{digest}",
                         f"referrers/{digest}"):
                for method in ("GET", "HEAD"):
                    told = []
                    for name in ("private", "missing"):
                        status, headers, body = self.v2(f"hf/org/{name}/{path}", token, method)
                        body = body.replace(b"org/" + name.encode(), b"*")
                        body = re.sub(rb'"request":"[^"]*"', b"", body)
                        told.append((status, sorted(headers.keys()), body))
                    self.assertEqual(told[0], told[1], (token, method, path))

    def test_by_an_alias(self):
        self.serve(aliases={"friend": "Org/Private", "open": "Org/Public"})
        self.assertEqual(self.v2("hf/open/manifests/main")[0], 200)
        self.assertEqual(self.v2("hf/friend/manifests/main", TOKEN)[0], 200)
        self.open(TOKEN, ways("friend"))
        for token in self.OTHERS:
            self.assertIn(self.v2("hf/friend/manifests/main", token)[0], (401, 404))
            self.closed(token, ways("friend"))
            self.closed(token, ways("friend", self.commit))
            self.closed(token, ways("Org/Private", self.commit))

    def test_while_it_comes(self):
        """Neither the answers nor the bytes of one caller's request are another's."""
        self.serve(**PATIENT)
        name, path = "Org/Private", "/Org/Private/resolve/main/config.json"
        for kind, asked in (("info", "/api/models/Org/Private"), ("tree", f"{path}?x"),
                            ("resolve", path)):
            hold = self.hub.hold("hub", kind=kind, repo="Org/Private")
            got, threads = self.together(4, lambda i, a=asked: self.get(a, bearer(
                (TOKEN, OTHER_TOKEN, None, STRANGER)[i])))
            hold.wait_held(1)
            hold.release()
            hold.remove()
            for thread in threads:
                thread.join()
            self.assertEqual(got[0].status, 200, got[0])
            for answer in got[1:]:
                self.assertIn(answer.status, (401, 403, 404), name)
                self.assertNotIn(b"siblings", answer.body)
        self.nothing_leaks()

    def test_revoked(self):
        self.serve(auth_ttl="0s")
        self.open(TOKEN, ways("Org/Private") + ways("Org/Gated"))
        self.private.tokens.clear()
        self.gated.tokens.clear()
        self.closed(TOKEN, ways("Org/Private") + contents("Org/Gated"))  # no token at all any more
        self.hub.add_token(TOKEN)  # one without rights
        self.closed(TOKEN, ways("Org/Private") + contents("Org/Gated"))
        self.assertIn(self.v2("hf/org/private/manifests/main", TOKEN)[0], (401, 404))

    def test_strange_authorizations(self):
        self.serve()
        self.open(TOKEN, ways("Org/Private"))
        path = "/Org/Private/resolve/main/config.json"
        pair = base64.b64encode(f"me:{TOKEN}".encode()).decode()

        def ask(*lines):
            host, port = self.wb.host.split(":")
            with socket.create_connection((host, int(port)), 60) as s:
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
                          + b"".join(line + b"\r\n" for line in lines) + b"\r\n")
                got = b""
                while piece := s.recv(65536):
                    got += piece
            return int(got.split(b" ")[1]), got
        token = TOKEN.encode()
        for good in (b"authorization: bearer " + token, b"AUTHORIZATION: BEARER   " + token,
                     b"Authorization: Basic " + pair.encode(),
                     b"Authorization: Bearer " + token + b"  "):
            status, got = ask(good)
            self.assertEqual(status, 200, (good, got[:500]))
        other = OTHER_TOKEN.encode()
        for bad in ([b"Authorization: Bearer " + other, b"Authorization: Bearer " + token],
                    [b"Authorization: Bearer " + token, b"Authorization: Bearer " + other],
                    [b"Authorization: Bearer " + token + b"," + other],
                    [b"Authorization: Bearer " + token + b"%00"],
                    [b"Authorization: Bearer " + token[:-1] + b"\x01"],
                    [b"Authorization: Bearer \xc3\xa9" + token],
                    [b"Authorization: Bearer " + token[:-1]],
                    [b"Authorization: Bearer " + token.lower()],
                    [b"Authorization: Bearer"], [b"Authorization: Bearer "],
                    [b"Authorization: " + token], [b"Authorization: Token " + token],
                    [b"Authorization: Bearer" + token],
                    [b"Authorization: Basic " + base64.b64encode(b"me:" + token + b"\0x")],
                    [b"Authorization: Basic " + base64.b64encode(token)],
                    [b"Authorization: Basic " + base64.b64encode(token + b":")],
                    [b"Authorization: Bearer " + token * 20],
                    [b"Authorization: Bearer " + b"x" * 1025],
                    [b"X-Authorization: Bearer " + token],
                    [b"Proxy-Authorization: Bearer " + token],
                    [b"Cookie: token=" + token],
                    []):
            status, got = ask(*bad)
            self.assertIn(status, (400, 401, 404, 431), (bad, got[:300]))
            self.assertNotIn(b"of the owner", got)
        sent = self.tokens_sent(host="hub")
        self.assertFalse([t for t in sent if " " in t or len(t) > 1024], sent)
        self.nothing_leaks()

    def test_one_connection_of_many_callers(self):
        """A proxy in front sends everybody's requests over one connection."""
        self.serve()
        self.open(TOKEN, ways("Org/Private"))
        connection = self.wb.connect()
        self.addCleanup(connection.close)
        for token, status in ((TOKEN, 200), (None, 401), (TOKEN, 200), (OTHER_TOKEN, 404),
                              (None, 401), (STRANGER, 401), (None, 401)):
            for method, path, body in (
                    ("GET", "/Org/Private/resolve/main/config.json", None),
                    ("POST", "/api/models/Org/Private/paths-info/main", b"paths=config.json")):
                connection.request(method, path, body, bearer(token))
                answer = connection.getresponse()
                told = answer.read()
                self.assertEqual(answer.status, status, told)

    def test_names_without_the_prefix(self):
        self.serve(root={"default_upstream": "hf"})
        self.assertEqual(self.v2("org/private/manifests/main", TOKEN)[0], 200)
        status, _, body = self.v2("hf/org/private/manifests/main", TOKEN)
        digests = [layer["digest"] for layer in paths_of(json.loads(body)).values()]
        ns = f"?ns={self.hub.url.split('//')[1]}"
        self.assertEqual(self.v2(f"org/private/manifests/main{ns}", TOKEN)[0], 200)
        for token in self.OTHERS:
            status, _, body = self.v2(f"org/private/manifests/main{ns}", token)
            self.assertIn(status, (401, 403, 404), body)
            for name in ("org/private", "hf/org/private"):
                for path in ("manifests/main", f"manifests/{self.commit}", "tags/list",
                             *(f"blobs/{d}" for d in digests)):
                    for method in ("GET", "HEAD"):
                        status, _, body = self.v2(f"{name}/{path}", token, method)
                        self.assertIn(status, (401, 403, 404), (name, path, body))
        for name in ("hf/org/public", "hf/org/gated", "hf/org/nothing"):
            for digest in digests:
                self.assertIn(self.v2(f"{name}/blobs/{digest}", OTHER_TOKEN)[0], (401, 403, 404))

    def test_whoami_when_the_hub_is_gone(self):
        self.serve(auth_ttl="0s")
        who = self.json("/api/whoami-v2", bearer(TOKEN))
        self.hub.stop()
        self.assertEqual(self.json("/api/whoami-v2", bearer(TOKEN)), who)
        self.assertGreaterEqual(self.get("/api/whoami-v2", bearer(STRANGER)).status, 400)

    def test_a_name_that_means_another_repository_by_now(self):
        """A private repository is renamed, and its old name is given to one that is for all."""
        self.serve(tag_ttl="0s", auth_ttl="0s", negative_ttl="0s")
        self.open(TOKEN, ways("Old/Private"))
        self.private.renamed_from.clear()
        self.hub.add_repo("Old/Private", {**FILES, "config.json": b'{"public":1}'})
        for token in (OTHER_TOKEN, None, TOKEN):
            answer = self.get("/Old/Private/resolve/main/config.json", bearer(token))
            self.assertEqual((answer.status, answer.body), (200, b'{"public":1}'), token)
            self.closed(None, ways("Org/Private") + ways("Org/Private", self.commit))


class Echoes(AttackCase):
    """A Hub, or what stands before it, that says in its errors what it was sent."""

    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Model", FILES, private=True, tokens=[TOKEN])
        self.path = self.token_file(TOKEN)

    def test_our_token_comes_back(self):
        self.wb = self.make_server(self.hub, token_file=self.path, tag_ttl="0s", retries=0)
        texts = (f"no such token: {TOKEN}", f"Authorization: Bearer {TOKEN}")
        for status in (400, 401, 403, 404, 418, 500, 503):
            for code in ("", "RepoNotFound"):
                for kind in ("info", "resolve", "tree"):
                    fault = self.hub.fault("hub_status", status=status, code=code, message=texts[0],
                                           body=json.dumps({"error": texts[1]}), kind=kind)
                    for path in ("/api/models/Org/Model", "/Org/Model/resolve/main/config.json",
                                 "/api/models/Org/Model/tree/main"):
                        answer = self.get(path)
                        told = answer.body + str(dict(answer.headers)).encode()
                        self.assertNotIn(TOKEN.encode(), told)
                    _, _, body = self.v2("hf/org/model/manifests/main")
                    self.assertNotIn(TOKEN.encode(), body)
                    fault.remove()
        self.nothing_leaks(TOKEN)

    def test_a_caller_finds_out_nothing_about_ours(self):
        self.wb = self.make_server(self.hub, token_file=self.path)
        for token in (TOKEN[:-1], TOKEN + "x", TOKEN.lower(), STRANGER, None):
            answer = self.get("/api/whoami-v2", bearer(token))
            self.refused(answer, 401)
        self.assertEqual(self.hub.requests(), [], "no stranger's token is sent anywhere")


class Redirects(AttackCase):
    """Where tokens follow to."""

    def setUp(self):
        self.hub, self.elsewhere = self.make_hub(), self.make_hub()
        self.hub.add_repo("Org/Model", FILES, private=True, tokens=[TOKEN])

    def test_to_other_hosts(self):
        self.wb = self.make_server(self.hub, credentials="forward", tag_ttl="0s", auth_ttl="0s",
                                   negative_ttl="0s", retries=0)
        port = self.elsewhere.url.rsplit(":", 1)[1]
        mine = self.hub.url.split("//")[1]
        for url in (f"{self.elsewhere.url}/Org/Model/resolve/main/config.json",
                    f"//127.0.0.1:{port}/x", f"http://{mine}@127.0.0.1:{port}/x",
                    f"http://127.0.0.1:{port}\\@{mine}/x", f"http://localhost:{port}/x",
                    f"/\\127.0.0.1:{port}/x", f"HTTP://127.0.0.1:{port}/x"):
            for path in ("config.json", "model.safetensors"):
                fault = self.hub.fault("resolve_location", url=url)
                for method in ("GET", "HEAD"):
                    self.ask(method, f"/Org/Model/resolve/main/{path}", bearer(TOKEN))
                fault.remove()
            fault = self.hub.fault("tree_next", url=url)
            self.get("/api/models/Org/Model/tree/main?recursive=true", bearer(TOKEN))
            self.get("/api/models/Org/Model/tree/main?expand=true", bearer(TOKEN))
            fault.remove()
        for request in self.elsewhere.requests():
            self.assertNotIn("authorization", request.headers, request)
        self.nothing_leaks()


class TokenFiles(AttackCase):
    """A token for each organisation."""

    def setUp(self):
        self.hub = self.make_hub()

    def serve(self, **settings):
        self.wb = self.make_server(self.hub, token_file=self.token_file(OTHER_TOKEN), token_files={
            "one/*": self.token_file(TOKEN), "two/*": self.token_file(THIRD_TOKEN)}, **settings)

    def test_renamed_into_another_organisation(self):
        """Each name is asked for with its own organisation's token, and the new one's is right."""
        for token in (TOKEN, THIRD_TOKEN, OTHER_TOKEN):
            self.hub.add_token(token)
        self.hub.add_repo("Two/Model", FILES, private=True, tokens=[THIRD_TOKEN, TOKEN],
                          renamed_from=["One/Model"])
        self.serve()
        self.open(None, ways("one/MODEL") + ways("Two/Model"))
        self.hub.reset()
        self.open(None, ways("Two/Model", self.hub.repo("Two/Model").branches["main"]))
        self.assertLessEqual(self.tokens_sent(host="hub"), {THIRD_TOKEN})
        for request in self.hub.requests("hub"):
            if request.repo == "Two/Model" and "Two" in str(request.path):
                self.assertEqual(request.headers.get("authorization"), f"Bearer {THIRD_TOKEN}")

    def test_in_any_case(self):
        self.hub.add_repo("One/Model", FILES, private=True, tokens=[TOKEN])
        self.hub.add_repo("Two/Model", FILES, private=True, tokens=[THIRD_TOKEN])
        self.hub.add_repo("Onetwo/Model", FILES)
        self.hub.add_token(OTHER_TOKEN)
        self.serve()
        for name, token in (("One/Model", TOKEN), ("ONE/model", TOKEN), ("two/Model", THIRD_TOKEN),
                            ("TWO/MODEL", THIRD_TOKEN), ("Onetwo/Model", OTHER_TOKEN)):
            self.hub.reset()
            self.open(None, ways(name))
            self.assertLessEqual(self.tokens_sent(host="hub"), {token}, name)
        self.assertEqual(self.v2("hf/one/model/manifests/main")[0], 200)
        self.nothing_leaks()


class Rules(AttackCase):
    """access[] and policies[], by whatever name and way."""

    def setUp(self):
        self.hub = self.make_hub()
        self.repo = self.hub.add_repo("Org/Model", FILES, renamed_from=["Old/Model"])
        self.commit = self.repo.branches["main"]
        self.repo.add_commit({"config.json": CONFIG + b" "}, ref="refs/pr/1", keep=True)
        self.hub.add_repo("Org/Data", FILES, kind="dataset")

    def serve(self, root, **settings):
        self.wb = self.make_server(self.hub, root=root, **{"tag_ttl": "1h", **settings})

    NAMES = ("Org/Model", "org/model", "ORG/MODEL", "old/model", "OLD/Model", "friend")

    def test_access_rules_for_what_a_name_means(self):
        """A name from before a renaming, or an alias, is no way round."""
        data = None
        rules = {"access": [{"repositories": "hf/org/*", "allow": []},
                            {"repositories": "**", "allow": ["pull"]}]}
        for root in (rules, {}, rules):
            if data:
                self.wb = self.make_server(self.hub, root=root, data=data, tag_ttl="1h",
                                           aliases={"friend": "Org/Model"})
            else:
                self.serve(root, aliases={"friend": "Org/Model"})
                data = self.wb.data
            for name in self.NAMES:
                if root:
                    self.closed(None, ways(name))
                    self.closed(None, ways(name, self.commit))
                else:
                    self.open(None, ways(name) + ways(name, self.commit))
                status, _, body = self.v2(f"hf/{name.lower()}/manifests/main")
                self.assertEqual(status, 403 if root else 200, (name, body))
            self.wb.stop()

    def test_denied_by_any_name(self):
        self.serve({"policies": [{"repositories": "hf/org/*", "deny": True}]},
                   aliases={"friend": "Org/Model"})
        for name in self.NAMES:
            self.closed(None, ways(name) + ways(name, self.commit))
            self.assertEqual(self.v2(f"hf/{name.lower()}/manifests/main")[0], 403)
        for prefix in ("/hf", ""):
            for name in ("Org/Model", "old/model"):
                self.closed(None, [(m, prefix + p, h, b) for m, p, h, b in ways(name)])

    def test_only_commits(self):
        self.serve({"policies": [{"repositories": "hf/org/*", "pinned_only": True}]})
        short, upper = self.commit[:12], self.commit.upper()
        for revision in ("main", "HEAD", "head", "refs%2Fheads%2Fmain", "refs/heads/main",
                         "refs%2Fpr%2F1", "refs/pr/1", "%6Dain", short, upper, self.commit + "0",
                         self.commit[:39], self.commit + "%20", "0x" + self.commit):
            with self.subTest(revision=revision):
                for path in ("/Org/Model/resolve/{}/config.json", "/Org/Model/raw/{}/config.json",
                             "/api/models/Org/Model/tree/{}", "/api/models/Org/Model/revision/{}",
                             "/api/models/Org/Model/commits/{}", "/api/models/Org/Model?revision={}",
                             "/hf/old/model/resolve/{}/config.json"):
                    for method in ("GET", "HEAD"):
                        answer = self.ask(method, path.format(revision))
                        self.assertIn(answer.status, (400, 403, 404), (path, answer.body))
                        self.assertNotIn(b"of the owner", answer.body)
        for path in ("/api/models/Org/Model", "/api/models/Org/Model?revision="):
            told = self.json(path)  # of the repository, and nothing to ask for next
            self.assertEqual({"sha", "siblings"} & set(told), set())
            self.assertNotIn(self.commit, str(told))
        self.open(None, [w for w in ways("Org/Model", self.commit)
                         if self.commit in w[1] and "?revision" not in w[1]])
        status, _, body = self.v2("hf/org/model/manifests/latest", None, "GET", LLAMA)
        self.assertEqual(status, 403, body)

    def test_refs_of_what_may_be_asked_for(self):
        """A branch that may not be had is not to be had by way of the commit that its ref names."""
        self.hub.set_tag("Org/Model", "v1", self.commit)
        data = None
        for rule, names in (({}, {"main", "v1", "refs/pr/1"}), ({"pinned_only": True}, set()),
                            ({"revisions": ["v*"]}, {"v1"}),
                            ({"revisions": ["main", "refs/pr/*"]}, {"main", "refs/pr/1"})):
            self.wb = self.make_server(self.hub, data=data, tag_ttl="1h", root={
                "policies": [{"repositories": "hf/org/*", **rule}]})
            data = self.wb.data
            for name in ("Org/Model", "old/model"):
                for query in ("", "?include_prs=1"):
                    refs = self.json(f"/api/models/{name}/refs{query}")
                    told = {re.sub("^refs/(heads|tags)/", "", r["ref"])
                            for kind in refs.values() for r in kind}
                    self.assertEqual(told, {n for n in names if query or "pr" not in n}, rule)
                    self.assertLessEqual({"branches", "tags", "converts"}, set(refs))
            self.wb.stop()

    def test_hidden_files_everywhere(self):
        """Also where they are held already."""
        shown, hidden = ["config.json", "model.safetensors"], "tiny-Q8_0.gguf"
        self.serve({})
        self.open(None, ways("Org/Model") + [("GET", f"/Org/Model/resolve/main/{hidden}", {},
                                              None)])
        for name in ("org", "old"):
            status, _, body = self.v2(f"hf/{name}/model/manifests/main--Q8_0")
            self.assertEqual(status, 200, body)
        digest = sha256(body)
        self.wb.stop()
        for rule in ({"formats": ["safetensors"]},):
            self.wb = self.make_server(self.hub, data=self.wb.data, tag_ttl="1h", root={
                "policies": [{"repositories": "hf/org/*", **rule}]})
            for name in ("Org/Model", "old/model"):
                for prefix in ("", "/hf"):
                    for revision in ("main", self.commit):
                        self.hides(prefix, name, revision, shown, hidden)
            for tag in ("main--Q8_0", "Q8_0", f"{self.commit}--Q8_0"):
                status, _, body = self.v2(f"hf/org/model/manifests/{tag}")
                self.assertEqual(status, 403, (tag, body))
            self.assertEqual(self.v2(f"hf/org/model/manifests/{digest}")[0], 403)
            for name in ("org", "old"):
                status, _, body = self.v2(f"hf/{name}/model/blobs/{sha256(GGUF)}")
                self.assertEqual(status, 403, body)
            self.wb.stop()

    def hides(self, prefix, name, revision, shown, hidden):
        api = f"{prefix}/api/models/{name}"
        for path in (f"{prefix}/{name}/resolve/{revision}/{hidden}",
                     f"{prefix}/{name}/raw/{revision}/{hidden}",
                     f"{prefix}/api/resolve-cache/models/{name}/{self.commit}/{hidden}"):
            for method in ("GET", "HEAD"):
                for headers in ({}, {"Range": "bytes=0-3"},
                                {"If-None-Match": f'"{sha256(GGUF)[7:]}"'}):
                    answer = self.ask(method, path, headers)
                    self.refused(answer, 403, says=r"policies\[0\]")
        for query in ("", "?recursive=true", "?recursive=true&expand=true", "?limit=100"):
            rows = self.json(f"{api}/tree/{revision}{query}")
            self.assertEqual(sorted(r["path"] for r in rows), shown, query)
        for query in ("", "?blobs=true", "?expand=siblings"):
            info = self.json(f"{api}/revision/{revision}{query}")
            self.assertEqual(sorted(r["rfilename"] for r in info["siblings"]), shown, query)
        answer = self.ask("POST", f"{api}/paths-info/{revision}",
                          {"Content-Type": "application/json"},
                          json.dumps({"paths": [hidden, "config.json"], "expand": True}))
        self.assertEqual([r["path"] for r in json.loads(answer.body)], ["config.json"])
        answer = self.get(f"{prefix}/v2/{name}/manifests/Q8_0", LLAMA)
        self.assertIn(answer.status, (403, 404), answer.body)
        self.assertNotIn(sha256(GGUF)[7:].encode(), answer.body)

    def test_weights_of_any_name(self):
        """Pickles run code, whatever their name ends with."""
        weights = [f"w.{end}" for end in (
            "bin", "PT", "pth", "ckpt", "pkl", "Pickle", "joblib", "dill", "p", "pdparams", "npy",
            "NPZ", "onnx", "GGUF", "h5", "hdf5", "msgpack", "pt2", "ggml", "pb", "tflite", "engine")]
        others = ["w.json", "w.txt", "pt/w.md", "w.parquet", "w.model"]
        self.hub.add_repo("Org/Many", {n: n.encode() * 9 for n in weights + others})
        self.serve({"policies": [{"repositories": "hf/org/*", "formats": ["safetensors"]}]})
        for path in weights:
            self.refused(self.get(f"/Org/Many/resolve/main/{path}"), 403, says=r"policies\[0\]")
        for path in others:
            self.assertEqual(self.get(f"/Org/Many/resolve/main/{path}").status, 200, path)
        rows = self.json("/api/models/Org/Many/tree/main?recursive=true")
        self.assertEqual(sorted(r["path"] for r in rows if r["type"] == "file"), sorted(others))

    def test_large_files_everywhere(self):
        self.serve({"policies": [{"repositories": "hf/org/*", "max_file": len(WEIGHTS) - 1}]})
        for name in ("Org/Model", "old/model"):
            for prefix in ("", "/hf"):
                for revision in ("main", self.commit):
                    for way in ("resolve", "raw"):
                        for method in ("GET", "HEAD"):
                            answer = self.ask(method, f"{prefix}/{name}/{way}/{revision}/"
                                              "model.safetensors", {"Range": "bytes=0-3"})
                            self.refused(answer, 403, says=r"policies\[0\]")
                    rows = self.json(f"{prefix}/api/models/{name}/tree/{revision}?expand=true")
                    self.assertNotIn("model.safetensors", [r["path"] for r in rows])


class NeverLent(AttackCase):
    """The server's own tokens, where each caller's counts."""

    def test_by_no_way(self):
        self.hub = self.make_hub(rate_limits={"api": 1 << 30, "resolvers": 1 << 30})
        own, own_too = "hf_" + "OwnOwn" * 6, "hf_" + "OwnToo" * 6
        commit = self.hub.add_repo("Org/Model", FILES, private=True, renamed_from=["Old/Model"],
                                   tokens=[TOKEN, own, own_too]).branches["main"]
        self.hub.add_token(OTHER_TOKEN)
        paths = [self.token_file(token) for token in (own, own_too)]
        self.wb = self.make_server(self.hub, credentials="forward", token_file=paths[0],
                                   token_files={"org/*": paths[1]}, tag_ttl="0s", auth_ttl="0s",
                                   negative_ttl="0s", aliases={"friend": "Org/Model"})
        for token in (None, STRANGER, OTHER_TOKEN, TOKEN, own):
            if token == own:  # who has it may use it, as any other
                self.assertEqual(self.tokens_sent(), {"", STRANGER, OTHER_TOKEN, TOKEN})
            for name in ("Org/Model", "old/model"):
                asked = ways(name) + ways(name, commit)
                (self.open if token in (TOKEN, own) else self.closed)(token, asked)
            wanted = (200,) if token in (TOKEN, own) else (401, 404)
            for path in ("org/model/manifests/main", "old/model/manifests/main",
                         "friend/manifests/latest", f"org/model/blobs/{sha256(WEIGHTS)}",
                         f"org/model/blobs/{sha256(CONFIG)}"):
                self.assertIn(self.v2(f"hf/{path}", token)[0], wanted, path)
            unknown = sha256(b"nobody has it")
            self.assertIn(self.v2(f"hf/org/model/manifests/{unknown}", token)[0], (401, 404))
            status, _, body = self.wb.request("POST", "/admin/v1/warm/hf/org/model:main",
                                              bearer(token))
            self.assertIn(status, wanted, body)
            self.get("/api/whoami-v2", bearer(token))
            self.get("/api/models/Org/Model/auth-check", bearer(token))
        self.assertNotIn(own_too, self.tokens_sent())
        self.nothing_leaks(TOKEN, OTHER_TOKEN, STRANGER, own, own_too)


class TwoHubs(AttackCase):
    """Two upstreams with a token each, and two ways to one Hub."""

    def setUp(self):
        self.hub, self.second = self.make_hub(), self.make_hub()
        self.hub.add_repo("Org/Model", FILES, private=True, tokens=[TOKEN])
        self.second.add_repo("Org/Model", {**FILES, "config.json": b"{}"}, private=True,
                             tokens=[THIRD_TOKEN])
        self.paths = [self.token_file(token) for token in (TOKEN, THIRD_TOKEN)]

    def test_each_its_own(self):
        self.wb = self.make_weighbridge(config={"upstreams": [
            upstream(self.hub, token_file=self.paths[0]),
            upstream(self.second, prefix="two", token_file=self.paths[1])]})
        for prefix, config in (("", CONFIG), ("/hf", CONFIG), ("/two", b"{}")):
            answer = self.get(f"{prefix}/Org/Model/resolve/main/config.json")
            self.assertEqual((answer.status, answer.body), (200, config), prefix)
        for prefix in ("hf", "two"):
            self.assertEqual(self.v2(f"{prefix}/org/model/manifests/main")[0], 200)
        self.assertEqual(self.tokens_sent(host="hub"), {TOKEN})
        self.assertEqual({r.headers.get("authorization") for r in self.second.requests("hub")},
                         {f"Bearer {THIRD_TOKEN}"})
        self.nothing_leaks(TOKEN, THIRD_TOKEN)

    def test_forwarded_beside_own(self):
        """The way with the server's own token is open; the other asks of everybody, and its rights
        and what it holds are its own."""
        self.wb = self.make_weighbridge(config={"upstreams": [
            upstream(self.hub, credentials="forward", auth_ttl="1h"),
            upstream(self.hub, prefix="own", token_file=self.paths[0])]})
        own = [(m, "/own" + p, h, b) for m, p, h, b in ways("Org/Model")]
        self.open(None, own)
        self.assertEqual(self.v2("own/org/model/manifests/main")[0], 200)
        commit = self.hub.repo("Org/Model").branches["main"]
        for token in (None, STRANGER):
            self.closed(token, ways("Org/Model") + ways("Org/Model", commit))
            self.closed(token, [(m, "/hf" + p, h, b) for m, p, h, b in ways("Org/Model", commit)])
            self.assertIn(self.v2("hf/org/model/manifests/main", token)[0], (401, 404))
            self.assertIn(self.v2(f"hf/org/model/blobs/{sha256(WEIGHTS)}", token)[0], (401, 404))
        self.open(TOKEN, ways("Org/Model"))


if __name__ == "__main__":
    unittest.main()
