"""Where a stand-in's bytes come from: memory, a file, or a rule. Each source has `size`,
read(offset, count) and sha256()."""

import hashlib
import os
import random

ZEROES = memoryview(bytes(1 << 20))


class Memory:
    """Bytes held in memory."""

    def __init__(self, data):
        self.data = bytes(data)
        self.size = len(self.data)

    def read(self, offset, count):
        return memoryview(self.data)[offset:offset + count]

    def sha256(self):
        return hashlib.sha256(self.data).hexdigest()


class Disk:
    """A file on disk; never loaded whole, hashed once per (path, size, mtime)."""

    _hashes = {}

    def __init__(self, path, sha256=None):
        self.path = os.fspath(path)
        self.declared = sha256
        self.size = os.stat(self.path).st_size

    def read(self, offset, count):
        with open(self.path, "rb", buffering=0) as f:
            return os.pread(f.fileno(), count, offset)

    def sha256(self):
        if self.declared:
            return self.declared
        st = os.stat(self.path)
        key = (self.path, st.st_size, st.st_mtime_ns)
        if key not in self._hashes:
            with open(self.path, "rb") as f:
                self._hashes[key] = hashlib.file_digest(f, "sha256").hexdigest()
        return self._hashes[key]


class Sparse:
    """A huge file that is `header` and then zero bytes up to `size`.

    Costs nothing whatever its size. `sha256` is declared, never computed; left
    out, it is a made-up value that the bytes do not match (right for tests that
    read only the header). true_sha256() hashes the real content, for sizes where
    that is bearable.
    """

    def __init__(self, size, sha256=None, header=b""):
        if len(header) > size:
            raise ValueError("header is longer than the file")
        self.size = size
        self.header = bytes(header)
        self.declared = sha256 or hashlib.sha256(
            b"sparse %d " % size + self.header).hexdigest()

    def read(self, offset, count):
        count = max(0, min(count, self.size - offset))
        if offset < len(self.header):
            return memoryview(self.header)[offset:offset + count]
        return ZEROES[:count] if count <= len(ZEROES) else bytes(count)

    def sha256(self):
        return self.declared

    def true_sha256(self):
        h = hashlib.sha256(self.header)
        left = self.size - len(self.header)
        while left > 0:
            h.update(ZEROES[:left])
            left -= min(left, len(ZEROES))
        return h.hexdigest()


class Noise:
    """Bytes that nothing compresses, of any size at no cost, the same for the same seed. What comes
    from a wrong offset shows: the content repeats only every PERIOD bytes, which is a prime."""

    PERIOD = 1_048_573

    def __init__(self, size, seed=0):
        self.size = size
        block = random.Random(f"noise {seed}").randbytes(self.PERIOD)
        self.block = memoryview(block + block)
        self._sha256 = None

    def read(self, offset, count):
        count = max(0, min(count, self.size - offset))
        at = offset % self.PERIOD
        if count <= self.PERIOD:
            return self.block[at:at + count]
        whole, rest = divmod(at + count, self.PERIOD)
        return bytes(self.block[at:self.PERIOD]) + \
            bytes(self.block[:self.PERIOD]) * (whole - 1) + bytes(self.block[:rest])

    def sha256(self):
        if self._sha256 is None:
            h = hashlib.sha256()
            for at in range(0, self.size, self.PERIOD):
                h.update(self.read(at, self.PERIOD))
            self._sha256 = h.hexdigest()
        return self._sha256
