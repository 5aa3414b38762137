"""Speed as ratios against nginx in the same run, on loopback.

Each measure runs in alternating pairs after a warm-up: weighbridge, nginx, weighbridge, ...
The ratio of each pair is taken, and the median and the spread of the ratios are printed;
above 1.00x weighbridge is the faster. Logging is on in both. Speed is never a test: the
exit status is 1 only when a run itself fails.

    warm-1      one client, a held blob             nginx: the same file, sendfile
    warm-16     sixteen clients, the same           nginx: the same
    manifest    requests a second, 64 connections   nginx: a file of the same bytes
    cold        one client, a blob that must come   nginx: proxy_cache in front of the same
                from the upstream, hashed             server, nothing checked
    cold-16     sixteen clients on one cold blob    nginx: the same with proxy_cache_lock
    memory      RssAnon with 50 readers of one cold blob (no peer)
"""

import argparse
import hashlib
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

from harness import Weighbridge  # noqa: E402
from hub import StandInHub  # noqa: E402

MIB = 1 << 20
AS_USER = "user root;" if os.geteuid() == 0 else ""  # the files are in a private folder


# --- clients ---------------------------------------------------------------------------

def drain(url):
    """GET that throws the body away in the kernel (MSG_TRUNC); returns its length."""
    parts = urllib.parse.urlsplit(url)
    path = parts.path + ("?" + parts.query if parts.query else "")
    with socket.create_connection((parts.hostname, parts.port), timeout=300) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
                  f"Connection: close\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(4096)
            if not piece:
                raise RuntimeError(f"{url}: closed before the headers ended")
            head += piece
        head, _, rest = head.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{url}: {head.splitlines()[0].decode()}")
        length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head).group(1))
        got = len(rest)
        buffer = bytearray(MIB)
        while got < length:
            n = s.recv_into(buffer, MIB, socket.MSG_TRUNC)
            if n == 0:
                raise RuntimeError(f"{url}: ended at {got} of {length}")
            got += n
        return got


def drain_process(url, clients):
    """Seconds that `clients` processes need to GET url (processes: no shared interpreter lock)."""
    if clients == 1:
        began = time.perf_counter()
        drain(url)
        return time.perf_counter() - began
    ready, go = os.pipe(), os.pipe()
    children = []
    for _ in range(clients):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(go[1])
                os.write(ready[1], b"x")
                os.read(go[0], 1)     # end of file is the starting gun
                drain(url)
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    for _ in range(clients):
        os.read(ready[0], 1)
    began = time.perf_counter()
    os.close(go[1])
    failed = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    seconds = time.perf_counter() - began
    for fd in (*ready, go[0]):
        os.close(fd)
    if any(failed):
        raise RuntimeError(f"{url}: a client failed")
    return seconds


