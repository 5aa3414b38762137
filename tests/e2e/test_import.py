"""Importing from a Hub: what a name and a tag lead to, what is chosen, what is
read, what is refused, and that the manifest depends on the commit alone."""

import http.client
import json
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import (EndToEnd, gguf_file, gguf_sparse, paths_of,  # noqa: E402
                     safetensors_file, safetensors_sparse, sha256)

CONFIG = b'{"model_type":"llama","architectures":["LlamaForCausalLM"]}\n'
README = b"# A model\n"
WEIGHTS = safetensors_file({"a": ("F32", (16, 16)), "b": ("BF16", (8,))})
TINY = {"t": (32, 2)}
TOKEN = "hf_" + "a" * 34


def quants(*labels, name="tiny"):
    return {f"{name}-{label}.gguf": gguf_file(TINY, fill=label.encode()) for label in labels}


class ImportTest(EndToEnd):
    repository = "hf/org/model"

    def setUp(self):
        self.hub = self.make_hub()

    def serve(self, **upstream):
        """A server whose hf upstream has these settings."""
        env = upstream.pop("env", None)
        if not upstream:
            return self.make_weighbridge(self.hub.url, env=env)
        settings = {"prefix": "hf", "kind": "huggingface", "url": self.hub.url, **upstream}
        return self.make_weighbridge(config={"upstreams": [settings]}, env=env)

    def model(self, files=None, repo="Org/Model", **settings):
        """A repository of the given files, a config.json and a README."""
        everything = {"config.json": CONFIG, "README.md": README,
                      **({"model.safetensors": WEIGHTS} if files is None else files)}
        return self.hub.add_repo(repo, everything, **settings)

    def files(self, wb, tag="main", repository=None):
        _, manifest = self.pull_manifest(wb, repository or self.repository, tag)
        return set(paths_of(manifest))

    def config(self, wb, manifest, repository=None):
        status, _, body = wb.blob(repository or self.repository, manifest["config"]["digest"])
        self.assertEqual(status, 200)
        self.assertEqual(sha256(body), manifest["config"]["digest"])
        return json.loads(body)

    def together(self, wb, references, hold):
        """Ask for all at once; let the Hub go on when the import is under way."""
        answers = [None] * len(references)

        def ask(i):
            answers[i] = wb.manifest(self.repository, references[i])[:2]
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(references))]
        for thread in threads:
            thread.start()
        self.assertTrue(hold.wait_held(1))
        self.wait_in_flight(wb, len(references))
        hold.release()
        for thread in threads:
            thread.join()
        return answers

    def wait_in_flight(self, wb, count):
        """Until the server has taken that many connections: it has handed each to a
        thread by then, so every one is either waiting or about to."""
        deadline = time.monotonic() + 60
        port = int(wb.host.rsplit(":", 1)[1])
        while time.monotonic() < deadline:
            with open("/proc/net/tcp", encoding="ascii") as f:
                rows = [line.split() for line in f][1:]
            if sum(r[1].endswith(f":{port:04X}") and r[3] == "01" for r in rows) >= count:
                return
        self.fail("the connections were not taken")

    def tags(self, wb, repository=None):
        status, _, body = wb.get(f"/v2/{repository or self.repository}/tags/list")
        return json.loads(body)["tags"] if status == 200 else []


class WholeRepository(ImportTest):
    def test_layers_are_the_files(self):
        self.model({"model.safetensors": WEIGHTS, "sub/notes.txt": b"x\n",
                    ".gitattributes": b"*.safetensors filter=lfs\n", ".hidden/a.json": b"{}"})
        wb = self.serve()
        digest, manifest = self.pull_manifest(wb, self.repository, "main")
        layers = paths_of(manifest)
        self.assertEqual(set(layers), {"config.json", "README.md", "model.safetensors",
                                       "sub/notes.txt"})
        for path, data in (("config.json", CONFIG), ("README.md", README),
                           ("model.safetensors", WEIGHTS), ("sub/notes.txt", b"x\n")):
            self.assertEqual(layers[path]["digest"], sha256(data))
            self.assertEqual(layers[path]["size"], len(data))
        self.assertEqual(manifest["artifactType"], "application/vnd.cncf.model.manifest.v1+json")
        self.assertEqual(self.pull_manifest(wb, self.repository, digest)[1], manifest)

    def test_config_says_where_it_comes_from_and_what_it_is(self):
        repo = self.model()
        wb = self.serve()
        config = self.config(wb, self.pull_manifest(wb, self.repository, "main")[1])
        self.assertEqual(config["descriptor"]["revision"], repo.branches["main"])
        self.assertEqual(config["descriptor"]["sourceURL"], "https://huggingface.co/Org/Model")
        self.assertEqual(config["config"]["format"], "safetensors")

    def test_no_weight_moves(self):
        self.model({"model.safetensors": safetensors_sparse({"w": ("F32", (1 << 20, 64))})})
        wb = self.serve()
        self.pull_manifest(wb, self.repository, "main")
        self.assertLessEqual(self.hub.bytes_sent("cdn"), 128 << 10)

    def test_small_files_can_be_pulled_without_the_hub(self):
        self.model()
        wb = self.serve()
        _, manifest = self.pull_manifest(wb, self.repository, "main")
        self.hub.fault("hub_drop")
        status, _, body = wb.blob(self.repository, paths_of(manifest)["README.md"]["digest"])
        self.assertEqual((status, body), (200, README))

    def test_the_same_bytes_under_two_paths(self):
        self.model({"a.safetensors": WEIGHTS, "b/a.safetensors": WEIGHTS, "copy.md": README})
        wb = self.serve()
        _, manifest = self.pull_manifest(wb, self.repository, "main")
        layers = paths_of(manifest)
        self.assertEqual(layers["a.safetensors"]["digest"], layers["b/a.safetensors"]["digest"])
        self.assertEqual(layers["copy.md"]["digest"], layers["README.md"]["digest"])
        self.assertEqual(wb.blob(self.repository, layers["copy.md"]["digest"])[2], README)

    def test_empty_files(self):
        self.model({"model.safetensors": WEIGHTS, "empty.txt": b"", "pkg/__init__.py": b""})
        wb = self.serve()
        _, manifest = self.pull_manifest(wb, self.repository, "main")
        digest = paths_of(manifest)["empty.txt"]["digest"]
        self.assertEqual(digest, sha256(b""))
        self.assertEqual(wb.blob(self.repository, digest)[::2], (200, b""))

    def test_config_in_lfs(self):
        self.model({"model.safetensors": WEIGHTS}, lfs=["config.json"])
        wb = self.serve()
        config = self.config(wb, self.pull_manifest(wb, self.repository, "main")[1])
        self.assertEqual(config["descriptor"].get("family"), "llama")

    def test_config_that_is_no_json(self):
        for content in (b"", b"[]", b"{", b"\xff\xfe"):
            repo = f"Org/Bad{len(content)}{content[:1].hex()}"
            self.hub.add_repo(repo, {"config.json": content, "model.safetensors": WEIGHTS})
            first, second = self.serve(), self.serve()
            name = f"hf/{repo.lower()}"
            digest, manifest = self.pull_manifest(first, name, "main")
            self.assertIn("config.json", json.dumps(manifest["annotations"]))
            # read again from the store, read for a search, read from LFS: the same
            self.pull_manifest(second, name, digest)

    def test_many_pages(self):
        self.hub.set_options(page_size=7)
        self.model({f"part-{i:02d}/note.txt": b"%d" % i for i in range(30)})
        wb = self.serve()
        self.assertEqual(len(self.files(wb)), 32)
        self.assertGreater(self.hub.count("hub", kind="tree"), 4)


