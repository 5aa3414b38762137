"""What may be had of a Hub, by whom: policies, the server's own tokens, those of its callers."""

import base64
import itertools
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import MANIFEST_TYPE, gguf_file, safetensors_file  # noqa: E402
from hub_api_case import OTHER_TOKEN, PATIENT, TOKEN, HubApiCase, bearer  # noqa: E402

WEIGHTS = safetensors_file({"a": ("F32", (300, 100))}, fill=b"weights!")
GGUF = gguf_file({"t": (32, 2)}, fill=b"gguf")
CONFIG = b'{"model_type":"llama"}\n'
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS}
THIRD_TOKEN = "hf_" + "ThirdThirdThirdThirdThirdThirdThir"
STRANGER = "hf_" + "NobodyKnowsThisOneNobodyKnowsThisO"


def questions(repo):
    """All that tells something of a repository."""
    return [f"/api/models/{repo}", f"/api/models/{repo}/revision/main",
            f"/api/models/{repo}?blobs=true", f"/api/models/{repo}/refs",
            f"/api/models/{repo}/tree/main?recursive=true", f"/api/models/{repo}/tree/main",
            f"/api/models/{repo}/tree/main?expand=true", f"/api/models/{repo}/commits/main",
            f"/{repo}/raw/main/config.json", f"/{repo}/raw/main/model.safetensors",
            f"/{repo}/resolve/main/config.json", f"/{repo}/resolve/main/model.safetensors"]


