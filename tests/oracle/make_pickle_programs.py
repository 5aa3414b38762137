#!/usr/bin/env python3
"""Makes pickles out of opcodes at random, loads them with both of Python's unpicklers, which note
what they import, and keeps those that import something: programs.bin and programs.tsv. An import
that either of them makes must be among those that we report, or be covered by a blank one.

    python3 tests/oracle/make_pickle_programs.py tests/unit/model/files
"""

import _pickle
import io
import os
import pickle
import random
import struct
import sys

NAMES = ["os", "system", "collections", "OrderedDict", "torch", "FloatStorage", "a", "storage"]
WANTED = 600


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

    def __hash__(self):
        return 1

    def append(self, item):
        pass

    extend = add = append


def watcher(base):
    class Watcher(base):
        def find_class(self, module, name):
            self.found.append(f"{module}.{name}")
            return type("Imported", (Stub,), {})

        def persistent_load(self, pid):
            return Stub()

    return Watcher


UNPICKLERS = [watcher(pickle._Unpickler), watcher(_pickle.Unpickler)]


def imports_of(data):
    found = set()
    for kind in UNPICKLERS:
        unpickler = kind(io.BytesIO(data), encoding="latin1", fix_imports=False)
        unpickler.found = []
        try:
            unpickler.load()
        except Exception: # what was imported until then has been imported
            pass
        found.update(unpickler.found)
    return found


def string(rng):
    text = rng.choice(NAMES).encode()
    return rng.choice([
        b"\x8c" + bytes([len(text)]) + text, b"X" + struct.pack("<I", len(text)) + text,
        b"U" + bytes([len(text)]) + text, b"V" + text + b"\n", b"S'" + text + b"'\n",
        b'S"' + text + b'" \n', b"T" + struct.pack("<i", len(text)) + text,
        b"\x8d" + struct.pack("<Q", len(text)) + text])


def memo(rng):
    index, put = rng.choice([0, 0, 1, 1, 2, 3, 4, 200, 300]), rng.random() < 0.5
    text = rng.choice([b"%d", b" %d", b"%d ", b"0%d", b"+%d", b"0_%d", b"%d\t", b"%d\r"]) % index
    return rng.choice([
        b"\x94", (b"q" if put else b"h") + bytes([index & 255]),
        (b"r" if put else b"j") + struct.pack("<I", index | rng.choice([0, 0, 0x80000000])),
        (b"p" if put else b"g") + text + b"\n"])


def other(rng):
    names = (rng.choice(NAMES) + "\n" + rng.choice(NAMES) + "\n").encode()
    return rng.choice([
        b"N", b")", b"]", b"}", b"\x85", b"\x86", b"\x87", b"t", b"l", b"d", b"R", b"o", b"\x81",
        b"b", b"a", b"e", b"s", b"u", b"\x8f", b"\x90", b"\x91", b"Q", b"Pid\n", b"K\5", b"\x88",
        b"i" + names, b"\x95" + struct.pack("<Q", rng.choice([0, 5, 9, 30])), b"\x80\4", b"I01\n",
        b"L5L\n", b"F1.5\n", b"C\1x", b"\x92", b"G" + bytes(8)])


def opcode(rng):
    names = (rng.choice(NAMES) + "\n" + rng.choice(NAMES) + "\n").encode()
    kind = rng.choices(["string", "memo", "\x93", "c", "(", "012", "other"],
                       [30, 25, 10, 5, 3, 12, 15])[0]
    return {"string": lambda: string(rng), "memo": lambda: memo(rng), "\x93": lambda: b"\x93",
            "c": lambda: b"c" + names, "(": lambda: b"(",
            "012": lambda: rng.choice([b"0", b"1", b"2"]), "other": lambda: other(rng)}[kind]()


def main():
    folder, rng = sys.argv[1], random.Random(1)
    lines, at = ["byte\tlength\timports"], 0
    with open(os.path.join(folder, "programs.bin"), "wb") as f:
        while len(lines) <= WANTED:
            data = rng.choice([b"\x80\4", b"\x80\2", b""])
            data += b"".join(opcode(rng) for _ in range(rng.randint(2, 25))) + b"."
            found = imports_of(data)
            if found:
                f.write(data)
                lines.append(f"{at}\t{len(data)}\t{' '.join(sorted(found))}")
                at += len(data)
    with open(os.path.join(folder, "programs.tsv"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