def wrk(url, seconds):
    """Requests a second over 64 kept connections."""
    out = subprocess.run(["wrk", "-t2", "-c64", f"-d{seconds}s", url], check=True,
                         capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise RuntimeError(out)
    return float(re.search(r"Requests/sec: *([\d.]+)", out).group(1))


# --- servers ---------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Nginx:
    """Files of `root` under /, and a caching proxy of `upstream` under /cdn/."""

    def __init__(self, folder, root, upstream):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.cache = os.path.join(folder, "nginx-cache")
        conf = os.path.join(folder, "nginx.conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(f"""
{AS_USER} daemon off; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
  access_log {folder}/nginx-access.log; sendfile on; tcp_nopush on; keepalive_requests 1000000;
  client_body_temp_path {folder}/nb; fastcgi_temp_path {folder}/nf; uwsgi_temp_path {folder}/nu;
  scgi_temp_path {folder}/ns; proxy_temp_path {folder}/np;
  proxy_cache_path {self.cache} keys_zone=z:10m max_size=100g use_temp_path=off;
  server {{
    listen 127.0.0.1:{self.port} backlog=4096; root {root};
    location /cdn/ {{ proxy_pass {upstream}/; proxy_cache z; proxy_cache_lock on;
      proxy_cache_lock_timeout 300s; proxy_cache_lock_age 300s; proxy_cache_valid 200 1h;
      proxy_http_version 1.1; proxy_buffers 16 128k; proxy_buffer_size 128k; }}
  }}
}}""")
        self.process = subprocess.Popen(["nginx", "-c", conf, "-e", f"{folder}/nginx-error.log"])
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise RuntimeError("nginx did not start")

    def forget(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        self.process.send_signal(signal.SIGHUP)  # workers that remember the files go

    def stop(self):
        self.process.terminate()
        self.process.wait()


# --- the measures ----------------------------------------------------------------------

class Bench:
    def __init__(self, short):
        self.pairs = 3 if short else 9
        self.size = (128 if short else 1024) * MIB
        self.seconds = 1 if short else 4
        self.folder = tempfile.mkdtemp(prefix="weighbridge-bench-", dir=os.environ.get("TMPDIR"))
        self.hub = StandInHub().start()
        self.cold = None
        self.nginx = self.wb = self.upstream = None

    def file(self, name):
        """A file of random bytes (one random block, then counted blocks: quick to make)."""
        path = os.path.join(self.folder, name)
        block = os.urandom(MIB)
        with open(path, "wb") as f:
            for i in range(self.size // MIB):
                f.write(i.to_bytes(8, "big") + name.encode().ljust(24) + block[32:])
        return path

    def start(self):
        self.root = os.path.join(self.folder, "root")
        os.mkdir(self.root)
        path = self.file("model.safetensors")
        os.link(path, os.path.join(self.root, "blob"))
        self.nginx = Nginx(self.folder, self.root, self.plain_upstream(path))
        self.digest = self.add_repo("Bench/Warm", path)
        self.wb = Weighbridge(self.hub.url)
        self.warm = self.pull_manifest("bench/warm")
        drain(self.warm)
        self.wb.blob("bench/warm", self.digest, {"Range": "bytes=0-0"})
        with open(os.path.join(self.root, "manifest"), "wb") as f:
            f.write(self.wb.get("/v2/hf/bench/warm/manifests/main")[2])

    def plain_upstream(self, path):
        """The CDN's file without signature: for nginx's caching proxy."""
        folder = os.path.join(self.folder, "upstream")
        os.mkdir(folder)
        os.link(path, os.path.join(folder, "blob"))
        self.upstream_folder = folder
        port = free_port()
        conf = os.path.join(folder, "conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(f"{AS_USER} daemon off; pid {folder}/pid; events {{}} http {{ access_log off; sendfile on;"
                    f" client_body_temp_path {folder}/nb; fastcgi_temp_path {folder}/nf;"
                    f" uwsgi_temp_path {folder}/nu; scgi_temp_path {folder}/ns;"
                    f" proxy_temp_path {folder}/np; server {{ listen 127.0.0.1:{port};"
                    f" root {folder}; }} }}")
        self.upstream = subprocess.Popen(["nginx", "-c", conf, "-e", f"{folder}/error.log"])
        return f"http://127.0.0.1:{port}"

    def add_repo(self, name, path):
        with open(path, "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        self.hub.add_repo(name, {"config.json": b'{"model_type":"bench"}',
                                 "weights.onnx": pathlib.Path(path)})
        return "sha256:" + digest

    def pull_manifest(self, name):
        status, _, manifest = self.wb.manifest("hf/" + name, "main")
        if status != 200:
            raise RuntimeError(f"no manifest: {manifest}")
        layer = max(manifest["layers"], key=lambda entry: entry["size"])
        return f"{self.wb.url}/v2/hf/{name}/blobs/{layer['digest']}"

    def cold_url(self):
        """A blob that the server knows and does not hold."""
        if not self.cold:
            path = self.file("cold.bin")
            self.add_repo("Bench/Cold", path)
            self.cold = self.pull_manifest("bench/cold")
        return self.cold

    def forget(self, url):
        """The same as Nginx.forget(). The server fetches again what is missing under blobs/."""
        hexadecimal = url.rpartition(":")[2]
        path = os.path.join(self.wb.data, "blobs", "sha256", hexadecimal[:2], hexadecimal)
        pathlib.Path(path).unlink(missing_ok=True)

    def warm_clients(self, clients):
        total = self.size * clients / MIB
        return self.pairwise(
            lambda: total / drain_process(self.warm, clients),
            lambda: total / drain_process(self.nginx.url + "/blob", clients), "MiB/s")

    def manifest(self):
        tag = f"{self.wb.url}/v2/hf/bench/warm/manifests/main"
        return self.pairwise(lambda: wrk(tag, self.seconds),
                             lambda: wrk(self.nginx.url + "/manifest", self.seconds), "req/s")

    def cold_clients(self, clients):
        total = self.size * clients / MIB

        def ours():
            url = self.cold_url()
            self.forget(url)
            self.warm_memory()
            return total / drain_process(url, clients)

        def theirs():
            self.nginx.forget()
            self.warm_memory()
            return total / drain_process(self.nginx.url + "/cdn/blob", clients)
        return self.pairwise(ours, theirs, "MiB/s")

    def warm_memory(self):
        """A virtual machine may have given free memory back to its host, and pays for it when it
        is touched again: whoever ran second would run faster. So both find the same."""
        time.sleep(0.5)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, 2 * self.size, flags).close()

    def pairwise(self, ours, theirs, unit):
        ours(), theirs()  # warm-up
        a, b = [], []
        for _ in range(self.pairs):
            a.append(ours())
            b.append(theirs())
        ratios = sorted(x / y for x, y in zip(a, b))
        return (f"{statistics.median(ratios):5.2f}x  (pairs {ratios[0]:.2f} to {ratios[-1]:.2f})"
                f"   weighbridge {statistics.median(a):8.0f} {unit}"
                f"   nginx {statistics.median(b):8.0f} {unit}")

    def memory(self):
        url = self.cold_url()
        self.forget(url)
        peak, done = [0], threading.Event()

        def watch():
            while not done.is_set():
                with open(f"/proc/{self.wb.pid}/status", encoding="ascii") as f:
                    rss = int(re.search(r"RssAnon:\s+(\d+)", f.read()).group(1))
                peak[0] = max(peak[0], rss)
                done.wait(0.02)
        watcher = threading.Thread(target=watch)
        watcher.start()
        seconds = drain_process(url, 50)
        done.set()
        watcher.join()
        return (f"RssAnon peak {peak[0] / 1024:.1f} MiB with 50 readers of one cold "
                f"{self.size // MIB} MiB blob ({seconds:.1f} s)")

    def stop(self):
        status = 0
        if self.wb:
            status = self.wb.stop()
            self.wb.clean()
        if self.nginx:
            self.nginx.stop()
        if self.upstream:
            self.upstream.terminate()
            self.upstream.wait()
        self.hub.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        if status:
            raise RuntimeError(f"weighbridge ended with {status}")


MEASURES = {
    "warm-1": lambda b: b.warm_clients(1),
    "warm-16": lambda b: b.warm_clients(16),
    "manifest": lambda b: b.manifest(),
    "cold": lambda b: b.cold_clients(1),
    "cold-16": lambda b: b.cold_clients(16),
    "memory": lambda b: b.memory(),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="3 pairs of small sizes")
    parser.add_argument("--only", action="append", choices=MEASURES)
    args = parser.parse_args()
    bench = Bench(args.short)
    try:
        bench.start()
        print(f"{bench.pairs} pairs, {bench.size // MIB} MiB blobs, {os.cpu_count()} cores")
        for name in args.only or MEASURES:
            print(f"{name:9} {MEASURES[name](bench)}", flush=True)
    finally:
        bench.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