class Tags(ImportTest):
    def test_branch_tag_commit_latest_and_pull_request(self):
        repo = self.model()
        first = repo.branches["main"]
        second = self.hub.add_commit("Org/Model", {"more.txt": b"2"}, keep=True)
        self.hub.set_tag("Org/Model", "v1.0", first)
        pull = self.hub.add_commit("Org/Model", {"pr.txt": b"3"}, ref="refs/pr/7", keep=True)
        wb = self.serve()
        for tag, commit in (("main", second), ("v1.0", first), ("latest", second),
                            (first, first), (second, second), ("refs-pr-7", pull)):
            _, manifest = self.pull_manifest(wb, self.repository, tag)
            self.assertEqual(self.config(wb, manifest)["descriptor"]["revision"], commit, tag)

    def test_default_branch_is_not_main(self):
        repo = self.model(branch="trunk")
        wb = self.serve()
        _, manifest = self.pull_manifest(wb, self.repository, "latest")
        self.assertEqual(self.config(wb, manifest)["descriptor"]["revision"],
                         repo.branches["trunk"])
        self.assertIn("trunk", self.pull_error(wb, self.repository, "main", 404,
                                               "MANIFEST_UNKNOWN"))

    def test_a_revision_wins_over_latest_and_quants(self):
        self.model(quants("Q8_0", "Q4_K_M"))
        self.hub.add_commit("Org/Model", {"x.txt": b"1"}, branch="latest")
        self.hub.add_commit("Org/Model", {"y.txt": b"1"}, branch="q8_0")
        wb = self.serve()
        self.assertEqual(self.files(wb, "latest"), {"x.txt"})
        self.assertEqual(self.files(wb, "q8_0"), {"y.txt"})
        self.assertIn("tiny-Q8_0.gguf", self.files(wb, "Q8_0"))

    def test_quants_in_any_case(self):
        self.model({**quants("Q8_0", "Q4_K_M"), "tokenizer.json": b"{}", "LICENSE": b"MIT\n"})
        wb = self.serve()
        digests = {self.pull_manifest(wb, self.repository, tag)[0]
                   for tag in ("q4_k_m", "Q4_K_M", "Q4_k_M", "main--q4_k_m", "latest--Q4_K_M",
                               self.hub.repo("Org/Model").branches["main"] + "--q4_k_m")}
        self.assertEqual(len(digests), 1, "one selection, one manifest")
        files = self.files(wb, "q4_k_m")
        self.assertIn("tiny-Q4_K_M.gguf", files)
        self.assertNotIn("tiny-Q8_0.gguf", files)
        self.assertLessEqual({"config.json", "tokenizer.json", "LICENSE"}, files)

    def test_split_parts_belong_together(self):
        parts = {f"Q4_0/big-Q4_0-{i:05d}-of-00003.gguf": gguf_file(TINY, fill=b"%d" % i)
                 for i in (1, 2, 3)}
        self.model({**parts, **quants("Q8_0")})
        wb = self.serve()
        self.assertEqual({f for f in self.files(wb, "q4_0") if f.endswith(".gguf")}, set(parts))

    def test_a_set_with_a_part_missing_is_refused(self):
        self.model({f"big-Q4_0-{i:05d}-of-00003.gguf": gguf_file(TINY) for i in (1, 3)})
        wb = self.serve()
        status, _, document = wb.manifest(self.repository, "q4_0")
        self.assertGreaterEqual(status, 400)
        self.assertIn("part 2 of 3", json.dumps(document))
        self.assertEqual(self.tags(wb), [])

    def test_quant_of_another_revision(self):
        self.model(quants("Q8_0"))
        self.hub.add_commit("Org/Model", quants("Q8_0", "Q4_0", name="next"), branch="dev")
        wb = self.serve()
        self.assertEqual(self.files(wb, "dev--q8_0"), {"next-Q8_0.gguf"})
        self.pull_error(wb, self.repository, "main--q4_0", 404)

    def test_missing_quant_names_what_there_is(self):
        self.model(quants("Q8_0", "Q4_K_M"))
        wb = self.serve()
        error = self.pull_error(wb, self.repository, "q5_0", 404, "MANIFEST_UNKNOWN")
        self.assertIn("Q8_0", error)
        self.assertIn("Q4_K_M", error)

    def test_nearest_spelling_gives_the_commit(self):
        self.model()
        commit = self.hub.add_commit("Org/Model", {"x.txt": b"1"}, branch="feature/x")
        wb = self.serve()
        for tag in ("feature-x", "Feature_X", "feature--x", "feature.x", "featur-x"):
            error = self.pull_error(wb, self.repository, tag, 404, "MANIFEST_UNKNOWN")
            self.assertIn(f"hf/org/model:{commit}", error)
            self.assertIn("feature/x", error)
        self.assertEqual(self.files(wb, commit), {"x.txt"})

    def test_unknown_revision_names_existing_ones(self):
        self.model()
        self.hub.set_tag("Org/Model", "v1.0", "main")
        wb = self.serve()
        error = self.pull_error(wb, self.repository, "nothing-like-it", 404, "MANIFEST_UNKNOWN")
        self.assertIn("main", error)
        self.assertIn("v1.0", error)

    def test_unknown_commit(self):
        self.model()
        wb = self.serve()
        self.pull_error(wb, self.repository, "0" * 40, 404, "MANIFEST_UNKNOWN")

    def test_every_import_can_be_had_by_its_commit_without_the_hub(self):
        commit = self.model(quants("Q8_0", "Q4_0")).branches["main"]
        wb = self.serve()
        whole, _ = self.pull_manifest(wb, self.repository, "main")
        quant, _ = self.pull_manifest(wb, self.repository, "q8_0")
        self.assertLessEqual({commit, f"{commit}--Q8_0", "main", "q8_0"}, set(self.tags(wb)))
        self.hub.fault("hub_drop")
        self.assertEqual(self.pull_manifest(wb, self.repository, commit)[0], whole)
        self.assertEqual(self.pull_manifest(wb, self.repository, f"{commit}--Q8_0")[0], quant)

    def test_moved_branch(self):
        self.model()
        wb = self.serve(tag_ttl="0s")
        before, manifest = self.pull_manifest(wb, self.repository, "main")
        self.hub.add_commit("Org/Model", {"more.txt": b"2"}, keep=True)
        after, _ = self.pull_manifest(wb, self.repository, "main")
        self.assertNotEqual(before, after)
        self.assertEqual(self.pull_manifest(wb, self.repository, before)[1], manifest)

    def test_known_commit_costs_one_question(self):
        commit = self.model().branches["main"]
        self.hub.set_tag("Org/Model", "v1", commit)
        wb = self.serve()
        digest, _ = self.pull_manifest(wb, self.repository, "main")
        self.hub.reset()
        self.assertEqual(self.pull_manifest(wb, self.repository, "v1")[0], digest)
        self.assertEqual([r.kind for r in self.hub.requests()], ["info"])


