#!/usr/bin/env python3
"""Makes the NumPy arrays of tests/unit/model/files with NumPy, and numpy.tsv beside them with what
NumPy says about them. Needs numpy; run it when a new kind of array is wanted, and commit what it
makes:

    python3 tests/oracle/make_numpy.py tests/unit/model/files
"""

import io
import os
import sys

import numpy
from numpy.lib import _format_impl

# Types that have a name in safetensors.
NAMES = {"b1": "BOOL", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "u1": "U8", "u2": "U16",
         "u4": "U32", "u8": "U64", "f2": "F16", "f4": "F32", "f8": "F64", "c8": "C64",
         "c16": "C128"}


def arrays():
    """The version of the format, None = NumPy's choice, and an array."""
    for kind in [*NAMES, "f16", "c32", "S5", "U3", "V7", "M8[ns]", "m8[D]", "S0"]:
        for order in "<>":
            if kind in ("f16", "c32") and order == ">":
                continue
            yield None, numpy.zeros((2, 3), numpy.dtype(order + kind))
    for shape in [(), (0,), (1,), (3, 0, 2), (5, 1), (2,) + (1,) * 31]:
        yield None, numpy.zeros(shape, "<f4")
    yield None, numpy.asfortranarray(numpy.zeros((4, 3), "<f8"))
    yield None, numpy.asfortranarray(numpy.zeros((4,), "<f8"))
    fields = [("a", "<i4"), ("b", ">f8", (2, 3)), ("c", [("x", "S3"), ("y", "?")])]
    for version in [(1, 0), (2, 0), (3, 0)]:
        yield version, numpy.zeros((2, 3), "<i4")
        yield version, numpy.zeros(4, numpy.dtype(fields))
    yield None, numpy.zeros(4, numpy.dtype(fields, align=True))
    yield None, numpy.zeros(2, numpy.dtype([(("a title", "name"), "<f4")]))
    yield None, numpy.zeros(2, numpy.dtype([("quote'd", "<f4"), ('"', "<i2"), ("back\\slash", "i1")]))
    yield None, numpy.zeros(2, numpy.dtype([("ünïcode", "<f4")]))
    yield None, numpy.zeros((2, 2), numpy.dtype([]))
    yield None, numpy.zeros(2, numpy.dtype({"names": ["a"], "formats": ["<i4"], "offsets": [4],
                                            "itemsize": 16}))
    yield None, numpy.array([1, "a", None], dtype=object)
    yield None, numpy.zeros(2, numpy.dtype([("a", "<i4"), ("o", "O")]))


def is_big(dtype):
    if dtype.subdtype:
        return is_big(dtype.subdtype[0])
    if dtype.names:
        return any(is_big(dtype[n]) for n in dtype.names)
    return dtype.byteorder == ">"


def describe(data):
    """The fields of a line, as NumPy reads the array."""
    array = numpy.load(io.BytesIO(data), allow_pickle=True)
    dtype = array.dtype
    name = "OBJECT" if dtype.hasobject else NAMES.get(f"{dtype.kind}{dtype.itemsize}", "")
    stream = io.BytesIO(data)
    version = numpy.lib.format.read_magic(stream)
    shape, fortran, _ = _format_impl._read_array_header(stream, version)
    header = stream.tell()
    return [name, str(int(fortran)), str(int(is_big(dtype))), ",".join(map(str, shape)),
            str(array.size), str(len(data) - header if dtype.hasobject else array.nbytes),
            str(0 if dtype.hasobject else dtype.itemsize), str(header)]


def main():
    folder = sys.argv[1]
    lines = ["file\tbyte\tlength\ttype\tfortran\tbig endian\tshape\telements\tbytes\titem\theader"]
    # All of them in one file, one behind the other: it is what they hold that is tested.
    with open(os.path.join(folder, "arrays.bin"), "wb") as f:
        for version, array in arrays():
            out = io.BytesIO()
            numpy.lib.format.write_array(out, array, version=version)
            data = out.getvalue()
            lines.append("\t".join([str(array.dtype.str), str(f.tell()), str(len(data)),
                                    *describe(data)]))
            f.write(data)
    with open(os.path.join(folder, "numpy.tsv"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    values = {"a": numpy.arange(6, dtype="<f4").reshape(2, 3), "b/c": numpy.zeros(300, "<i8"),
              "o": numpy.array([None], dtype=object)}
    numpy.savez(os.path.join(folder, "stored.npz"), **values)
    numpy.savez_compressed(os.path.join(folder, "packed.npz"), **values)


if __name__ == "__main__":
    main()
