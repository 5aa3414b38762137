"""Clients that cost as little as possible, so that the servers are what is measured: bodies are
sent with sendfile and thrown away in the kernel, each client is a process of its own, and all
of them start at once."""

import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.parse

MIB = 1 << 20
BLOCK = 32 * 1024  # a chunk of a chunked body, as docker sends them


class Race:
    """Processes that are ready, and then all run at once.

        race = Race()
        race.add(job, argument)      # job(argument, ready) calls ready() when it is set up
        seconds = race.run()         # from the starting gun to the end of the last one
    """

    def __init__(self):
        self.ready, self.go, self.children = os.pipe(), os.pipe(), []

    def add(self, job, *args):
        """Returns when the child is ready, so that what it shares is there."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(self.go[1])
                job(*args, self._ready)
                status = 0
            except Exception as e:  # pylint: disable=broad-except
                print(f"a client failed: {e}", file=sys.stderr, flush=True)
                os.write(self.ready[1], b"!")
            finally:
                os._exit(status)
        self.children.append(pid)
        if os.read(self.ready[0], 1) != b"x":
            raise RuntimeError("a client failed before the start")

    def _ready(self):
        os.close(self.ready[0])
        os.write(self.ready[1], b"x")
        os.read(self.go[0], 1)  # end of file is the starting gun

    def run(self, others=()):
        """others: processes that have to end as well, and well."""
        began = time.perf_counter()
        os.close(self.go[1])
        failed = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.children]
        failed += [process.wait() for process in others]
        seconds = time.perf_counter() - began
        for fd in (*self.ready, self.go[0]):
            os.close(fd)
        if any(failed):
            raise RuntimeError(f"a client failed: {failed}")
        return seconds


# --- HTTP by hand ------------------------------------------------------------------------------

def connect(to):
    """A blocking socket (sendfile wants one) that gives up after five minutes of nothing."""
    s = socket.create_connection(to)
    for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        s.setsockopt(socket.SOL_SOCKET, side, struct.pack("ll", 300, 0))
    return s


def address(url):
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


def target(url):
    parts = urllib.parse.urlsplit(url)
    return parts.path + ("?" + parts.query if parts.query else "")


def head_of(method, url, *headers):
    lines = [f"{method} {target(url)} HTTP/1.1", f"Host: {urllib.parse.urlsplit(url).netloc}",
             *headers, "", ""]
    return "\r\n".join(lines).encode()


def read_head(s, url, status):
    """(headers as bytes, what came of the body) of an answer with this status."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = s.recv(4096)
        if not piece:
            raise RuntimeError(f"{url}: closed before the headers ended")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    if int(head.split()[1]) != status:
        raise RuntimeError(f"{url}: {head.splitlines()[0].decode()} instead of {status}: "
                           f"{rest.decode(errors='replace')}")
    return head, rest


def field(head, name):
    found = re.search(rb"(?im)^" + name.encode() + rb": *([^\r\n]*)", head)
    return found.group(1).decode() if found else None


def finish_body(s, url, head, rest):
    """Reads the answer's body to its end and throws it away (MSG_TRUNC); returns its length."""
    length, got, buffer = int(field(head, "content-length") or 0), len(rest), bytearray(MIB)
    while got < length:
        n = s.recv_into(buffer, MIB, socket.MSG_TRUNC)
        if n == 0:
            raise RuntimeError(f"{url}: ended at {got} of {length}")
        got += n
    return got


# --- pulls -------------------------------------------------------------------------------------

def drain(url, times=1, ready=lambda: None):
    with connect(address(url)) as s:
        ready()
        for _ in range(times):
            s.sendall(head_of("GET", url))
            got = finish_body(s, url, *read_head(s, url, 200))
    return got


def drain_all(url, clients, times=1):
    """Seconds that `clients` processes need to GET url `times` times each."""
    race = Race()
    for _ in range(clients):
        race.add(drain, url, times)
    return race.run()


def wrk(url, seconds, accept):
    """Requests a second over 64 kept connections."""
    out = subprocess.run(["wrk", "-t2", "-c64", f"-d{seconds}s", "-H", f"Accept: {accept}", url],
                         check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise RuntimeError(out)
    return float(re.search(r"Requests/sec: *([\d.]+)", out).group(1))


# --- pushes ------------------------------------------------------------------------------------

def send_file(s, path):
    with open(path, "rb") as f:
        offset, size = 0, os.fstat(f.fileno()).st_size
        while offset < size:
            offset += os.sendfile(s.fileno(), f.fileno(), offset, size - offset)


def begin_upload(s, url, repository):
    start = f"{url}/v2/{repository}/blobs/uploads/"
    s.sendall(head_of("POST", start, "Content-Length: 0"))
    head, rest = read_head(s, start, 202)
    finish_body(s, start, head, rest)
    return urllib.parse.urljoin(url, field(head, "location"))


def end_upload(s, place, digest, body, *headers):
    place += ("&" if "?" in place else "?") + "digest=" + digest
    s.sendall(head_of("PUT", place, *headers))
    body()
    finish_body(s, place, *read_head(s, place, 201))


def push_put(url, repository, blob, ready=lambda: None):
    """POST, then one PUT with Content-Length."""
    with connect(address(url)) as s:
        ready()
        place = begin_upload(s, url, repository)

        def body():
            send_file(s, blob.path)
            s.sendall(blob.tail)
        end_upload(s, place, blob.digest, body, f"Content-Length: {blob.size}",
                   "Content-Type: application/octet-stream")


def push_patch(url, repository, blob, ready=lambda: None):
    """As docker pushes: POST, one PATCH with chunked transfer encoding, an empty PUT."""
    with connect(address(url)) as s:
        ready()
        place = begin_upload(s, url, repository)
        s.sendall(head_of("PATCH", place, "Transfer-Encoding: chunked",
                          "Content-Type: application/octet-stream"))
        send_file(s, blob.chunked_path)
        s.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(blob.tail), blob.tail))
        head, rest = read_head(s, place, 202)
        finish_body(s, place, head, rest)
        place = urllib.parse.urljoin(url, field(head, "location"))
        end_upload(s, place, blob.digest, lambda: None, "Content-Length: 0")


def write_chunked(path, to):
    """The file's bytes framed as chunks, without the last one."""
    with open(path, "rb") as f, open(to, "wb") as out:
        while block := f.read(BLOCK):
            out.write(b"%x\r\n%s\r\n" % (len(block), block))


def put_manifest(url, repository, reference, media_type, data):
    place = f"{url}/v2/{repository}/manifests/{reference}"
    with connect(address(url)) as s:
        s.sendall(head_of("PUT", place, f"Content-Length: {len(data)}",
                          f"Content-Type: {media_type}") + data)
        finish_body(s, place, *read_head(s, place, 201))


# --- slow readers ------------------------------------------------------------------------------

class SlowReaders:
    """Clients that ask for url, have its first bytes, and then take a little at a time."""

    def __init__(self, url, count):
        self.sockets = []
        try:
            for _ in range(count):
                self.sockets.append(self._begin(url))
            self.trickle()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _begin(url):
        s = socket.socket()
        try:
            s.settimeout(300)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # else the kernel takes it all
            s.connect(address(url))
            s.sendall(head_of("GET", url))
        except BaseException:
            s.close()
            raise
        return s

    def trickle(self):
        for s in self.sockets:
            if not s.recv(1024):
                raise RuntimeError("the server left a slow reader alone")

    def close(self):
        for s in self.sockets:
            s.close()
