#!/usr/bin/env python3
"""A stand-in Hugging Face Hub and its CDN, for end-to-end tests.

From Python:

    hub = StandInHub()
    hub.add_repo("Org/Name", {"config.json": b"{}", "model.safetensors": Path(...)})
    hub.start()
    ... hub.url, hub.fault("cdn_cut", fraction=0.5, times=1), hub.bytes_sent("cdn") ...
    hub.stop()

From a shell: python3 hub.py --root DIR [--listen A:P] [--cdn-listen A:P]

README.md in this folder has the switches as a table.
"""

import argparse
import itertools
import math
import os
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "standin")]

import hub_loader  # noqa: E402
from hub_api import HubHandler  # noqa: E402
from hub_cdn import CdnHandler, Signer  # noqa: E402
from hub_faults import FAULTS  # noqa: E402
from hub_repos import File, Repo, Store, git_blob_id  # noqa: E402
from standin import StandIn, address  # noqa: E402
from standin_sources import Sparse  # noqa: E402

OPTIONS = {
    "xet": True,             # Xet headers and keys, as the real Hub sends them
    "case_redirect": True,   # another case of a name: 307 (False: not found)
    "page_size": 1000,       # tree rows a page
    "expand_page_size": 50,
    "gzip": "auto",          # small files: auto (as accepted), never, always
    "empty_range": "trick",  # Range on 0 bytes: trick (200 + */0), 416, 200
    "rate_limits": {"api": 500, "resolvers": 3000, "pages": 100},
    "rate_window": 300,      # seconds until they are full again
    "rate_enforced": False,  # 429 when none is left (False: shown only)
}


class StandInHub(StandIn):
    """Both servers, their repositories, switches and log."""

    OPTIONS = OPTIONS
    FAULTS = FAULTS
    HANDLERS = {"hub": HubHandler, "cdn": CdnHandler}

    def __init__(self, listen=("127.0.0.1", 0), cdn_listen=("127.0.0.1", 0),
                 url_ttl=3600, **options):
        super().__init__({"hub": listen, "cdn": cdn_listen}, options)
        self.store = Store()
        self.signer = Signer(url_ttl)
        self._requests = itertools.count(1)
        self._lock = threading.Lock()  # guards _spent and _window
        self._spent = {}
        self._window = time.monotonic()
        self.url = self.cdn_url = None

    def started(self):
        self.url, self.cdn_url = self.base_url("hub"), self.base_url("cdn")

    # --- repositories ---

    def add_repo(self, repo_id, files=None, kind="model", branch="main", private=False,
                 gated=False, tokens=(), renamed_from=(), lfs=None, disabled=False,
                 info=None):
        """Make a repository; with files, its first commit on `branch`, which is
        the default branch. Returns the Repo."""
        repo = Repo(repo_id, kind=kind, default_branch=branch, private=private,
                    gated=gated, tokens=tokens, renamed_from=renamed_from, lfs=lfs,
                    disabled=disabled, info=info)
        if files is not None:
            repo.add_commit(files)
        return self.store.add(repo)

    def repo(self, repo_id, kind="model"):
        return self.store.get(repo_id, kind)

    def add_commit(self, repo_id, files, kind="model", **settings):
        """See Repo.add_commit: branch, ref, tag, parent, keep, title. Returns the id."""
        return self.repo(repo_id, kind).add_commit(files, **settings)

    def move_branch(self, repo_id, branch, commit, kind="model"):
        return self.repo(repo_id, kind).move(branch, commit)

    def set_tag(self, repo_id, tag, commit, kind="model"):
        repo = self.repo(repo_id, kind)
        return repo.move(tag, commit, repo.tags)

    def set_ref(self, repo_id, ref, commit, kind="model"):
        repo = self.repo(repo_id, kind)
        return repo.move(ref, commit, repo.refs)

    def rename_repo(self, repo_id, new_id, kind="model"):
        """The old name goes on as a 307."""
        repo = self.store.repos.pop((kind, repo_id))
        repo.renamed_from.append(repo_id)
        repo.id = new_id
        return self.store.add(repo)

    def delete_repo(self, repo_id, kind="model"):
        """One that is made with its name later has another _id."""
        del self.store.repos[(kind, repo_id)]

    def add_token(self, token, user="tester"):
        """A valid user token that grants nothing by itself."""
        self.store.user_tokens[token] = user

    def load(self, root):
        """Add every repository found under root (see README.md)."""
        return [self.store.add(repo) for repo in hub_loader.load_root(root)]

    # --- switches ---

    def close_connections(self, host="cdn"):
        super().close_connections(host)

    def hold(self, host="cdn", **settings):
        """A barrier on the CDN's body or the Hub's answer."""
        return self.fault(f"{host}_hold", **settings)

    def expire_urls(self):
        """Every signed URL handed out so far is refused from now on."""
        self.signer.expire_all()

    def reset(self):
        """Empty the log and counters, switch off every fault, fill the rate limits."""
        super().reset()
        with self._lock:
            self._spent, self._window = {}, time.monotonic()

    # --- for the handlers ---

    def sign(self, repo, entry, expired=False, uses=None):
        return self.signer.sign(self.cdn_url, repo, entry, expired, uses)

    def next_request(self):
        return next(self._requests)

    def spend(self, bucket):
        """Counts a request; (how many are left, seconds to the reset, over the limit?)."""
        window = self.options["rate_window"]
        quota = self.options["rate_limits"].get(bucket, 100)
        with self._lock:
            age = time.monotonic() - self._window
            if age >= window:
                self._window, self._spent, age = time.monotonic(), {}, 0
            self._spent[bucket] = self._spent.get(bucket, 0) + 1
            left = quota - self._spent[bucket]
            over = left < 0 and self.options["rate_enforced"]
            return max(0, left), math.ceil(window - age), over

    def own_command(self, asked):
        if "expire_urls" in asked:
            self.expire_urls()
        elif "move_branch" in asked:
            return {"commit": self.move_branch(asked["move_branch"], asked["branch"],
                                               asked["commit"])}
        else:
            return super().own_command(asked)
        return {"ok": True}


def main():
    parser = argparse.ArgumentParser(description="A stand-in Hugging Face Hub.")
    parser.add_argument("--root", required=True, help="directory of repositories")
    parser.add_argument("--listen", type=address, default=("127.0.0.1", 0))
    parser.add_argument("--cdn-listen", type=address, default=("127.0.0.1", 0))
    parser.add_argument("--no-xet", action="store_true", help="no Xet decorations")
    args = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    hub = StandInHub(args.listen, args.cdn_listen, xet=not args.no_xet)
    hub.load(args.root)
    hub.start()
    print(f"hub {hub.url}\ncdn {hub.cdn_url}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    hub.stop()


__all__ = ["File", "Repo", "Sparse", "StandInHub", "git_blob_id"]

if __name__ == "__main__":
    main()
