"""HTTP plumbing that all hosts of the stand-ins share.

Owns: the request log and its counters, the threaded server, and the handler
base that sends a body by a plan (cut here, stall there, flip that byte) while
counting each byte as it is handed to the socket.
"""

import fnmatch
import json
import os
import re
import socket
import ssl
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn

from standin_sources import Disk

CHUNK = 64 * 1024
SENDFILE_CHUNK = 128 * 1024
PACED_CHUNK = 256 * 1024
HANDSHAKE_S = 20
# Small on purpose: what sits in the socket buffer counts as sent, so a big one
# would overstate the bytes that a vanished client took.
SEND_BUFFER = 128 * 1024


def keep_port(address=("127.0.0.1", 0)):
    """A socket that keeps a port for whoever binds it with SO_REUSEADDR: as long as nobody listens
    there connections are refused, and the kernel gives the port to nobody who asks for a free one,
    as the tests that run beside this one do all the time."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(address)
    return kept


class Record:
    """One request as the log shows it. `sent` grows while the body goes out."""

    def __init__(self, host, method, target, headers):
        self.host = host
        self.method = method
        self.target = target
        self.headers = headers  # names in lower case
        self.kind = "other"
        self.repo = None
        self.path = None
        self.connection = None  # the number of the connection it came on
        self.status = None
        self.sent = 0
        self.done = False
        self.aborted = False
        self.started = time.monotonic()
        self.seconds = None

    @property
    def range(self):
        return self.headers.get("range")

    def as_dict(self):
        return {"host": self.host, "kind": self.kind, "method": self.method,
                "target": self.target, "repo": self.repo, "path": self.path,
                "status": self.status, "sent": self.sent, "done": self.done,
                "aborted": self.aborted, "range": self.range,
                "connection": self.connection,
                "headers": self.headers, "seconds": self.seconds}


class Log:
    """Every request since the last reset, in order of arrival."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.cond = threading.Condition()  # guards records; told of each change
        self.records = []

    def start(self, record):
        with self.cond:
            self.records.append(record)
            self.cond.notify_all()

    def finish(self, record, aborted):
        with self.cond:
            record.aborted = aborted
            record.seconds = time.monotonic() - record.started
            record.done = True
            self.cond.notify_all()

    def reset(self):
        with self.cond:
            self.records = []

    @staticmethod
    def _matches(record, host, kind, method, repo, path, status):
        return ((host is None or record.host == host)
                and (kind is None or record.kind in kind.split(","))
                and (method is None or record.method == method)
                and (status is None or record.status == status)
                and (repo is None or fnmatch.fnmatchcase(
                    (record.repo or "").lower(), repo.lower()))
                and (path is None or fnmatch.fnmatchcase(record.path or "", path)))

    def select(self, host=None, kind=None, method=None, repo=None, path=None, status=None):
        with self.cond:
            return [r for r in self.records
                    if self._matches(r, host, kind, method, repo, path, status)]

    def wait(self, count, timeout=30, done=False, **where):
        """True when `count` matching requests have arrived (done=True: finished)."""
        def enough():
            found = [r for r in self.records
                     if self._matches(r, *[where.get(k) for k in (
                         "host", "kind", "method", "repo", "path", "status")])]
            return sum(1 for r in found if r.done or not done) >= count
        with self.cond:
            return self.cond.wait_for(enough, timeout)

    def counters(self):
        """Totals per host, and rows per (host, kind, repo, path)."""
        totals = {h: {"requests": 0, "bytes": 0} for h in self.hosts}
        rows = {}
        for r in self.select():
            key = (r.host, r.kind, r.repo, r.path)
            row = rows.setdefault(key, {
                "host": r.host, "kind": r.kind, "repo": r.repo, "path": r.path,
                "requests": 0, "bytes": 0, "methods": {}, "ranges": [],
                "authorization": 0, "user_agents": []})
            for tally in (row, totals[r.host]):
                tally["requests"] += 1
                tally["bytes"] += r.sent
            row["methods"][r.method] = row["methods"].get(r.method, 0) + 1
            if r.range:
                row["ranges"].append(r.range)
            row["authorization"] += "authorization" in r.headers
            agent = r.headers.get("user-agent")
            if agent not in row["user_agents"]:
                row["user_agents"].append(agent)
        return {"totals": totals, "rows": list(rows.values())}