class Policies(HubApiCase):
    def setUp(self):
        self.hub = self.make_hub()
        self.repo = self.hub.add_repo("Org/Model", FILES)
        self.commit = self.repo.branches["main"]

    def serve(self, *rules, **settings):
        self.wb = self.make_server(self.hub, root={"policies": [
            {"repositories": r.pop("repositories", "hf/org/*"), **r} for r in map(dict, rules)]},
            **settings)

    def by_registry(self, repo="org/model", tag="main"):
        status, _, body = self.wb.get(f"/v2/hf/{repo}/manifests/{tag}", {"Accept": MANIFEST_TYPE})
        return status, body.decode()

    def test_denied(self):
        self.serve({"deny": True})
        for path in questions("Org/Model") + questions("org/MODEL"):
            with self.subTest(path=path):
                self.refused(self.get(path), 403, says=r"policies\[0\]")
        status, body = self.by_registry()
        self.assertEqual(status, 403)
        self.assertIn("policies[0]", body)
        self.assertEqual(self.hub.requests(), [], "who may not have it need not be asked about")

    def test_denied_by_its_new_name(self):
        """A rename is no way round a rule for the name that the Hub has."""
        self.hub.add_repo("Secret/Thing", FILES, renamed_from=["Public/Thing"])
        self.serve({"repositories": "hf/secret/*", "deny": True})
        for path in questions("Public/Thing"):
            with self.subTest(path=path):
                self.refused(self.get(path), 403, says=r"policies\[0\]")
        self.assertEqual(self.by_registry("public/thing")[0], 403)

    def test_only_these(self):
        self.hub.add_repo("Other/Model", FILES)
        self.hub.add_repo("Org/Model", {"x.csv": b"1"}, kind="dataset")
        self.serve({}, {"repositories": "**", "deny": True})
        for path in questions("Org/Model"):
            self.assertEqual(self.get(path).status, 200, path)
        for path in questions("Other/Model") + ["/datasets/Org/Model/resolve/main/x.csv",
                                                "/api/datasets/Org/Model"]:
            with self.subTest(path=path):
                self.refused(self.get(path), 403, says=r"policies\[1\]")

    def test_only_commits(self):
        self.serve({"pinned_only": True})
        for path in questions("Org/Model"):
            if "main" in path:
                with self.subTest(path=path):
                    self.refused(self.get(path), 403, says=r"policies\[0\].*commit")
                pinned = self.get(path.replace("main", self.commit))
                self.assertEqual(pinned.status, 200, pinned.body)
        self.assertEqual(self.by_registry()[0], 403)
        self.assertEqual(self.by_registry(tag=self.commit)[0], 200)

    def test_info_of_no_revision(self):
        """Is asked for by clients that have a commit, too, and tells of none where branches may not
        be had."""
        self.hub.add_repo("Org/Renamed", FILES, renamed_from=["Other/Name"],
                          info={"tags": ["base_model:mistralai/M"]})
        for rule in ({"pinned_only": True}, {"revisions": [self.commit]}):
            self.serve(rule)
            for path in ("/api/models/Org/Renamed", "/api/models/Other/Name",
                         "/api/models/Org/Renamed?blobs=true", "/api/models/Org/Model",
                         "/api/models/Org/Model?expand=sha&expand=tags"):
                with self.subTest(path=path, rule=rule):
                    answer = self.get(path)
                    self.assertEqual(answer.status, 200, answer.body)
                    said = json.loads(answer.body)
                    self.assertNotIn("X-Repo-Commit", answer.headers)
                    self.assertEqual({"sha", "siblings"} & set(said), set())
                    self.assertNotIn(self.commit.encode(), answer.body)
                    if path.endswith(("Renamed", "Name")):
                        self.assertEqual((said["id"], said["tags"]),
                                         ("Org/Renamed", ["base_model:mistralai/M"]))
            self.refused(self.get("/api/models/Org/Model/revision/main"), 403)
            self.refused(self.get("/api/models/Nobody/Nothing"), 404, "RepoNotFound")
            self.hub.stop()
            self.assertNotIn("sha", self.json("/api/models/Org/Renamed"))
            self.hub.start()
            self.wb.stop()

    def test_only_some_revisions(self):
        self.hub.set_tag("Org/Model", "v1.0", self.commit)
        self.repo.add_commit({"config.json": b"pr"}, ref="refs/pr/1", keep=True)
        first = self.commit
        self.commit = self.repo.add_commit({"config.json": b"later"}, keep=True)
        self.serve({"revisions": ["v*", "refs/pr/*"]})
        for revision in ("v1.0", "refs%2Fpr%2F1"):
            self.assertEqual(self.get(f"/Org/Model/resolve/{revision}/config.json").status, 200)
            self.assertEqual(self.get(f"/api/models/Org/Model/tree/{revision}").status, 200)
        for revision in ("main", "HEAD", self.commit):
            self.refused(self.get(f"/Org/Model/resolve/{revision}/config.json"), 403,
                         says=r"policies\[0\]")
        self.assertEqual(self.get(f"/Org/Model/resolve/{first}/config.json").status, 200)
        self.assertEqual(self.by_registry(tag="v1.0")[0], 200)
        self.assertEqual(self.by_registry(tag="main")[0], 403)

    def test_commits_of_revisions_that_are_allowed(self):
        """Clients look a branch or tag up once, and ask by its commit from then on."""
        first, rules = self.commit, {"policies": [
            {"repositories": "hf/org/*", "revisions": ["v*", "main"]}]}
        self.hub.set_tag("Org/Model", "v1", first)
        second = self.repo.add_commit({"config.json": b"2"}, keep=True)
        other = self.repo.add_commit({"config.json": b"3"}, branch="other", keep=True)
        self.wb = self.make_server(self.hub, root=rules, tag_ttl="0s")

        def opens(commit, allowed):
            for path in questions("Org/Model"):
                if "main" in path:
                    self.assertEqual(self.get(path.replace("main", commit)).status,
                                     200 if allowed else 403, (path, commit))
        for commit in (first, second, other):
            opens(commit, False)
        self.assertEqual(self.json("/api/models/Org/Model/revision/v1")["sha"], first)
        opens(first, True)
        opens(second, False)
        self.assertEqual(self.head("/Org/Model/resolve/main/config.json").status, 200)
        self.refused(self.get("/Org/Model/resolve/other/config.json"), 403)
        third = self.repo.add_commit({"config.json": b"4"}, keep=True)
        self.assertEqual(self.json("/api/models/org/MODEL/revision/main")["sha"], third)
        data = self.wb.data
        for again in (False, True):
            for commit in (first, second, third):
                opens(commit, True)
            opens(other, False)
            if not again:
                self.wb.stop()
                self.wb = self.make_server(self.hub, root=rules, data=data)
        self.wb.stop()
        rules["policies"][0]["revisions"] = ["v*"]
        self.wb = self.make_server(self.hub, root=rules, data=data)
        opens(first, True)
        opens(second, False)
        self.wb.stop()

    def test_commits_of_refs_that_are_told(self):
        """As llama.cpp asks."""
        self.serve({"revisions": ["HEAD", "main"]})
        refs = self.json("/api/models/Org/Model/refs")
        self.assertEqual([b["targetCommit"] for b in refs["branches"]], [self.commit])
        self.json(f"/api/models/Org/Model/tree/{self.commit}?recursive=true")

    def test_only_some_formats_and_sizes(self):
        self.repo.add_commit({"tiny-Q8_0.gguf": GGUF, "old.bin": b"pickle" * 50,
                              "big.safetensors": WEIGHTS * 3}, keep=True)
        self.serve({"formats": ["safetensors"], "max_file": len(WEIGHTS)}, tag_ttl="0s")
        for path in ("config.json", "model.safetensors"):
            self.assertEqual(self.get(f"/Org/Model/resolve/main/{path}").status, 200, path)
        for path in ("tiny-Q8_0.gguf", "old.bin", "big.safetensors"):
            for method in ("HEAD", "GET"):
                for way in ("resolve", "raw"):
                    with self.subTest(path=path, method=method, way=way):
                        answer = self.ask(method, f"/Org/Model/{way}/main/{path}")
                        self.refused(answer, 403, says=r"policies\[0\]")
        allowed = ["config.json", "model.safetensors"]
        for query in ("", "?recursive=true", "?recursive=true&expand=true"):
            rows = self.json(f"/api/models/Org/Model/tree/main{query}")
            self.assertEqual(sorted(r["path"] for r in rows), allowed, query)
        for query in ("", "?blobs=true"):
            info = self.json(f"/api/models/Org/Model{query}")
            self.assertEqual(sorted(r["rfilename"] for r in info["siblings"]), allowed)

    def test_the_first_that_matches(self):
        self.serve({"repositories": "hf/org/model"}, {"deny": True})
        self.assertEqual(self.get("/Org/Model/resolve/main/config.json").status, 200)
        self.hub.add_repo("Org/Other", FILES)
        self.refused(self.get("/Org/Other/resolve/main/config.json"), 403, says=r"policies\[1\]")

    def test_rules_count_for_what_is_held(self):
        self.wb = self.make_server(self.hub, tag_ttl="1h")
        for path in questions("Org/Model"):
            self.assertEqual(self.get(path).status, 200)
        self.by_registry()
        self.wb.stop()
        data = self.wb.data
        self.wb = self.make_server(self.hub, data=data, root={"policies": [
            {"repositories": "hf/org/model", "deny": True}]})
        for path in questions("Org/Model"):
            self.refused(self.get(path), 403, says=r"policies\[0\]")
        self.assertEqual(self.by_registry()[0], 403)
        self.wb.stop()

    def test_access_rules_count_as_well(self):
        self.wb = self.make_server(self.hub, root={"access": [
            {"repositories": "hf/open/*", "allow": ["pull"]}, {"repositories": "**", "allow": []}]})
        self.hub.add_repo("Open/Model", FILES)
        for path in questions("Org/Model"):
            self.refused(self.get(path), (401, 403))
        for path in questions("Open/Model"):
            self.assertEqual(self.get(path).status, 200, path)
        self.assertEqual(self.hub.count("hub", repo="Org/*"), 0)


