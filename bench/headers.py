"""Headers of weight files: `weighbridge inspect` as a whole process, beside the formats' own Python
readers opening the same file, without what starting Python and importing them takes."""

import os
import statistics
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "oracle"))

from harness import binary  # noqa: E402
from oracle_env import python_with_readers  # noqa: E402

GGUF_BAR, SAFETENSORS_BAR = 10, 0.5
LARGEST, LARGEST_BAR_S, LARGEST_BAR_MB = 100_000_000, 1.5, 250
OPENS = {
    "gguf": "import sys, time, gguf; t = time.perf_counter(); gguf.GGUFReader(sys.argv[1]); "
            "print(time.perf_counter() - t)",
    "safetensors": "import sys, time, safetensors; t = time.perf_counter(); "
                   "safetensors.safe_open(sys.argv[1], 'np').__enter__(); "
                   "print(time.perf_counter() - t)",
}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def strings(key, words):
    return text(key) + struct.pack("<IIQ", 9, 8, len(words)) + b"".join(map(text, words))


def write_gguf(path, tokens):
    """A large tokenizer and 300 tensors."""
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
            strings("tokenizer.ggml.tokens", [f"token{i}" for i in range(tokens)]),
            strings("tokenizer.ggml.merges", [f"tok en{i}" for i in range(tokens)]),
            text("tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, tokens) +
            bytes(4 * tokens)]
    infos = b"".join(text(f"blk.{i}.weight") + struct.pack("<IQQIQ", 2, 64, 64, 0, i * 16384)
                     for i in range(300))
    head = b"GGUF" + struct.pack("<IQQ", 3, 300, len(keys)) + b"".join(keys) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        f.truncate(f.tell() + 300 * 16384)


def write_safetensors(path, size):
    """As many tensors as a header of this size holds."""
    entries, n = [], 0
    while n < size:
        i = len(entries)
        entries.append(f'"model.layers.{i // 256}.mlp.experts.{i % 256}.down_proj.weight":'
                       f'{{"dtype":"BF16","shape":[64,64],"data_offsets":[{i * 8192},'
                       f'{i * 8192 + 8192}]}}')
        n += len(entries[-1]) + 1
    header = ("{" + ",".join(entries) + "}").encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(f.tell() + len(entries) * 8192)


def ours(path):
    began = time.perf_counter()
    subprocess.run([binary(), "inspect", path], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


# In a process of its own: a child's peak is at least what its parent had when it was forked. The
# bar is about work, which is the processor's time: other work on the machine does not count.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 // 10**6)
"""


def largest(folder, rounds):
    """The largest header that the format allows: processor seconds at best, and MB at most."""
    path = os.path.join(folder, "largest.safetensors")
    write_safetensors(path, LARGEST - 200)
    took, peaks = [], []
    for _ in range(rounds):
        seconds, peak = subprocess.run(
            [sys.executable, "-S", "-c", MEASURE, binary(), "inspect", path], check=True, text=True,
            stdout=subprocess.PIPE).stdout.split()
        took.append(float(seconds))
        peaks.append(int(peak))
    os.unlink(path)
    met = min(took) <= LARGEST_BAR_S and max(peaks) <= LARGEST_BAR_MB
    return (f"safetensors, {LARGEST // 10**6} MB: {min(took):.2f} s ({statistics.median(took):.2f}) "
            f"of a processor, {max(peaks)} MB   bar {LARGEST_BAR_S} s, {LARGEST_BAR_MB} MB: "
            f"{'met' if met else 'MISSED'}")


def theirs(python, kind, path):
    return float(subprocess.run([python, "-c", OPENS[kind], path], check=True, text=True,
                                stdout=subprocess.PIPE).stdout)


def headers(folder, rounds, short):
    """A line for each file."""
    python = python_with_readers()
    tokens, mib = (100_000, 12) if short else (300_000, 35)
    for name, kind, write, size, bar in (
            (f"GGUF, {tokens:,} tokens", "gguf", write_gguf, tokens, GGUF_BAR),
            (f"safetensors, {mib} MB", "safetensors", write_safetensors, mib * 10**6,
             SAFETENSORS_BAR)):
        path = os.path.join(folder, f"header.{kind}")
        write(path, size)
        ratios, best = [], []
        for i in range(min(rounds, 5)):
            pair = [lambda: ours(path), lambda: theirs(python, kind, path)]
            took = [pair[0](), pair[1]()] if i % 2 else [pair[1](), pair[0]()][::-1]
            ratios.append(took[1] / took[0])
            best.append(took[0])
        os.unlink(path)
        ratio = statistics.median(ratios)
        yield (f"{name}: {ratio:6.2f}x {kind}'s reader ({min(ratios):.2f} - {max(ratios):.2f}), "
               f"{min(best) * 1000:.0f} ms   bar {bar:g}x: {'met' if ratio >= bar else 'MISSED'}")
    yield largest(folder, min(rounds, 5))
