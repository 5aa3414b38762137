"""Runs inside a client's own virtual environment: what a user's program does.

argv[1] is JSON: {"do": ..., "repo": ..., "revision": ..., "files": [...], ...}.
Prints one JSON line; with files, {path: sha256}. With "-" for it, each line of standard input is
one, and what went wrong is {"error": [what was raised, and its causes]}.
"""

import concurrent.futures
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


def causes(error):
    """Class and text of an exception and of all that led to it."""
    told = []
    while error is not None and len(told) < 10:
        told.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return told


def do_api(asked, api):
    repo = asked["repo"]
    refs = api.list_repo_refs(repo, include_pull_requests=True)
    rows = api.get_paths_info(repo, asked["files"], expand=True)
    return {
        "sha": api.model_info(repo).sha,
        "files": sorted(api.list_repo_files(repo)),
        "tree": sorted(r.path for r in api.list_repo_tree(repo, recursive=True)),
        "refs": {r.ref: r.target_commit for r in refs.branches + refs.tags + refs.pull_requests},
        "paths": {r.path: r.lfs.sha256 if r.lfs else r.blob_id for r in rows},
        "missing": api.file_exists(repo, "no/such/file"),
        "no_revision": api.revision_exists(repo, "no-such-branch"),
        "no_repo": api.repo_exists("nobody/nothing"),
        "commits": len(api.list_repo_commits(repo)),
    }


def do_errors(asked, token):
    out = {}
    for label, (name, rev, path) in asked["cases"].items():
        try:
            hf.hf_hub_download(name, path, revision=rev, token=token)
            out[label] = "no error"
        except Exception as error:
            out[label] = [type(error).__name__, type(error.__cause__).__name__]
    return out


def do_filesystem(asked, token):
    """ls, a whole file, and a range of one. range: [path, first, end]"""
    fs = hf.HfFileSystem(token=token, skip_instance_cache=True)
    repo, (path, first, end) = asked["repo"], asked["range"]
    with fs.open(f"{repo}/{path}", "rb", block_size=1 << 16) as f:
        f.seek(first)
        part = f.read(end - first)
    return {"names": sorted(row["name"][len(repo) + 1:] for row in fs.ls(repo, detail=True)),
            "glob": sorted(name[len(repo) + 1:] for name in fs.glob(f"{repo}/**/*.json")),
            "size": fs.info(f"{repo}/{path}")["size"],
            "whole": hashlib.sha256(fs.read_bytes(f"{repo}/config.json")).hexdigest(),
            "part": hashlib.sha256(part).hexdigest()}


def do_safetensors(asked, api):
    said = api.get_safetensors_metadata(asked["repo"])
    return {"sharded": said.sharded, "parameters": said.parameter_count,
            "tensors": sorted(said.weight_map)}


def do_snapshots(asked):
    """As many at once, each with a cache of its own: what differs among them, once each."""
    def one(i):
        return hashes(hf.snapshot_download(asked["repo"], token=False, max_workers=2,
                                           cache_dir=f"{asked['folder']}/{i}"))
    with concurrent.futures.ThreadPoolExecutor(asked["count"]) as pool:
        got = list(pool.map(one, range(asked["count"])))
    return [json.loads(text) for text in {json.dumps(files, sort_keys=True) for files in got}]


def perform(asked):
    repo, revision, do = asked["repo"], asked.get("revision"), asked["do"]
    token = asked.get("token", False)
    more = {"revision": revision, "token": token, "repo_type": asked.get("type"),
            "endpoint": asked.get("endpoint"), "cache_dir": asked.get("cache")}
    if do == "version":
        return hf.__version__
    if do == "snapshot":
        return hashes(hf.snapshot_download(repo, **more))
    if do == "files":
        return {f: sha256(hf.hf_hub_download(repo, f, **more)) for f in asked["files"]}
    if do == "local-dir":
        return hashes(hf.snapshot_download(repo, local_dir=asked["folder"], **more))
    if do == "snapshots":
        return do_snapshots(asked)
    if do == "api":
        return do_api(asked, hf.HfApi(token=token))
    if do == "errors":
        return do_errors(asked, token)
    if do == "filesystem":
        return do_filesystem(asked, token)
    if do == "safetensors":
        return do_safetensors(asked, hf.HfApi(token=token))
    raise SystemExit(f"unknown: {do}")


def main():
    if sys.argv[1] != "-":
        print(json.dumps(perform(json.loads(sys.argv[1]))))
        return
    for line in sys.stdin:
        try:
            out = {"ok": perform(json.loads(line))}
        except Exception as error:
            out = {"error": causes(error)}
        print(json.dumps(out), flush=True)


main()