class OwnTokens(HubApiCase):
    """The server's own tokens, and where they go."""

    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Private", FILES, private=True, tokens=[TOKEN])
        self.hub.add_repo("Org/Gated", FILES, gated="manual", tokens=[TOKEN])
        self.hub.add_repo("Other/Private", FILES, private=True, tokens=[THIRD_TOKEN])
        self.hub.add_token(OTHER_TOKEN)

    def tokens_sent(self, **where):
        return {r.headers.get("authorization", "")[7:] for r in self.hub.requests(**where)}

    def nothing_leaks(self, *tokens):
        self.assertLessEqual(self.tokens_sent(host="cdn"), {""})
        for token in tokens:
            self.holds_no(token, self.wb)

    def test_with_it(self):
        self.wb = self.make_server(self.hub, token_file=self.token_file(TOKEN))
        for repo in ("Org/Private", "Org/Gated"):
            for path in questions(repo):
                self.assertEqual(self.get(path).status, 200, path)
            answer = self.get(f"/{repo}/resolve/main/model.safetensors")
            self.check_file(repo, answer, data=WEIGHTS)
            self.assertEqual(self.json(f"/api/models/{repo}/auth-check"), {})
        self.assertEqual(self.tokens_sent(host="hub"), {TOKEN})
        self.nothing_leaks(TOKEN)

    def test_the_callers_is_of_no_interest(self):
        self.wb = self.make_server(self.hub, token_file=self.token_file(TOKEN))
        for token in (None, OTHER_TOKEN, STRANGER, TOKEN):
            answer = self.get("/Org/Private/resolve/main/config.json", bearer(token))
            self.check_file("private", answer, data=CONFIG)
        self.assertEqual(self.tokens_sent(host="hub"), {TOKEN})

    def test_whoami(self):
        self.wb = self.make_server(self.hub, token_file=self.token_file(TOKEN))
        self.assertIn("name", self.json("/api/whoami-v2", bearer(TOKEN)))
        for token in (None, OTHER_TOKEN, STRANGER):
            answer = self.get("/api/whoami-v2", bearer(token))
            self.refused(answer, 401)
            self.assertNotIn(b"tester", answer.body)

    def test_one_for_each_organisation(self):
        self.wb = self.make_server(
            self.hub, token_file=self.token_file(OTHER_TOKEN), token_files={
                "org/*": self.token_file(TOKEN), "other/*": self.token_file(THIRD_TOKEN)})
        self.hub.add_repo("Third/Public", FILES)
        for repo, token in (("Org/Private", TOKEN), ("Other/Private", THIRD_TOKEN),
                            ("Third/Public", OTHER_TOKEN)):
            with self.subTest(repo=repo):
                self.hub.reset()
                for path in questions(repo):
                    self.assertEqual(self.get(path).status, 200, path)
                self.assertEqual(self.tokens_sent(host="hub"), {token})
        self.nothing_leaks(TOKEN, THIRD_TOKEN, OTHER_TOKEN)

    def test_gone_as_the_token_of_its_organisation_says(self):
        """That there is no such repository is news while that token is good, whatever the other
        one is; else it says nothing."""
        token = "hf_" + "GoneGone" * 4
        self.hub.add_token(OTHER_TOKEN)
        path = "/Org/Gone/resolve/main/config.json"
        others = ({}, {"token_file": self.token_file(STRANGER)},
                  {"token_file": self.token_file(OTHER_TOKEN)})
        for other, is_good in itertools.product(others, (True, False)):
            with self.subTest(other=other, is_good=is_good):
                self.hub.add_repo("Org/Gone", FILES, private=True, tokens=[token])
                self.wb = self.make_server(self.hub, tag_ttl="0s", negative_ttl="0s",
                                           token_files={"org/*": self.token_file(token)}, **other)
                self.check_file("open", self.get(path), data=CONFIG)
                self.hub.delete_repo("Org/Gone")
                if is_good:
                    self.hub.add_token(token)
                answer = self.get(path)
                self.hub.store.user_tokens.pop(token, None)
                if is_good:
                    self.refused(answer, (401, 404), "RepoNotFound")
                else:
                    self.check_file("held", answer, data=CONFIG)
                    self.assertIn("Warning", answer.headers)

    def test_without_one_it_says_which_setting(self):
        self.wb = self.make_server(self.hub)
        answer = self.get("/Org/Gated/resolve/main/config.json")
        self.assertRegex(self.refused(answer, (401, 403), "GatedRepo"), "token")

    def test_refused_by_the_hub_later(self):
        """What our token opened and opens no more is nobody's."""
        self.wb = self.make_server(self.hub, token_file=self.token_file(TOKEN), tag_ttl="0s")
        self.assertEqual(self.get("/Org/Private/resolve/main/config.json").status, 200)
        repo = self.hub.repo("Org/Private")
        repo.tokens.clear()
        self.hub.add_token(TOKEN)
        self.refused(self.get("/Org/Private/resolve/main/config.json"), (401, 403, 404))