class Names(ImportTest):
    def source(self, wb, repository, tag="main"):
        _, manifest = self.pull_manifest(wb, repository, tag)
        return self.config(wb, manifest, repository.lower())["descriptor"]["sourceURL"]

    def test_any_case(self):
        self.model(repo="HuggingFaceTB/SmolLM2-135M")
        wb = self.serve()
        for name in ("hf/huggingfacetb/smollm2-135m", "hf/HuggingFaceTB/SmolLM2-135M",
                     "hf/HUGGINGFACETB/smollm2-135M"):
            self.assertEqual(self.source(wb, name),
                             "https://huggingface.co/HuggingFaceTB/SmolLM2-135M")

    def test_the_known_spelling_saves_the_redirect(self):
        self.model()
        wb = self.serve(tag_ttl="0s")
        self.pull_manifest(wb, self.repository, "main")
        self.hub.reset()
        self.pull_manifest(wb, self.repository, "main")
        self.assertEqual([r.status for r in self.hub.requests()], [200])

    def test_bare_name(self):
        self.model(repo="gpt2")
        wb = self.serve()
        self.assertEqual(self.source(wb, "hf/gpt2"), "https://huggingface.co/gpt2")

    def test_renamed(self):
        self.model(repo="New/Name", renamed_from=["Old/Name"])
        wb = self.serve()
        self.assertEqual(self.source(wb, "hf/old/name"), "https://huggingface.co/New/Name")

    def test_renamed_after_the_first_import(self):
        self.model()
        wb = self.serve(tag_ttl="0s")
        before, _ = self.pull_manifest(wb, self.repository, "main")
        self.hub.rename_repo("Org/Model", "Org/Renamed")
        self.assertEqual(self.source(wb, self.repository), "https://huggingface.co/Org/Renamed")
        fresh = self.serve()
        self.assertEqual(self.pull_manifest(fresh, self.repository, "main")[0],
                         self.pull_manifest(wb, self.repository, "main")[0])
        self.assertEqual(self.pull_manifest(wb, self.repository, before)[0], before)

    def test_case_renamed_after_the_first_import(self):
        self.model()
        wb = self.serve(tag_ttl="0s")
        self.pull_manifest(wb, self.repository, "main")
        self.hub.rename_repo("Org/Model", "Org/MODEL")
        self.assertEqual(self.source(wb, self.repository), "https://huggingface.co/Org/MODEL")

    def test_two_ids_that_differ_only_in_case(self):
        self.model()
        self.model(repo="Org/MODEL", files={"model.safetensors": WEIGHTS, "x.txt": b"1"})
        wb = self.serve()
        self.pull_manifest(wb, "hf/Org/Model", "main")
        error = self.pull_error(wb, "hf/Org/MODEL", "latest", 409)
        self.assertIn("Org/Model", error)
        self.assertIn("Org/MODEL", error)
        self.assertIn("alias", error)
        self.assertEqual(self.source(wb, "hf/org/model"), "https://huggingface.co/Org/Model")

    def test_alias_for_a_hub_that_does_not_redirect(self):
        self.hub.set_options(case_redirect=False)
        self.model()
        wb = self.serve(aliases={"short": "Org/Model", "org/model": "Org/Model"})
        self.assertEqual(self.source(wb, "hf/short"), "https://huggingface.co/Org/Model")
        self.assertEqual(self.source(wb, "hf/org/model"), "https://huggingface.co/Org/Model")
        without = self.serve(negative_ttl="1h")
        self.pull_error(without, "hf/org/model", "main", 404)
        # what was remembered of the wrong spelling is nothing about the right one
        digest = self.pull_manifest(without, "hf/Org/Model", "main")[0]
        self.assertEqual(self.pull_manifest(without, "hf/org/model", "main")[0], digest)
        fresh = self.serve(negative_ttl="1h")
        self.pull_error(fresh, "hf/org/model", digest, 404)
        self.pull_manifest(fresh, "hf/Org/Model", digest)

    def test_unknown_repository(self):
        wb = self.serve()
        self.assertIn("org/nothing", self.pull_error(wb, "hf/org/nothing", "main", 404))


