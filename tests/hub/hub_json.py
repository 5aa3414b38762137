"""The JSON that the Hub answers, built from a repository: shapes only.

Functions take what they need and return plain values; faults that spoil a
listing are applied here too, because they are changes to these values.
"""

import base64
import copy
import fnmatch

from hub_repos import MASK


def file_row(entry, commit, xet, masked, expand):
    """A file as tree and paths-info show it."""
    row = {"type": "file", "oid": entry.oid, "size": entry.size}
    if entry.lfs:
        row["lfs"] = {"oid": entry.sha256, "size": entry.size,
                      "pointerSize": len(entry.pointer)}
        if xet and entry.xet_hash:
            row["xetHash"] = MASK if masked else entry.xet_hash
    row["path"] = entry.path
    if expand:
        row["lastCommit"] = last_commit(commit)
        row["securityFileStatus"] = {"status": "safe", "avScan": {"status": "safe"},
                                     "pickleImportScan": None}
    return row


def folder_row(path, commit, expand):
    row = {"type": "directory", "oid": commit.dirs[path], "size": 0, "path": path}
    if expand:
        row["lastCommit"] = last_commit(commit)
    return row


def last_commit(commit):
    return {"id": commit.id, "title": commit.title, "date": commit.date}


def sibling_row(entry, blobs):
    row = {"rfilename": entry.path}
    if blobs:
        row["size"] = entry.size
        row["blobId"] = entry.oid
        if entry.lfs:
            row["lfs"] = {"sha256": entry.sha256, "size": entry.size,
                          "pointerSize": len(entry.pointer)}
    return row


def repo_info(repo, commit, xet, blobs=False, security=False, expand=()):
    """The repository object. With expand, only the asked keys, _id and id."""
    siblings = [sibling_row(e, blobs) for e in commit.files.values()]
    value = {
        "_id": repo.uid, "id": repo.id, "modelId": repo.id,
        "author": repo.id.split("/")[0] if not repo.bare else None,
        "sha": commit.id, "lastModified": commit.date,
        "createdAt": "2024-01-01T00:00:00.000Z", "private": repo.private,
        "gated": repo.gated, "disabled": repo.disabled, "downloads": 0, "likes": 0,
        "tags": [], "pipeline_tag": None, "library_name": None, "cardData": {},
        "config": {}, "model-index": None, "siblings": siblings, "spaces": [],
        "usedStorage": sum(e.size for e in commit.files.values()),
    }
    if repo.kind != "model":
        del value["modelId"]
    if xet:
        value["xetEnabled"] = True
    if security:
        value["securityRepoStatus"] = {"scansDone": True, "filesWithIssues": []}
    value.update(repo.info)
    if expand:
        value = {k: v for k, v in value.items() if k in ("_id", "id") or k in expand}
    return value


def refs(repo, include_prs):
    value = {
        "branches": [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c}
                     for n, c in repo.branches.items()],
        "converts": [{"name": n[len("refs/convert/"):], "ref": n, "targetCommit": c}
                     for n, c in repo.refs.items() if n.startswith("refs/convert/")],
        "tags": [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c}
                 for n, c in repo.tags.items()],
    }
    if include_prs:
        value["pullRequests"] = [
            {"name": n, "ref": n, "targetCommit": c}
            for n, c in repo.refs.items() if n.startswith("refs/pr/")]
    return value


def commits(repo, commit):
    """From this commit back to the first."""
    rows = []
    while commit:
        rows.append({"id": commit.id, "title": commit.title, "message": "",
                     "authors": [{"user": "tester", "avatar": ""}], "date": commit.date})
        commit = commit.parent
    return rows


def cursor_of(index):
    return base64.urlsafe_b64encode(b"at:%d" % index).decode().rstrip("=")


def index_of(cursor):
    """The index in a cursor, or None when it is not one of ours."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return int(text[3:]) if text.startswith(b"at:") else None
    except ValueError:
        return None


def spoil_rows(rows, take_all, key="path"):
    """Apply the tree_* faults to tree rows (key 'path') or siblings ('rfilename')."""
    for fault in take_all("tree_lfs_oid"):
        name = "oid" if key == "path" else "sha256"
        rows = copy.deepcopy(rows)
        for row in rows:
            if "lfs" in row and fnmatch.fnmatchcase(row[key], fault.get("file", "*")):
                if fault["value"] == "absent":
                    row["lfs"].pop(name, None)
                else:
                    row["lfs"][name] = MASK if fault["value"] == "masked" else fault["value"]
    for fault in take_all("tree_edit"):
        rows = copy.deepcopy(rows)
        for row in rows:
            if fnmatch.fnmatchcase(row[key], fault["file"]):
                row.update(fault.get("set", {}))
                for gone in fault.get("drop", []):
                    row.pop(gone, None)
    for fault in take_all("tree_duplicate"):
        rows = rows + [r for r in rows if fnmatch.fnmatchcase(r[key], fault["file"])]
    for fault in take_all("tree_add"):
        entry = dict(fault["entry"])
        if key == "rfilename":
            entry = {"rfilename": entry["path"]}
        else:
            entry = {"type": "file", "oid": "0" * 40, "size": 1, **entry}
        rows = rows + [entry]
    return rows
