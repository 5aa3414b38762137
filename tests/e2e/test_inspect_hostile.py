#!/usr/bin/env python3
"""inspect, memory and digest on what was made to break them, and on all that they claim to know:
every type of every format, headers as large as can be, folders with anything in them."""

import json
import os
import struct
import subprocess
import sys
import unittest

import test_inspect as base
from harness import ROOT, binary
from test_inspect import gguf, llama_gguf, safetensors, text

GOLDEN = os.path.join(ROOT, "tests", "unit", "model", "decode_golden.txt")
SANITIZED = "SAN_OPTIONS" in "".join(os.environ)
HEADER_MAX = 100_000_000
LIMIT_S, LIMIT_KIB = 1.5, 250_000
MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
# ggml's numbers: (id, elements of a block, its bytes)
GGML = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 36),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292), "IQ2_XXS": (16, 256, 66),
    "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50),
    "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110), "IQ2_S": (22, 256, 82),
    "IQ4_XS": (23, 256, 136), "I8": (24, 1, 1), "I16": (25, 1, 2), "I32": (26, 1, 4),
    "I64": (27, 1, 8), "F64": (28, 1, 8), "IQ1_M": (29, 256, 56), "BF16": (30, 1, 2),
    "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36),
    "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}
WHOLE = ("I8", "I16", "I32", "I64")
SAFETENSORS_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}


def golden(names):
    """{type: (bytes, values)}: of decode_golden.txt, which has whole numbers big-endian alone."""
    found = {}
    with open(GOLDEN, encoding="ascii") as f:
        for line in f:
            of, kind, order, width, data, values = line.split()
            if of == names and (order == "little" or kind in WHOLE):
                code = {"f32": "f", "f64": "d", "i64": "q", "u64": "Q"}[width]
                raw = bytes.fromhex(values)
                data = bytes.fromhex(data)
                if order == "big":
                    n = GGML[kind][2]
                    data = b"".join(data[i:i + n][::-1] for i in range(0, len(data), n))
                found[kind] = (data, struct.unpack(
                    f">{len(raw) // struct.calcsize(code)}{code}", raw))
    return found


def plain(values):
    """As JSON has them."""
    return [v if isinstance(v, int) or abs(v) < float("inf") else str(v).replace("-nan", "nan")
            for v in values]


class Types(base.Case):
    def check_values(self, path, kind, values):
        peek = self.model(path, "--peek", "t", "--values", str(len(values)))["peek"]
        self.assertEqual(peek["type"], kind)
        self.assertEqual(peek["values"], plain(values))
        self.check("inspect", path, "--peek", "t", out=f"  peek    t {kind} [{len(values)}]: ")

    def test_every_ggml_type_is_decoded(self):
        known = golden("ggml")
        self.assertEqual(set(known), set(GGML))
        for kind, (data, values) in known.items():
            with self.subTest(kind):
                number, block, size = GGML[kind]
                self.assertEqual(len(data) * block, len(values) * size)
                path = self.file("t.gguf", gguf([], [("t", [len(values)], number, data)]))
                self.check_values(path, kind, values)

    def test_every_dtype_of_safetensors_is_decoded(self):
        known = golden("safetensors")
        known["BOOL"] = (b"\0\1\1", (False, True, True))
        self.assertEqual(set(known) | {"C64"}, set(SAFETENSORS_BITS))
        for kind, (data, values) in known.items():
            with self.subTest(kind):
                n = len(data) * 8 // SAFETENSORS_BITS[kind]
                self.assertGreaterEqual(n, len(values))
                header = json.dumps({"t": {"dtype": kind, "shape": [n],
                                           "data_offsets": [0, len(data)]}}).encode()
                path = self.file("t.safetensors", struct.pack("<Q", len(header)) + header + data)
                peek = self.model(path, "--peek", "t", "--values", str(len(values)))["peek"]
                self.assertEqual((peek["type"], peek["values"]), (kind, plain(values)))

    def test_complex_values(self):
        header = b'{"t":{"dtype":"C64","shape":[2],"data_offsets":[0,16]}}'
        path = self.file("t.safetensors", struct.pack("<Q", len(header)) + header +
                         struct.pack("<4f", 1, -2, 0.5, 0))
        self.check("inspect", path, "--peek", "t", out="  peek    t C64 [2]: 1-2i 0.5+0i\n")


