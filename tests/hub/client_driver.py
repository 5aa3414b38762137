"""Runs inside a client's own virtual environment: what a user's program does.

argv[1] is JSON: {"do": ..., "repo": ..., "revision": ..., "files": [...], ...}.
Prints one JSON line; with files, {path: sha256}.
"""

import hashlib
import json
import os
import sys

import huggingface_hub as hf


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def hashes(folder):
    found = {}
    for base, dirs, names in os.walk(folder):
        dirs[:] = [d for d in dirs if d != ".cache"]
        for name in names:
            path = os.path.join(base, name)
            found[os.path.relpath(path, folder)] = sha256(path)
    return found


def main():
    asked = json.loads(sys.argv[1])
    repo, revision = asked["repo"], asked.get("revision")
    token = asked.get("token", False)
    api = hf.HfApi(token=token)
    do = asked["do"]
    if do == "version":
        out = hf.__version__
    elif do == "snapshot":
        out = hashes(hf.snapshot_download(repo, revision=revision, token=token))
    elif do == "files":
        out = {f: sha256(hf.hf_hub_download(repo, f, revision=revision, token=token))
               for f in asked["files"]}
    elif do == "local-dir":
        out = hashes(hf.snapshot_download(repo, revision=revision, token=token,
                                          local_dir=asked["folder"]))
    elif do == "api":
        refs = api.list_repo_refs(repo, include_pull_requests=True)
        rows = api.get_paths_info(repo, asked["files"], expand=True)
        out = {
            "sha": api.model_info(repo).sha,
            "files": sorted(api.list_repo_files(repo)),
            "tree": sorted(r.path for r in api.list_repo_tree(repo, recursive=True)),
            "refs": {r.ref: r.target_commit
                     for r in refs.branches + refs.tags + refs.pull_requests},
            "paths": {r.path: r.lfs.sha256 if r.lfs else r.blob_id for r in rows},
            "missing": api.file_exists(repo, "no/such/file"),
            "no_revision": api.revision_exists(repo, "no-such-branch"),
            "no_repo": api.repo_exists("nobody/nothing"),
            "commits": len(api.list_repo_commits(repo)),
        }
    elif do == "errors":
        out = {}
        for label, (name, rev, path) in asked["cases"].items():
            try:
                hf.hf_hub_download(name, path, revision=rev, token=token)
                out[label] = "no error"
            except Exception as error:
                cause = error.__cause__
                out[label] = [type(error).__name__, type(cause).__name__]
    else:
        raise SystemExit(f"unknown: {do}")
    print(json.dumps(out))


main()
