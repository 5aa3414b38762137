"""Odd but legal files of each format, made by the formats' own writers. The same seed gives the
same files. Needs the reference packages (oracle_env.py)."""

import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections import Counter, OrderedDict
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import gguf
import numpy as np
import onnx
import safetensors.numpy
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType as V
from onnx import TensorProto, helper

ST_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8,
           "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16,
           "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
           "U64": 64}
# gguf gives Q8_1 another size than ggml has.
GGML_TYPES = [q for q in Q if q.name not in ("Q8_1",)]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ODD_NAMES = ["", "a\"b", "a\\b", "tab\there", "новый", "重み", "a\u2028b", "\U0001f600", "x" * 300,
             "__meta__", "model.layers.0.w\u00e9ight", "<&>"]


def name_of(rng, used, odd=0.2, longest=None):
    while True:
        name = rng.choice(ODD_NAMES) if rng.random() < odd else ".".join(
            "".join(rng.choices(LETTERS, k=rng.randint(1, 9))) for _ in range(rng.randint(1, 4)))
        if longest is not None and (len(name.encode()) > longest or not name):
            continue
        if name not in used and name != "__metadata__":
            used.add(name)
            return name


# --- safetensors ---

def st_shape(rng, bits):
    dims = [rng.choice((0, 1, 1, 2, 3, 4, 7, 16)) if rng.random() < 0.3 else rng.randint(1, 9)
            for _ in range(rng.randint(0, 5))]
    product = int(np.prod(dims, dtype=object)) if dims else 1
    if product * bits % 8:
        dims.append(8)
    return dims


def write_safetensors(rng, path):
    """By hand, because the writer takes no odd spelling, and reads back what we wrote."""
    used, entries, body = set(), [], b""
    for _ in range(rng.choice((0, 1, 1, 2, 5, 20, 120))):
        dtype = rng.choice(list(ST_BITS))
        shape = st_shape(rng, ST_BITS[dtype])
        n = (int(np.prod(shape, dtype=object)) if shape else 1) * ST_BITS[dtype] // 8
        data = rng.randbytes(n)
        if dtype == "BOOL":
            data = bytes(b & 1 for b in data)
        fields = [("dtype", dtype), ("shape", shape),
                  ("data_offsets", [len(body), len(body) + n])]
        rng.shuffle(fields)
        entries.append((name_of(rng, used), dict(fields)))
        body += data
    rng.shuffle(entries)
    if rng.random() < 0.5:
        keys = set()
        entries.insert(rng.randint(0, len(entries)), ("__metadata__", {
            name_of(rng, keys, 0.4): rng.choice(ODD_NAMES) for _ in range(rng.randint(0, 5))}))
    text = json.dumps(dict(entries), ensure_ascii=rng.random() < 0.5,
                      indent=rng.choice((None, None, 1)))
    text = text.encode() + b" " * rng.randint(0, 9)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
    with open(path, "rb") as f:
        safetensors.deserialize(f.read())  # legal, or this is no good file to compare with


def write_safetensors_of_the_writer(rng, path):
    used, tensors = set(), {}
    for _ in range(rng.randint(1, 12)):
        dtype = rng.choice(("<f4", "<f2", "<f8", "<i4", "<i8", "u1", "<u2", "<i2", "i1"))
        tensors[name_of(rng, used, 0)] = np.frombuffer(rng.randbytes(96), dtype)
    with open(path, "wb") as f:
        f.write(safetensors.numpy.save(tensors, {"format": "np"}))


# --- GGUF ---

def scalar(rng, kind):
    if kind == V.STRING:
        return rng.choice(ODD_NAMES)
    if kind == V.BOOL:
        return rng.random() < 0.5
    if kind in (V.FLOAT32, V.FLOAT64):
        value = rng.choice((0.0, -0.0, 1e-45, 3.4e38, 0.1, rng.uniform(-9, 9), 1e-5,
                            float("inf"), 10000.0))
        return float(np.float32(value)) if kind == V.FLOAT32 else value
    bits = {V.UINT8: 8, V.INT8: 8, V.UINT16: 16, V.INT16: 16, V.UINT32: 32, V.INT32: 32,
            V.UINT64: 64, V.INT64: 64}[kind]
    if kind.name.startswith("U"):
        return rng.choice((0, 2 ** bits - 1, rng.randrange(2 ** bits)))
    return rng.choice((-2 ** (bits - 1), 2 ** (bits - 1) - 1, -1, 0))