class Access(ImportTest):
    def test_gated_without_a_token_says_so(self):
        self.model(gated=True, tokens=[TOKEN])
        wb = self.serve()
        error = self.pull_error(wb, self.repository, "main", 403, "DENIED")
        self.assertIn("gated", error)
        self.assertIn("HF_TOKEN", error)
        self.assertEqual(self.tags(wb), [])

    def test_gated_with_a_token(self):
        self.model(gated=True, tokens=[TOKEN])
        wb = self.serve(env={"HF_TOKEN": TOKEN})
        self.assertIn("model.safetensors", self.files(wb))
        self.assertNotIn(TOKEN, wb.log)
        for record in self.hub.requests("cdn"):
            self.assertNotIn("authorization", record.headers)

    def test_private(self):
        self.model(private=True, tokens=[TOKEN])
        self.pull_error(self.serve(), self.repository, "main", 404)
        self.assertIn("model.safetensors", self.files(self.serve(env={"HF_TOKEN": TOKEN})))

    def test_rate_limited(self):
        self.model()
        wb = self.serve()
        self.hub.fault("hub_status", status=429, retry_after=60)
        status, headers, _ = wb.get(f"/v2/{self.repository}/manifests/main")
        self.assertEqual(status, 429)
        self.assertGreater(int(headers["Retry-After"]), 30)
        asked = self.hub.count("hub")
        status, headers, _ = wb.get(f"/v2/{self.repository}/manifests/other")
        self.assertEqual(status, 429)
        self.assertEqual(self.hub.count("hub"), asked, "the Hub asked for a minute of peace")


class Selection(ImportTest):
    def test_include_and_exclude(self):
        self.model({"model.safetensors": WEIGHTS, "onnx/model.onnx": b"onnx" * 10,
                    "a/b.txt": b"1", "a/c.md": b"2"})
        wb = self.serve(exclude=["onnx/*", "*.md"])
        self.assertEqual(self.files(wb), {"config.json", "model.safetensors", "a/b.txt"})
        wb = self.serve(include=["*.safetensors", "config.json"])
        self.assertEqual(self.files(wb), {"config.json", "model.safetensors"})

    def test_too_many_files_are_refused_before_they_are_fetched(self):
        self.model({f"data/{i:05d}.json": b"%d" % i for i in range(9000)})
        wb = self.serve(header_connections=2)
        error = self.pull_error(wb, self.repository, "main", 413)
        self.assertIn("exclude", error)
        self.assertEqual(self.hub.count("hub", kind="small"), 0)
        self.assertEqual(self.tags(wb), [])
        some = self.serve(exclude=["data/0[1-9]*"])
        self.assertEqual(len(self.files(some)), 1002)

    def test_a_changed_policy_gives_a_changed_manifest(self):
        self.model({"model.safetensors": WEIGHTS, "a/b.txt": b"1"})
        wb = self.serve(tag_ttl="0s")
        before, _ = self.pull_manifest(wb, self.repository, "main")
        self.assertEqual(wb.stop(), 0)
        other = self.make_weighbridge(data=wb.data, config={"upstreams": [
            {"prefix": "hf", "kind": "huggingface", "url": self.hub.url, "tag_ttl": "0s",
             "exclude": ["a/*"]}]})
        after, manifest = self.pull_manifest(other, self.repository, "main")
        self.assertNotEqual(before, after)
        self.assertNotIn("a/b.txt", paths_of(manifest))
        self.assertEqual(self.pull_manifest(other, self.repository, before)[0], before)
        self.assertEqual(other.stop(), 0)

    def test_pickles_beside_safetensors_are_left_out(self):
        self.model({"model.safetensors": WEIGHTS, "pytorch_model.bin": b"\x80\x02." * 9})
        self.assertNotIn("pytorch_model.bin", self.files(self.serve()))
        self.assertIn("pytorch_model.bin", self.files(self.serve(allow_pickle=True)))

    def test_only_pickles_are_refused(self):
        self.model({"pytorch_model.bin": b"\x80\x02." * 9})
        wb = self.serve()
        error = self.pull_error(wb, self.repository, "main", 403, "DENIED")
        self.assertIn("pytorch_model.bin", error)
        self.assertIn("allow_pickle", error)
        self.assertEqual(self.tags(wb), [])
        allowed = self.serve(allow_pickle=True)
        _, manifest = self.pull_manifest(allowed, self.repository, "main")
        self.assertIn("pytorch_model.bin", paths_of(manifest))
        self.assertEqual(self.config(allowed, manifest)["config"].get("format"), "pt")


