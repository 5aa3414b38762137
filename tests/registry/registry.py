#!/usr/bin/env python3
"""A stand-in OCI registry, its token server and its CDN, for end-to-end tests.

From Python:

    registry = StandInRegistry(auth="bearer", redirect_blobs=True)
    image = registry.add_repo("team/app").add_image(tag="v1")
    registry.start()
    ... registry.url, registry.fault("cut", kind="blob", fraction=0.5, times=1),
        registry.bytes_sent("cdn"), registry.pulls() ...
    registry.stop()

From a shell: python3 registry.py --artifact REPO:TAG=FILE ... [--listen A:P] [--OPTION VALUE]

README.md in this folder has the options and the switches as tables.
"""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "standin")]

from registry_api import WINDOW_S, RegistryHandler  # noqa: E402
from registry_cdn import CdnHandler, Signer  # noqa: E402
from registry_certs import Authority  # noqa: E402
from registry_content import Manifest, Repo, layer_of, sha256_of  # noqa: E402
from registry_faults import FAULTS  # noqa: E402
from registry_token import Token, TokenHandler, Tokens  # noqa: E402
from standin import StandIn, address  # noqa: E402
from standin_sources import Disk, Memory, Noise, Sparse  # noqa: E402
from standin_wire import Bucket  # noqa: E402

HOSTS = ("registry", "token", "cdn")
ANY = ("127.0.0.1", 0)
OPTIONS = {
    # the API
    "ping": 200,             # GET /v2/: 200, or 404 as registry.ollama.ai
    "referrers": True,       # False: no such API, 404
    "referrers_filter": True,
    "page_size": None,       # tags, repositories, referrers a page; None: as many as asked for
    "catalog": True,
    "head_manifests": True,  # False: 405
    "accept": "any",         # strict: 404 for a type that Accept does not name
    "content_digest": True,  # send Docker-Content-Digest
    "etag": True,            # of manifests
    "ranges": True,          # False: no ranges at all, here and on the CDN
    "pull_limit": None,      # GETs of manifests before a 429
    # where blobs come from
    "redirect_blobs": False,  # True, or the smallest size that the CDN sends
    "redirect_head": True,
    "redirect_status": 307,
    "url_ttl": 1200,
    # how fast blobs come, bytes a second
    "rate": None,            # on each connection
    "total_rate": None,      # in all
    # who may pull
    "auth": "none",          # basic, bearer
    "anonymous": True,       # tokens for public repositories without a login
    "ping_challenge": True,  # False: GET /v2/ asks for nothing
    "challenge": "bearer",   # two (headers, Basic first), line (the same in one), odd (spelling)
    "challenge_scope": True,
    "insufficient": 401,     # or 403: what a token without the scope gets
    "hide_unknown": False,   # an unknown repository is one that nobody may pull
    "service": "registry.test",
    "realm": None,           # another realm than the token server's
    "realm_host": "token",   # registry: on the registry's own port
    "token_name": "both",    # token, access_token
    "token_get": True,       # or a status
    "token_post": True,      # or a status
    "token_size": 0,         # at least so many bytes
    "expires_in": 300,       # as stated; None: not stated
    "token_life": None,      # as it is; None: as stated
    "issued_at": True,
    "clock_skew": 0,         # seconds that the token server's clock is ahead
}


