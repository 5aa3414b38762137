"""Compares what `weighbridge inspect` says of files with what the formats' own readers say: totals,
names, types, shapes, places, metadata, values. Run by test_oracle.py, with the Python that has the
readers:

    python compare.py PROGRAM --generated SEED [--values N]
    python compare.py PROGRAM FILE... [--several]

Prints each difference and a last line "N files, N tensors, N values, N differences".
"""

import argparse
import json
import math
import os
import pickletools
import subprocess
import sys
import tempfile
import zipfile

import gguf
import ml_dtypes
import numpy as np
import onnx
import safetensors
from onnx import TensorProto

from generate import ST_BITS, generate, shard_safetensors, split_gguf

ST_NUMPY = {"BOOL": np.bool_, "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2",
            "I32": "<i4", "U32": "<u4", "F32": "<f4", "C64": "<c8", "F64": "<f8", "I64": "<i8",
            "U64": "<u8", "BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2,
            "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
            "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz}
SUB_BYTE = {"F4": (4, ml_dtypes.float4_e2m1fn), "F6_E2M3": (6, ml_dtypes.float6_e2m3fn),
            "F6_E3M2": (6, ml_dtypes.float6_e3m2fn)}
PLAIN_GGML = {"F32": "f4", "F16": "f2", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4",
              "I64": "i8"}
ONNX_NAMES = {TensorProto.FLOAT: "F32", TensorProto.INT64: "I64", TensorProto.INT32: "I32",
              TensorProto.UINT8: "U8", TensorProto.INT8: "I8", TensorProto.DOUBLE: "F64",
              TensorProto.FLOAT16: "F16", TensorProto.BOOL: "BOOL", TensorProto.UINT16: "U16",
              TensorProto.BFLOAT16: "BF16", TensorProto.UINT32: "U32", TensorProto.UINT64: "U64"}
NUMPY_NAMES = {"f4": "F32", "f2": "F16", "f8": "F64", "i4": "I32", "i8": "I64", "u1": "U8",
               "u2": "U16", "i1": "I8", "b1": "BOOL", "c8": "C64"}


class Comparison:
    def __init__(self, program, values):
        self.program, self.values = program, values
        self.files = self.tensors = self.seen = self.differences = 0

    def run(self, path, *more):
        done = subprocess.run([self.program, "inspect", path, "--json", *more],
                              capture_output=True, check=False)
        if done.returncode not in (0, 1) or not done.stdout:
            self.differ(path, "exit", done.returncode, done.stderr.decode(errors="replace"))
            return None
        return json.loads(done.stdout)["sources"][0]["models"][0]

    def differ(self, path, what, ours, theirs):
        self.differences += 1
        print(f"{os.path.basename(path)}: {what}: {str(ours)[:300]} is not {str(theirs)[:300]}")

    def same(self, path, what, ours, theirs):
        if ours != theirs:
            self.differ(path, what, ours, theirs)

    # --- values ---

    def number(self, value):
        """A value of ours as a number."""
        if isinstance(value, str):
            return complex(value.replace("i", "j")) if "i" in value[-1:] else float(value)
        return value

    def equal(self, a, b, exact):
        if isinstance(a, complex) or isinstance(b, complex):
            a, b = complex(a), complex(b)
            return self.equal(a.real, b.real, exact) and self.equal(a.imag, b.imag, exact)
        if isinstance(b, float) and math.isnan(b):
            return isinstance(a, float) and math.isnan(a)
        if a == b:
            return True
        return not exact and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-30)

    def peek(self, path, name, theirs, what, exact=True):
        """theirs: the first values as the reader gives them."""
        if not name:  # which no option can say
            return
        theirs = [x.item() if hasattr(x, "item") else x for x in theirs[:self.values]]
        model = self.run(path, "--peek", name, "--values", str(self.values))
        if not model:
            return
        ours = [self.number(v) for v in model["peek"].get("values", [model["peek"]])]
        self.seen += len(ours)
        if len(ours) != len(theirs):
            self.differ(path, f"{what} {name!r}, values", model["peek"], theirs)
            return
        for i, (a, b) in enumerate(zip(ours, theirs)):
            if not self.equal(a, b, exact):
                self.differ(path, f"{what} {name!r}, value {i}", a, b)
                return

    def several(self, path):
        """The model of a file, once more in several files: all but the places is the same."""
        with tempfile.TemporaryDirectory(prefix="wb-oracle-") as folder:
            if path.endswith(".gguf"):
                split_gguf(path, folder, 50)
            else:
                shard_safetensors(path, folder, 3)
            whole, parts = self.run(path, "--tensors"), self.run(folder, "--tensors")
            self.files += 1
            if not whole or not parts:
                return
            self.tensors += len(parts["tensors"])

            def rows(model):
                return sorted((t["name"], t["type"], t["shape"], t["bytes"])
                              for t in model["tensors"])
            self.same(path, "tensors in several files", rows(parts), rows(whole))
            self.same(path, "types in several files", parts["types"], whole["types"])
            self.same(path, "parameters", parts["totals"]["parameters"],
                      whole["totals"]["parameters"])
            self.same(path, "findings", parts["findings"], [])
            self.same(path, "files", sorted(f["path"] for f in parts["files"]),
                      sorted(f for f in os.listdir(folder) if not f.endswith(".json")))

    # --- formats ---

    def compare(self, path):
        kinds = {"safetensors": self.safetensors, "gguf": self.gguf, "onnx": self.onnx,
                 "npy": self.npy, "npz": self.npz, "pt": self.pickle}
        model = self.run(path, "--tensors", "--metadata")
        self.files += 1
        if model:
            self.tensors += len(model["tensors"])
            kinds[path.rpartition(".")[2]](path, model)

    def totals(self, path, model, rows):
        """rows: (type, elements, bytes)"""
        theirs = {}
        for kind, elements, size in rows:
            t = theirs.setdefault(kind, [0, 0, 0])
            t[0] += 1
            t[1] += elements
            t[2] += size
        ours = {t["name"]: [t["tensors"], t["elements"], t["bytes"]] for t in model["types"]}
        self.same(path, "types", ours, theirs)
        totals = model["totals"]
        self.same(path, "totals", [totals["tensors"], totals["elements"], totals["tensor_bytes"]],
                  [sum(t[i] for t in theirs.values()) for i in range(3)])
        self.same(path, "file_bytes", totals["file_bytes"], os.path.getsize(path))
        self.same(path, "sum of the parts", totals["file_bytes"], totals["header_bytes"] +
                  totals["tensor_bytes"] + totals["padding_bytes"])

    def safetensors(self, path, model):
        with open(path, "rb") as f:
            data = f.read()
        theirs = {name: t for name, t in safetensors.deserialize(data)}
        self.totals(path, model, [(t["dtype"], int(np.prod(t["shape"], dtype=object)),
                                   len(t["data"])) for t in theirs.values()])
        with safetensors.safe_open(path, "np") as f:
            metadata = f.metadata() or {}
            order = list(f.offset_keys())
        self.same(path, "metadata", {m["key"]: m["value"] for m in model["metadata"]}, metadata)
        self.same(path, "names", sorted(t["name"] for t in model["tensors"]), sorted(theirs))
        # Tensors without bytes may stand on either side of one that begins where they do.
        self.same(path, "order", [t["name"] for t in model["tensors"] if t["bytes"]],
                  [n for n in order if len(theirs[n]["data"])])
        for t in model["tensors"]:
            their = theirs[t["name"]]
            self.same(path, t["name"], [t["type"], t["shape"]], [their["dtype"], their["shape"]])
            self.same(path, f"bytes of {t['name']!r}", data[t["offset"]:t["offset"] + t["bytes"]],
                      bytes(their["data"]))
            self.peek(path, t["name"], self.st_values(their), their["dtype"])

    def st_values(self, t):
        data, dtype = bytes(t["data"]), t["dtype"]
        if dtype in ST_NUMPY:
            return [complex(x) if dtype == "C64" else x if dtype in ("F64",) else
                    float(x) if dtype.startswith(("F", "B")) and dtype != "BOOL" else x
                    for x in np.frombuffer(data, ST_NUMPY[dtype])[:self.values]]
        bits, kind = SUB_BYTE[dtype]
        n = len(data) * 8 // bits
        stream = int.from_bytes(data[:self.values], "little")
        codes = bytes((stream >> (bits * i)) & ((1 << bits) - 1) for i in range(min(n, self.values)))
        return [float(x) for x in np.frombuffer(codes, kind)]

    def gguf(self, path, model):
        reader = gguf.GGUFReader(path)
        self.totals(path, model, [(t.tensor_type.name, int(t.n_elements), int(t.n_bytes))
                                  for t in reader.tensors])
        self.same(path, "data", model["totals"]["header_bytes"] if reader.tensors else
                  reader.data_offset, reader.data_offset)
        fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        self.same(path, "keys", [m["key"] for m in model["metadata"]], list(fields))
        for m in model["metadata"]:
            self.field(path, m, fields[m["key"]])
        self.same(path, "names", [t["name"] for t in model["tensors"]],
                  [t.name for t in reader.tensors])
        big = reader.endianess == gguf.GGUFEndian.BIG
        self.same(path, "byte order", model["files"][0]["big_endian"], big)
        for ours, t in zip(model["tensors"], reader.tensors):
            self.same(path, t.name, [ours["type"], ours["shape"], ours["offset"], ours["bytes"]],
                      [t.tensor_type.name, [int(d) for d in t.shape], int(t.data_offset),
                       int(t.n_bytes)])
            self.gguf_values(path, t, big)

    def field(self, path, m, field):
        names = {gguf.GGUFValueType.STRING: "str", gguf.GGUFValueType.ARRAY: "array",
                 gguf.GGUFValueType.BOOL: "bool", gguf.GGUFValueType.FLOAT32: "f32",
                 gguf.GGUFValueType.FLOAT64: "f64"}

        def name(kind):
            return names.get(kind) or kind.name.lower().replace("uint", "u").replace("int", "i")

        types = [name(k) for k in field.types]
        ours = [m["type"]] + ([m["element"]] if m["type"] == "array" else [])
        self.same(path, m["key"] + " type", ours, types)
        theirs = field.contents()
        value = m["values"] if m["type"] == "array" else m["value"]
        if types[-1] in ("f32", "f64"):
            flat = value if isinstance(value, list) else [value]
            other = theirs if isinstance(theirs, list) else [theirs]
            good = len(flat) == len(other) and all(
                self.equal(float(self.number(a)), float(b), True) for a, b in zip(flat, other))
            if not good:
                self.differ(path, m["key"], value, theirs)
        else:
            self.same(path, m["key"], value, theirs)

    def gguf_values(self, path, t, big):
        kind = t.tensor_type
        block = gguf.GGML_QUANT_SIZES[kind][0]
        raw = np.ascontiguousarray(t.data).reshape(-1)
        if kind.name in PLAIN_GGML:
            with open(path, "rb") as f:
                f.seek(int(t.data_offset))
                data = f.read(int(t.n_bytes))
            values = np.frombuffer(data, (">" if big else "<") + PLAIN_GGML[kind.name])
            self.peek(path, t.name, [float(x) if kind.name[0] == "F" else x
                                     for x in values[:self.values]], kind.name)
            return
        n = -(-self.values // block) * gguf.GGML_QUANT_SIZES[kind][1]
        try:
            values = gguf.quants.dequantize(raw[:n].view(np.uint8), kind)
        except NotImplementedError:
            return
        self.peek(path, t.name, [float(x) for x in values.reshape(-1)[:self.values]], kind.name,
                  exact=False)

    def onnx(self, path, model):
        theirs = onnx.load(path, load_external_data=False)
        weights = theirs.graph.initializer
        rows = []
        for t in weights:
            kind = ONNX_NAMES[t.data_type]
            n = int(np.prod(t.dims, dtype=object))
            rows.append((kind, n, n * ST_BITS[kind] // 8))
        ours = {t["name"]: [t["tensors"], t["elements"]] for t in model["types"]}
        sums = {}
        for kind, n, _ in rows:
            s = sums.setdefault(kind, [0, 0])
            s[0] += 1
            s[1] += n
        self.same(path, "types", ours, sums)
        o = model["onnx"]
        self.same(path, "model", [o["ir_version"], o["producer"], o["graph"], o["nodes"]],
                  [theirs.ir_version, theirs.producer_name, theirs.graph.name,
                   len(theirs.graph.node)])
        self.same(path, "opsets", [[s["domain"], s["version"]] for s in o["opsets"]],
                  [[s.domain, s.version] for s in theirs.opset_import])
        named = {t.name for t in weights}
        for what in ("input", "output"):
            values = [v for v in getattr(theirs.graph, what)
                      if what == "output" or v.name not in named]
            self.same(path, what, [[v["name"], v["type"]] for v in o[what + "s"]],
                      [[v.name, ONNX_NAMES[v.type.tensor_type.elem_type]] for v in values])
            self.same(path, what + " shapes", [v["shape"].split(" x ") if v["shape"] else []
                                               for v in o[what + "s"]],
                      [[str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
                        for d in v.type.tensor_type.shape.dim] for v in values])
        self.same(path, "tensors", [[t["name"], t["type"], t["shape"]] for t in model["tensors"]],
                  [[t.name, ONNX_NAMES[t.data_type], list(t.dims)] for t in weights])
        external = [t for t in weights if t.data_location == TensorProto.EXTERNAL]
        self.same(path, "external", [o["external_tensors"], o["external_files"]],
                  [len(external), ["weights.onnx_data"] if external else []])
        for t in weights:
            if t.raw_data and t.data_location != TensorProto.EXTERNAL:
                kind = ONNX_NAMES[t.data_type]
                self.peek(path, t.name, self.st_values({"data": t.raw_data, "dtype": kind}), kind)

    def array(self, path, ours, array):
        kind = NUMPY_NAMES[array.dtype.str[1:]]
        self.same(path, "array", [ours["type"], ours["shape"]], [kind, list(array.shape)])
        return kind

    def npy(self, path, model):
        array = np.load(path)
        kind = self.array(path, model["tensors"][0], array)
        self.totals(path, model, [(kind, array.size, array.nbytes)])
        values = array.flatten("F" if np.isfortran(array) else "C")[:self.values]
        self.peek(path, "array", self.plain(values), kind)

    def plain(self, values):
        return [complex(x) if values.dtype.kind == "c" else float(x) if values.dtype.kind == "f"
                else x.item() for x in values]

    def npz(self, path, model):
        arrays = np.load(path)
        self.same(path, "names", [t["name"] for t in model["tensors"]], arrays.files)
        for t in model["tensors"]:
            self.array(path, t, arrays[t["name"]])

    def pickle(self, path, model):
        data = open(path, "rb").read()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as z:
                data = z.read("archive/data.pkl")
        self.same(path, "imports", sorted({(i["module"], i["name"])
                                           for i in model["pickle"]["imports"]}),
                  sorted(imports_of(data)))
        self.same(path, "broken", model["pickle"].get("broken"), None)


def imports_of(data):
    """As pickletools lists them, with the strings before STACK_GLOBAL out of the memo."""
    found, at = set(), 0
    while at < len(data):
        strings, memo, last = [], {}, None
        for op, arg, pos in pickletools.genops(data[at:]):
            if op.name in ("GLOBAL", "INST"):
                found.add(tuple(arg.split(" ", 1)))
            elif op.name == "STACK_GLOBAL":
                found.add(tuple(strings[-2:]))
            if isinstance(arg, str) and "UNICODE" in op.name:
                strings.append(arg)
                last = arg
            elif op.name == "MEMOIZE":
                memo[len(memo)] = last
            elif "PUT" in op.name:
                memo[arg] = last
            elif "GET" in op.name:
                if isinstance(memo.get(arg), str):
                    strings.append(memo[arg])
                last = memo.get(arg)
            else:
                last = None
            end = pos
        at += end + 1
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--generated", type=int, metavar="SEED")
    parser.add_argument("--several", action="store_true",
                        help="compare each FILE with its own model in several files as well")
    parser.add_argument("--values", type=int, default=64)
    args = parser.parse_args()
    comparison = Comparison(args.program, args.values)
    with tempfile.TemporaryDirectory(prefix="wb-oracle-") as folder:
        paths = list(args.files)
        if args.generated is not None:
            paths += generate(folder, args.generated)
        for path in paths:
            comparison.compare(path)
        for path in args.files if args.several else ():
            comparison.several(path)
    print(f"{comparison.files} files, {comparison.tensors} tensors, {comparison.seen} values, "
          f"{comparison.differences} differences")
    return comparison.differences > 0


if __name__ == "__main__":
    sys.exit(main())
