#!/usr/bin/env python3
"""inspect, memory and digest as people type them: on files, folders, URLs, the stand-in Hub and the
stand-in registry. WEIGHBRIDGE_BIN names the program."""

import hashlib
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from harness import ROOT, EndToEnd, binary

sys.path.insert(0, os.path.join(ROOT, "tests", "registry"))

from hub import Sparse, StandInHub, git_blob_id  # noqa: E402
from registry import StandInRegistry  # noqa: E402

VECTORS = os.path.join(ROOT, "tests", "vectors")
PATIENCE_S = 120
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "I32": 4}
MODEL_CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 3, "max_position_embeddings": 2048, "vocab_size": 100,
    "torch_dtype": "bfloat16"}


# --- small files of each format ---

def safetensors(tensors, metadata=None, data=True):
    """tensors: {name: (dtype, shape, bytes or None)}"""
    header, body, at = {}, b"", 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        n = SIZES[dtype]
        for dim in shape:
            n *= dim
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        if data:
            body += content if content is not None else bytes(n)
        at += n
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + (body if data else b"")


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def gguf(keys, tensors, alignment=32):
    """keys: [(key, type id, packed value)], tensors: [(name, dims, type id, bytes)]"""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, kind, value in keys:
        out += text(key) + struct.pack("<I", kind) + value
    at, body = 0, b""
    for name, dims, kind, content in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, at)
        body += content + bytes(-len(content) % alignment)
        at = len(body)
    return out + bytes(-len(out) % alignment) + body


def string_array(words):
    return struct.pack("<IQ", 8, len(words)) + b"".join(text(w) for w in words)


def llama_gguf(words=40, extra=()):
    q8 = b"".join(struct.pack("<e32b", 0.5, *range(-16, 16)) for _ in range(2))
    keys = [("general.architecture", 8, text("llama")), ("general.name", 8, text("Tiny")),
            ("general.file_type", 4, struct.pack("<I", 7)),
            ("llama.context_length", 4, struct.pack("<I", 512)),
            ("llama.block_count", 4, struct.pack("<I", 2)),
            ("llama.embedding_length", 4, struct.pack("<I", 64)),
            ("llama.attention.head_count", 4, struct.pack("<I", 4)),
            ("llama.attention.head_count_kv", 4, struct.pack("<I", 2)),
            ("tokenizer.ggml.tokens", 9, string_array([f"word{i}" for i in range(words)])),
            ("tokenizer.chat_template", 8, text("{{ bos }}\n\x1b[31mred")), *extra]
    return gguf(keys, [("blk.0.weight", [32, 2], 8, q8),
                       ("norm", [3], 0, struct.pack("<3f", 1.5, -2, 0.1))])


class Server(ThreadingHTTPServer):
    """Serves {path: bytes}. ranges: how a Range is treated."""
    daemon_threads = True

    def __init__(self, files, ranges=True, etags=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.etags, self.asked = files, ranges, etags, []
        self.most = None  # bytes of one answer
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def handle_error(self, *_):
        """A client that has seen enough hangs up."""

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.partition("?")[0]
        wanted = self.headers.get("Range")
        self.server.asked.append((path, wanted))
        body = self.server.files.get(path)
        status, extra = (404, None) if body is None else (200, None)
        body = body or b""
        if status == 200 and wanted and self.server.ranges:
            first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
            if first >= len(body):
                status, extra, body = 416, f"bytes */{len(body)}", b""
            else:
                whole = len(body)
                body = body[first:last + 1][:self.server.most]
                status, extra = 206, f"bytes {first}-{first + len(body) - 1}/{whole}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if extra:
            self.send_header("Content-Range", extra)
        if self.server.etags:
            self.send_header("ETag", self.server.etags.pop(0))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass


class Case(EndToEnd):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="wb-inspect-")
        self.addCleanup(shutil.rmtree, self.dir)

    def file(self, name, content):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, (dict, list)):
            content = json.dumps(content).encode()
        with open(path, "wb") as f:
            f.write(content)
        return path

    def run_it(self, *args, env=None):
        kept = {k: v for k, v in os.environ.items()
                if k in ("PATH", "LANG", "LD_LIBRARY_PATH") or k.endswith("SAN_OPTIONS")}
        done = subprocess.run([binary(), *args], cwd=self.dir, stdin=subprocess.DEVNULL,
                              env={**kept, "HOME": self.dir, **(env or {})}, capture_output=True,
                              timeout=PATIENCE_S, check=False)
        done.out, done.err = done.stdout.decode(), done.stderr.decode()
        self.assertNotIn("Sanitizer", done.err)
        self.assertNotIn("runtime error", done.err)
        return done

    def check(self, *args, status=0, out=(), err="", env=None):
        """Runs to the end. A failure is one line on standard error."""
        done = self.run_it(*args, env=env)
        self.assertEqual(done.returncode, status, done.out + done.err)
        for part in (out,) if isinstance(out, str) else out:
            self.assertIn(part, done.out)
        self.assertIn(err, done.err)
        self.assertEqual(done.err.count("\n"), 1 if err else 0, done.err)
        for stream in (done.out, done.err):
            for c in stream:
                self.assertTrue(c >= " " or c in "\n\t", repr(stream))
        return done.out

    def inspect(self, *args, status=0, env=None):
        """The one source's report."""
        done = self.run_it("inspect", *args, "--json", env=env)
        self.assertEqual(done.returncode, status, done.err)
        sources = json.loads(done.out)["sources"]
        self.assertEqual(len(sources), 1)
        return sources[0]

    def model(self, *args, status=0, env=None):
        models = self.inspect(*args, status=status, env=env)["models"]
        self.assertEqual(len(models), 1)
        return models[0]


