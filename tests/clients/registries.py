"""Registries of others that the server mirrors in the tests, with or without tokens: Debian's
docker-registry and a current distribution, both of which take what a token server signs."""

import base64
import http.client
import http.server
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from client_case import Daemon
from standin_wire import keep_port

PULLER, PUSHER, PASSWORD = "weighbridge", "publisher", "pull:and-push"
SERVICE, ISSUER, LIFE_S = "registry.test", "tokens.test", 300
ALLOWED = {PULLER: {"pull"}, PUSHER: {"pull", "push"}}
CONFIG = """version: 0.1
log:
  level: error
storage:
  filesystem:
    rootdirectory: {folder}
http:
  addr: 127.0.0.1:{port}
"""
AUTH = """auth:
  token:
    realm: {realm}
    service: {service}
    issuer: {issuer}
    rootcertbundle: {certificate}
"""


_kept = []  # the sockets behind free_port(), until this process ends


def free_port():
    """It stays free for whoever knows of it."""
    _kept.append(keep_port())
    return _kept[-1].getsockname()[1]


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenServer:
    """Gives who logs in a signed token (RS256, its certificate in the header) for as much of what
    is asked for as that user may do; others get one that allows nothing."""

    def __init__(self, folder):
        self.key, self.certificate = (os.path.join(folder, name)
                                      for name in ("token-key.pem", "token-certificate.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", f"/CN={ISSUER}", "-keyout", self.key, "-out", self.certificate],
                       check=True, capture_output=True)
        pem = Path(self.certificate).read_text().split("-----")[2]
        self.chain = ["".join(pem.split())]
        self.issued = []  # who got a token; appended to by several threads
        self.server = None
        self.port = free_port()
        self.start()

    @property
    def realm(self):
        return f"http://127.0.0.1:{self.port}/token"

    def start(self):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                query = parse_qs(urlsplit(self.path).query)
                user = owner.user_of(self.headers.get("Authorization", ""))
                body = json.dumps({"token": owner.token(user, query.get("scope", []))}).encode()
                self.send_response(200 if user is not None else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                self.send_error(404)  # as token servers do that do not know OAuth2

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    @staticmethod
    def user_of(header):
        """"" for nobody, None for a wrong login."""
        if not header:
            return ""
        try:
            user, _, password = base64.b64decode(header.partition(" ")[2]).decode().partition(":")
        except ValueError:
            return None
        return user if user in ALLOWED and password == PASSWORD else None

    def token(self, user, scopes):
        now, access = int(time.time()), []
        for scope in " ".join(scopes).split():
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            granted = sorted(ALLOWED.get(user, set()) & set(actions.split(",")))
            if granted:
                access.append({"type": kind, "name": name, "actions": granted})
        self.issued.append(user)
        header = {"typ": "JWT", "alg": "RS256", "x5c": self.chain}
        claims = {"iss": ISSUER, "sub": user or "", "aud": SERVICE, "exp": now + LIFE_S,
                  "nbf": now - 10, "iat": now, "jti": os.urandom(8).hex(), "access": access}
        text = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key],
                                   input=text.encode(), capture_output=True, check=True).stdout
        return f"{text}.{base64url(signature)}"


class Registry:
    """One of them, run from a folder of its own. start() again after stop(): the same content."""

    def __init__(self, program, folder, env, tokens=None):
        self.program, self.folder, self.tokens = program, folder, tokens
        self.env = {**env, "OTEL_TRACES_EXPORTER": "none"}
        self.port = free_port()
        self.daemon = None
        self.config = os.path.join(folder, "registry.yml")
        text = CONFIG.format(folder=os.path.join(folder, "content"), port=self.port)
        if tokens:
            text += AUTH.format(realm=tokens.realm, service=SERVICE, issuer=ISSUER,
                                certificate=tokens.certificate)
        Path(self.config).write_text(text)
        self.start()

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def status(self, path):
        """Of a GET by nobody."""
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def start(self):
        self.daemon = Daemon([self.program, "serve", self.config],
                             os.path.join(self.folder, "registry.log"), self.env,
                             lambda: answers(self.port))

    def stop(self):
        """And the token server, so that nothing is left of it."""
        if self.daemon:
            self.daemon.stop()
            self.daemon = None
        if self.tokens:
            self.tokens.stop()
        assert not answers(self.port)
