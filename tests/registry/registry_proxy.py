"""A forward proxy for tests: CONNECT tunnels and absolute URLs, with a login or without."""

import select
import socket
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from urllib.parse import urlsplit

CHUNK = 64 * 1024
CONNECT_S = 20
KEPT = {"proxy-authorization", "proxy-connection", "connection"}  # not for the upstream


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def admitted(self):
        proxy = self.server.proxy
        with proxy.lock:
            proxy.seen.append((self.command, self.path))
            if proxy.login in (None, self.headers.get("Proxy-Authorization")):
                return True
            proxy.refused += 1
        self.send_response(407)
        self.send_header("Proxy-Authenticate", 'Basic realm="stand-in"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def reach(self, host, port):
        """A socket to the upstream, or None after a 502."""
        try:
            host = self.server.proxy.hosts.get(host, host)
            return socket.create_connection((host, port), CONNECT_S)
        except OSError:
            self.send_error(502)
            return None

    def do_CONNECT(self):
        if not self.admitted():
            return
        self.close_connection = True
        host, _, port = self.path.rpartition(":")
        upstream = self.reach(host.strip("[]"), int(port))
        if not upstream:
            return
        with upstream:
            self.send_response(200)
            self.end_headers()
            self.pump(upstream)

    def plain(self):
        """GET and HEAD of an absolute URL; one request a connection."""
        if not self.admitted():
            return
        self.close_connection = True
        parts = urlsplit(self.path)
        upstream = self.reach(parts.hostname, parts.port or 80)
        if not upstream:
            return
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"{self.command} {target} HTTP/1.1"]
        lines += [f"{k}: {v}" for k, v in self.headers.items() if k.lower() not in KEPT]
        lines.append("Connection: close")
        with upstream:
            upstream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            self.pump(upstream)

    do_GET = do_HEAD = plain

    def pump(self, upstream):
        """Carries bytes both ways until either side has ended."""
        other = {self.connection: upstream, upstream: self.connection}
        while True:
            for ready in select.select(list(other), [], [])[0]:
                data = ready.recv(CHUNK)
                if not data:
                    return
                other[ready].sendall(data)


class ProxyServer(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class ForwardProxy:
    """seen: (method, target) of each request; refused: those without the login; hosts: addresses of
    names that only it knows."""

    def __init__(self, user=None, password=None, hosts=None):
        self.login = user and "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        self.hosts = hosts or {}
        self.lock = threading.Lock()  # guards seen and refused
        self.seen = []
        self.refused = 0
        self._server = ProxyServer(("127.0.0.1", 0), ProxyHandler)
        self._server.proxy = self
        self.url = "http://%s:%d" % self._server.server_address[:2]

    def start(self):
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    __enter__ = start

    def __exit__(self, *exc):
        self.stop()