class StandInRegistry(StandIn):
    """The three servers, what they hold, their switches and log."""

    OPTIONS = OPTIONS
    FAULTS = FAULTS
    HANDLERS = {"registry": RegistryHandler, "token": TokenHandler, "cdn": CdnHandler}

    def __init__(self, listen=ANY, token_listen=ANY, cdn_listen=ANY, authority=None,
                 tls=HOSTS, **options):
        """authority: an Authority, for TLS on the hosts in `tls`."""
        self._bucket = None  # what total_rate lets through
        super().__init__(dict(zip(HOSTS, (listen, token_listen, cdn_listen))), options)
        self.authority = authority
        self._contexts = {}
        for host in tls if authority else ():
            self._contexts[host] = authority.server_context()
        self.repos = {}
        self.tokens = Tokens()
        self.signer = Signer()
        self._lock = threading.Lock()  # guards _pulls
        self._pulls = 0
        self.url = self.token_url = self.cdn_url = None

    def started(self):
        self.url, self.token_url = self.base_url("registry"), self.base_url("token")
        self.cdn_url = self.cdn_for("127.0.0.1")

    # Clients have opinions about a redirect or a realm in the same machine (README.md, at its end),
    # so both depend on the name that the client knows this registry by.

    def cdn_for(self, name):
        """The CDN's URL for who calls this registry 127.0.0.1 or localhost: the other one."""
        return self.base_url("cdn").replace(
            "//127.0.0.1:", "//127.0.0.1:" if name == "localhost" else "//localhost:")

    def realm_for(self, name):
        """The token server's, by the same name as the registry."""
        if self.options["realm"]:
            return self.options["realm"]
        base = self.url if self.options["realm_host"] == "registry" else self.token_url
        return base.replace("//127.0.0.1:", f"//{name}:") + "/token"

    @property
    def host(self):
        """What clients put before the repository's name."""
        return "%s:%d" % self.address("registry")

    # --- TLS ---

    def tls(self, host):
        return self._contexts.get(host)

    def use_certificate(self, host, kind="good", client=False):
        """From the next connection on; see Authority. client=True: a client must show one."""
        self._contexts[host] = self.authority.server_context(kind, client)
        if host in self._servers:
            self._servers[host].tls = self._contexts[host]

    # --- what it holds ---

    def add_repo(self, name, private=False, users=None):
        """An empty repository; see Repo for what can be added to it."""
        repo = self.repos[name] = Repo(name, private, users)
        return repo

    def delete_repo(self, name):
        del self.repos[name]

    def add_user(self, name, password):
        self.tokens.users[name] = password

    def add_token(self, name="*", actions=("pull",), life=3600, user=None):
        """A token that the registry takes, got from elsewhere; its text."""
        return self.tokens.issue(user, [("repository", name, set(actions))], life).text

    def revoke_tokens(self):
        """Every token so far is refused from now on: a 401 in mid-way."""
        self.tokens.revoke()

    def expire_urls(self):
        """Every signed URL handed out so far is refused from now on."""
        self.signer.expire_all()

    # --- switches and counts ---

    def hold(self, **settings):
        """A barrier: see Hold. before=True: ahead of the status line."""
        return self.fault("hold", **settings)

    def pulls(self, repo=None):
        """What Docker Hub counts: GETs of manifests that were answered."""
        return self.count("registry", kind="manifest", method="GET", repo=repo, status=200)

    def connections(self, host):
        """{"accepted", "open", "most", "handshakes_failed"} since the host began to serve; all 0
        while it does not."""
        server = self._servers.get(host)
        if not server:
            return {"accepted": 0, "open": 0, "most": 0, "handshakes_failed": 0}
        with server.lock:
            return {"accepted": server.accepted, "open": len(server.open),
                    "most": server.most, "handshakes_failed": server.handshakes_failed}

    def set_options(self, **options):
        super().set_options(**options)
        if "total_rate" in options:
            self._bucket = Bucket(options["total_rate"]) if options["total_rate"] else None

    def counters(self):
        value = super().counters()
        value["pulls"] = self.pulls()
        value["connections"] = {host: self.connections(host) for host in self._servers}
        return value

    def reset(self):
        """Empty the log and counters, switch off every fault, fill the pull limit."""
        super().reset()
        with self._lock:
            self._pulls = 0

    # --- for the handlers ---

    def total_bucket(self):
        return self._bucket

    def allows(self, user, kind, name, action):
        """What a token for this user (None: anonymous) may hold."""
        if kind == "registry":
            return True
        if kind != "repository":
            return False
        repo = self.repos.get(name)
        if action != "pull":
            return user is not None
        if repo is None:
            return not self.options["hide_unknown"]
        if not repo.private:
            return user is not None or self.options["anonymous"]
        return user is not None and (repo.users is None or user in repo.users)

    def challenges(self, realm, scope, error):
        """The values of the WWW-Authenticate headers."""
        options = self.options
        if options["auth"] == "basic":
            return ['Basic realm="stand-in"']
        parts = [("realm", realm), ("service", options["service"]), ("scope", scope),
                 ("error", error)]
        if options["challenge"] == "odd":
            return ["Negotiate , bEARER x=1 , " + " , ".join(
                f'{k.upper()} = "{v}"' for k, v in reversed(parts) if v)]
        bearer = "Bearer " + ",".join(f'{k}="{v}"' for k, v in parts if v)
        basic = 'Basic realm="stand-in, so \\"to say\\""'
        return {"bearer": [bearer], "two": [basic, bearer],
                "line": [f"{basic}, {bearer}"]}[options["challenge"]]

    def spend_pull(self, counted):
        """The rate limit's headers after this request, None when it is refused."""
        limit = self.options["pull_limit"]
        if limit is None:
            return []
        with self._lock:
            if counted and self._pulls >= limit:
                return None
            self._pulls += counted
            left = limit - self._pulls
        return [("RateLimit-Limit", f"{limit};w={WINDOW_S}"),
                ("RateLimit-Remaining", f"{left};w={WINDOW_S}")]

    def own_command(self, asked):
        if "expire_urls" in asked:
            self.expire_urls()
        elif "revoke_tokens" in asked:
            self.revoke_tokens()
        elif "move_tag" in asked:
            repo = self.repos[asked["move_tag"]]
            repo.move_tag(asked["tag"], repo.manifests[asked["digest"]])
        elif "delete_tag" in asked:
            self.repos[asked["delete_tag"]].delete_tag(asked["tag"])
        elif "refuse" in asked:
            self.refuse(asked["refuse"])
        elif "blackhole" in asked:
            self.blackhole(asked["blackhole"])
        elif "serve" in asked:
            self.serve(asked["serve"])
        else:
            return super().own_command(asked)
        return {"ok": True}


