"""The repositories of the stand-in Hub: files, commits, refs, names.

Owns the truth that every other module only shows: what bytes a file has, its
git object id, its LFS sha256, which commit a ref points at, who may read it.
No HTTP here.

All ids are true git ids: a blob's is sha1("blob <size>\\0" + bytes), an LFS
file's is that of its pointer, trees and commits are hashed as git does it.
Xet hashes are made up (sha256 of the LFS sha256), but fixed per content.
"""

import collections
import fnmatch
import hashlib
import os
import re
import threading
import time
from urllib.parse import quote

from standin_sources import Disk, Memory, Sparse

LFS_MIN_SIZE = 1 << 20
LFS_EXTENSIONS = (
    ".safetensors", ".gguf", ".bin", ".onnx", ".pt", ".pth", ".ckpt", ".h5",
    ".msgpack", ".npz", ".npy", ".parquet", ".arrow", ".tar", ".gz", ".zip",
    ".7z", ".pkl", ".pickle", ".joblib", ".model", ".mlmodel", ".ot", ".tflite",
    ".pb", ".ftz", ".rar", ".xz", ".zst",
)
HEX40 = re.compile(r"[0-9a-f]{40}\Z")
HEX64 = re.compile(r"[0-9a-f]{64}\Z")
MASK = "*" * 64
EPOCH = 1704067200  # 2024-01-01, the date of every repository's first commit


def git_object_id(kind, body):
    return hashlib.sha1(b"%s %d\0" % (kind, len(body)) + body).hexdigest()


def git_blob_id(body):
    return git_object_id(b"blob", body)


def lfs_pointer(sha256, size):
    return (f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\n"
            f"size {size}\n").encode()


class File:
    """A file with its own settings, where the repository's rule does not fit.

    source: bytes, a path, a Sparse. lfs: True, False or None (the rule).
    sha256: the declared LFS oid. xet: False for an LFS file that is still in the
    old LFS store. oid: a declared git object id.
    """

    def __init__(self, source, lfs=None, sha256=None, xet=True, oid=None):
        self.source = source
        self.lfs = lfs
        self.sha256 = sha256
        self.xet = xet
        self.oid = oid


def read_all(source):
    """The whole content as bytes; for small files only."""
    out = bytearray()
    while len(out) < source.size:
        piece = source.read(len(out), source.size - len(out))
        if not len(piece):
            break
        out += piece
    return bytes(out)


def lfs_rule(patterns):
    """None: size or extension. A callable (path, size) -> bool. Or a list of
    globs, '!glob' for not LFS; a path that no glob names falls to the rule."""
    if callable(patterns):
        return patterns

    def rule(path, size):
        for pattern in patterns or ():
            if fnmatch.fnmatchcase(path, pattern.lstrip("!")):
                return not pattern.startswith("!")
        return size >= LFS_MIN_SIZE or path.lower().endswith(LFS_EXTENSIONS)
    return rule


class Entry:
    """One file of a commit, with all the ids the Hub shows for it."""

    def __init__(self, path, value, rule):
        self.path = path
        spec = value if isinstance(value, File) else File(value)
        source = spec.source
        if isinstance(source, str):
            source = source.encode()
        if isinstance(source, (bytes, bytearray)):
            source = Memory(source)
        elif isinstance(source, os.PathLike):
            source = Disk(source, spec.sha256)
        self.source = source
        self.size = source.size
        self.lfs = spec.lfs
        if self.lfs is None:
            self.lfs = isinstance(source, Sparse) or rule(path, self.size)
        self.sha256 = self.xet_hash = None
        self.pointer = None
        if self.lfs:
            self.sha256 = spec.sha256 or source.sha256()
            self.pointer = lfs_pointer(self.sha256, self.size)
            self.oid = spec.oid or git_blob_id(self.pointer)
            if spec.xet:
                self.xet_hash = hashlib.sha256(b"xet" + self.sha256.encode()).hexdigest()
        else:
            self.oid = spec.oid or git_blob_id(read_all(source))

    @property
    def etag(self):
        return self.sha256 if self.lfs else self.oid


class Commit:
    """A commit: path -> Entry, plus the true git tree ids of its directories."""

    def __init__(self, files, parent, title, when, commit_id=None):
        self.files = dict(sorted(files.items()))
        self.parent = parent
        self.title = title
        self.when = when
        self.dirs = {}  # path -> git tree id, "" is the root
        self._hash_trees()
        lines = [f"tree {self.dirs['']}"]
        if parent:
            lines.append(f"parent {parent.id}")
        who = f"stand-in <stand-in@localhost> {when} +0000"
        lines += [f"author {who}", f"committer {who}", "", title, ""]
        self.id = commit_id or git_object_id(b"commit", "\n".join(lines).encode())

    def _hash_trees(self):
        children = {"": {}}
        for path, entry in self.files.items():
            parts = path.split("/")
            for i in range(len(parts) - 1):
                above, here = "/".join(parts[:i]), "/".join(parts[:i + 1])
                children.setdefault(here, {})
                children[above][parts[i]] = None
            children["/".join(parts[:-1])][parts[-1]] = entry.oid
        for path in sorted(children, key=lambda p: -len(p.split("/")) if p else 0):
            rows = []
            for name, oid in children[path].items():
                is_dir = oid is None
                if is_dir:
                    oid = self.dirs[f"{path}/{name}" if path else name]
                mode = b"40000" if is_dir else b"100644"
                rows.append((name.encode() + (b"/" if is_dir else b""),
                             mode + b" " + name.encode() + b"\0" + bytes.fromhex(oid)))
            body = b"".join(row for _, row in sorted(rows))
            self.dirs[path] = git_object_id(b"tree", body)

    @property
    def date(self):
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.when))

    def listing(self, folder="", recursive=False):
        """(path, Entry or None for a directory) below folder, in git's order."""
        prefix = folder + "/" if folder else ""
        paths = [(d, None) for d in self.dirs if d] + list(self.files.items())
        rows = [(p, e) for p, e in paths if p.startswith(prefix)
                and (recursive or "/" not in p[len(prefix):])]
        return sorted(rows, key=lambda row: row[0])