class Server(ThreadingMixIn, TCPServer):
    """A thread per connection. close_all() ends every open connection. With a TLS context in
    `tls` it speaks only TLS, from the next connection on."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address, handler, standin, name, tls=None):
        self.standin = standin
        self.name = name
        self.tls = tls
        self.lock = threading.Lock()  # guards open and the counts
        self.open = {}          # socket -> its number
        self.accepted = 0       # connections so far
        self.most = 0           # open at the same time
        self.handshakes_failed = 0
        super().__init__(address, handler)

    def process_request(self, request, client_address):
        with self.lock:
            self.accepted += 1
            self.open[request] = self.accepted
            self.most = max(self.most, len(self.open))
        super().process_request(request, client_address)

    def finish_request(self, request, client_address):
        if not self.tls:
            super().finish_request(request, client_address)
            return
        request.settimeout(HANDSHAKE_S)
        try:
            wrapped = self.tls.wrap_socket(request, server_side=True)
        except OSError:  # ssl.SSLError is one
            with self.lock:
                self.handshakes_failed += 1
            return
        wrapped.settimeout(None)
        with self.lock:
            self.open[wrapped] = self.open.pop(request, self.accepted)
        try:
            super().finish_request(wrapped, client_address)
        finally:
            self.shutdown_request(wrapped)

    def shutdown_request(self, request):
        with self.lock:
            self.open.pop(request, None)
        super().shutdown_request(request)

    def number_of(self, request):
        with self.lock:
            return self.open.get(request)

    def handle_error(self, request, client_address):
        self.standin.note_error(self.name)

    def close_all(self):
        with self.lock:
            left = list(self.open)
        for sock in left:
            try:
                # Not SSLSocket's: that would let a thread in the midst of a body go on in clear.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass


class Cut(Exception):
    """The plan ends this connection here. reset=True: with RST."""

    def __init__(self, reset=False):
        super().__init__()
        self.reset = reset


class Bucket:
    """Lets `rate` bytes a second go; several threads may share it."""

    BURST_S = 0.1  # how much of a pause may be made up for

    def __init__(self, rate):
        self.rate = float(rate)
        self.lock = threading.Lock()  # guards at
        self.at = time.monotonic()

    def spend(self, count):
        """Seconds to wait now that `count` bytes have gone."""
        now = time.monotonic()
        with self.lock:
            self.at = max(self.at, now - self.BURST_S) + count / self.rate
            return self.at - now


class Plan:
    """What happens on the way while a body of `length` bytes is sent."""

    def __init__(self):
        self.events = []  # (position in this body, fault name, payload)
        self.buckets = []

    def add(self, position, what, payload=None):
        self.events.append((position, what, payload))

    def limit(self, rate):
        self.buckets.append(Bucket(rate))

    @property
    def step(self):
        """Bytes at a time when they are paced: about 20 pieces a second, at most."""
        return max(1, min(PACED_CHUNK, int(min(b.rate for b in self.buckets) / 20)))


def position_of(fault, start, length, size=None):
    """Where in this body a fault sits, or None if it is not in what is sent.
    bytes: that many bytes into this body; fraction: of this body; offset: of the
    whole file, negative from its end when its size is known."""
    if fault["bytes"] is not None:
        at = int(fault["bytes"])
    elif fault["fraction"] is not None:
        at = int(length * float(fault["fraction"]))
    elif fault["offset"] is not None:
        at = int(fault["offset"]) - start
        if size is not None and int(fault["offset"]) < 0:
            at += size
            return at if 0 <= at < length else None
    else:
        at = 0
    return at if 0 <= at < length or (at == 0 == length) else None


def parse_range(value, size):
    """None: no (usable) range, send all. False: not satisfiable. Else (a, b)."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", (value or "").strip().replace(" ", ""))
    if not match or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    if first == "":
        count = int(last)
        return (max(0, size - count), size - 1) if count and size else False
    a, b = int(first), int(last) if last else size - 1
    if last and b < a:
        return None
    return (a, min(b, size - 1)) if a < size else False


