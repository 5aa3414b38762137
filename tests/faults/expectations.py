"""What a registry must hold after its process was killed, worked out from what its clients were
told.

Everything that clients can change is a cell: the blob of a repository, the manifest of one, a tag.
An operation gives new values to one or more cells. It begins just before its last byte is
sent, and is acknowledged when the status line of its answer has been read. So, after a kill, a cell
holds the value of an operation that no acknowledged one has replaced, where operations that overlap
may have come in any order:

  * the newest acknowledged values, or
  * that of any operation which was in flight: a server may have done all of it, just not said so.

Anything else is a defect: something acknowledged is lost, a deleted thing is back, or something is
there that was never sent to its end. Several cells of one operation change together or not at all.
"""

import contextlib
import hashlib
import itertools
import json
import threading

ABSENT = {"blob": False, "manifest": False, "tag": None}
KEPT_ROUNDS = 4  # how long what was deleted is looked for


def digest_of(data, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


class Cell:
    def __init__(self, key):
        self.key = key
        self.value = ABSENT[key[0]]  # when nothing was under way
        self.ops = []                # since then
        self.idle = 0                # rounds without an operation

    def possible(self):
        done = [op for op in self.ops if op.end is not None]
        last = max((op.start for op in done), default=None)
        values = {op.effects[self] for op in self.ops
                  if op.end is None or not any(later.start > op.end for later in done)}
        return values if last is not None else values | {self.value}

    @property
    def now(self):
        """For a cell with one writer, whose operations are all acknowledged."""
        values = self.possible()
        if len(values) != 1:
            raise RuntimeError(f"{self.key} has no single value: {values}")
        return next(iter(values))

    def __str__(self):
        kind, repository, name = self.key
        return f"{kind} {repository} {name}"

    def story(self):
        steps = [f"was {self.value}"]
        steps += [f"[{op.start}..{'in flight' if op.end is None else op.end}] {op.name} -> "
                  f"{op.effects[self]}" for op in self.ops]
        return ", ".join(steps)


class Op:
    """Not begun, it has no effect. Begun, it is in flight until it is acknowledged or refused."""

    clock = itertools.count(1)

    def __init__(self, name, effects, is_atomic=True):
        self.name = name
        self.effects = effects  # cell -> value
        self.is_atomic = is_atomic
        self.start = self.end = None

    def begin(self):
        self.start = next(self.clock)
        for cell in self.effects:
            cell.ops.append(self)

    def acknowledge(self):
        self.end = next(self.clock)

    def refuse(self):
        """The server said that it did nothing."""
        for cell in self.effects:
            cell.ops.remove(self)
        self.start = None

    @property
    def is_in_flight(self):
        return self.start is not None and self.end is None


class Manifest:
    def __init__(self, document, media_type):
        self.media_type = media_type
        self.data = json.dumps(document, separators=(",", ":")).encode()
        self.subject = document.get("subject", {}).get("digest")
        self.artifact_type = document.get("artifactType") or document.get(
            "config", {}).get("mediaType")
        self.annotations = document.get("annotations", {})
        parts = [document["config"]] if "config" in document else []
        self.blobs = [d["digest"] for d in parts + document.get("layers", [])]

    def digest(self, algorithm="sha256"):
        return digest_of(self.data, algorithm)


class Session:
    """An upload that its client knows of."""

    def __init__(self, repository, path, data, digest):
        self.repository, self.path, self.data, self.digest = repository, path, data, digest
        self.acknowledged = 0  # bytes
        self.sent = 0          # at most so many bytes can be there
        self.ending = None     # the operation that ends it
        self.survived = 0      # crashes of the server

    @property
    def may_have_ended(self):
        return self.ending is not None and self.ending.start is not None


class World:
    """Thread-safe in so far as the pushers need it: each cell of a repository of their own has one
    writer, cells of the shared repository only ever get operations appended."""

    def __init__(self):
        self.cells = {}
        self.blobs = {}      # digest -> bytes
        self.manifests = {}  # digest -> Manifest
        self.sessions = set()
        self.unknown_sessions = 0  # at most so many were begun by requests without an answer
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def asking_for_session(self):
        with self.lock:
            self.unknown_sessions += 1
        yield
        with self.lock:  # not reached when the connection broke
            self.unknown_sessions -= 1

    def cell(self, kind, repository, name):
        key = (kind, repository, name)
        return self.cells.get(key) or self.cells.setdefault(key, Cell(key))

    def blob(self, repository, data, algorithm="sha256"):
        digest = digest_of(data, algorithm)
        self.blobs[digest] = data
        return self.cell("blob", repository, digest)

    def manifest(self, repository, manifest, algorithm="sha256"):
        digest = manifest.digest(algorithm)
        self.manifests[digest] = manifest
        return self.cell("manifest", repository, digest)

    def present(self, kind, repository):
        """Of a repository with one writer: names of what is there."""
        return sorted(cell.key[2] for cell in list(self.cells.values())
                      if cell.key[:2] == (kind, repository) and cell.now != ABSENT[kind])

    @staticmethod
    def op(name, effects):
        return Op(name, effects)

    def collection(self):
        """What `gc --grace 0` does: blobs that no manifest of their repository needs go."""
        needed = {(cell.key[1], digest) for cell in self.cells.values()
                  if cell.key[0] == "manifest" and cell.now
                  for digest in self.manifests[cell.key[2]].blobs}
        return Op("gc", {cell: False for cell in self.cells.values() if cell.key[0] == "blob"
                         and cell.now and cell.key[1:] not in needed}, is_atomic=False)

    def settle(self, observed):
        """observed: cell -> value. Returns what is wrong with it, then takes it for the truth."""
        wrong = []
        ops = set()
        for cell, value in observed.items():
            ops.update(cell.ops)
            if value not in cell.possible():
                wrong.append(f"{cell}: is {value}; {cell.story()}")
        for op in ops:
            if op.is_in_flight and op.is_atomic:
                wrong += self._check_whole(op, observed)
        for cell, value in list(observed.items()):
            cell.idle = 0 if cell.ops else cell.idle + 1
            cell.value, cell.ops = value, []
            if value == ABSENT[cell.key[0]] and cell.idle > KEPT_ROUNDS:
                del self.cells[cell.key]
        known = {cell.key[2] for cell in self.cells.values()}
        known |= {session.digest for session in self.sessions}
        known |= {cell.value for cell in self.cells.values() if cell.key[0] == "tag"}
        self.blobs = {d: data for d, data in self.blobs.items() if d in known}
        self.manifests = {d: m for d, m in self.manifests.items() if d in known}
        return wrong

    @staticmethod
    def _check_whole(op, observed):
        """Cells that nothing else was changing, and that this operation would change."""
        done = {}
        for cell, value in op.effects.items():
            before = {cell.value} if cell.ops == [op] else set()
            if len(cell.ops) > 1:
                acked = [other for other in cell.ops if other is not op]
                if all(other.end is not None and other.end < op.start for other in acked):
                    before = {max(acked, key=lambda other: other.start).effects[cell]}
            if before and value not in before:
                done[cell] = observed[cell] == value
        if len(set(done.values())) > 1:
            return [f"{op.name} happened in part: " + ", ".join(
                f"{cell}: {'done' if is_done else 'not'}" for cell, is_done in done.items())]
        return []
