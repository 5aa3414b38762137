"""Repositories from a directory: DIR/models/<org>/<name>/ or DIR/models/<name>/.

A repository's folder holds one folder of files per revision (main, v1.0,
refs%2Fpr%2F1, or a 40-hex commit id), or a repo.json that says more; README.md
has its keys.
"""

import json
from pathlib import Path
from urllib.parse import unquote

from hub_repos import HEX40, File, Repo, Sparse

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}


def load_root(root):
    repos = []
    for folder, kind in KINDS.items():
        top = Path(root) / folder
        for first in sorted(top.iterdir()) if top.is_dir() else ():
            if not first.is_dir():
                continue
            if is_repo(first):
                repos.append(load_repo(first, first.name, kind))
                continue
            for second in sorted(p for p in first.iterdir() if p.is_dir()):
                repos.append(load_repo(second, f"{first.name}/{second.name}", kind))
    return repos


def is_repo(folder):
    main = folder / "main"
    return (folder / "repo.json").is_file() or (
        main.is_dir() and not (main / "repo.json").is_file()
        and not (main / "main").is_dir())


def files_of(folder):
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*"))
            if p.is_file()}


def load_repo(folder, name, kind):
    described = folder / "repo.json"
    if described.is_file():
        return from_json(folder, name, kind, json.loads(described.read_text()))
    names = sorted((unquote(p.name), p) for p in folder.iterdir() if p.is_dir())
    known = [n for n, _ in names if not HEX40.match(n) and not n.startswith("refs/")]
    default = "main" if "main" in known or not known else known[0]
    repo = Repo(name, kind=kind, default_branch=default)
    for revision, path in sorted(names, key=lambda n: n[0] != default):
        if HEX40.match(revision):
            repo.add_commit(files_of(path), ref=revision, commit_id=revision)
        elif revision.startswith("refs/"):
            repo.add_commit(files_of(path), ref=revision)
        else:
            repo.add_commit(files_of(path), branch=revision)
    if default not in repo.branches and repo.commits:
        repo.branches[default] = next(iter(repo.commits))
    return repo


def from_json(folder, name, kind, said):
    repo = Repo(said.get("id", name), kind=said.get("type", kind),
                default_branch=said.get("default_branch", "main"),
                private=said.get("private", False), gated=said.get("gated", False),
                tokens=said.get("tokens", ()), renamed_from=said.get("renamed_from", ()),
                lfs=said.get("lfs"), disabled=said.get("disabled", False),
                info=said.get("info"))
    ids = {}
    for row in said["commits"]:
        label = row["name"]
        files = dict(files_of(folder / row.get("folder", label)))
        for path, value in row.get("sparse", {}).items():
            header = (folder / value["header"]).read_bytes() if "header" in value else b""
            files[path] = Sparse(value["size"], value.get("sha256"), header)
        for path, sha256 in row.get("sha256", {}).items():
            files[path] = File(files[path], lfs=True, sha256=sha256)
        ids[label] = repo.add_commit(files, ref="loading", parent=ids.get(row.get("parent")),
                                     title=row.get("title"), commit_id=row.get("id"))
    repo.refs.pop("loading", None)
    for table, target in (("branches", repo.branches), ("tags", repo.tags),
                          ("refs", repo.refs)):
        for ref, commit in said.get(table, {}).items():
            target[ref] = ids.get(commit, commit)
    if repo.default_branch not in repo.branches:
        repo.branches[repo.default_branch] = list(ids.values())[-1]
    return repo
