#!/usr/bin/env python3
"""Writes tests/unit/model/decode_golden.txt: bytes of each type, and the values they stand for.

    pip install gguf numpy ml_dtypes
    tests/oracle/make_decode_golden.py > tests/unit/model/decode_golden.txt

Block types are decoded by the gguf package, small floats by ml_dtypes, the rest by NumPy. The
four block types that gguf does not decode are decoded here, from their layout in ggml-common.h.
A line: naming, type, byte order, kind of value, bytes, values (both hexadecimal, values
big-endian; every NaN is written as the same one).
"""
import random

import gguf
import ml_dtypes
import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

RANDOM = random.Random(20)

# Where the f16 scales of a block lie: half of the blocks get moderate ones, the others any bytes.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q8_1": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ3_XXS": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ3_S": [0],
    "IQ2_S": [0], "IQ4_XS": [0], "IQ1_M": [], "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [],
    "NVFP4": [], "Q8_K": [], "Q1_0": [0], "Q2_0": [0],
}
SIZES = {"Q8_1": (32, 36), "Q8_K": (256, 292), "Q1_0": (128, 18), "Q2_0": (64, 18)}
# Further fields of several bytes, (first, step, end): a big-endian block has these turned round.
WORDS = {"IQ2_XS": (2, 2, 66), "IQ1_S": (34, 2, 50), "IQ4_XS": (2, 2, 4), "Q8_K": (0, 4, 4)}
# ggml copies bytes into integers in these, or the other way round: their order is not defined.
LITTLE_ONLY = ["Q5_0", "Q5_1", "Q3_K", "IQ2_XXS", "IQ3_XXS", "IQ1_M"]


def here(name, data):
    """One block of a type that gguf does not decode."""
    half = np.frombuffer(data[:2], "<f2").astype(np.float32)
    if name == "Q8_1":
        return half * np.frombuffer(data[4:], np.int8).astype(np.float32)
    if name == "Q8_K":
        return np.frombuffer(data[:4], "<f4") * np.frombuffer(data[4:260], np.int8).astype("f4")
    bits = np.unpackbits(np.frombuffer(data[2:], np.uint8), bitorder="little").astype(np.float32)
    if name == "Q1_0":
        return np.where(bits == 1, half, -half)
    return (bits[0::2] + 2 * bits[1::2] - np.float32(1)) * half


def blocks(name, elements, size, count):
    data = b""
    for i in range(count):
        block = bytearray(RANDOM.randbytes(size))
        if i % 2 == 0:
            for at in HALVES[name]:
                half = np.float16(RANDOM.choice([-1, 1]) * RANDOM.uniform(0.001, 2))
                block[at : at + 2] = half.tobytes()
            if name == "Q8_K":
                block[:4] = np.float32(RANDOM.uniform(-1, 1)).tobytes()
        if name == "MXFP4":  # the two smallest scales, and the largest
            block[0] = [0, 1, 255, block[0]][i]
        data += block
    return data


def turned(name, block):
    """The first block as a big-endian file has it."""
    first, step, end = WORDS.get(name, (0, 1, 0))
    for at, size in [(at, 2) for at in HALVES[name]] + [(at, step) for at in range(first, end, step)]:
        block[at : at + size] = block[at : at + size][::-1]
    return block


def put(names, name, order, kind, data, values):
    values = np.array(values)
    if kind in ("f32", "f64"):
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    width = {"f32": ">f4", "f64": ">f8", "u64": ">u8", "i64": ">i8"}[kind]
    print(names, name, order, kind, data.hex(), values.astype(width).tobytes().hex())


def put_blocks():
    np.seterr(all="ignore")
    for name in HALVES:
        known = name not in SIZES
        qtype = gguf.GGMLQuantizationType[name] if known else None
        elements, size = GGML_QUANT_SIZES[qtype] if known else SIZES[name]
        data = blocks(name, elements, size, 2 if elements == 256 else 4)
        parts = [data[i : i + size] for i in range(0, len(data), size)]
        if known:
            values = dequantize(np.frombuffer(data, np.uint8), qtype)
        else:
            values = np.concatenate([here(name, p) for p in parts])
        put("ggml", name, "little", "f32", data, values)
        if name not in LITTLE_ONLY:
            put("ggml", name, "big", "f32", turned(name, bytearray(parts[0])), values[:elements])


SMALL = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F6_E2M3": ml_dtypes.float6_e2m3fn,
    "F6_E3M2": ml_dtypes.float6_e3m2fn, "F4": ml_dtypes.float4_e2m1fn,
}


def put_small():
    for name, dtype in SMALL.items():
        bits = int(name[1])
        codes = np.arange(1 << bits, dtype=np.uint8)
        values = codes.view(dtype).astype(np.float64)
        packed = sum(int(c) << (bits * i) for i, c in enumerate(codes))
        put("safetensors", name, "little", "f64", packed.to_bytes(bits << bits >> 3, "little"), values)


def put_plain():
    special = {
        "F16": [0, 0x8000, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00],
        "BF16": [0, 0x8000, 1, 0x7F, 0x80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0x3F80],
        "F32": [0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000],
        "F64": [0, 1 << 63, 1, (1 << 52) - 1, 1 << 52, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52],
    }
    dtypes = {"F16": "f2", "BF16": ml_dtypes.bfloat16, "F32": "f4", "F64": "f8"}
    for name, dtype in dtypes.items():
        size = np.dtype(dtype).itemsize
        data = b"".join(v.to_bytes(size, "little") for v in special[name]) + RANDOM.randbytes(16 * size)
        values = np.frombuffer(data, dtype).astype(np.float64)
        swapped = b"".join(data[i : i + size][::-1] for i in range(0, len(data), size))
        put("safetensors", name, "little", "f64", data, values)
        put("ggml", name, "little", "f64", data, values)
        put("ggml", name, "big", "f64", swapped, values)
    for name in ("U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"):
        size = int(name[1:]) // 8
        data = b"\xff" * size + bytes(size - 1) + b"\x80" + RANDOM.randbytes(14 * size)
        values = np.frombuffer(data, "<" + name[0].lower() + str(size))
        kind = name[0].lower() + "64"
        put("safetensors", name, "little", kind, data, values)
        if name[0] == "I":
            swapped = b"".join(data[i : i + size][::-1] for i in range(0, len(data), size))
            put("ggml", name, "big", kind, swapped, values)


if __name__ == "__main__":
    put_blocks()
    put_small()
    put_plain()