class Hostile(ImportTest):
    """What a Hub must not get away with. Nothing is stored."""

    def refused(self, wb, *words, tag="main"):
        status, _, document = wb.manifest(self.repository, tag)
        self.assertGreaterEqual(status, 400, document)
        for word in words:
            self.assertIn(word, json.dumps(document))
        self.assertEqual(self.tags(wb), [])
        return status

    def test_paths(self):
        self.model()
        wb = self.serve(negative_ttl="0s", retries=0)
        for path in ("../evil", "a/../../evil", "/etc/passwd", "a//b", "a/./b", "", "a\\b",
                     "a\u0000b", "a\nb", "C:\\x", "x/", "a/..", "."):
            fault = self.hub.fault("tree_add", entry={
                "type": "file", "path": path, "size": 1, "oid": "a" * 40})
            with self.subTest(path=path):
                self.assertEqual(self.refused(wb), 502)
                self.assertGreater(fault.hits, 0)
            fault.remove()
        self.assertIn("model.safetensors", self.files(wb))

    def test_values(self):
        self.model()
        wb = self.serve(negative_ttl="0s", retries=0)
        for change in ({"size": -1}, {"size": 1e300}, {"size": "12"}, {"size": 2 ** 63},
                       {"oid": "xyz"}, {"oid": None}, {"path": 7},
                       {"lfs": {"oid": "A" * 64, "size": 3, "pointerSize": 1}},
                       {"lfs": {"oid": "a" * 64, "size": 3, "pointerSize": 1}}):
            fault = self.hub.fault("tree_edit", file="model.safetensors", set=change)
            with self.subTest(change=change):
                self.refused(wb)
                self.assertGreater(fault.hits, 0)
            fault.remove()
        self.assertIn("model.safetensors", self.files(wb))

    def test_listing(self):
        self.model()
        wb = self.serve(negative_ttl="0s", retries=0)
        for name, settings in (("tree_duplicate", {"file": "README.md"}), ("tree_loop", {}),
                               ("tree_next", {"url": "http://127.0.0.1:1/next"}),
                               ("tree_next", {"url": "file:///etc/passwd"}),
                               ("hub_body", {"mode": "malformed", "kind": "tree"}),
                               ("hub_body", {"mode": "empty", "kind": "tree"}),
                               ("hub_body", {"mode": "html", "kind": "tree"}),
                               ("hub_body", {"mode": "truncated", "kind": "tree"}),
                               ("hub_body", {"mode": "malformed", "kind": "info"}),
                               ("hub_body", {"mode": "html", "kind": "info"})):
            fault = self.hub.fault(name, **settings)
            with self.subTest(fault=name, **settings):
                self.assertEqual(self.refused(wb), 502)
                self.assertGreater(fault.hits, 0)
            fault.remove()
        self.assertIn("model.safetensors", self.files(wb))

    def test_small_file_with_other_bytes(self):
        self.model()
        wb = self.serve(negative_ttl="0s", retries=0)
        fault = self.hub.fault("small_flip", path="README.md")
        self.assertEqual(self.refused(wb, "README.md"), 502)
        self.assertGreater(fault.hits, 0)
        fault.remove()
        self.assertIn("README.md", self.files(wb))

    def test_small_file_of_another_commit(self):
        self.model()
        wb = self.serve(negative_ttl="0s", retries=0)
        self.hub.fault("hub_headers", kind="resolve,small", set={"X-Repo-Commit": "b" * 40})
        self.refused(wb, "X-Repo-Commit", "b" * 40)

    def test_header_of_another_object(self):
        self.model()
        wb = self.serve(negative_ttl="0s", retries=0)
        for headers, word in (({"X-Linked-Etag": '"' + "c" * 64 + '"'}, "X-Linked-Etag"),
                              ({"X-Linked-Size": "7"}, "X-Linked-Size"),
                              ({"X-Repo-Commit": "b" * 40}, "X-Repo-Commit")):
            fault = self.hub.fault("hub_headers", kind="resolve", path="model.safetensors",
                                   set=headers)
            with self.subTest(headers=headers):
                self.refused(wb, word)
            fault.remove()

    def test_two_sizes_for_one_digest(self):
        self.model({"a.safetensors": WEIGHTS, "b/model.onnx": b"onnx" * 9})
        wb = self.serve()
        digest = sha256(WEIGHTS)[7:]
        self.hub.fault("tree_edit", file="b/model.onnx", set={
            "lfs": {"oid": digest, "size": 36, "pointerSize": 135}})
        self.refused(wb, "sha256")