class Forwarded(HubApiCase):
    """credentials: forward: a caller sees what the Hub lets that caller see."""

    def setUp(self):
        self.hub = self.make_hub()
        self.hub.add_repo("Org/Private", FILES, private=True, tokens=[TOKEN])
        self.hub.add_repo("Org/Gated", FILES, gated="manual", tokens=[TOKEN])
        self.hub.add_repo("Org/Public", FILES)
        self.hub.add_token(OTHER_TOKEN)

    def serve(self, **settings):
        self.wb = self.make_server(self.hub, credentials="forward",
                                   **{"tag_ttl": "1h", "auth_ttl": "1h", **settings})

    def fill(self, repo):
        for path in questions(repo):
            answer = self.get(path, bearer(TOKEN))
            self.assertEqual(answer.status, 200, f"{path}: {answer.body}")

    def nothing_leaks(self, *tokens):
        self.assertLessEqual({r.headers.get("authorization") for r in self.hub.requests("cdn")},
                             {None})
        for token in tokens:
            self.holds_no(token, self.wb)

    def test_the_rights_of_one_never_serve_another(self):
        self.serve()
        self.fill("Org/Private")
        for token in (None, OTHER_TOKEN, STRANGER):
            for path in questions("Org/Private"):
                for method in ("HEAD", "GET") if "/resolve/" in path else ("GET",):
                    with self.subTest(token=token, path=path, method=method):
                        answer = self.ask(method, path, bearer(token))
                        self.refused(answer, (401, 403, 404))
                        self.assertNotIn(b"sha", answer.body)
            answer = self.get("/Org/Private/resolve/main/model.safetensors",
                              {"Range": "bytes=0-9", **bearer(token)})
            self.refused(answer, (401, 403, 404))
            answer = self.get("/Org/Private/resolve/main/config.json",
                              {"If-None-Match": "*", **bearer(token)})
            self.refused(answer, (401, 403, 404))
        self.nothing_leaks(TOKEN, OTHER_TOKEN, STRANGER)

    def test_gated(self):
        self.serve()
        self.fill("Org/Gated")
        for token, code in ((None, "GatedRepo"), (OTHER_TOKEN, "GatedRepo"), (STRANGER, None)):
            for path in ("config.json", "model.safetensors"):
                answer = self.get(f"/Org/Gated/resolve/main/{path}", bearer(token))
                self.refused(answer, (401, 403), code)
            answer = self.get("/Org/Gated/raw/main/config.json", bearer(token))
            self.refused(answer, (401, 403))
        self.nothing_leaks(TOKEN, OTHER_TOKEN, STRANGER)

    def test_by_the_registry_too(self):
        self.serve()
        headers = {"Accept": MANIFEST_TYPE}

        def manifest(authorization):
            return self.wb.get("/v2/hf/org/private/manifests/main",
                               {**headers, **({"Authorization": authorization}
                                              if authorization else {})})
        self.fill("Org/Private")
        basic = base64.b64encode(f"user:{TOKEN}".encode()).decode()
        for authorization in (f"Bearer {TOKEN}", f"Basic {basic}"):
            status, _, body = manifest(authorization)
            self.assertEqual(status, 200, body)
        digest = "sha256:" + self.head("/Org/Private/resolve/main/model.safetensors",
                                       bearer(TOKEN)).headers["ETag"].strip('"')
        status, _, body = self.wb.blob("hf/org/private", digest, bearer(TOKEN))
        self.assertEqual((status, body), (200, WEIGHTS))
        basic = base64.b64encode(f"user:{OTHER_TOKEN}".encode()).decode()
        for authorization in (None, f"Bearer {OTHER_TOKEN}", f"Basic {basic}",
                              f"Bearer {STRANGER}"):
            with self.subTest(authorization=authorization):
                self.assertIn(manifest(authorization)[0], (401, 403, 404))
                status, _, body = self.wb.blob(
                    "hf/org/private", digest,
                    {"Authorization": authorization} if authorization else None)
                self.assertIn(status, (401, 403, 404), body[:100])
        self.nothing_leaks(TOKEN, OTHER_TOKEN, STRANGER)

    def test_public_is_for_all(self):
        self.serve()
        for token in (None, TOKEN, OTHER_TOKEN):
            for path in questions("Org/Public"):
                self.assertEqual(self.get(path, bearer(token)).status, 200, path)
        self.assertEqual(self.hub.bytes_sent("cdn"), len(WEIGHTS))

    def test_whoami(self):
        self.serve()
        self.assertEqual(self.json("/api/whoami-v2", bearer(TOKEN))["name"], "tester")
        self.refused(self.get("/api/whoami-v2", bearer(STRANGER)), 401)
        self.refused(self.get("/api/whoami-v2"), 401)

    def test_rights_are_believed_for_a_while(self):
        self.serve()
        self.fill("Org/Private")
        self.hub.reset()
        self.fill("Org/Private")
        self.assertEqual(self.hub.requests(), [])
        repo = self.hub.repo("Org/Private")
        repo.tokens.clear()
        self.assertEqual(self.get("/Org/Private/resolve/main/config.json",
                                  bearer(TOKEN)).status, 200)

    def test_and_not_longer(self):
        self.serve(auth_ttl="0s")
        self.fill("Org/Private")
        self.hub.repo("Org/Private").tokens.clear()
        self.hub.add_token(TOKEN)
        for path in questions("Org/Private"):
            self.refused(self.get(path, bearer(TOKEN)), (401, 403, 404))

    def test_the_hub_is_gone(self):
        """Who was let in a moment ago still is; nobody else is."""
        self.serve()
        self.fill("Org/Private")
        self.hub.stop()
        self.fill("Org/Private")
        for token in (None, OTHER_TOKEN):
            for path in questions("Org/Private"):
                answer = self.get(path, bearer(token))
                self.assertGreaterEqual(answer.status, 400, path)
                self.assertNotIn(CONFIG, answer.body)

    def test_a_restart_forgets_rights(self):
        self.serve()
        self.fill("Org/Private")
        self.wb.stop()
        self.hub.stop()
        self.wb.start()
        answer = self.get("/Org/Private/resolve/main/config.json", bearer(TOKEN))
        self.assertGreaterEqual(answer.status, 400)

    def test_one_download_for_all_who_may(self):
        self.hub.repo("Org/Private").tokens.add(THIRD_TOKEN)
        self.serve(**PATIENT)
        hold = self.hub.hold("cdn", bytes=1000)
        got, threads = self.together(8, lambda i: self.get(
            "/Org/Private/resolve/main/model.safetensors",
            bearer((TOKEN, THIRD_TOKEN, OTHER_TOKEN, None)[i % 4])))
        self.assertTrue(hold.wait_held(1))
        self.wait_connected(self.wb, 4)
        hold.release()
        for thread in threads:
            thread.join()
        for i, answer in enumerate(got):
            if i % 4 < 2:
                self.check_file("private", answer, data=WEIGHTS)
            else:
                self.refused(answer, (401, 403, 404))
        self.assertEqual(self.hub.bytes_sent("cdn"), len(WEIGHTS))
        self.nothing_leaks(TOKEN, THIRD_TOKEN, OTHER_TOKEN)

    def test_the_servers_own_token_is_not_lent(self):
        self.serve(token_file=self.token_file(TOKEN))
        for token in (None, OTHER_TOKEN):
            for question in questions("Org/Private"):
                self.refused(self.get(question, bearer(token)), (401, 403, 404))


if __name__ == "__main__":
    unittest.main()