def add_keys(rng, writer):
    used = {"general.architecture", "general.alignment"}
    kinds = [v for v in V if v != V.ARRAY]
    for _ in range(rng.randint(0, 25)):
        key = name_of(rng, used, 0.1, 200)
        if rng.random() < 0.3:
            kind = rng.choice(kinds)
            values = [scalar(rng, kind) for _ in range(rng.choice((1, 2, 3, 40, 900)))]
            writer.add_key_value(key, values, V.ARRAY, kind)
        else:
            kind = rng.choice(kinds)
            writer.add_key_value(key, scalar(rng, kind), kind)


def finite_blocks(rng, kind, blocks):
    """Random bytes, but with scales that are numbers: what gguf makes of others depends on numpy."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if kind in gguf.quants._type_traits and hasattr(gguf.quants._type_traits[kind],
                                                    "quantize_blocks"):
        values = np.array([rng.gauss(0, 2) for _ in range(block * blocks)], np.float32)
        try:
            return gguf.quants.quantize(values.reshape(1, -1), kind).tobytes()
        except NotImplementedError:
            pass
    data = bytearray(rng.randbytes(size * blocks))
    for at in range(0, len(data) - 1, 2):  # wherever a half stands, it is a small number
        data[at + 1] &= 0xbf
    return bytes(data)


def write_gguf(rng, path, kind=None):
    big = rng.random() < 0.15
    writer = gguf.GGUFWriter(path, rng.choice(("llama", "qwen3", "x")),
                             endianess=gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE)
    if rng.random() < 0.3:
        writer.add_custom_alignment(rng.choice((8, 16, 64, 128)))
    add_keys(rng, writer)
    used = set()
    for _ in range(1 if kind else rng.choice((0, 1, 3, 30))):
        q = kind or rng.choice(GGML_TYPES)
        if big:
            q = rng.choice((Q.F32, Q.F16, Q.I32, Q.I8, Q.F64))
        block, size = gguf.GGML_QUANT_SIZES[q]
        rows, blocks = rng.randint(1, 4), rng.randint(1, 3)
        name = name_of(rng, used, 0.1, 63)
        if q in (Q.F32, Q.F16, Q.F64, Q.I8, Q.I16, Q.I32, Q.I64):
            shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 4))]
            dtype = {Q.F32: "f4", Q.F16: "f2", Q.F64: "f8", Q.I8: "i1", Q.I16: "i2", Q.I32: "i4",
                     Q.I64: "i8"}[q]
            n = int(np.prod(shape)) * np.dtype(dtype).itemsize
            writer.add_tensor(name, np.frombuffer(rng.randbytes(n), dtype).reshape(shape))
        else:
            raw = finite_blocks(rng, q, rows * blocks)
            writer.add_tensor(name, np.frombuffer(raw, np.uint8).reshape(rows, blocks * size),
                              raw_dtype=q)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- ONNX ---

ONNX_TYPES = {TensorProto.FLOAT: "<f4", TensorProto.INT64: "<i8", TensorProto.INT32: "<i4",
              TensorProto.UINT8: "u1", TensorProto.INT8: "i1", TensorProto.DOUBLE: "<f8",
              TensorProto.FLOAT16: "<f2", TensorProto.BOOL: "?", TensorProto.UINT16: "<u2"}


def initializer(rng, name, external):
    kind = rng.choice(list(ONNX_TYPES))
    dims = [rng.randint(0 if rng.random() < 0.1 else 1, 5) for _ in range(rng.randint(0, 4))]
    array = np.zeros(dims, ONNX_TYPES[kind])
    if external and rng.random() < 0.5:
        tensor = TensorProto(name=name, data_type=kind, dims=dims,
                             data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "weights.onnx_data"), ("offset", "64"),
                           ("length", str(array.nbytes))):
            tensor.external_data.add(key=key, value=value)
        return tensor
    if rng.random() < 0.5:
        return helper.make_tensor(name, kind, dims, array.tobytes(), raw=True)
    return helper.make_tensor(name, kind, dims, array.flatten().tolist())


def value(rng, name):
    shape = [rng.choice((1, 3, 224, "batch", None)) for _ in range(rng.randint(0, 4))]
    return helper.make_tensor_value_info(name, rng.choice(list(ONNX_TYPES)), shape)


def write_onnx(rng, path):
    used, external = set(), rng.random() < 0.4
    weights = [initializer(rng, name_of(rng, used, 0), external)
               for _ in range(rng.choice((0, 1, 4, 40)))]
    inputs = [value(rng, name_of(rng, used, 0)) for _ in range(rng.randint(1, 3))]
    if weights and rng.random() < 0.5:  # old models list their weights as inputs as well
        inputs.append(helper.make_tensor_value_info(weights[0].name, weights[0].data_type,
                                                    list(weights[0].dims)))
    outputs = [value(rng, name_of(rng, used, 0)) for _ in range(rng.randint(1, 2))]
    nodes = [helper.make_node("Identity", [inputs[0].name], [outputs[0].name])
             for _ in range(rng.randint(1, 6))]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", rng.randint(9, 21))]
    if rng.random() < 0.3:
        opsets.append(helper.make_opsetid("com.microsoft", 1))
    model = helper.make_model(graph, opset_imports=opsets, producer_name="made up",
                              producer_version="0.1", ir_version=rng.randint(7, 10))
    with open(path, "wb") as f:
        f.write(model.SerializeToString())


# --- NumPy ---

def array_of(rng):
    dtype = rng.choice(("<f4", ">f4", "<f2", "<f8", "<i4", ">i8", "u1", "<u2", "i1", "?", "<c8"))
    shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(0, 4)))
    n = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    raw = rng.randbytes(n)
    if dtype == "?":
        raw = bytes(b & 1 for b in raw)
    array = np.frombuffer(raw, dtype).reshape(shape)
    return np.asfortranarray(array) if rng.random() < 0.3 else array


def write_npy(rng, path):
    with open(path, "wb") as f:
        np.lib.format.write_array(f, array_of(rng), version=rng.choice(((1, 0), (2, 0), (3, 0))))


def write_npz(rng, path):
    used = set()
    arrays = {name_of(rng, used, 0): array_of(rng) for _ in range(rng.randint(1, 5))}
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(path, **arrays)


# --- pickles ---

VALUES = (lambda r: OrderedDict(a=1), lambda r: Decimal("1.5"), lambda r: Fraction(1, 3),
          lambda r: timedelta(3), lambda r: Counter("abca"), lambda r: {1, 2}, lambda r: print,
          lambda r: np.arange(4), lambda r: {"a": [1, 2.5, None, True, b"x", "y" * 300]},
          lambda r: os.system, lambda r: 2 ** 200, lambda r: ("t", ("u", -1)), lambda r: range(9))


def write_pickle(rng, path):
    things = [rng.choice(VALUES)(rng) for _ in range(rng.randint(1, 6))]
    data = b"".join(pickle.dumps(t, rng.randint(0, 5)) for t in (
        things if rng.random() < 0.3 else [things]))
    if rng.random() < 0.5:
        with open(path, "wb") as f:
            f.write(data)
        return
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as z:
        z.writestr("archive/data.pkl", data)
        z.writestr("archive/version", "3\n")
    with open(path, "wb") as f:
        f.write(memory.getvalue())


# --- one model in several files ---

def shard_safetensors(path, folder, shards):
    """Its tensors in so many files, with an index."""
    tensors = safetensors.numpy.load_file(path)
    names, index = sorted(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {n: tensors[n] for n in names[i::shards]}
        safetensors.numpy.save_file(part, os.path.join(folder, file))
        index.update(dict.fromkeys(part, file))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
                   "weight_map": index}, f)


def split_gguf(path, folder, tensors_each):
    """Its tensors in parts, as the format's own writer splits."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), "split",
                             split_max_tensors=tensors_each)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def generate(folder, seed):
    """Writes the files and gives their paths."""
    rng = random.Random(seed)
    paths = []

    def make(writer, extension, **more):
        path = os.path.join(folder, f"{len(paths):04d}-{writer.__name__[6:]}.{extension}")
        writer(rng, path, **more)
        paths.append(path)

    for _ in range(70):
        make(write_safetensors, "safetensors")
    for _ in range(10):
        make(write_safetensors_of_the_writer, "safetensors")
    for kind in GGML_TYPES:
        make(write_gguf, "gguf", kind=kind)
    for _ in range(60):
        make(write_gguf, "gguf")
    for _ in range(40):
        make(write_onnx, "onnx")
    for _ in range(30):
        make(write_npy, "npy")
    for _ in range(10):
        make(write_npz, "npz")
    for _ in range(40):
        make(write_pickle, "pt")
    return paths