class Large(base.Case):
    def measure(self, *args):
        """Exit status, seconds of processor time, and KiB at the most. By a process of its own: a
        child's peak is at least what its parent had when it was forked."""
        done = subprocess.run([sys.executable, "-S", "-c", MEASURE, binary(), *args],
                              capture_output=True, text=True, check=True)
        status, seconds, kib = done.stdout.split()
        return int(status), float(seconds), int(kib)

    def write(self, header, data):
        path = self.file("m.safetensors", struct.pack("<Q", len(header)) + header)
        os.truncate(path, 8 + len(header) + data)
        return path

    def test_a_header_of_100_mb(self):
        entries, size = [], 2
        while True:
            i = len(entries)
            entry = (f'"model.layers.{i // 1000}.mlp.experts.{i % 1000}.down_proj.weight":{{"dtype":'
                     f'"BF16","shape":[128,256],"data_offsets":[{i << 16},{(i + 1) << 16}]}}')
            if size + len(entry) + 1 > HEADER_MAX:
                break
            entries.append(entry)
            size += len(entry) + 1
        header = ("{" + ",".join(entries) + "}").encode()
        header += b" " * (HEADER_MAX - len(header))
        path = self.write(header, len(entries) << 16)
        status, took, peak = self.measure("inspect", path)
        self.assertEqual(status, 0)
        print(f"a header of 100 MB: {took:.2f} s, {peak:,} KiB", file=sys.stderr)
        if not SANITIZED:
            self.assertLess(peak, LIMIT_KIB)
            self.assertLess(took, LIMIT_S)

    def test_a_header_of_100_mb_that_is_nothing_but_depth_or_digits(self):
        for name, header in (
                ("deep", b'{"a":' + b"[" * (HEADER_MAX - 5)),
                ("digits", b'{"a":{"dtype":"U8","shape":[' + b"1" * (HEADER_MAX - 28)),
                ("dims", b'{"a":{"dtype":"U8","data_offsets":[0,1],"shape":[' +
                 b"1," * ((HEADER_MAX - 53) // 2) + b"1]}}"),
                ("quotes", b'{"' + b"\\u0061" * (HEADER_MAX // 6 - 1) + b'":{}}'),
                ("keys", b'{"__metadata__":{' + b'"":"",' * (HEADER_MAX // 6 - 4) + b'"":""}}')):
            with self.subTest(name):
                path = self.write(header, 1)
                self.check("inspect", path, status=2,
                           err="more than 1000000 keys at byte " if name == "keys" else "byte ")
                _, took, peak = self.measure("inspect", path)
                if not SANITIZED:
                    self.assertLess(peak, LIMIT_KIB)
                    self.assertLess(took, LIMIT_S)


class Anything(base.Case):
    def test_a_folder_with_everything_in_it(self):
        os.makedirs(os.path.join(self.dir, "d", "sub"))
        here = os.path.join(self.dir, "d")
        self.file("d/sub/a.safetensors", safetensors({"a": ("U8", [1], None)}))
        for target, name in (("..", "sub/up"), (".", "self"), ("/dev/zero", "zero.gguf"),
                             ("nowhere", "gone.gguf"), ("round.gguf", "round.gguf"),
                             ("a.safetensors/x", "sub/odd.gguf")):
            os.symlink(target, os.path.join(here, name))
        os.mkfifo(os.path.join(here, "pipe.gguf"))
        with open(here.encode() + b"/\xff\x1b[2J.safetensors", "wb") as f:
            f.write(safetensors({"b": ("U8", [1], None)}))
        out = self.check("inspect", "d", out=(
            "note    links that lead nowhere: 3 (of a download that is not complete?)\n",
            "sub/a.safetensors: safetensors, ", "\\xff\\x1b[2J.safetensors: safetensors, "))
        self.assertEqual(out.count(": safetensors, "), 2)
        report = self.inspect("d")
        self.assertIn("links that lead nowhere: 3", report["note"])
        self.assertEqual([m["title"] for m in report["models"]],
                         ["sub/a.safetensors", "\ufffd\x1b[2J.safetensors"])
        for command in ("inspect", "memory", "digest"):
            for name, err in (("d/zero.gguf", " is n"), ("d/pipe.gguf", " is n"),
                              ("d/gone.gguf", "No such file"), ("d/round.gguf", "symbolic links"),
                              ("/dev/zero", " is n"), ("", "is empty")):
                with self.subTest(command + " " + name):
                    self.check(command, name, status=2, err=err)

    def test_an_error_names_the_source(self):
        """Also where its name is a part of other words."""
        for name in ("i", "d", "the", "m.gguf"):
            with self.subTest(name):
                self.file(name, b"GGUF" + struct.pack("<IQQ", 9, 0, 0))
                done = self.run_it("inspect", name)
                self.assertEqual(done.err, f"weighbridge: {name}: GGUF version 9 at byte 4 is not one "
                                           "of 1 to 3\n")

    def test_a_key_that_makes_no_shape_does_not_hide_the_rest(self):
        for key, kind, value in (("llama.embedding_length", 8, text("large")),
                                 ("llama.vocab_size", 5, struct.pack("<i", -1)),
                                 ("other.block_count", 6, struct.pack("<f", 1.5))):
            with self.subTest(key):
                name = key.split(".")[1]
                keys = [("general.architecture", 8, text("llama")), (key, kind, value)]
                path = self.file("m.gguf", gguf(keys, [("norm", [3], 0, bytes(12))]))
                model = self.model(path)
                self.assertEqual(model["totals"]["tensors"], 1)
                self.assertNotIn("model", model)
                self.assertIn(f"{name} is no whole number (byte ", model["no_model"])
                self.check("inspect", path, out=f"{name} is no whole number (byte ")
                self.check("memory", path, out=f"{name} is no whole number (byte ")

    def test_files_that_are_cut_or_changed_anywhere(self):
        """Nothing worse than an error of one line."""
        whole = {"m.gguf": llama_gguf(words=3),
                 "m.safetensors": safetensors({"a": ("F32", [2], None), "b": ("U8", [3], None)},
                                              {"format": "pt"})}
        for name, content in whole.items():
            for at in range(0, len(content), 3 if SANITIZED else 1):
                for changed in (content[:at], content[:at] + b"\xff" + content[at + 1:]):
                    path = self.file(name, changed)
                    done = self.run_it("inspect", path, "--tensors", "--metadata", "--peek", "a")
                    self.assertIn(done.returncode, (0, 2), done.err)
                    self.assertEqual(done.err.count("\n"), int(done.returncode != 0), done.err)


class Configurations(base.Case):
    NONSENSE = (-1, "12", True, [], {}, 1.5, 2**53, 2**64, [[[]]], None)
    KEYS = (*base.MODEL_CONFIG, "head_dim", "sliding_window", "layer_types", "quantization_config",
            "text_config", "kv_lora_rank", "num_nextn_predict_layers", "index_head_dim",
            "cross_attention_layers", "architectures", "per_layer_config", "block_configs",
            "linear_attn_config", "max_window_layers", "compress_ratios", "layers_block_type",
            "hybrid_override_pattern", "num_kv_shared_layers", "is_encoder_decoder", "decoder")

    def test_nonsense_is_refused_by_its_key(self):
        for key in self.KEYS:
            for value in self.NONSENSE[::2] if SANITIZED else self.NONSENSE:
                with self.subTest(f"{key}: {value}"):
                    path = self.file("config.json", {**base.MODEL_CONFIG, key: value})
                    done = self.run_it("memory", path, "--json", "--gpu-gib", "80", "--params", "1e9")
                    self.assertIn(done.returncode, (0, 2), done.err)
                    if done.returncode == 0:
                        json.loads(done.out)
                    elif key != "text_config":
                        self.assertIn(key, done.err)

    def test_numbers_that_are_none(self):
        for text_, err in (("1e999", "no whole number"), ("NaN", "no whole number"),
                           ("-3", "no whole number"), ("01", "JSON"), ("1e", "JSON")):
            with self.subTest(text_):
                path = self.file("config.json", ('{"model_type":"llama","num_hidden_layers":' +
                                                 text_ + "}").encode())
                self.check("memory", path, status=2, err=err)

    def test_lists_that_each_tensor_would_be_held_against(self):
        self.file("model.safetensors", safetensors({"a": ("U8", [1], None)}))
        self.file("config.json", {**base.MODEL_CONFIG, "quantization_config": {
            "quant_method": "compressed-tensors", "ignore": [f"re:.*{i}" for i in range(5000)]}})
        self.check("inspect", "model.safetensors", out=(
            "lists of over 4096 parts of modules' names: parameters are counted as stored\n", "  params  1: sum of the shapes\n"))

    def test_nesting(self):
        deep = {"model_type": "llama"}
        for _ in range(50):
            deep = {"text_config": deep}
        self.check("memory", self.file("config.json", deep), status=2, err="num_hidden_layers")
        self.check("memory", self.file("config.json", b'{"text_config":' * 100_000), status=2,
                   err="nested deeper than 128")
        self.check("memory", self.file("config.json", b"[" * 1_000_000), status=2, err="JSON")


class Formulas(base.Case):
    """What stands before the = multiplies out to what stands behind it."""
    V32 = {"model_type": "deepseek_v32", "num_hidden_layers": 61, "num_attention_heads": 128,
           "num_key_value_heads": 128, "hidden_size": 7168, "kv_lora_rank": 512,
           "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
           "index_head_dim": 128, "max_position_embeddings": 163840}
    V4 = {"model_type": "deepseek_v4", "num_hidden_layers": 4, "num_attention_heads": 64,
          "num_key_value_heads": 1, "hidden_size": 4096, "head_dim": 512, "sliding_window": 128,
          "index_head_dim": 128, "compress_ratios": [0, 4, 128, 4],
          "max_position_embeddings": 4096}
    MIXED = {**base.MODEL_CONFIG, "model_type": "gemma4_text", "num_hidden_layers": 6,
             "head_dim": 256, "global_head_dim": 512, "sliding_window": 512}

    def memory(self, config, *args):
        return self.check("memory", self.file("config.json", config), *args).splitlines()

    def test_index_keys(self):
        self.assertIn("kv cache f16: 61 layers x (576 latent + 128 index) dims = 85,888 bytes/token",
                      self.memory(self.V32))

    def test_rows_for_several_tokens(self):
        lines = self.memory(self.V4)
        for line in (
                "kv cache f16: layers that differ = 4,744 bytes/token",
                "         1 layer x 1 KV head x 512 dims = 1,024 bytes/token in a window of 128",
                "         2 layers x 1 KV head x 512 dims = 2,048 bytes/token in a window of 128, "
                "and 640 dims for every 4 tokens = 640 bytes/token",
                "         1 layer x 1 KV head x 512 dims = 1,024 bytes/token in a window of 128, "
                "and 512 dims for every 128 tokens = 8 bytes/token",
                "         4,096 of them only up to the window, 648 without end"):
            self.assertIn(line, lines)
        path = os.path.join(self.dir, "config.json")
        layers = json.loads(self.run_it("memory", path, "--json").out)["kv_cache"]["layers"]
        self.assertEqual([(r["layers"], r["row_dim"], r["row_every"]) for r in layers],
                         [(1, 0, 0), (1, 640, 4), (1, 512, 128), (1, 640, 4)])

    def test_layers_that_differ(self):
        lines = self.memory(self.MIXED)
        for line in (
                "kv cache f16: layers that differ = 14,336 bytes/token",
                "         5 layers x 2 KV heads x (256 + 256) dims = 10,240 bytes/token in a window "
                "of 512",
                "         1 layer x 2 KV heads x (512 + 512) dims = 4,096 bytes/token"):
            self.assertIn(line, lines)

    def test_heads_of_one_device(self):
        self.assertIn("kv cache f16: 3 layers x 1 of 2 KV heads x (16 + 16) dims = 192 bytes/token "
                      "on each device", self.memory(base.MODEL_CONFIG, "--tensor-parallel", "2"))
        self.assertIn("kv cache f16: 61 layers x (576 latent + 128 index) dims = 85,888 bytes/token "
                      "on each device", self.memory(self.V32, "--tensor-parallel", "8"))

    def test_a_model_without_attention(self):
        lines = self.memory({"model_type": "mamba", "num_hidden_layers": 64, "hidden_size": 2560,
                             "state_size": 16, "conv_kernel": 4, "expand": 2}, "--ctx", "8")
        self.assertIn("kv cache f16: no layers with attention = 0 bytes/token", lines)
        self.assertIn("         and a state of 24,903,680 bytes for each sequence", lines)

    def test_every_type_of_the_cache(self):
        config = {**base.MODEL_CONFIG, "hidden_size": 1024, "num_attention_heads": 8}
        for kind, block, size in (("f32", 1, 4), ("f16", 1, 2), ("bf16", 1, 2), ("fp8", 1, 1),
                                  ("q8_0", 32, 34), ("q4_0", 32, 18), ("q4_1", 32, 20),
                                  ("q5_0", 32, 22), ("q5_1", 32, 24), ("iq4_nl", 32, 18)):
            with self.subTest(kind):
                elements = 3 * 2 * (128 + 128)
                self.assertIn(f"kv cache {kind}: 3 layers x 2 KV heads x (128 + 128) dims = "
                              f"{elements // block * size:,} bytes/token",
                              self.memory(config, "--kv-type", kind))
        path = self.file("config.json", {**config, "head_dim": 80, "num_key_value_heads": 1})
        self.check("memory", path, "--kv-type", "q8_0", status=2,
                   err="1 x 80 elements are no multiple of the block of q8_0, which is 32")

    def test_amounts_that_are_none_or_too_large(self):
        path = self.file("config.json", base.MODEL_CONFIG)
        for wrong in ("8 ", "8x", "8BB", "nan", "inf", "-1", "", "1e30", "0", "B"):
            done = self.run_it("memory", path, "--params", wrong)
            self.assertEqual((done.returncode, done.out), (2, ""), wrong)
            self.assertIn("--params", done.err)
        self.check("memory", path, "--params", "18e18", "--quant", "F8_E4M3", "--ctx", "1000000000",
                   "--seqs", "1000000000", status=2, err="more than 2^64 bytes")
        self.check("memory", path, "--params", "2.3e18", "--quant", "F64", "--ctx",
                   "1000000000", "--seqs", "1000000", status=2,
                   err="weights and cache together take more than 2^64 bytes")
        self.assertIn("weights  BF16 16,060,000,000 bytes, 14.96 GiB, 16.00 bits/weight, "
                      "8,030,000,000 parameters (from --params)",
                      self.memory(base.MODEL_CONFIG, "--params", "8.03b"))


def keys_of(document, found):
    """All keys of objects, but those that are names of types."""
    if isinstance(document, dict):
        for key, value in document.items():
            found.add(key)
            if key != "as":
                keys_of(value, found)
    elif isinstance(document, list):
        for value in document:
            keys_of(value, found)
    return found


class Schemas(base.Case):
    """Whoever reads the JSON goes by docs/inspect.md."""

    def documented(self, document):
        with open(os.path.join(ROOT, "docs", "inspect.md"), encoding="utf-8") as f:
            words = f.read().partition("## The JSON")[2]
        found = keys_of(document, set())
        self.assertEqual([k for k in sorted(found) if f"`{k}`" not in words and
                          f'"{k}"' not in words], [])
        return found

    def test_inspect(self):
        for name in ("ok_torch.pt", "bad_os_global.pt"):
            os.symlink(os.path.join(base.VECTORS, name), os.path.join(self.dir, name))
        os.symlink(os.path.join(ROOT, "tests/unit/model/files/external.onnx"),
                   os.path.join(self.dir, "m.onnx"))
        self.file("m.gguf", llama_gguf())
        self.file("bad.gguf", b"GGUF")
        self.file("x.engine", b"x")
        self.file("s/a.safetensors", safetensors({"a": ("U8", [1], None)}, {"k": "v"}))
        self.file("s/m.safetensors.index.json",
                  {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}})
        self.file("s/config.json", {**base.MODEL_CONFIG, "quantization_config": {
            "quant_method": "gptq", "bits": 4}, "num_experts": 8, "num_experts_per_tok": 2})
        self.file("t/adapter.safetensors", safetensors({"a": ("U8", [1], None)}))
        self.file("t/config.json", b"{")
        self.file("t/adapter_config.json", {"peft_type": "LORA", "r": 8})
        done = self.run_it("inspect", ".", "nope.gguf", "--tensors", "--metadata", "--peek", "norm",
                           "--chat-template", "--json")
        found = self.documented(json.loads(done.out))
        for key in ("error", "code", "unread", "findings", "pickle", "onnx", "model", "no_model",
                    "quantization", "adapter", "experts", "peek", "chat_templates", "metadata"):
            self.assertIn(key, found)

    def test_memory(self):
        for config, args in ((Formulas.V4, ()), (base.MODEL_CONFIG, ("--params", "1e9",
                                                                     "--gpu-gib", "80"))):
            path = self.file("config.json", config)
            done = self.run_it("memory", path, "--json", *args)
            self.documented(json.loads(done.out))
        self.file("m.safetensors", safetensors({"a": ("U8", [1], None)}))
        os.remove(path)
        found = self.documented(json.loads(self.run_it("memory", "m.safetensors", "--json").out))
        self.assertIn("no_kv_cache", found)

    def test_digest(self):
        path = self.file("f", b"x")
        done = self.run_it("digest", path, "--expect", "0" * 64, "--json")
        with open(os.path.join(ROOT, "docs", "inspect.md"), encoding="utf-8") as f:
            words = f.read()
        for key in keys_of(json.loads(done.out), set()):
            self.assertIn(f'"{key}"', words)


class Indexes(base.Case):
    def test_names_that_lead_elsewhere(self):
        self.file("i/a.safetensors", safetensors({"a": ("U8", [1], None)}))
        for name, err in (("../../etc/passwd", "has .. in it"), ("/etc/passwd", "with a slash"),
                          ("file:///etc/passwd", "is a URL"), ("", "is empty"),
                          ("./a.safetensors", "empty or a dot"), ("x//a.safetensors", "or a dot"),
                          ("x/./a.safetensors", "or a dot"), ("a.safetensors/", "or a dot"),
                          ("..\\a.safetensors", ".. in it"), ("a\\b", "backslash"),
                          ("\x1b[2J", "control character")):
            with self.subTest(name):
                self.file("i/m.safetensors.index.json",
                          {"weight_map": {"a": "a.safetensors", "b": name}})
                self.check("inspect", "i", status=2, err=err)

    def test_a_missing_shard_is_told_once(self):
        self.file("i/a.safetensors", safetensors({"a": ("U8", [1], None)}))
        self.file("i/m.safetensors.index.json",
                  {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}})
        out = self.check("inspect", "i", status=1, out="  ERROR   b.safetensors is missing; the "
                                                       "index puts 1 tensor into it\n")
        self.assertEqual(out.count("ERROR"), 1)

    def test_adapters(self):
        for config, line in (
                ({"peft_type": "LORA", "r": 1 << 40},
                 f"LORA adapter of rank {1 << 40} for a model that it does not name"),
                ({"peft_type": 1, "r": -1}, "an adapter for a model that it does not name"),
                ({"peft_type": "L\x1b[2J", "base_model_name_or_path": ["x"]}, "L\\x1b[2J adapter"),
                ([], "an adapter for a model")):
            with self.subTest(line):
                self.file("ad/adapter_model.safetensors", safetensors({"a": ("U8", [1], None)}))
                self.file("ad/adapter_config.json", config)
                self.check("inspect", "ad", out="  adapter " + line)


if __name__ == "__main__":
    unittest.main()
