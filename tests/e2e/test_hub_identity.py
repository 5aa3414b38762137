"""A Hub's name that is another repository's by now: what is here of the first is not given by the
rights to the second."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import gguf_file, safetensors_file, sha256  # noqa: E402
from hub_api_case import OTHER_TOKEN, TOKEN, bearer  # noqa: E402
from test_hub_attack import FILES, WEIGHTS, AttackCase, contents, ways  # noqa: E402

NEW_FILES = {"config.json": b'{"model_type":"new"}\n',
             "model.safetensors": safetensors_file({"b": ("F32", (30, 10))}, fill=b"newer!"),
             "tiny-Q8_0.gguf": gguf_file({"u": (32, 2)}, fill=b"newer!")}
DOWN = (401, 403, 404, 429, 503)


def at_commit(name, commit, kind="models"):
    """Without those that ask for a branch."""
    return [w for w in ways(name, commit, kind) if commit in w[1]]


class Replaced(AttackCase):
    def setUp(self):
        self.hub = self.make_hub(rate_limits={"api": 1 << 30, "resolvers": 1 << 30})
        self.hub.add_token(OTHER_TOKEN)
        self.hub.add_token(TOKEN)

    def serve(self, **settings):
        self.wb = self.make_server(self.hub, **{"credentials": "forward", "tag_ttl": "1h",
                                                "auth_ttl": "1h", "negative_ttl": "1h",
                                                **settings})

    def private(self, name, kind="model"):
        """Its commit."""
        return self.hub.add_repo(name, FILES, kind=kind, private=True,
                                 tokens=[TOKEN]).branches["main"]

    def replace(self, name, files=None, kind="model", **settings):
        self.hub.delete_repo(name, kind)
        return self.hub.add_repo(name, files or NEW_FILES, kind=kind,
                                 **settings).branches["main"]

    def test_all_ways_at_the_old_commit(self):
        self.serve()
        for kind, name in (("models", "Org/Model"), ("datasets", "Org/Data"),
                           ("spaces", "Org/Room")):
            commit = self.private(name, kind[:-1])
            self.open(TOKEN, ways(name, "main", kind) + ways(name, commit, kind))
            new = self.replace(name, kind=kind[:-1])
            for token in (None, OTHER_TOKEN, TOKEN):
                self.closed(token, at_commit(name, commit, kind))
            for token in (None, OTHER_TOKEN):
                self.open(token, ways(name, "main", kind) + ways(name, new, kind))
                self.closed(token, at_commit(name, commit, kind))
        answer = self.get("/Org/Model/resolve/main/config.json")
        self.assertEqual((answer.status, answer.body), (200, NEW_FILES["config.json"]))
        self.nothing_leaks()

    def test_each_way_as_the_first(self):
        """Nothing but this one question has told the server that it is another repository."""
        self.serve()
        for i, way in enumerate(at_commit("Org/X", "0" * 40)):
            for before in ("all", "one file"):
                name = f"Org/M{i}{before[:1]}"
                commit = self.private(name)
                self.open(TOKEN, ways(name, "main") if before == "all" else
                          [("GET", f"/{name}/resolve/main/config.json", {}, None),
                           ("GET", f"/{name}/resolve/main/model.safetensors", {}, None)])
                self.replace(name)
                way_there = (way[0], way[1].replace("Org/X", name).replace("0" * 40, commit),
                             *way[2:])
                self.closed(None, [way_there])
        self.nothing_leaks()

    def test_registry_names(self):
        self.serve(aliases={"friend": "Org/Aliased"})
        for name, spelled in (("Org/Model", "org/model"), ("Org/Aliased", "friend")):
            commit = self.private(name)
            self.open(TOKEN, contents(name))
            status, headers, body = self.v2(f"hf/{spelled}/manifests/main", TOKEN)
            self.assertEqual(status, 200, body)
            paths = [f"manifests/{commit}", f"manifests/{headers['Docker-Content-Digest']}",
                     f"blobs/{json.loads(body)['config']['digest']}"]
            paths += [f"blobs/{layer['digest']}" for layer in json.loads(body)["layers"]]
            self.assertIn(f"blobs/{sha256(WEIGHTS)}", paths)
            for path in paths:
                self.assertEqual(self.v2(f"hf/{spelled}/{path}", TOKEN)[0], 200,
                                 (spelled, path))
            new = self.replace(name)
            for token in (None, OTHER_TOKEN, TOKEN):
                for path in paths:
                    for method in ("GET", "HEAD"):
                        status, _, body = self.v2(f"hf/{spelled}/{path}", token, method)
                        self.assertEqual(status, 404, (spelled, path, token, body))
                status, _, body = self.v2(f"hf/{spelled}/tags/list", token)
                self.assertNotIn(commit.encode(), body)
                status, _, body = self.v2(f"hf/{spelled}/manifests/main", token)
                self.assertEqual(status, 200, body)
                self.assertEqual(self.v2(f"hf/{spelled}/manifests/{new}", token)[0], 200)
                self.assertEqual(self.v2(f"hf/{spelled}/blobs/"
                                         f"{sha256(NEW_FILES['model.safetensors'])}", token)[2],
                                 NEW_FILES["model.safetensors"])
        self.nothing_leaks()

    def test_a_commit_that_both_have(self):
        self.serve()
        commit = self.private("Org/Model")
        self.open(TOKEN, ways("Org/Model") + ways("Org/Model", commit))
        self.assertEqual(self.replace("Org/Model", FILES), commit)
        self.hub.reset()
        self.open(None, at_commit("Org/Model", commit))
        self.assertEqual(self.hub.count("hub", kind="info"), 2, "who has the name, and the commit")
        self.hub.reset()
        self.open(None, at_commit("Org/Model", commit))
        self.assertEqual(self.hub.requests(), [])
        self.open(OTHER_TOKEN, at_commit("Org/Model", commit))
        self.assertEqual(self.hub.count("hub", kind="info"), 1, "the commit is known by now")

    def test_while_the_hub_is_down(self):
        self.serve(auth_ttl="0s")
        commit = self.private("Org/Model")
        self.open(TOKEN, ways("Org/Model") + ways("Org/Model", commit))
        self.replace("Org/Model")
        self.open(None, ways("Org/Model"))
        self.hub.stop()
        for token in (None, OTHER_TOKEN, TOKEN):
            self.closed(token, at_commit("Org/Model", commit), statuses=DOWN)
        self.open(None, ways("Org/Model"))

    def test_renamed_and_replaced(self):
        self.serve(auth_ttl="0s")
        commit = self.private("Org/Model")
        self.open(TOKEN, ways("Org/Model") + ways("Org/Model", commit))
        self.hub.rename_repo("Org/Model", "Org/Moved")
        self.open(TOKEN, ways("Org/Model") + ways("Org/Model", commit) + ways("Org/Moved", commit))
        self.closed(None, ways("Org/Model", commit) + ways("Org/Moved", commit))
        self.hub.repo("Org/Moved").renamed_from.clear()
        self.hub.add_repo("Org/Model", NEW_FILES)
        for token in (None, OTHER_TOKEN):
            self.closed(token, at_commit("Org/Model", commit))
            self.closed(token, ways("Org/Moved", commit))
        self.open(TOKEN, ways("Org/Moved", commit))
        self.open(None, ways("Org/Model"))

    def test_history_that_was_rewritten(self):
        """It is the same repository: what it had it may still give."""
        self.serve(auth_ttl="0s")
        commit = self.private("Org/Model")
        self.open(TOKEN, ways("Org/Model") + ways("Org/Model", commit))
        repo = self.hub.repo("Org/Model")
        repo.commits.clear()
        repo.branches.clear()
        repo.add_commit(NEW_FILES)
        self.open(TOKEN, at_commit("Org/Model", commit))
        self.closed(None, at_commit("Org/Model", commit))

    def test_nobody_else_loses_anything(self):
        """Only the Hub's word counts: what others are refused, or ask under other names, takes
        nothing from who has the rights."""
        self.serve(auth_ttl="0s", negative_ttl="0s")
        commit = self.private("Org/Model")
        self.open(TOKEN, ways("Org/Model") + ways("Org/Model", commit))
        self.hub.add_repo("Org/Public", NEW_FILES, renamed_from=["Old/Model"])
        for token in (None, OTHER_TOKEN):
            for name in ("Org/Model", "ORG/model", "Old/Model"):
                for revision in ("main", commit):
                    for method, path, headers, body in ways(name, revision):
                        self.ask(method, path, {**headers, **bearer(token)}, body)
        self.hub.reset()
        self.open(TOKEN, ways("Org/Model", commit))
        self.assertEqual(self.hub.requests("cdn"), [])
        self.assertEqual(self.hub.count("hub", kind="tree"), 0)

    def test_with_our_own_rights(self):
        """What was had once stays; and with the callers' rights it is another's from then on."""
        self.serve(credentials="own")
        commit = self.hub.add_repo("Org/Model", FILES).branches["main"]
        self.open(None, ways("Org/Model") + ways("Org/Model", commit))
        self.replace("Org/Model")
        self.open(None, at_commit("Org/Model", commit))
        self.wb.stop()
        self.wb = self.make_server(self.hub, data=self.wb.data, credentials="forward")
        self.closed(OTHER_TOKEN, at_commit("Org/Model", commit))
        self.wb.stop()


if __name__ == "__main__":
    unittest.main()