class Repo:
    """One repository. All changes go through the methods; reads need no lock."""

    def __init__(self, repo_id, kind="model", default_branch="main", private=False,
                 gated=False, tokens=(), renamed_from=(), lfs=None, disabled=False,
                 info=None):
        self.id = repo_id
        self.kind = kind
        self.default_branch = default_branch
        self.private = private
        self.gated = gated if not (gated is True) else "auto"
        self.disabled = disabled
        self.tokens = set(tokens)
        self.renamed_from = list(renamed_from)
        self.rule = lfs_rule(lfs)
        self.info = dict(info or {})
        self.uid = None  # the store gives it one
        self.branches = {}
        self.tags = {}
        self.refs = {}  # full names: refs/pr/1, refs/convert/parquet
        self.commits = {}  # id -> Commit
        self.lock = threading.Lock()

    @property
    def bare(self):
        return "/" not in self.id

    def add_commit(self, files, branch=None, ref=None, tag=None, parent=None,
                   keep=False, title=None, commit_id=None):
        """Add a commit with exactly `files` (keep=True: on top of the parent's;
        a value of None removes a path) and move branch, ref or tag to it.
        Given none of the three, the default branch moves. Returns the id."""
        with self.lock:
            if branch is None and ref is None and tag is None:
                branch = self.default_branch
            if parent is None:
                at = self.branches.get(branch or self.default_branch)
            else:
                at = self.resolve(parent)
            before = self.commits.get(at)
            tree = dict(before.files) if keep and before else {}
            for path, value in files.items():
                if value is None:
                    tree.pop(path, None)
                else:
                    tree[path] = value if isinstance(value, Entry) else \
                        Entry(path, value, self.rule)
            count = len(self.commits)
            commit = Commit(tree, before, title or f"Commit {count + 1}",
                            EPOCH + 86400 * count, commit_id)
            self.commits[commit.id] = commit
            if branch:
                self.branches[branch] = commit.id
            if ref:
                self.refs[ref] = commit.id
            if tag:
                self.tags[tag] = commit.id
            return commit.id

    def move(self, name, commit, table=None):
        """Point a branch (or the named table's entry) at a commit or revision."""
        target = self.resolve(commit)
        if target is None:
            raise KeyError(f"no such revision: {commit}")
        (self.branches if table is None else table)[name] = target
        return target

    def resolve(self, revision):
        """The commit id of a branch, tag, ref, HEAD or full commit id, or None."""
        if revision == "HEAD":
            revision = self.default_branch
        for table in (self.branches, self.tags, self.refs):
            if revision in table:
                return table[revision]
        if revision.startswith("refs/heads/"):
            return self.branches.get(revision[11:])
        if revision.startswith("refs/tags/"):
            return self.tags.get(revision[10:])
        return revision if revision in self.commits else None

    def longest_ref(self, segments):
        """For a path whose revision may hold unencoded slashes: the number of
        leading segments that name a known revision, longest first (0: none)."""
        for n in range(len(segments), 0, -1):
            if self.resolve("/".join(segments[:n])) is not None:
                return n
        return 0

    def find_content(self, content_hash):
        for commit in list(self.commits.values()):
            for entry in commit.files.values():
                if entry.lfs and content_hash in (entry.xet_hash, entry.sha256):
                    return entry
        return None

    @property
    def url_path(self):
        prefix = "" if self.kind == "model" else f"{self.kind}s/"
        return f"/{prefix}{quote(self.id)}"


class Store:
    """All repositories, found by exact name, by another case, by an old name."""

    def __init__(self):
        self.repos = {}  # (kind, id) -> Repo
        self.made = collections.Counter()  # (kind, id) -> repositories that were made so
        self.user_tokens = {}  # token -> user name

    def add(self, repo):
        name = (repo.kind, repo.id)
        if repo.uid is None:
            text = f"{repo.kind}/{repo.id}{self.made[name] or ''}"
            repo.uid = hashlib.sha1(text.encode()).hexdigest()[:24]
            self.made[name] += 1
        self.repos[name] = repo
        return repo

    def get(self, repo_id, kind="model"):
        return self.repos[(kind, repo_id)]

    def find(self, kind, name):
        """(repo, how) where how is 'exact', 'case' or 'renamed'; or (None, None)."""
        repo = self.repos.get((kind, name))
        if repo:
            return repo, "exact"
        low = name.lower()
        for repo in list(self.repos.values()):
            if repo.kind == kind and repo.id.lower() == low:
                return repo, "case"
        for repo in list(self.repos.values()):
            if repo.kind == kind and low in (n.lower() for n in repo.renamed_from):
                return repo, "renamed"
        return None, None

    def user_of(self, token):
        """The user name of a valid token, or None. A repository's accepted
        tokens are valid tokens too."""
        if token in self.user_tokens:
            return self.user_tokens[token]
        if any(token in repo.tokens for repo in list(self.repos.values())):
            return "tester"
        return None