class Headers(ImportTest):
    def test_unparsable_header_is_noted(self):
        broken = b"\xff" * 8 + b"not a header" * 10
        self.model({"a.safetensors": WEIGHTS, "b.safetensors": broken})
        wb = self.serve()
        digest, manifest = self.pull_manifest(wb, self.repository, "main")
        notes = json.dumps(manifest["annotations"])
        self.assertIn("b.safetensors", notes)
        self.assertNotIn("a.safetensors", notes)
        self.assertIn("b.safetensors", paths_of(manifest))
        config = self.config(wb, manifest)["config"]
        self.assertEqual(config.get("format"), "safetensors")
        self.assertNotIn("paramSize", config)
        self.assertEqual(self.pull_manifest(self.serve(), self.repository, "main")[0], digest)

    def test_every_kind_of_broken_header_is_noted(self):
        good = gguf_file(TINY)
        broken = {"x-Q8_0.gguf": good[:40], "empty-Q4_0.gguf": b"",
                  "magic-Q5_0.gguf": b"NOPE" + good[4:],
                  "count-Q5_1.gguf": good[:8] + b"\xff" * 8 + good[16:],
                  "huge.safetensors": (1 << 62).to_bytes(8, "little") + b"{}" * 20,
                  "text.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}
        self.model(broken)
        wb = self.serve()
        _, manifest = self.pull_manifest(wb, self.repository, "main")
        notes = json.dumps(manifest["annotations"])
        for path in broken:
            self.assertIn(path, notes)

    def test_inspection_required_refuses(self):
        self.model({"a.safetensors": WEIGHTS, "b.safetensors": b"\xff" * 100})
        wb = self.serve(inspection="required")
        error = self.pull_error(wb, self.repository, "main", 403, "DENIED")
        self.assertIn("b.safetensors", error)
        self.assertIn("inspection", error)
        self.assertEqual(self.tags(wb), [])
        self.hub.add_commit("Org/Model", {"a.safetensors": WEIGHTS}, branch="good")
        self.assertEqual(self.files(wb, "good"), {"a.safetensors"})

    def test_network_failure_is_never_taken_for_content(self):
        self.model({"model.safetensors": WEIGHTS, **quants("Q8_0")})
        undisturbed, _ = self.pull_manifest(self.serve(), self.repository, "main")
        for fault, settings in (("cdn_drop", {}), ("cdn_cut", {"bytes": 5}),
                                ("cdn_status", {"status": 500}),
                                ("cdn_length", {"delta": -3}),
                                ("cdn_range_start", {"delta": 1}),
                                ("cdn_total", {"delta": 1})):
            with self.subTest(fault=fault):
                wb = self.serve(retries=0)
                rule = self.hub.fault(fault, **settings)
                status, _, document = wb.manifest(self.repository, "main")
                self.assertIn(status, (502, 504), document)
                self.assertGreater(rule.hits, 0)
                self.assertEqual(self.tags(wb), [])
                rule.remove()
                self.assertEqual(self.pull_manifest(wb, self.repository, "main")[0], undisturbed)

    def test_one_corrupted_answer_is_never_a_manifest(self):
        # not as a note on a big file, not as other facts of a small one
        big = {"model.safetensors": safetensors_sparse({"w": ("F32", (1 << 16, 16))})}
        for files, status in ((big, 502), ({"model.safetensors": WEIGHTS}, 502)):
            repo = f"Org/Flip{len(self.hub.store.repos)}"
            name = f"hf/{repo.lower()}"
            self.hub.add_repo(repo, {"config.json": CONFIG, **files})
            undisturbed, _ = self.pull_manifest(self.serve(), name, "main")
            for offset in (3, 20):
                wb = self.serve(negative_ttl="0s")
                flip = self.hub.fault("cdn_flip", offset=offset, times=1, xor=0x7f)
                self.pull_error(wb, name, "main", status)
                self.assertEqual(flip.hits, 1)
                self.assertEqual(self.tags(wb, name), [])
                self.assertEqual(self.pull_manifest(wb, name, "main")[0], undisturbed)

    def test_passing_failures_are_survived(self):
        self.model({"model.safetensors": WEIGHTS, **quants("Q8_0")})
        undisturbed, _ = self.pull_manifest(self.serve(), self.repository, "main")
        wb = self.serve()
        self.hub.fault("cdn_cut", bytes=5, times=2)
        self.hub.fault("url_expired", times=1)
        self.hub.fault("hub_drop", times=2)
        self.assertEqual(self.pull_manifest(wb, self.repository, "main")[0], undisturbed)

    def test_few_bytes_for_sixty_gigabytes(self):
        shards = {f"model-{i:05d}-of-00004.safetensors":
                  safetensors_sparse({f"l{i}.w": ("BF16", (1 << 16, 107 << 10)),
                                      f"l{i}.b": ("F32", (9,))}, pad_to=200_000 * (i == 2))
                  for i in (1, 2, 3, 4)}
        big = {"big-Q8_0.gguf": gguf_sparse({"w": (1 << 16, 1 << 15)}, vocabulary=60_000)}
        self.model({**shards, **big})
        headers = sum(len(s.header) for s in {**shards, **big}.values())
        self.assertGreater(sum(s.size for s in {**shards, **big}.values()), 60 << 30)
        wb = self.serve()
        self.hub.reset()
        _, manifest = self.pull_manifest(wb, self.repository, "main")
        self.assertEqual(len(paths_of(manifest)), 7)
        small = len(CONFIG) + len(README)
        self.assertLessEqual(self.hub.bytes_sent(), small + headers + 5 * (128 << 10))
        # and not one request for each of 60,000 tokens
        self.assertLessEqual(self.hub.count("cdn"), 40)

    def test_big_headers(self):
        # over the size above which they are read one after the other
        self.model({f"model-{i:05d}-of-00003.safetensors": safetensors_sparse(
            {f"w{i}": ("F32", (1 << 20, 64))}, pad_to=17 << 20) for i in (1, 2, 3)})
        wb = self.serve()
        _, manifest = self.pull_manifest(wb, self.repository, "main")
        self.assertEqual(self.config(wb, manifest)["config"]["paramSize"], "201.3M")

    def test_headers_are_read_in_parallel(self):
        self.model({f"model-{i:05d}-of-00008.safetensors": WEIGHTS + bytes([i])
                    for i in range(1, 9)})
        hold = self.hub.hold("cdn", before=True)
        wb = self.serve(header_connections=4)
        done = []
        thread = threading.Thread(target=lambda: done.append(
            wb.manifest(self.repository, "main")[0]))
        thread.start()
        self.assertTrue(hold.wait_held(4), "four at once")
        self.assertEqual(hold.arrived, 4, "and no more than four")
        hold.release()
        thread.join()
        self.assertEqual(done, [200])


class Endings(ImportTest):
    def begin(self, wb, hold):
        """A pull that hangs in the middle of its import."""
        errors = []

        def pull():
            try:
                errors.append(wb.manifest(self.repository, "main")[0])
            except OSError as error:  # the server went away
                errors.append(error)
            except http.client.HTTPException as error:
                errors.append(error)
        thread = threading.Thread(target=pull)
        thread.start()
        self.assertTrue(hold.wait_held(1))
        return thread, errors

    def test_sigterm_ends_an_import(self):
        self.model()
        for kind in ("info", "tree", "small", "cdn"):
            with self.subTest(kind=kind):
                hold = self.hub.hold("cdn", before=True) if kind == "cdn" else \
                    self.hub.hold("hub", kind=kind)
                wb = self.make_weighbridge(self.hub.url, config={"timeouts": {"drain": "1s"}})
                thread, errors = self.begin(wb, hold)
                started = time.monotonic()
                self.assertEqual(wb.stop(), 0)
                self.assertLess(time.monotonic() - started, 20)
                thread.join()
                self.assertNotEqual(errors, [200])
                hold.remove()

    def test_killed_in_an_import(self):
        self.model({"model.safetensors": WEIGHTS, **quants("Q8_0")})
        undisturbed, _ = self.pull_manifest(self.serve(), self.repository, "main")
        for kind in ("tree", "small", "cdn"):
            with self.subTest(kind=kind):
                hold = self.hub.hold("cdn", before=True) if kind == "cdn" else \
                    self.hub.hold("hub", kind=kind)
                wb = self.serve()
                thread, _ = self.begin(wb, hold)
                wb.kill()
                thread.join()
                hold.remove()
                wb.start()
                self.assertEqual(self.tags(wb), [])
                self.assertEqual(self.pull_manifest(wb, self.repository, "main")[0], undisturbed)

    def test_after_a_restart_nothing_is_asked(self):
        commit = self.model().branches["main"]
        wb = self.serve()
        digest, _ = self.pull_manifest(wb, self.repository, "main")
        wb.kill()
        self.hub.reset()
        wb.start()
        for reference in ("main", commit, digest):
            self.assertEqual(self.pull_manifest(wb, self.repository, reference)[0], digest)
        self.assertEqual(self.hub.count(), 0)

    def test_a_hub_that_is_down_leaves_what_was_imported(self):
        self.model()
        wb = self.serve(tag_ttl="0s", retries=0)
        digest, _ = self.pull_manifest(wb, self.repository, "main")
        self.hub.fault("hub_drop")
        status, headers, _ = wb.get(f"/v2/{self.repository}/manifests/main")
        self.assertEqual((status, headers["Docker-Content-Digest"]), (200, digest))
        self.assertIn("299", headers["Warning"])


class Deterministic(ImportTest):
    def test_two_servers(self):
        self.model({"model.safetensors": WEIGHTS, **quants("Q8_0", "Q4_0"),
                    "broken.safetensors": b"\xff" * 50, "unicode/\u00e9<&>.txt": b"x"})
        first, second = self.serve(), self.serve(header_connections=1)
        for tag in ("main", "q8_0", "latest--q4_0"):
            self.assertEqual(self.pull_manifest(first, self.repository, tag),
                             self.pull_manifest(second, self.repository, tag))

    def test_order_of_imports_does_not_matter(self):
        self.model(quants("Q8_0", "Q4_0"))
        first, second = self.serve(), self.serve()
        tags = ("main", "q8_0", "q4_0")
        a = {t: self.pull_manifest(first, self.repository, t)[0] for t in tags}
        b = {t: self.pull_manifest(second, self.repository, t)[0] for t in reversed(tags)}
        self.assertEqual(a, b)

    def test_through_another_name(self):
        self.model(repo="New/Name", renamed_from=["Old/Name"])
        wb = self.serve()
        self.assertEqual(self.pull_manifest(wb, "hf/old/name", "main")[0],
                         self.pull_manifest(wb, "hf/new/name", "main")[0])


class Coalescing(ImportTest):
    def test_twenty_clients_one_import(self):
        self.model({"model.safetensors": WEIGHTS, **quants("Q8_0")})
        alone = self.serve()
        digest, _ = self.pull_manifest(alone, self.repository, "main")
        one = sorted((r.host, r.kind, r.path or "") for r in self.hub.requests())
        self.hub.reset()
        wb = self.serve()
        hold = self.hub.hold("hub", kind="tree")
        answers = self.together(wb, ["main"] * 20, hold)
        self.assertEqual(answers, [(200, digest)] * 20)
        self.assertEqual(sorted((r.host, r.kind, r.path or "") for r in self.hub.requests()), one)

    def test_two_tags_of_one_commit(self):
        commit = self.model().branches["main"]
        self.hub.set_tag("Org/Model", "v1", commit)
        wb = self.serve()
        hold = self.hub.hold("hub", kind="tree")
        answers = self.together(wb, ["main", "v1", "latest", commit], hold)
        self.assertEqual({a[0] for a in answers}, {200})
        self.assertEqual(len({a[1] for a in answers}), 1)
        self.assertEqual(self.hub.count("hub", kind="tree"), 1)
        self.assertLessEqual({"main", "v1", "latest", commit}, set(self.tags(wb)))

    def test_a_shared_failure(self):
        self.model()
        wb = self.serve(retries=0)
        hold = self.hub.hold("hub", kind="tree")
        self.hub.fault("hub_body", mode="malformed", kind="tree")
        answers = self.together(wb, ["main"] * 8, hold)
        self.assertEqual({a[0] for a in answers}, {502})
        self.hub.clear_faults()
        self.pull_manifest(wb, self.repository, "main")

    def test_what_is_missing_is_asked_once(self):
        self.model()
        wb = self.serve()
        self.pull_error(wb, self.repository, "nothing", 404)
        asked = self.hub.count()
        self.pull_error(wb, self.repository, "nothing", 404)
        self.assertEqual(self.hub.count(), asked)
        self.pull_manifest(wb, self.repository, "main")

    def test_what_was_missing_is_found_after_the_negative_ttl(self):
        self.model()
        wb = self.serve(negative_ttl="0s")
        self.pull_error(wb, self.repository, "later", 404)
        self.hub.add_commit("Org/Model", {"x.txt": b"1"}, branch="later")
        self.assertEqual(self.files(wb, "later"), {"x.txt"})


class Search(ImportTest):
    def digests(self, *tags):
        wb = self.serve()
        return {tag: self.pull_manifest(wb, self.repository, tag)[0] for tag in tags}

    def test_a_fresh_replica_finds_a_pinned_manifest(self):
        self.model(quants("Q8_0", "Q4_0"))
        self.hub.add_commit("Org/Model", {"model.safetensors": WEIGHTS}, branch="dev")
        self.hub.add_commit("Org/Model", {"old.txt": b"1"}, tag="v1")
        for tag, digest in self.digests("main", "dev", "v1", "q8_0").items():
            with self.subTest(tag=tag):
                wb = self.serve()
                self.pull_manifest(wb, self.repository, digest)
                self.assertIn(self.hub.repo("Org/Model").resolve(
                    "main" if tag == "q8_0" else tag), self.tags(wb))

    def test_headers_are_read_once_in_a_search(self):
        self.model(quants("Q8_0", "Q4_0"))
        wb = self.serve()
        self.hub.reset()
        self.pull_error(wb, self.repository, "sha256:" + "a" * 64, 404)
        paths = [r.path for r in self.hub.requests("cdn")]
        self.assertEqual(sorted(paths), ["tiny-Q4_0.gguf", "tiny-Q8_0.gguf"])
        self.assertEqual(self.hub.count("hub", kind="tree"), 1)

    def test_not_found_says_what_was_tried_and_is_remembered(self):
        first = self.model().branches["main"]
        second = self.hub.add_commit("Org/Model", {"x.txt": b"1"}, branch="dev")
        wb = self.serve()
        error = self.pull_error(wb, self.repository, "sha256:" + "b" * 64, 404,
                                "MANIFEST_UNKNOWN")
        self.assertIn(first[:12], error)
        self.assertIn(second[:12], error)
        self.assertIn(":<commit>", error)
        asked = self.hub.count()
        self.pull_error(wb, self.repository, "sha256:" + "b" * 64, 404)
        self.pull_error(wb, self.repository, "sha256:" + "c" * 64, 404)
        self.assertEqual(self.hub.count(), asked, "all that there is has been imported")

    def test_many_clients_one_search(self):
        self.model(quants("Q8_0", "Q4_0"))
        self.hub.add_commit("Org/Model", {"x.txt": b"1"}, branch="dev")
        known = self.digests("main", "q8_0", "dev")
        self.hub.reset()
        wb = self.serve()
        hold = self.hub.hold("hub", kind="tree")
        wanted = [*known.values(), "sha256:" + "a" * 64] * 4
        answers = self.together(wb, wanted, hold)
        self.assertEqual([a[0] for a in answers], [200, 200, 200, 404] * 4)
        self.assertEqual(self.hub.count("hub", kind="tree"), 2)
        # One search may take over where another has ended; nothing is built twice. The one that
        # finds nothing looks at the headers once more, for what an earlier version would have made.
        self.assertLessEqual(self.hub.count("cdn"), 6)

    def test_is_bounded(self):
        self.model()
        for i in range(6):
            self.hub.add_commit("Org/Model", {"x.txt": b"%d" % i}, branch=f"b{i}")
        wb = self.serve(search_limit=3)
        self.hub.reset()
        self.pull_error(wb, self.repository, "sha256:" + "c" * 64, 404)
        self.assertEqual(self.hub.count("hub", kind="tree"), 3)

    def test_a_commit_that_cannot_be_imported_does_not_stop_it(self):
        self.model()
        self.hub.add_commit("Org/Model", {"a.bin": b"\x80\x02."}, branch="a-pickles")
        self.hub.add_commit("Org/Model", {"z.txt": b"1"}, branch="z")
        digest = self.digests("z")["z"]
        wb = self.serve()
        self.pull_manifest(wb, self.repository, digest)
        self.pull_error(wb, self.repository, "sha256:" + "d" * 64, 404, "MANIFEST_UNKNOWN")

    def test_a_failing_hub_is_not_a_missing_manifest(self):
        self.model()
        wb = self.serve(retries=0)
        self.hub.fault("hub_status", status=500, kind="tree")
        self.pull_error(wb, self.repository, "sha256:" + "e" * 64, 502)
        digest = self.digests_after_clearing()
        self.pull_manifest(wb, self.repository, digest)

    def digests_after_clearing(self):
        self.hub.clear_faults()
        return self.digests("main")["main"]

    def test_an_old_commit_becomes_available_by_pulling_it(self):
        repo = self.model()
        first = repo.branches["main"]
        digest = self.digests("main")["main"]
        self.hub.add_commit("Org/Model", {"x.txt": b"1"})
        wb = self.serve(negative_ttl="0s")
        self.pull_error(wb, self.repository, digest, 404)
        self.assertEqual(self.pull_manifest(wb, self.repository, first)[0], digest)
        self.pull_manifest(wb, self.repository, digest)


if __name__ == "__main__":
    unittest.main(verbosity=2)