def option_value(text):
    """true, false, null and numbers are those; the rest is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_arguments():
    parser = argparse.ArgumentParser(description="A stand-in OCI registry.")
    parser.add_argument("--artifact", action="append", default=[], metavar="REPO:TAG=FILE",
                        help="an artifact with one file; several with the same name and tag "
                             "are its files")
    parser.add_argument("--user", action="append", default=[], metavar="NAME:PASSWORD")
    parser.add_argument("--listen", type=address, default=ANY)
    parser.add_argument("--token-listen", type=address, default=ANY)
    parser.add_argument("--cdn-listen", type=address, default=ANY)
    for name in OPTIONS:
        parser.add_argument("--" + name.replace("_", "-"), type=option_value,
                            default=argparse.SUPPRESS)
    return vars(parser.parse_args())


def add_artifacts(registry, specs):
    """Prints each one's reference, manifest digest, and layers."""
    wanted = {}
    for spec in specs:
        name, _, path = spec.partition("=")
        wanted.setdefault(name, {})[os.path.basename(path)] = Path(path)
    for name, files in wanted.items():
        repo, _, tag = name.rpartition(":")
        repo = registry.repos.get(repo) or registry.add_repo(repo)
        manifest = repo.add_artifact(files, tag=tag)
        print(f"manifest {name} {manifest.digest}")
        for layer in manifest.json["layers"]:
            print(f"layer {name} {layer['digest']} {layer['size']}")


def main():
    options = parse_arguments()
    artifacts, users = options.pop("artifact"), options.pop("user")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    registry = StandInRegistry(**options)
    for user in users:
        registry.add_user(*user.split(":", 1))
    add_artifacts(registry, artifacts)
    registry.start()
    print(f"registry {registry.url}\ntoken {registry.token_url}\ncdn {registry.cdn_url}",
          flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    registry.stop()


__all__ = ["Authority", "Disk", "Manifest", "Memory", "Noise", "Repo", "Sparse",
           "StandInRegistry", "Token", "layer_of", "sha256_of"]

if __name__ == "__main__":
    main()