class Files(Case):
    def test_safetensors(self):
        path = self.file("m.safetensors", safetensors(
            {"b": ("F32", [2, 3], None), "a": ("BF16", [4], b"\x80\x3f\x00\x40\xc0\xbf\x00\x00"),
             "x": ("I64", [], b"\xff" * 8)}, {"format": "pt"}))
        out = self.check("inspect", path, "--tensors", "--metadata", "--peek", "a")
        for line in ("m.safetensors: safetensors, 1 metadata key, 3 tensors, data at byte",
                     "  params  10, stored as 11 elements: ",
                     "  dtype  tensors  parameters  bytes  bits/weight\n"
                     "  F32          1           6     24        32.00\n"
                     "  BF16         1           4      8        16.00\n"
                     "  I64          1           1      8        64.00\n"
                     "  total        3          11     40        29.09\n",
                     "  peek    a BF16 [4]: 1 2 -1.5 0\n", "  format  str  pt\n"):
            self.assertIn(line, out)
        size = os.path.getsize(path)
        self.assertIn(f"file {size} bytes = {size - 40} header + 40 tensors + 0 padding", out)
        self.assertIn(f"read {size} bytes in 1 request\n", out)

    def test_json_of_a_gguf(self):
        path = self.file("m.gguf", llama_gguf())
        model = self.model(path, "--tensors", "--metadata", "--chat-template", "--peek",
                           "blk.0.weight")
        self.assertEqual(model["format"], "GGUF")
        self.assertEqual((model["gguf_version"], model["architecture"], model["name"],
                          model["file_type_name"]), (3, "llama", "Tiny", "Q8_0"))
        self.assertEqual([t["name"] for t in model["tensors"]], ["blk.0.weight", "norm"])
        self.assertEqual(model["tensors"][0]["shape"], [32, 2])
        with open(path, "rb") as f:
            f.seek(model["tensors"][1]["offset"])
            self.assertEqual(struct.unpack("<f", f.read(4)), (1.5,))
        self.assertEqual(model["peek"]["values"], [-8, -7.5, -7, -6.5, -6, -5.5, -5, -4.5])
        metadata = {m["key"]: m for m in model["metadata"]}
        self.assertEqual(metadata["llama.block_count"],
                         {"key": "llama.block_count", "type": "u32", "value": 2})
        self.assertEqual(metadata["tokenizer.ggml.tokens"]["values"],
                         [f"word{i}" for i in range(40)])
        self.assertEqual(model["chat_templates"],
                         [{"name": "", "template": "{{ bos }}\n\x1b[31mred"}])
        self.assertEqual(model["model"]["kv_heads"], 2)
        totals = model["totals"]
        self.assertEqual(totals["file_bytes"], os.path.getsize(path))
        self.assertEqual(totals["header_bytes"] + totals["tensor_bytes"] + totals["padding_bytes"],
                         totals["file_bytes"])

    def test_text_of_a_gguf(self):
        path = self.file("m.gguf", llama_gguf())
        self.check("inspect", path, "--chat-template", "--metadata", out=(
            "m.gguf: GGUF v3, 10 metadata keys, 2 tensors, data at byte ",
            "  model   llama 'Tiny', file type MOSTLY_Q8_0\n",
            "  shape   2 layers, embedding 64, 4 heads, 2 KV heads, head dim 16, context 512, "
            "vocab 40 (GGUF)\n", "\n{{ bos }}\n\\x1b[31mred\n", '[40] "word0" "word1"'))

    def test_names_can_not_steer_the_terminal(self):
        name = "a\x1b]0;evil\x07\x9b2J\u202e\n"
        path = self.file("m.safetensors", safetensors({name: ("U8", [1], None)}, {name: name}))
        out = self.check("inspect", path, "--tensors", "--metadata", "--peek", name)
        self.assertIn("a\\x1b]0;evil\\x07\\u{009b}2J\\u{202e}\\x0a", out)
        done = self.run_it("inspect", path, "--tensors", "--json")
        self.assertNotIn("\x9b", done.out)
        self.assertEqual(json.loads(done.out)["sources"][0]["models"][0]["tensors"][0]["name"],
                         name)
        bad = self.file("\x1b[31m.safetensors", b"x")
        self.check("inspect", bad, status=2, err="\\x1b[31m.safetensors")

    def test_values_and_unknown_tensors(self):
        path = self.file("m.safetensors", safetensors(
            {"a": ("I32", [20], struct.pack("<20i", *range(-10, 10)))}))
        peek = self.model(path, "--peek", "a", "--values", "12")["peek"]
        self.assertEqual(peek["values"], list(range(-10, 2)))
        self.check("inspect", path, "--peek", "b", status=2, out="m.safetensors",
                   err="no tensor is called 'b'")

    def test_what_is_no_model(self):
        self.check("inspect", "nope.gguf", status=2, err="nope.gguf: No such file or directory")
        self.check("inspect", self.file("a.txt", b"hello"), status=2, err="is no model")
        self.check("inspect", self.file("m.gguf", b"GGUX" + bytes(40)), status=2,
                   err="the magic at byte 0 is not GGUF")
        self.check("inspect", self.file("m.safetensors", struct.pack("<Q", 10 << 40) + b"{}"),
                   status=2, err="the header's length at byte 0 is")
        self.check("inspect", self.file("m.engine", b"x"), status=2, err="a TensorRT engine")
        self.check("inspect", self.file("empty.safetensors", b""), status=2, err="no room for")
        self.check("inspect", "org/repo", status=2, err="is written hf://org/repo")
        self.check("inspect", "my.models/m.gguf", status=2,
                   err="my.models/m.gguf: No such file or directory")
        self.check("inspect", "localhost/m@sha256:12", status=2, err="localhost/m@sha256:12")
        self.check("inspect", "ftp://x/y", status=2, err="a scheme that is not known")
        self.check("inspect", "hf://justone", status=2, err="expected hf://org/repo")
        self.check("inspect", status=2, err="the SOURCE to look into is missing")
        self.check("inspect", "m.gguf", "--values", "0", status=2, err="--values must be")
        os.mkfifo(os.path.join(self.dir, "pipe.gguf"))
        self.check("inspect", "pipe.gguf", status=2, err="neither a file nor a folder")

    def test_a_name_that_is_wrong(self):
        model = self.model(self.file("pytorch_model.bin", safetensors({"a": ("U8", [1], None)})))
        self.assertEqual(model["format"], "safetensors")
        self.assertIn("by its name it is PyTorch pickle", model["note"])
        self.assertEqual(self.model(self.file("blob", llama_gguf()))["format"], "GGUF")

    def test_every_vector_has_its_verdict(self):
        with open(os.path.join(VECTORS, "ours.tsv"), encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t") for line in f][1:]
        self.assertGreater(len(rows), 100)
        for name, verdict, text_ in rows:
            with self.subTest(name):
                done = self.run_it("inspect", os.path.join(VECTORS, name), "--tensors",
                                   "--metadata", "--json")
                good = verdict in ("ok", "partial")
                self.assertEqual(done.returncode, 0 if good else 2, done.err)
                if good:
                    json.loads(done.out)
                else:
                    self.assertIn(text_.split("\x1b")[0][:60], done.err)

    def test_pickles(self):
        for name, verdict in (("ok_torch.pt", "allowed"), ("bad_os_global.pt", "dangerous"),
                              ("susp_unknown_global.pkl", "unknown"),
                              ("bad_hidden_member.pt", "dangerous")):
            with self.subTest(name):
                model = self.model(os.path.join(VECTORS, name),
                                   status=0 if verdict == "allowed" else 1)
                self.assertEqual(model["pickle"]["verdict"], verdict)
        imports = self.model(os.path.join(VECTORS, "bad_os_global.pt"), status=1)["pickle"]
        self.assertEqual((imports["imports"][0]["module"], imports["imports"][0]["name"]),
                         ("os", "system"))


    def test_lengths_that_lie_cost_nothing(self):
        """10 TB of holes, and counts that would be all of it: what is read stays small."""
        def sparse(name, beginning):
            path = self.file(name, beginning)
            os.truncate(path, 10 << 40)
            return path
        huge = 9 << 40
        key = text("general.architecture") + struct.pack("<I", 8)
        for path in (
                sparse("a.gguf", b"GGUF" + struct.pack("<IQQ", 3, huge, 1)),
                sparse("b.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1, huge)),
                sparse("c.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key +
                       struct.pack("<Q", huge)),
                sparse("d.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") +
                       struct.pack("<IIQ", 9, 8, huge)),
                sparse("e.safetensors", struct.pack("<Q", huge)),
                sparse("f.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xfffffff0)),
                sparse("g.pt", b"\x80\x02X" + struct.pack("<I", 0xfffffff0)),
                sparse("h.onnx", b"\x08\x07\x3a\xff\xff\xff\xff\xff\xff\x01")):
            with self.subTest(os.path.basename(path)):
                done = self.run_it("inspect", path)
                self.assertIn(done.returncode, (1, 2), done.out)
                self.assertEqual(done.err.count("\n"), 0 if done.out else 1, done.err)
        peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(peak_kib, (2048 if "SAN_OPTIONS" in "".join(os.environ) else 512) << 10)


class Golden(Case):
    """Published figures of real models, from headers that say what theirs say."""

    SMOL = {"layers": 30, "embedding": 576, "ff": 1536, "kv": 192, "vocabulary": 49152}

    def smol_gguf(self):
        """SmolLM2-135M-Instruct-Q8_0.gguf without its tokenizer and its data."""
        s = self.SMOL
        tensors = [("token_embd.weight", [s["embedding"], s["vocabulary"]], 8),
                   ("output_norm.weight", [s["embedding"]], 0)]
        for i in range(s["layers"]):
            e, blk = s["embedding"], f"blk.{i}."
            tensors += [(blk + "attn_norm.weight", [e], 0), (blk + "ffn_norm.weight", [e], 0)]
            tensors += [(blk + n + ".weight", d, 8) for n, d in (
                ("attn_q", [e, e]), ("attn_k", [e, s["kv"]]), ("attn_v", [e, s["kv"]]),
                ("attn_output", [e, e]), ("ffn_gate", [e, s["ff"]]), ("ffn_up", [e, s["ff"]]),
                ("ffn_down", [s["ff"], e]))]
        keys = [("general.architecture", 8, text("llama"))] + [
            (f"llama.{k}", 4, struct.pack("<I", v)) for k, v in (
                ("block_count", s["layers"]), ("context_length", 8192),
                ("embedding_length", s["embedding"]), ("attention.head_count", 9),
                ("attention.head_count_kv", 3), ("vocab_size", s["vocabulary"]))]
        out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
        for key, kind, value in keys:
            out += text(key) + struct.pack("<I", kind) + value
        at = 0
        for name, dims, kind in tensors:
            out += text(name) + struct.pack("<I", len(dims))
            out += struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, at)
            n = dims[0] * (dims[1] if len(dims) > 1 else 1)
            at += -(-(n // 32 * 34 if kind == 8 else n * 4) // 32) * 32
        path = self.file("smol.gguf", out + bytes(-len(out) % 32))
        os.truncate(path, os.path.getsize(path) + at)
        return path

    def test_smollm2_as_gguf(self):
        path = self.smol_gguf()
        out = self.check("inspect", path)
        self.assertIn("  Q8_0       211  134,479,872  142,884,864         8.50\n"
                      "  F32         61       35,136      140,544        32.00\n"
                      "  total      272  134,515,008  143,025,408         8.51\n", out)
        self.assertIn("  params  134,515,008 (134.5M)", out)
        self.assertIn("  shape   30 layers, embedding 576, 9 heads, 3 KV heads, head dim 64, context "
                      "8,192, vocab 49,152 (GGUF)\n", out)
        for kind, per_token in (("f16", 23_040), ("q8_0", 12_240), ("q4_0", 6_480)):
            done = self.run_it("memory", path, "--kv-type", kind, "--json")
            cache = json.loads(done.out)["kv_cache"]
            self.assertEqual(cache["full_bytes_per_token"], per_token)
            self.assertEqual(cache["bytes"], per_token * 8192)

    def sparse_gguf(self, tensors):
        """tensors: [(name, dims, type id, block, bytes of a block)]"""
        out, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0), 0
        for name, dims, kind, block, size in tensors:
            n = 1
            for dim in dims:
                n *= dim
            out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            out += struct.pack("<IQ", kind, at)
            at += -(-(n // block * size) // 32) * 32
        path = self.file("sparse.gguf", out + bytes(-len(out) % 32))
        os.truncate(path, os.path.getsize(path) + at)
        return path

    def test_smollm2_in_q4_k_m(self):
        path = self.sparse_gguf([("a", [576, 135_552], 6, 32, 22), ("b", [576, 51_840], 8, 32, 34),
                                 ("c", [1536, 8_064], 14, 256, 210),
                                 ("d", [1536, 9_216], 12, 256, 144)])
        sizes = {t["name"]: (t["elements"], t["bytes"]) for t in self.model(path)["types"]}
        self.assertEqual(sizes, {"Q5_0": (78_077_952, 53_678_592), "Q8_0": (29_859_840, 31_726_080),
                                 "Q6_K": (12_386_304, 10_160_640),
                                 "Q4_K": (14_155_776, 7_962_624)})

    def test_where_the_tensors_of_qwen3_lie(self):
        wanted = {"output.weight": 0, "output_norm.weight": 127_626_240,
                  "token_embd.weight": 127_630_336, "blk.0.attn_k.weight": 215_145_472,
                  "blk.0.attn_k_norm.weight": 215_735_296, "blk.0.attn_norm.weight": 215_735_808}
        q6, q4, f32 = (14, 256, 210), (12, 256, 144), (0, 1, 4)
        model = self.model(self.sparse_gguf([
            ("output.weight", [1024, 151_936], *q6), ("output_norm.weight", [1024], *f32),
            ("token_embd.weight", [1024, 151_936], *q4), ("blk.0.attn_k.weight", [1024, 1024], *q4),
            ("blk.0.attn_k_norm.weight", [128], *f32), ("blk.0.attn_norm.weight", [1024], *f32)]),
            "--tensors")
        data = model["totals"]["header_bytes"]
        self.assertEqual({t["name"]: t["offset"] - data for t in model["tensors"]}, wanted)

    def test_smollm2_as_safetensors(self):
        s, e = self.SMOL, self.SMOL["embedding"]
        shapes = {"model.embed_tokens.weight": [s["vocabulary"], e], "model.norm.weight": [e]}
        for i in range(s["layers"]):
            p = f"model.layers.{i}."
            shapes |= {p + "input_layernorm.weight": [e], p + "post_attention_layernorm.weight": [e],
                       p + "self_attn.q_proj.weight": [e, e],
                       p + "self_attn.k_proj.weight": [s["kv"], e],
                       p + "self_attn.v_proj.weight": [s["kv"], e],
                       p + "self_attn.o_proj.weight": [e, e], p + "mlp.gate_proj.weight": [s["ff"], e],
                       p + "mlp.up_proj.weight": [s["ff"], e],
                       p + "mlp.down_proj.weight": [e, s["ff"]]}
        header = safetensors({n: ("BF16", d, None) for n, d in shapes.items()}, data=False)
        path = self.file("model.safetensors", header)
        os.truncate(path, len(header) + 2 * 134_515_008)
        model = self.model(path, "--tensors")
        self.assertEqual(model["totals"]["parameters"], 134_515_008)
        embed = [t for t in model["tensors"] if t["name"] == "model.embed_tokens.weight"][0]
        self.assertEqual((embed["shape"], embed["bytes"]), ([49152, 576], 56_623_104))


    def test_pythia_14m(self):
        e, vocabulary = 128, 50304
        shapes = {"gpt_neox.embed_in.weight": [vocabulary, e], "embed_out.weight": [vocabulary, e],
                  "gpt_neox.final_layer_norm.weight": [e], "gpt_neox.final_layer_norm.bias": [e]}
        for i in range(6):
            for name, shape in (
                    ("input_layernorm", [e]), ("post_attention_layernorm", [e]),
                    ("attention.query_key_value", [3 * e, e]), ("attention.dense", [e, e]),
                    ("mlp.dense_h_to_4h", [4 * e, e]), ("mlp.dense_4h_to_h", [e, 4 * e])):
                shapes[f"gpt_neox.layers.{i}.{name}.weight"] = shape
                shapes[f"gpt_neox.layers.{i}.{name}.bias"] = shape[:1]
        header = safetensors({n: ("F16", d, None) for n, d in shapes.items()}, data=False)
        path = self.file("model.safetensors", header)
        os.truncate(path, len(header) + 2 * 14_067_712)
        self.assertEqual(self.model(path)["types"], [{
            "name": "F16", "tensors": len(shapes), "elements": 14_067_712, "bytes": 28_135_424,
            "bits_per_weight": 16}])


class Folders(Case):
    def sharded(self, total=None):
        shards = {"m-00001-of-00002.safetensors": {"a": ("F32", [4], None),
                                                   "b": ("F32", [2], None)},
                  "m-00002-of-00002.safetensors": {"c": ("F32", [3], b"\0\0\x80\x3f" * 3)}}
        for name, tensors in shards.items():
            self.file(name, safetensors(tensors))
        self.index = {"metadata": {"total_size": 36 if total is None else total},
                      "weight_map": {t: name for name, tensors in shards.items()
                                     for t in tensors}}
        return self.file("m.safetensors.index.json", self.index)

    def test_an_index_and_its_folder(self):
        index = self.sharded()
        for source in (index, self.dir, os.path.basename(index)):
            with self.subTest(source):
                model = self.model(source, "--tensors", "--peek", "c")
                self.assertEqual((model["totals"]["tensors"], model["totals"]["parameters"]),
                                 (3, 9))
                self.assertEqual(model["findings"], [])
                self.assertEqual(model["peek"]["values"], [1, 1, 1])
                self.assertEqual(len(model["files"]), 2)
                self.assertEqual([t["file"] for t in model["tensors"]], [0, 0, 1])

    def test_what_an_index_gets_wrong(self):
        self.sharded(total=35)
        model = self.model(self.dir)
        self.assertEqual([f["serious"] for f in model["findings"]], [False])
        self.assertIn("total_size", model["findings"][0]["text"])
        self.index["weight_map"]["ghost"] = "m-00002-of-00002.safetensors"
        self.file("m.safetensors.index.json", self.index)
        model = self.model(self.dir, status=1)
        self.assertIn("tensor 'ghost' stands in the index and not in the file",
                      model["findings"][0]["text"])
        self.assertTrue(model["findings"][0]["serious"])
        os.remove(os.path.join(self.dir, "m-00001-of-00002.safetensors"))
        out = self.check("inspect", self.dir, status=1)
        self.assertIn("ERROR   m-00001-of-00002.safetensors is missing; the index puts 2 tensors",
                      out)
        self.index["weight_map"]["x"] = "../../etc/passwd"
        self.file("m.safetensors.index.json", self.index)
        self.check("inspect", self.dir, status=2, err="has .. in it")

    def test_a_broken_shard_does_not_hide_the_others(self):
        self.sharded()
        self.file("m-00001-of-00002.safetensors", b"\1\0\0\0\0\0\0\0x")
        model = self.model(self.dir, status=1)
        self.assertIn("error", model["files"][0])
        self.assertEqual(model["files"][1]["tensors"], 1)

    def test_shards_without_an_index(self):
        self.sharded()
        os.remove(os.path.join(self.dir, "m.safetensors.index.json"))
        self.assertEqual(self.model(self.dir)["findings"], [])
        os.remove(os.path.join(self.dir, "m-00002-of-00002.safetensors"))
        self.check("inspect", self.dir, status=1,
                   out="one of 2 parts by its name, and 1 are there")
        self.check("inspect", "m-00001-of-00002.safetensors",
                   out="note    by its name it is part 1 of 2\n")

    def test_a_split_gguf(self):
        def part(no, tensors, count=2, total=3):
            keys = [("split.no", 2, struct.pack("<H", no)),
                    ("split.count", 2, struct.pack("<H", count)),
                    ("split.tensors.count", 5, struct.pack("<i", total))]
            if no == 0:
                keys.insert(0, ("general.architecture", 8, text("llama")))
            return gguf(keys, [(n, [4], 0, bytes(16)) for n in tensors])
        self.file("m-00001-of-00002.gguf", part(0, ["a"]))
        self.file("m-00002-of-00002.gguf", part(1, ["b", "c"]))
        model = self.model(self.dir)
        self.assertEqual((model["totals"]["tensors"], model["findings"]), (3, []))
        self.file("m-00002-of-00002.gguf", part(1, ["b", "a"], total=4))
        self.check("inspect", self.dir, status=1,
                   out="tensor 'a' is also in m-00001-of-00002.gguf")

    def test_a_repository_of_many_kinds(self):
        self.file("model.safetensors", safetensors({"a": ("BF16", [8, 8], None)}))
        self.file("config.json", MODEL_CONFIG)
        self.file("sub/q.gguf", llama_gguf())
        self.file("flax_model.msgpack", b"x")
        self.file("openvino/model.bin", b"\1\2\3\4 not a pickle")
        self.file("tokenizer_config.json", {"chat_template": "one"})
        self.file(".git/objects/x.gguf", b"x")
        report = self.inspect(self.dir, "--chat-template")
        self.assertEqual([m["title"] for m in report["models"]],
                         ["model.safetensors", "sub/q.gguf"])
        self.assertEqual(sorted(u["path"] for u in report["unread"]),
                         ["flax_model.msgpack", "openvino/model.bin"])
        self.assertEqual(report["models"][0]["chat_templates"], [{"name": "", "template": "one"}])
        self.assertEqual(report["models"][0]["model"]["layers"], 3)
        self.check("inspect", self.dir, out=("Flax's MessagePack: not read", "3 layers"))

    def test_a_quantised_model_has_its_own_parameters(self):
        self.file("model.safetensors", safetensors({"l.qweight": ("I32", [8, 16], None),
                                                    "l.scales": ("F16", [1, 16], None)}))
        self.file("config.json", {**MODEL_CONFIG,
                                  "quantization_config": {"quant_method": "gptq", "bits": 4}})
        model = self.model("model.safetensors")
        self.assertEqual(model["quantization"], "gptq")
        self.assertEqual((model["totals"]["elements"], model["totals"]["parameters"]),
                         (144, 8 * 16 * 8))
        self.check("inspect", "model.safetensors", out="stored as 144 elements: gptq 4 bit")

    def test_an_adapter(self):
        self.file("adapter_model.safetensors", safetensors({"a": ("F32", [2], None)}))
        self.file("adapter_config.json", {"peft_type": "LORA", "r": 16,
                                          "base_model_name_or_path": "org/base"})
        self.check("inspect", self.dir, out="adapter LORA adapter of rank 16 for org/base")

    def test_an_index_of_pickles(self):
        shutil.copy(os.path.join(VECTORS, "ok_torch.pt"),
                    os.path.join(self.dir, "pytorch_model-00001-of-00001.bin"))
        index = {"metadata": {"total_size": 16},
                 "weight_map": {"w": "pytorch_model-00001-of-00001.bin"}}
        self.file("pytorch_model.bin.index.json", index)
        model = self.model(self.dir)
        self.assertEqual((model["findings"], model["pickle"]["verdict"]), ([], "allowed"))
        index["weight_map"]["x"] = "pytorch_model-00001-of-00001.bin"
        self.file("pytorch_model.bin.index.json", index)
        model = self.model(self.dir, status=1)
        self.assertIn("tensor 'x' stands in the index and not", model["findings"][0]["text"])

    def test_an_empty_folder(self):
        self.check("inspect", self.dir, status=2, err="is no model, and has none")

    def test_several_sources(self):
        a = self.file("a.safetensors", safetensors({"a": ("U8", [1], None)}))
        b = self.file("b.gguf", llama_gguf())
        done = self.run_it("inspect", a, b, "nope.gguf", "--json")
        self.assertEqual(done.returncode, 2)
        sources = json.loads(done.out)["sources"]
        self.assertEqual([s["source"] for s in sources], [a, b, "nope.gguf"])
        self.assertEqual(sources[2]["code"], "not_found")


class Urls(Case):
    def test_only_the_header_moves(self):
        small = safetensors({"a": ("F32", [1 << 18], struct.pack("<f", 2.5) + bytes((4 << 18) - 4))})
        with Server({"/d/m.safetensors": small}) as server:
            report = self.inspect(server.url + "/d/m.safetensors?token=x", "--peek", "a")
            self.assertEqual(server.asked, [("/d/m.safetensors", "bytes=0-65535")])
        self.assertEqual((report["kind"], report["requests"], report["bytes_read"]),
                         ("url", 1, 65536))
        self.assertEqual(report["models"][0]["peek"]["values"][0], 2.5)

    def test_a_long_header_takes_few_requests(self):
        big = llama_gguf(words=60000)
        with Server({"/m.gguf": big}) as server:
            report = self.inspect(server.url + "/m.gguf")
            self.assertEqual(report["requests"], len(server.asked))
            self.assertLess(len(server.asked), 8)
            self.assertLessEqual(report["bytes_read"], len(big))
            ranges = [tuple(int(n) for n in asked.removeprefix("bytes=").split("-"))
                      for _, asked in server.asked]
        self.assertEqual(ranges[0], (0, 65535))
        self.assertEqual([first for first, _ in ranges[1:]], [last + 1 for _, last in ranges[:-1]])
        lengths = [last + 1 - first for first, last in ranges[:-1]]  # what is left is less
        self.assertGreaterEqual(len(lengths), 2)
        for before, after in zip(lengths, lengths[1:]):
            self.assertGreaterEqual(after, 2 * before)
        self.assertEqual(report["models"][0]["totals"]["tensors"], 2)

    def test_a_server_that_ignores_ranges_is_refused(self):
        with Server({"/m.gguf": llama_gguf(words=60000)}, ranges=False) as server:
            self.check("inspect", server.url + "/m.gguf", status=2,
                       err="answered 200 to a Range request; download the file and inspect it "
                           "locally")
            self.assertEqual(len(server.asked), 1)

    def test_a_server_that_gives_a_little_at_a_time(self):
        """Pieces are fine; drops are not waited for."""
        for most, status in ((20_000, 0), (100, 1)):
            with self.subTest(most), Server({"/m.gguf": llama_gguf(words=8000)}) as server:
                server.most = most
                self.check("inspect", server.url + "/m.gguf", status=status,
                           err="bytes of an answer are missing" if status else "")
                self.assertLess(len(server.asked), 20)

    def test_what_may_be_secret_in_a_url_is_not_shown(self):
        with Server({}) as server:
            host = server.url.partition("://")[2]
            for url in (f"http://me:hunter2@{host}/m.gguf", f"{server.url}/m.gguf?sig=hunter2",
                        f"http://me:hunter2@{host}/m.gguf?sig=hunter2"):
                done = self.run_it("inspect", url)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"http://{host}/m.gguf", done.err)
                self.assertNotIn("hunter2", done.err)

    def test_a_file_that_changes(self):
        with Server({"/m.gguf": llama_gguf(words=60000)}, etags=['"1"', '"2"', '"3"']) as server:
            self.check("inspect", server.url + "/m.gguf", status=1,
                       err="changed while it was read")

    def test_through_a_proxy(self):
        with Server({"http://models.invalid/m.gguf": llama_gguf()}) as proxy:
            env = {"http_proxy": proxy.url}
            self.model("http://models.invalid/m.gguf", env=env)
            self.model("HTTP://models.invalid/m.gguf", env=env)
            self.check("inspect", "http://models.invalid/m.gguf", status=1, err="models.invalid",
                       env={**env, "no_proxy": ".invalid"})

    def test_an_index(self):
        files = {"/r/m.safetensors.index.json": json.dumps(
                    {"weight_map": {"a": "one.safetensors", "b": "two words.safetensors",
                                    "c": "gone.safetensors"}}).encode(),
                 "/r/one.safetensors": safetensors({"a": ("U8", [1], None)}),
                 "/r/two%20words.safetensors": safetensors({"b": ("U8", [1], None)})}
        with Server(files) as server:
            model = self.model(server.url + "/r/m.safetensors.index.json", status=1)
        self.assertEqual(model["totals"]["tensors"], 2)
        self.assertIn("gone.safetensors is missing", model["findings"][0]["text"])

    def test_what_is_not_there(self):
        with Server({"/empty.gguf": b""}) as server:
            self.check("inspect", server.url + "/m.gguf", status=2, err="404")
            self.check("inspect", server.url + "/empty.gguf", status=2,
                       err="the file ends after 0")
            self.check("inspect", server.url, status=2, err="names no file")
            self.check("inspect", "FTP" + server.url[4:], status=2, err="a scheme that is not known")
        self.check("inspect", server.url + "/m.gguf", status=1, err="127.0.0.1")


class Hub(Case):
    def setUp(self):
        super().setUp()
        self.hub = StandInHub()
        self.weights = safetensors({"w": ("BF16", [512, 512], b"\x80\x3f" * (512 * 512))},
                                   {"format": "pt"})
        self.repo = self.hub.add_repo("Org/Name", {
            "config.json": json.dumps(MODEL_CONFIG).encode(), "model.safetensors": self.weights,
            "gguf/q.gguf": llama_gguf(), "README.md": b"# hi"})
        self.hub.start()
        self.addCleanup(self.finish)
        self.env = {"HF_ENDPOINT": self.hub.url}

    def finish(self):
        self.hub.stop()
        self.assertEqual(self.hub.errors, [])

    def test_a_repository(self):
        report = self.inspect("hf://Org/Name", "--peek", "w", env=self.env)
        self.assertEqual([m["title"] for m in report["models"]], ["gguf/q.gguf",
                                                                  "model.safetensors"])
        self.assertEqual(report["revision"], self.repo.branches["main"])
        model = report["models"][1]
        self.assertEqual(model["files"][0]["sha256"], hashlib.sha256(self.weights).hexdigest())
        self.assertEqual(model["model"]["layers"], 3)
        self.assertEqual(model["peek"]["values"], [1] * 8)
        self.assertLess(report["bytes_read"], 100_000)
        self.assertGreater(report["requests"], 3)

    def test_one_file_or_folder_at_a_revision(self):
        commit = self.repo.branches["main"]
        model = self.model(f"hf://Org/Name@{commit}/model.safetensors", env=self.env)
        self.assertEqual(model["totals"]["parameters"], 512 * 512)
        self.assertEqual(self.model("hf://org/name@main/gguf", env=self.env)["title"], "q.gguf")
        self.check("inspect", "hf://Org/Name/nope.gguf", env=self.env, status=2,
                   err="has no nope.gguf at " + commit)
        self.check("inspect", "hf://Org/Name@v9", env=self.env, status=2, err="no revision v9")
        self.check("inspect", "hf://Org/Other", env=self.env, status=2, err="does not exist")

    def test_a_huge_file_costs_its_header(self):
        header = safetensors({"w": ("F32", [1 << 16, 1 << 18], None)}, data=False)
        size = (4 << 34) + len(header)
        self.repo.add_commit({"big.safetensors": Sparse(size, sha256="5" * 64, header=header)},
                             branch="big")
        report = self.inspect("hf://Org/Name@big/big.safetensors", env=self.env)
        self.assertEqual(report["models"][0]["totals"]["tensor_bytes"], 4 << 34)
        self.assertLess(report["bytes_read"], 200_000)

    def test_a_gated_repository_wants_a_token(self):
        self.hub.add_token("hf_secret", "me")
        self.hub.add_repo("Org/Gated", {"model.safetensors": self.weights}, gated="manual",
                          tokens=["hf_secret"])
        done = self.run_it("inspect", "hf://Org/Gated", env=self.env)
        self.assertEqual(done.returncode, 1, done.err)
        self.assertIn("HF_TOKEN", done.err)
        self.model("hf://Org/Gated", env={**self.env, "HF_TOKEN": "hf_secret"})
        self.file(".cache/huggingface/token", b"hf_secret\n")
        self.model("hf://Org/Gated", env=self.env)

    def test_a_cdn_that_ignores_ranges_is_refused(self):
        self.hub.fault("cdn_ignore_range")
        self.repo.add_commit({"m.safetensors": safetensors({"w": ("U8", [1 << 20], None)})},
                             branch="one")
        self.check("inspect", "hf://Org/Name@one/m.safetensors", env=self.env, status=2,
                   err="download the file and inspect it locally")

    def test_the_servers_own_settings_do_not_matter(self):
        self.inspect("hf://Org/Name", env={**self.env, "WEIGHBRIDGE_CONFIG": "/nonexistent",
                                           "WEIGHBRIDGE_NO_SUCH_KEY": "1"})


class Registry(Case):
    OPTIONS = {}

    def setUp(self):
        super().setUp()
        self.weights = safetensors({"w": ("F32", [64, 64], struct.pack("<f", 0.25) * 4096)})
        self.registry = StandInRegistry(**self.OPTIONS)
        self.registry.add_user("alice", "wonder")
        self.repo = self.registry.add_repo("team/model")
        self.artifact = self.repo.add_artifact(
            {"model.safetensors": self.weights, "config.json": json.dumps(MODEL_CONFIG).encode(),
             "q/m.gguf": llama_gguf()}, tag="v1")
        self.registry.start()
        self.addCleanup(self.finish)
        self.host = self.registry.url.removeprefix("http://")

    def finish(self):
        self.registry.stop()
        self.assertEqual(self.registry.errors, [])

    def test_a_model_by_tag_and_by_digest(self):
        for reference in (":v1", "@" + self.artifact.digest):
            report = self.inspect(f"{self.host}/team/model{reference}", "--peek", "w")
            self.assertEqual(report["kind"], "registry")
            self.assertEqual(report["revision"], self.artifact.digest)
            self.assertEqual([m["title"] for m in report["models"]],
                             ["model.safetensors", "q/m.gguf"])
            model = report["models"][0]
            self.assertEqual(model["model"]["layers"], 3)
            self.assertEqual(model["peek"]["values"], [0.25] * 8)
            self.assertEqual(model["files"][0]["sha256"],
                             hashlib.sha256(self.weights).hexdigest())

    def test_what_is_not_there(self):
        self.check("inspect", f"{self.host}/team/model:v9", status=2, err="no such manifest")
        self.check("inspect", f"oci://{self.host}/team/model:bad:tag", status=2, err="team/model")

    def test_layers_that_lead_astray_are_refused(self):
        self.repo.add_artifact({"../x.gguf": b"x"}, tag="bad")
        self.check("inspect", f"{self.host}/team/model:bad", status=1,
                   err="a path that leads astray")

    def test_digests_that_are_paths_are_refused(self):
        """CVE-2024-37032."""
        kind = "application/vnd.oci.image.manifest.v1+json"
        for i, digest in enumerate(("../../../../etc/passwd", "sha256:../../../../etc/passwd",
                                    "sha256:" + "a" * 61 + "/..")):
            layer = {"mediaType": "application/x-model", "digest": digest, "size": 4,
                     "annotations": {"org.opencontainers.image.title": "m.gguf"}}
            config = self.repo.add_blob(b"{}", "application/vnd.cncf.model.config.v1+json")
            self.repo.add_manifest({"schemaVersion": 2, "mediaType": kind, "config": config,
                                    "layers": [layer]}, kind, f"path{i}")
            self.check("inspect", f"{self.host}/team/model:path{i}", status=1,
                       err="the digest at byte ")

    def push(self, tag, *layers):
        """layers: (bytes, media type, annotations)"""
        kind = "application/vnd.oci.image.manifest.v1+json"
        self.repo.add_manifest({
            "schemaVersion": 2, "mediaType": kind,
            "config": self.repo.add_blob(b"{}", "application/vnd.cncf.model.config.v1+json"),
            "layers": [self.repo.add_blob(data, media_type, annotations=annotations)
                       for data, media_type, annotations in layers]}, kind, tag)
        return f"{self.host}/team/model:{tag}"

    def test_how_others_name_their_layers(self):
        weight = "application/vnd.cncf.model.weight.v1.raw"
        for tag, layer, title in (
                ("ollama", (llama_gguf(), "application/vnd.ollama.image.model", None),
                 "layer-0.gguf"),
                ("runner", (llama_gguf(), "application/vnd.docker.ai.gguf.v3", None),
                 "layer-0.gguf"),
                ("cncf", (self.weights, weight, {"org.cncf.model.filepath": "a/b.safetensors"}),
                 "a/b.safetensors"),
                ("cnai", (self.weights, weight, {"org.cnai.model.filepath": "b.safetensors"}),
                 "b.safetensors")):
            with self.subTest(tag):
                self.assertEqual(self.model(self.push(tag, layer))["title"], title)

    def test_layers_that_can_not_be_read_in_place(self):
        tar = (b"x" * 512, "application/vnd.cncf.model.weight.v1.tar",
               {"org.cncf.model.filepath": "m.gguf"})
        other = (b"x", "application/x-other", None)
        self.check("inspect", self.push("packed", tar, other), status=2,
                   err="none of its 2 layers is a file of a model that can be read in place")
        good = (llama_gguf(), "application/x-model",
                {"org.opencontainers.image.title": "good.gguf"})
        report = self.inspect(self.push("mixed", tar, good, other))
        self.assertEqual(report["note"], "layers that are archives: 1, that have no name: 1; pull "
                                         "the model to look into them")
        self.assertEqual([m["title"] for m in report["models"]], ["good.gguf"])

    def test_an_index_of_one_and_of_more(self):
        other = self.repo.add_artifact({"a.safetensors": self.weights})
        both = [{**m.descriptor} for m in (self.artifact, other)]
        kind = "application/vnd.oci.image.index.v1+json"
        self.repo.add_manifest({"schemaVersion": 2, "mediaType": kind, "manifests": both[1:]},
                               kind, "one")
        self.repo.add_manifest({"schemaVersion": 2, "mediaType": kind, "manifests": both}, kind,
                               "two")
        self.assertEqual(self.model(f"{self.host}/team/model:one")["title"], "a.safetensors")
        self.check("inspect", f"{self.host}/team/model:two", status=2, err=other.digest)


class RegistryWithLogin(Registry):
    OPTIONS = {"auth": "bearer", "redirect_blobs": True}

    def test_a_private_one_with_dockers_login(self):
        self.registry.add_repo("secret/model", private=True, users={"alice"}).add_artifact(
            {"model.safetensors": self.weights}, tag="v1")
        name = f"{self.host}/secret/model:v1"
        self.assertEqual(self.run_it("inspect", name).returncode, 1)
        self.file(".docker/config.json", {"auths": {self.host: {"auth": "YWxpY2U6d29uZGVy"}}})
        self.assertEqual(self.model(name)["totals"]["parameters"], 4096)


class RegistryFaults(Case):
    """A header that takes several reads, from a registry and a CDN that do wrong."""

    def setUp(self):
        super().setUp()
        self.registry = StandInRegistry(auth="bearer", redirect_blobs=True)
        self.repo = self.registry.add_repo("team/model")
        self.repo.add_artifact({"m.gguf": llama_gguf(words=20000)}, tag="v1")
        self.registry.start()
        self.addCleanup(self.finish)
        self.name = self.registry.url.removeprefix("http://") + "/team/model:v1"
        self.wanted = self.model(self.name, "--tensors", "--metadata")

    def finish(self):
        self.registry.stop()
        self.assertEqual(self.registry.errors, [])

    def test_what_passes_does_not_matter(self):
        for fault, more in (("cut", {"fraction": 0.5}), ("reset", {"fraction": 0.9}), ("drop", {}),
                            ("status", {"status": 503}), ("status", {"status": 500}),
                            ("redirect_chain", {"hops": 3}), ("url_expired", {}), ("chunked", {})):
            with self.subTest(fault, **more):
                switch = self.registry.fault(fault, kind="blob,redirect", times=2, **more)
                got = self.model(self.name, "--tensors", "--metadata")
                self.assertEqual(got, self.wanted)
                self.assertGreater(switch.hits, 0)
                switch.remove()

    def test_a_file_that_is_read_whole_is_checked(self):
        self.repo.add_artifact({"m.gguf": llama_gguf()}, tag="small")
        switch = self.registry.fault("flip", kind="blob", offset=-1)
        self.check("inspect", self.name.replace(":v1", ":small"), status=1,
                   err="m.gguf: its bytes hash to ")
        self.assertGreater(switch.hits, 0)

    def test_urls_that_run_out(self):
        switch = self.registry.fault("url_uses", uses=1)
        self.assertEqual(self.model(self.name, "--tensors", "--metadata"), self.wanted)
        self.assertGreater(switch.hits, 0)

    def test_what_breaks_a_rule_is_named(self):
        for fault, more, err in (
                ("ignore_range", {}, "download the file and inspect it locally"),
                ("no_content_range", {}, "without a Content-Range"),
                ("range_start", {"delta": 7, "body": "shifted"}, "the answer has"),
                ("range_total", {"delta": 5}, "changed while it was read"),
                ("location", {"url": "file:///etc/passwd"}, "a redirect without a URL"),
                ("redirect_loop", {}, "more than 5 redirects"),
                ("status", {"status": 403}, "403"), ("drop", {}, "127.0.0.1")):
            with self.subTest(fault, **more):
                switch = self.registry.fault(fault, kind="blob,redirect", **more)
                done = self.run_it("inspect", self.name)
                self.assertIn(done.returncode, (1, 2), done.out)
                self.assertIn(err, done.err)
                self.assertEqual(done.err.count("\n"), 1, done.err)
                self.assertEqual(done.out, "")
                switch.remove()


class OwnServer(Case):
    """What the server imports from a Hub can be looked into where it is."""

    def test_a_model_that_was_imported(self):
        hub = self.make_hub()
        weights = safetensors({"w": ("F32", [64, 64], struct.pack("<f", 0.5) * 4096)})
        hub.add_repo("Org/Name", {"model.safetensors": weights, "README.md": b"# hi",
                                  "config.json": json.dumps(MODEL_CONFIG).encode()})
        wb = self.make_weighbridge(hub.url)
        model = self.model(f"{wb.host}/hf/org/name:main", "--peek", "w")
        self.assertEqual(model["model"]["layers"], 3)
        self.assertEqual(model["peek"]["values"], [0.5] * 8)
        self.assertEqual(model["files"][0]["sha256"], hashlib.sha256(weights).hexdigest())
        self.check("memory", f"{wb.host}/hf/org/name:main", out="kv cache f16: 3 layers")
        self.check("inspect", f"{wb.host}/hf/org/other:main", status=2, err="no such manifest")


class Memory(Case):
    def count(self, *args, status=0, env=None):
        done = self.run_it("memory", *args, "--json", env=env)
        self.assertEqual(done.returncode, status, done.err)
        return json.loads(done.out)

    def test_a_config_alone(self):
        path = self.file("config.json", {
            "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
            "num_key_value_heads": 8, "num_hidden_layers": 32, "max_position_embeddings": 131072,
            "vocab_size": 128256})
        got = self.count(path, "--params", "8.03e9", "--quant", "Q4_K", "--ctx", "32768", "--seqs",
                         "16", "--gpu-gib", "24")
        self.assertEqual(got["weights"]["bytes"], 4_516_875_072)
        self.assertEqual(got["kv_cache"]["full_bytes_per_token"], 131_072)
        self.assertEqual(got["kv_cache"]["bytes"], 68_719_476_736)
        self.assertEqual(got["gpu"]["longest_context"], 142_486)
        self.assertEqual(got["gpu"]["most_sequences"], 4)
        self.check("memory", path, "--params", "8.03B", "--quant", "Q4_K", "--ctx", "32768",
                   "--gpu-gib", "24", out=(
                       "weights  Q4_K 4,516,875,072 bytes, 4.21 GiB, 4.50 bits/weight",
                       "kv cache f16: 32 layers x 8 KV heads x (128 + 128) dims = 131,072 "
                       "bytes/token",
                       "gpu      24.0 GiB x 0.90: 17.39 GiB left for KV = 142,486 tokens = 4 "
                       "sequences of 32,768"))
        self.assertEqual(self.count(path, "--kv-type", "q8_0")["kv_cache"]["full_bytes_per_token"],
                         69_632)
        self.check("memory", path, out="weights  unknown")
        self.check("memory", path, "--params", "1000", "--quant", "q9", status=2, err="--quant: ")
        self.check("memory", path, "--params", "1e3", out="weights  BF16 2,000 bytes")
        self.check("memory", path, "--params", "1024", "--quant", "q8_0",
                   out="weights  Q8_0 1,088 bytes")
        for wrong in (("--ctx", "0"), ("--seqs", "x"), ("--gpu-gib", "-1"), ("--utilization", "1.5"),
                      ("--tensor-parallel", "0"), ("--params", "many")):
            self.check("memory", path, *wrong, status=2, err=wrong[0] + " must be")

    def test_a_gguf(self):
        path = self.file("m.gguf", llama_gguf())
        got = self.count(path)
        self.assertEqual(got["weights"]["bytes"], 2 * 34 + 12)
        self.assertEqual(got["kv_cache"]["full_bytes_per_token"], 2 * 2 * 32 * 2)
        self.assertEqual(got["kv_cache"]["context"], 512)
        self.check("memory", path, "--gpu-gib", "0.00000001", out="the weights do not fit")
        self.check("memory", path, "--kv-type", "q9", status=2, err="--kv-type")

    def test_a_repository_of_the_hub(self):
        hub = StandInHub()
        hub.add_repo("Org/Name", {"config.json": json.dumps(MODEL_CONFIG).encode(),
                                  "model.safetensors": safetensors({"w": ("BF16", [64], None)})})
        with hub:
            got = self.count("hf://Org/Name", "--tensor-parallel", "2",
                             env={"HF_ENDPOINT": hub.url})
            alone = self.count("hf://Org/Name/config.json", env={"HF_ENDPOINT": hub.url})
        self.assertEqual(got["weights"]["bytes_per_device"], 64)
        self.assertEqual(alone["kv_cache"]["full_bytes_per_token"],
                         2 * got["kv_cache"]["full_bytes_per_token"])

    def test_which_of_several(self):
        self.file("a.gguf", llama_gguf())
        self.file("b.gguf", llama_gguf())
        self.check("memory", self.dir, status=2, err="has 2 GGUF models: name one of them")
        self.file("model.safetensors", safetensors({"w": ("BF16", [64], None)}))
        self.check("memory", self.dir, out="kv cache unknown: there is no config.json")

    def test_what_lies_beside_a_gguf_is_not_the_model(self):
        big = gguf([("general.architecture", 8, text("clip"))], [("v", [4096], 0, bytes(16384))])
        self.file("m-Q8_0.gguf", llama_gguf())
        for name in ("mmproj-m-F16.gguf", "m.mmproj.gguf", "imatrix.gguf", "mtp-m.gguf",
                     "m-LoRA.gguf", "sub/eagle3-m.gguf"):
            self.file(name, big)
        self.assertEqual(self.count(self.dir)["weights"]["bytes"], 2 * 34 + 12)
        os.remove(os.path.join(self.dir, "m-Q8_0.gguf"))
        self.check("memory", self.dir, out="weights  F32 16,384 bytes")

    def test_a_quantisation_beside_a_gguf_is_not_its_own(self):
        self.file("m.gguf", llama_gguf())
        self.file("config.json", {**MODEL_CONFIG, "quantization_config": {"quant_method": "gptq"}})
        model = self.model("m.gguf")
        self.assertNotIn("quantization", model)
        self.assertEqual(model["model"]["from"], "GGUF")

    def test_of_many_ggufs_none_is_read(self):
        hub = StandInHub()
        hub.add_repo("Org/Many", {f"m-Q{i}_0.gguf": llama_gguf() for i in range(4, 9)})
        with hub:
            self.check("memory", "hf://Org/Many", status=2, env={"HF_ENDPOINT": hub.url},
                       err="hf://Org/Many has 5 GGUF models: name one of them, as m-Q4_0.gguf")
            self.assertEqual(hub.requests(kind="resolve"), [])


class Digest(Case):
    def test_as_the_hub_and_git_name_it(self):
        for content in (b"", b"x", os.urandom(5 << 20), bytes(1 << 20)):
            path = self.file("f", content)
            sha256 = hashlib.sha256(content).hexdigest()
            done = self.run_it("digest", path, "--json")
            self.assertEqual(json.loads(done.out)["files"],
                             [{"path": path, "size": len(content), "sha256": sha256,
                               "git_oid": git_blob_id(content)}])
            self.check("digest", path, "--expect", sha256, out=sha256)
            self.check("digest", path, "--expect", "sha256:" + sha256.upper(), out=sha256)
            self.check("digest", path, "--expect", git_blob_id(content), out=sha256)
            self.check("digest", path, "--expect", "0" * 64, status=1, out=sha256,
                       err=f"its sha256 is {sha256}, expected was {'0' * 64}")

    def test_several_files_and_errors(self):
        path = self.file("f", b"x")
        done = self.run_it("digest", path, "nope", path, "--json")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(json.loads(done.out)["files"]), 2)
        self.check("digest", "nope", status=2, err="nope: No such file")
        self.check("digest", self.dir, status=2, err="is no regular file")
        self.check("digest", path, "--expect", "12", status=2, err="64 hex digits")
        self.check("digest", status=2, err="the FILE to hash is missing")
        self.check("digest", path, path, "--expect", "0" * 64, status=2, err="for one FILE")


if __name__ == "__main__":
    unittest.main()