class Handler(BaseHTTPRequestHandler):
    """Base of the hosts' handlers; a subclass has serve() and host."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host = None
    chunked = False  # the body goes out in chunks

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.standin = self.server.standin
        self.number = self.server.number_of(self.connection)

    def log_message(self, *args):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def answer(self):
        headers = {}
        for name, value in self.headers.items():
            name = name.lower()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.record = Record(self.host, self.command, self.path, headers)
        self.record.connection = self.number
        aborted = True
        try:
            self.body = self.read_body()
            self.serve()
            aborted = False
        except Cut as cut:
            self.end_connection(cut.reset)
        except OSError:
            self.close_connection = True
        finally:
            self.standin.log.finish(self.record, aborted)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = answer

    def read_body(self):
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length) if length else b""

    def end_connection(self, reset):
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
            os.close(self.connection.detach())

    # --- faults that all hosts know ---

    def where(self):
        r = self.record
        return {"host": r.host, "repo": r.repo, "path": r.path, "kind": r.kind, "method": r.method}

    def take(self, name, when=None):
        return self.standin.faults.take(name, when=when, **self.where())

    def take_all(self, name, when=None):
        return self.standin.faults.take_all(name, when=when, **self.where())

    def pause(self, seconds):
        if self.standin.stopping.wait(seconds):
            raise Cut()

    def wait_at(self, hold):
        hold.pass_through()
        if self.standin.stopping.is_set():
            raise Cut()

    def make_plan(self, start, length, size, prefix=""):
        """The faults that fall into source[start:start+length]."""
        plan = Plan()
        if not self.standin.faults.rules or self.command == "HEAD":
            return plan

        def spot(fault):
            return position_of(fault, start, length, size)

        def falls_in(fault):
            return not fault["before"] and spot(fault) is not None

        for what in ("stall", "flip", "cut", "reset"):
            for fault in self.take_all(prefix + what, when=falls_in):
                payload = {"stall": fault["seconds"],
                           "flip": int(fault.get("xor", 0xFF))}.get(what)
                plan.add(spot(fault), what, payload)
        for fault in self.take_all(prefix + "hold", when=falls_in):
            plan.add(spot(fault), "hold", fault)
        fault = self.take(prefix + "throttle")
        if fault:
            plan.limit(fault["rate"])
        return plan

    def edit_headers(self, name, headers):
        """Apply every '<host>_headers' rule: set (replacing) and drop."""
        for fault in self.take_all(name):
            gone = {h.lower() for h in fault.get("drop", [])}
            given = fault.get("set", {})
            gone |= {h.lower() for h in given}
            headers = [(k, v) for k, v in headers if k.lower() not in gone]
            headers += [(k, str(v)) for k, v in given.items()]
        return headers

    # --- sending ---

    def start_answer(self, status, headers, body=b""):
        """Status line and headers, and a small body in the same segment."""
        self.record.status = status
        reason = self.responses.get(status, ("Answer",))[0]
        lines = [f"HTTP/1.1 {status} {reason}"]
        lines += [f"{k}: {v}" for k, v in headers]
        if self.close_connection:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")
        self.write_head(head, b"" if self.command == "HEAD" else body)

    def write_head(self, head, body):
        self.send_counted(head + body, len(body))

    def send_body(self, source, start, length, plan, last=True):
        """Send source[start:start+length] by the plan; last=False: more will follow. HEAD sends
        nothing."""
        if self.command == "HEAD":
            return
        fd = -1
        if isinstance(source, Disk) and not self.chunked and \
                not isinstance(self.connection, ssl.SSLSocket):
            fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            at = 0
            for position, what, payload in sorted(plan.events, key=lambda e: e[0]):
                if position > at:
                    self._send_span(source, fd, start + at, position - at, plan)
                    at = position
                if what == "cut":
                    raise Cut()
                if what == "reset":
                    raise Cut(reset=True)
                if what == "stall":
                    self.pause(payload)
                elif what == "hold":
                    self.wait_at(payload)
                elif what == "flip" and position == at:
                    byte = bytes(source.read(start + at, 1))[0] ^ payload
                    self._send(bytes([byte]))
                    at += 1
            self._send_span(source, fd, start + at, length - at, plan)
            if self.chunked and last:
                self.send_counted(b"0\r\n\r\n", 0)
        finally:
            if fd >= 0:
                os.close(fd)

    # Bytes are counted before they go to the socket and taken back if they did not:
    # who has received a body and then asks for the count must never find it short.

    def send_counted(self, data, count):
        """Send all of data, of which `count` bytes are body."""
        self.record.sent += count
        try:
            self.connection.sendall(data)
        except OSError:
            self.record.sent -= count
            raise

    def _counted(self, count, send):
        """send() at most `count` bytes; returns how many went."""
        self.record.sent += count
        went = 0
        try:
            went = send()
        finally:
            self.record.sent -= count - went
        return went

    def _send(self, data):
        view = memoryview(data)
        if self.chunked:
            if len(view):
                self.send_counted(b"%x\r\n%b\r\n" % (len(view), view), len(view))
            return
        while len(view):
            piece = view[:CHUNK]
            n = self._counted(len(piece), lambda piece=piece: self.connection.send(piece))
            view = view[n:]

    def _sendfile(self, fd, offset, count):
        out = self.connection.fileno()
        while count > 0:
            step = min(count, SENDFILE_CHUNK)
            n = self._counted(
                step, lambda at=offset, step=step: os.sendfile(out, fd, at, step))
            if n == 0:
                raise Cut()  # the file shrank under us
            offset, count = offset + n, count - n

    def _send_span(self, source, fd, offset, count, plan):
        step = plan.step if plan.buckets else SENDFILE_CHUNK
        while count > 0:
            n = min(step, count)
            if fd >= 0:
                self._sendfile(fd, offset, n)
            else:
                piece = source.read(offset, n)
                n = len(piece)
                if n == 0:
                    raise Cut()
                self._send(piece)
            offset, count = offset + n, count - n
            ahead = max((b.spend(n) for b in plan.buckets), default=0)
            if ahead > 0.002:
                self.pause(ahead)

    def send_json(self, status, value, headers=()):
        body = json.dumps(value, separators=(",", ":")).encode()
        self.start_answer(status, [
            ("Content-Type", "application/json; charset=utf-8"),
            ("Content-Length", str(len(body))), *headers], body)
