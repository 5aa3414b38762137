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
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import hub_loader  # noqa: E402
from hub_api import WINDOW, HubHandler  # noqa: E402
from hub_cdn import CdnHandler, Signer  # noqa: E402
from hub_faults import FaultTable, Hold  # noqa: E402
from hub_repos import File, Repo, Sparse, Store, git_blob_id  # noqa: E402
from hub_wire import Log, Server  # noqa: E402

OPTIONS = {
    "xet": True,             # Xet headers and keys, as the real Hub sends them
    "case_redirect": True,   # another case of a name: 307 (False: not found)
    "page_size": 1000,       # tree rows a page
    "expand_page_size": 50,
    "gzip": "auto",          # small files: auto (as accepted), never, always
    "empty_range": "trick",  # Range on 0 bytes: trick (200 + */0), 416, 200
    "rate_limits": {"api": 500, "resolvers": 3000, "pages": 100},
}


class StandInHub:
    """Both servers, their repositories, switches and log."""

    def __init__(self, listen=("127.0.0.1", 0), cdn_listen=("127.0.0.1", 0),
                 url_ttl=3600, **options):
        self.store = Store()
        self.faults = FaultTable()
        self.log = Log()
        self.signer = Signer(url_ttl)
        self.options = dict(OPTIONS)
        self.set_options(**options)
        self.stopping = threading.Event()
        self.errors = []
        self._listen = [listen, cdn_listen]
        self._servers = []
        self._requests = itertools.count(1)
        self._lock = threading.Lock()  # guards _spent and _window
        self._spent = {}
        self._window = time.monotonic()
        self.url = self.cdn_url = None

    # --- life ---

    def start(self):
        """Serve. After a stop() it serves on the same ports again."""
        self.stopping = threading.Event()
        for address, handler, name in zip(self._listen, (HubHandler, CdnHandler),
                                          ("hub", "cdn")):
            server = Server(address, handler, self, name)
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.05,),
                             name=f"stand-in-{name}", daemon=True).start()
        self.url, self.cdn_url = (
            "http://%s:%d" % s.server_address[:2] for s in self._servers)
        self._listen = [s.server_address[:2] for s in self._servers]
        return self

    def stop(self):
        """Refuse connections and cut the open ones; every fault is off after it."""
        self.stopping.set()
        self.faults.clear()
        for server in self._servers:
            server.shutdown()
            server.close_all()
            server.server_close()
        self._servers = []

    __enter__ = start

    def __exit__(self, *exc):
        self.stop()

    def close_connections(self, host="cdn"):
        """Cut every open connection of one host now, idle ones too."""
        for server in self._servers:
            if server.name == host:
                server.close_all()

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
        del self.store.repos[(kind, repo_id)]

    def add_token(self, token, user="tester"):
        """A valid user token that grants nothing by itself."""
        self.store.user_tokens[token] = user

    def load(self, root):
        """Add every repository found under root (see README.md)."""
        return [self.store.add(repo) for repo in hub_loader.load_root(root)]

    # --- switches ---

    def set_options(self, **options):
        for key, value in options.items():
            if key not in OPTIONS:
                raise ValueError(f"unknown option {key!r}")
            self.options[key] = value

    def fault(self, name, **settings):
        """Switch a fault on; returns it (hits, remove(); a hold: wait_held(n),
        release(n=None), waiting). Limits: repo, path, kind, method, times, skip."""
        return self.faults.add(name, **settings)

    def hold(self, host="cdn", **settings):
        """A barrier on the CDN's body or the Hub's answer."""
        return self.faults.add(f"{host}_hold", **settings)

    def clear_faults(self):
        self.faults.clear()

    def expire_urls(self):
        """Every signed URL handed out so far is refused from now on."""
        self.signer.expire_all()

    # --- counters ---

    def requests(self, host=None, **where):
        """The matching log records (kind, method, repo, path, status as limits)."""
        return self.log.select(host=host, **where)

    def count(self, host=None, **where):
        return len(self.requests(host, **where))

    def bytes_sent(self, host=None, **where):
        return sum(r.sent for r in self.requests(host, **where))

    def wait_requests(self, count, timeout=30, done=False, **where):
        return self.log.wait(count, timeout=timeout, done=done, **where)

    def counters(self):
        return self.log.counters()

    def reset(self):
        """Empty the log and counters, switch off every fault, fill the rate limits."""
        self.faults.clear()
        self.log.reset()
        with self._lock:
            self._spent = {}

    # --- for the handlers ---

    def sign(self, repo, entry, expired=False, uses=None):
        return self.signer.sign(self.cdn_url, repo, entry, expired, uses)

    def next_request(self):
        return next(self._requests)

    def rate(self, bucket, quota):
        """(remaining, seconds to reset) of a bucket; shown, never enforced."""
        with self._lock:
            age = time.monotonic() - self._window
            if age >= WINDOW:
                self._window, self._spent, age = time.monotonic(), {}, 0
            self._spent[bucket] = self._spent.get(bucket, 0) + 1
            return max(0, quota - self._spent[bucket]), int(WINDOW - age)

    def note_error(self, name):
        """An exception in a handler is a bug of the stand-in: keep it and say so."""
        error = sys.exc_info()[1]
        self.errors.append(error)
        sys.excepthook(*sys.exc_info())

    def control(self, handler, path):
        """GET /_counters, /_log, /_faults; POST /_control, /_reset."""
        try:
            if handler.command == "GET" and path == "/_counters":
                return handler.send_json(200, self.counters())
            if handler.command == "GET" and path == "/_log":
                return handler.send_json(200, [r.as_dict() for r in self.log.select()])
            if handler.command == "GET" and path == "/_faults":
                return handler.send_json(200, [f.describe() for f in self.faults.all()])
            if handler.command == "POST" and path == "/_reset":
                self.reset()
                return handler.send_json(200, {"ok": True})
            if handler.command == "POST" and path == "/_control":
                return handler.send_json(200, self.command(json.loads(handler.body)))
        except (ValueError, KeyError, TypeError) as error:
            return handler.send_json(400, {"error": str(error)})
        return handler.send_json(404, {"error": "no such control"})

    def command(self, asked):
        """One command of POST /_control, as a dict with one leading key."""
        asked = dict(asked)
        if "fault" in asked:
            return {"id": self.fault(asked.pop("fault"), **asked).id}
        if "options" in asked:
            self.set_options(**asked["options"])
        elif "remove" in asked:
            self.faults.remove(asked["remove"])
        elif "clear" in asked:
            self.clear_faults()
        elif "expire_urls" in asked:
            self.expire_urls()
        elif "wait_held" in asked or "release" in asked:
            number = asked.get("wait_held", asked.get("release"))
            hold = next((f for f in self.faults.all() if f.id == number), None)
            if not isinstance(hold, Hold):
                raise ValueError(f"no hold {number}")
            if "release" in asked:
                hold.release(asked.get("count"))
            else:
                return {"ok": hold.wait_held(asked.get("count", 1),
                                             asked.get("timeout", 30))}
        elif "move_branch" in asked:
            return {"commit": self.move_branch(asked["move_branch"], asked["branch"],
                                               asked["commit"])}
        else:
            raise ValueError("unknown command")
        return {"ok": True}


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


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
