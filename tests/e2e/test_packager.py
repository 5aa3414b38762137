"""What an import writes about the model: ModelPack's config and the annotations for schedulers."""

import hashlib
import json
import unittest

from harness import EndToEnd, Sparse, gguf_file, paths_of, safetensors_file
from hub import File

CARD = b"""---
license: apache-2.0
language:
- en
- pt
pipeline_tag: text-generation
tags: [function-calling]
---
# A model
"""
CONFIG = {"model_type": "llama", "transformers_version": "4.50.0", "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 256,
          "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "vocab_size": 32}
NAME = "hf/org/model"
MODEL = "org.weighbridge.model."


class Packager(EndToEnd):
    def setUp(self):
        self.hub = self.make_hub()

    def serve(self, files):
        self.hub.add_repo("Org/Model", files)
        self.wb = self.make_weighbridge(self.hub.url)

    def pull(self, tag="main"):
        """(manifest, config)."""
        _, manifest = self.pull_manifest(self.wb, NAME, tag)
        status, _, body = self.wb.blob(NAME, manifest["config"]["digest"])
        self.assertEqual(status, 200)
        return manifest, json.loads(body)

    def test_all_that_is_known(self):
        weights = safetensors_file({"w": ("BF16", [100, 256]), "b": ("F32", [256])})
        self.serve({"model.safetensors": weights, "README.md": CARD,
                    "config.json": json.dumps(CONFIG).encode()})
        manifest, config = self.pull()
        self.assertEqual(config["descriptor"]["licenses"], ["Apache-2.0"])
        self.assertEqual(config["config"]["capabilities"],
                         {"inputTypes": ["text"], "languages": ["en", "pt"],
                          "outputTypes": ["text"], "toolUsage": True})
        self.assertEqual(config["config"]["paramSize"], "25.9K")
        notes = {key.removeprefix(MODEL): value for key, value in manifest["annotations"].items()
                 if key.startswith(MODEL)}
        self.assertEqual(json.loads(notes.pop("dtypes+json")), {
            "BF16": {"tensors": 1, "elements": 25600, "bytes": 51200},
            "F32": {"tensors": 1, "elements": 256, "bytes": 1024}})
        cache = json.loads(notes.pop("kv-cache+json"))
        self.assertTrue(cache.pop("rule"))
        token = 2 * 2 * (64 + 64) * 2
        self.assertEqual(cache, {"type": "f16", "tokenBytes": token})
        self.assertEqual(notes, {"context-length": "4096", "kv-bytes-per-token": str(token),
                                 "parameters": "25856", "parameters-rule": "sum of the shapes",
                                 "tensor-bytes": "52224", "tensors": "2"})

    def test_packed_weights_count_as_what_they_hold(self):
        weights = safetensors_file({"m.qweight": ("I32", [32, 256]), "m.scales": ("F16", [2, 256]),
                                    "m.qzeros": ("I32", [2, 32]), "n.weight": ("F16", [256])})
        self.serve({"model.safetensors": weights, "config.json": json.dumps(
            {**CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4}}).encode()})
        manifest, config = self.pull()
        self.assertEqual(manifest["annotations"][MODEL + "parameters"], str(32 * 256 * 8 + 256))
        self.assertIn("gptq", manifest["annotations"][MODEL + "parameters-rule"])
        self.assertEqual(config["config"]["paramSize"], "65.8K")
        self.assertEqual(config["config"]["quantization"], "gptq")

    def test_a_card_that_is_broken_is_noted(self):
        self.serve({"model.safetensors": safetensors_file({"w": ("BF16", [8])}),
                    "README.md": b"---\nlicense: mit\n"})
        manifest, config = self.pull()
        self.assertIn("README.md: its front matter at byte 4 has no end",
                      manifest["annotations"]["org.weighbridge.uninspected.001"])
        self.assertNotIn("licenses", config["descriptor"])

    def test_a_card_that_is_neither_wanted_nor_readable(self):
        self.hub.add_repo("Org/Model", {
            "model.safetensors": safetensors_file({"w": ("BF16", [8])}),
            "README.md": File(Sparse(70 << 20), lfs=False)})  # more than a git file may have
        self.wb = self.make_weighbridge(config={"upstreams": [
            {"prefix": "hf", "kind": "huggingface", "url": self.hub.url,
             "exclude": ["README.md"]}]})
        self.assertEqual(list(paths_of(self.pull()[0])), ["model.safetensors"])
        self.assertEqual(self.hub.count("hub", path="README.md"), 0)

    def test_a_gguf(self):
        self.serve({"m.gguf": gguf_file({"t": [32, 2]})})
        manifest, _ = self.pull()
        self.assertEqual(json.loads(manifest["annotations"][MODEL + "dtypes+json"]),
                         {"F32": {"tensors": 1, "elements": 64, "bytes": 256}})
        self.assertEqual(manifest["annotations"][MODEL + "parameters"], "64")

    def test_a_gguf_with_keys_that_make_no_sense(self):
        odd = gguf_file({"t": [32, 2]}, strings={"llama.context_length": "long",
                                                 "llama.attention.head_count": "many"})
        self.serve({"odd.gguf": odd})
        manifest, _ = self.pull()
        self.assertEqual([key for key in manifest["annotations"] if "uninspected" in key], [])
        self.assertEqual(manifest["annotations"][MODEL + "tensors"], "1")
        self.assertNotIn(MODEL + "context-length", manifest["annotations"])

    def test_one_digest_under_two_formats_names(self):
        data = gguf_file({"t": [32, 20000]})
        self.serve({"a.gguf": data, "b.safetensors": data, "config.json": b"{}"})
        one = self.make_weighbridge(config={"upstreams": [
            {"prefix": "hf", "kind": "huggingface", "url": self.hub.url, "header_connections": 1}]})
        # A search imports all, and remembers headers while it does.
        self.assertEqual(one.manifest(NAME, "sha256:" + "a" * 64)[0], 404)
        for wb in (one, self.wb):
            _, manifest = self.pull_manifest(wb, NAME, "main")
            self.assertRegex(manifest["annotations"]["org.weighbridge.uninspected.001"],
                             "^b.safetensors: ")

    def test_a_digest_of_the_first_packager_is_found(self):
        self.serve({"model.safetensors": safetensors_file({"w": ("BF16", [100, 256])}),
                    "README.md": CARD, "config.json": json.dumps(CONFIG).encode()})
        manifest, config = self.pull()
        del config["config"]["capabilities"], config["descriptor"]["licenses"]
        config_bytes = self.compact(config)
        for key in [key for key in manifest["annotations"] if key.startswith(MODEL)]:
            del manifest["annotations"][key]
        manifest["annotations"]["org.weighbridge.packager"] = "1"
        manifest["config"].update(digest=self.digest(config_bytes), size=len(config_bytes))
        wanted = self.compact(manifest)
        fresh = self.make_weighbridge(self.hub.url)
        for wb in (fresh, self.wb):
            status, headers, body = wb.request("GET",
                                               f"/v2/{NAME}/manifests/{self.digest(wanted)}")
            self.assertEqual((status, body), (200, wanted))
            self.assertEqual(wb.blob(NAME, self.digest(config_bytes))[2], config_bytes)
            # It is not what a tag names from now on.
            _, now = self.pull_manifest(wb, NAME, "main")
            self.assertEqual(now["annotations"]["org.weighbridge.packager"], "2")

    @staticmethod
    def compact(document):
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def digest(data):
        return "sha256:" + hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    unittest.main()
