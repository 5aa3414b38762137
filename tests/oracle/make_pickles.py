#!/usr/bin/env python3
"""Makes the PyTorch files of tests/unit/model/files with PyTorch itself, and pickles.tsv beside them
with what PyTorch and Python's own unpickler say about them. Needs torch and numpy; run it when a new
kind of file is wanted, and commit what it makes:

    python3 tests/oracle/make_pickles.py tests/unit/model/files
"""

import argparse
import collections
import io
import os
import pickle
import sys
import warnings
import zipfile

import numpy
import torch

warnings.filterwarnings("ignore")
MAGIC = 0x1950A86A20F9469CFC6C
NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64", torch.complex128: "C128",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0", torch.uint16: "U16", torch.uint32: "U32",
    torch.uint64: "U64", torch.complex32: "C32", torch.qint8: "I8",
}


def objects():
    """The name of a file, and what goes into it."""
    torch.manual_seed(0)
    plain = [d for d in NAMES if d is not torch.qint8]
    base, flat = torch.randn(6, 8), torch.randn(100)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    adam = torch.optim.AdamW(net.parameters())
    net(torch.randn(2, 3)).sum().backward()
    adam.step()
    yield "dtypes", {str(d)[6:]: torch.zeros(3, 4).to(d) for d in plain}
    yield "tied", {"a": base, "b": base, "c": base.t(), "row": base[2:4], "zero": torch.ones(0, 5),
                   "scalar": torch.tensor(3.5)}
    yield "flat", {"p0": flat[:30].view(5, 6), "p1": flat[30:90], "p2": flat[90:]}
    yield "checkpoint", {
        "state_dict": net.state_dict(), "optimizer": adam.state_dict(), "epoch": 3,
        "args": argparse.Namespace(a=1, b="x"), "big": 2**70, "array": numpy.arange(6.0),
        "size": torch.Size([2, 3]), "device": torch.device("cpu"), "set": {1, 2},
        "bytes": b"abc", "complex": 1 + 2j, "deep": [[[torch.ones(2)]]]}
    yield "parameter", {"w": torch.nn.Parameter(torch.randn(3, 3))}
    yield "quantized", {"q": torch.quantize_per_tensor(torch.randn(4), 0.1, 2, torch.qint8)}


class Stub:
    """Whatever an unpickler may do to an object, it takes."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return Stub()

    def __setstate__(self, state):
        pass

    def __setitem__(self, key, value):
        pass

    def append(self, item):
        pass

    extend = add = append


class Importless(pickle._Unpickler):
    """Python's unpickler, which notes what it would import."""

    def __init__(self, file, found):
        super().__init__(file, encoding="latin1", fix_imports=False)
        self.found = found

    def find_class(self, module, name):
        self.found.add(f"{module}.{name}")
        return type("Imported", (Stub,), {})

    def persistent_load(self, pid):
        return Stub()


def imports_of(data):
    found, stream = set(), io.BytesIO(data)
    if data[:2] == b"PK":
        with zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                if name.endswith(".pkl"):
                    Importless(io.BytesIO(archive.read(name)), found).load()
        return found
    values = [Importless(stream, found).load()]
    while stream.tell() < len(data) and not (values[0] == MAGIC and len(values) == 5):
        values.append(Importless(stream, found).load())
    return found


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def totals(value):
    """Per type: elements of storages that some tensor covers, each once."""
    covered = collections.defaultdict(set)
    types = {}
    for t in tensors_of(value):
        key = t.untyped_storage().data_ptr() if t.numel() else id(t)
        types[key] = (NAMES[t.dtype], t.element_size())
        index = torch.arange(t.untyped_storage().nbytes() // t.element_size())
        covered[key].update(
            torch.as_strided(index, t.shape, t.stride(), t.storage_offset()).flatten().tolist()
            if t.numel() else [])
    sums = collections.Counter()
    size = {}
    for key, elements in covered.items():
        name, size[name] = types[key]
        sums[name] += len(elements)
    return " ".join(f"{n}:{sums[n]}:{sums[n] * size[n]}" for n in sorted(sums))


def main():
    folder = sys.argv[1]
    lines = ["file\tcontainer\ttensors\ttypes (name:elements:bytes)\timports"]
    for name, value in objects():
        for legacy in (False, True):
            for protocol in (2, 4):
                file = f"{name}-{'legacy' if legacy else 'zip'}-{protocol}.pt"
                out = io.BytesIO()
                torch.save(value, out, pickle_protocol=protocol,
                           _use_new_zipfile_serialization=not legacy)
                data = out.getvalue()
                with open(os.path.join(folder, file), "wb") as f:
                    f.write(data)
                lines.append("\t".join([
                    file, "legacy" if legacy else "zip", str(sum(1 for _ in tensors_of(value))),
                    totals(value), " ".join(sorted(imports_of(data)))]))
    with open(os.path.join(folder, "pickles.tsv"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
