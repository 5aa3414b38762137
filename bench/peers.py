"""What weighbridge is compared with, all on loopback, with logs on, and gone afterwards."""

import ctypes
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from clients import MIB, Race, connect, send_file

AS_USER = "user root;" if os.geteuid() == 0 else ""  # the files are in a private folder
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
TICKS = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None, use_errno=True)


def cpu_seconds(pid):
    """Of a process with all its threads, ended ones too, and of its running children."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        children = f.read().split()
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(cpu_seconds(c) for c in children)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A peer that is a server of its own; `name` is for people."""
    name = ""

    def __init__(self, command, port, log):
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self.command, self.output = command, log
        self.start()

    def start(self):
        with open(self.output, "ab") as out:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out)
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{self.name} did not start; it said:\n"
                           f"{pathlib.Path(self.output).read_text(errors='replace')}")

    def cpu(self):
        return cpu_seconds(self.process.pid)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def nginx_command(folder, port, root, places, more=""):
    """An nginx that keeps all that is its own in `folder`; `more` goes beside its server."""
    conf = os.path.join(folder, "conf")
    with open(conf, "w", encoding="utf-8") as f:
        f.write(f"""
{AS_USER} daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log {folder}/access.log; sendfile on; tcp_nopush on; keepalive_requests 100000000;
  client_body_temp_path {folder}/b; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
  scgi_temp_path {folder}/s; proxy_temp_path {folder}/p;
  {more}
  server {{
    listen 127.0.0.1:{port} backlog=4096; root {root};
    {places}
  }}
}}""")
    return ["nginx", "-c", conf, "-e", f"{folder}/error.log"]


class Nginx(Server):
    """Files of `root` under /, and with `upstream` a caching proxy of it under /cdn/."""
    name = "nginx"

    def __init__(self, folder, root, upstream=None):
        os.mkdir(folder)
        port = free_port()
        self.cache = os.path.join(folder, "cache")
        proxy = cached = ""
        if upstream:
            proxy = f"""location /cdn/ {{
      proxy_pass {upstream}/; proxy_cache z; proxy_cache_lock on;
      proxy_cache_lock_timeout 300s; proxy_cache_lock_age 300s; proxy_cache_valid 200 1h;
      proxy_http_version 1.1; proxy_buffers 16 128k; proxy_buffer_size 128k;
    }}"""
            cached = (f"proxy_cache_path {self.cache} keys_zone=z:10m max_size=100g"
                      " use_temp_path=off;")
        super().__init__(nginx_command(folder, port, root, proxy, cached), port,
                         f"{folder}/output")

    def forget(self):
        shutil.rmtree(self.cache, ignore_errors=True)
        self.process.send_signal(signal.SIGHUP)  # workers that remember the files go


class NginxRegistry(Server):
    """What a pull asks of an OCI registry, from files: no upstream is quicker."""
    name = "upstream"

    def __init__(self, folder):
        port = free_port()
        self.root, self.log, self.read = os.path.join(folder, "root"), f"{folder}/access.log", 0
        os.makedirs(self.root)
        conf = os.path.join(folder, "conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(f"""
{AS_USER} daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  log_format sent "$request_method $uri $status $body_bytes_sent"; access_log {self.log} sent;
  sendfile on; tcp_nopush on; keepalive_requests 100000000;
  client_body_temp_path {folder}/b; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
  scgi_temp_path {folder}/s; proxy_temp_path {folder}/p;
  server {{
    listen 127.0.0.1:{port} backlog=4096; root {self.root};
    location = /v2/ {{ default_type application/json; return 200 "{{}}"; }}
    location ~ /manifests/ {{ default_type {MANIFEST_TYPE}; }}
  }}
}}""")
        super().__init__(["nginx", "-c", conf, "-e", f"{folder}/error.log"], port,
                         f"{folder}/output")

    def add_repo(self, name, path):
        """With the file as the only layer of `main`. Returns its digest."""
        with open(path, "rb") as f:
            layer = "sha256:" + hashlib.file_digest(f, "sha256").hexdigest()
        config = "sha256:" + hashlib.sha256(b"{}").hexdigest()
        manifest = {
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": config,
                       "size": 2},
            "layers": [{"mediaType": "application/octet-stream", "digest": layer,
                        "size": os.path.getsize(path)}]}
        place = pathlib.Path(self.root, "v2", name)
        (place / "manifests").mkdir(parents=True)
        (place / "blobs").mkdir()
        (place / "manifests" / "main").write_text(json.dumps(manifest), encoding="ascii")
        (place / "blobs" / config).write_bytes(b"{}")
        os.link(path, place / "blobs" / layer)
        return layer

    def sent(self, at_least):
        """Bytes of blobs that went out since the last call. What a client has is logged a moment
        later: hence what to wait for."""
        total, deadline = 0, time.monotonic() + 10
        while True:
            with open(self.log, encoding="ascii") as f:
                f.seek(self.read)
                new = f.read()
            whole = new[:new.rfind("\n") + 1]
            self.read += len(whole)
            for line in whole.splitlines():
                method, path, _, count = line.split()
                total += int(count) if method == "GET" and "/blobs/" in path else 0
            if total >= at_least or time.monotonic() > deadline:
                return total
            time.sleep(0.01)


class DockerRegistry(Server):
    """Debian's docker-registry with its configuration, but for where and for whom; with `upstream`
    as a mirror of that."""
    name = "docker-registry"

    def __init__(self, folder, upstream=None):
        os.mkdir(folder)
        port = free_port()
        self.data = os.path.join(folder, "data")
        mirror = f"proxy: {{remoteurl: {upstream}}}" if upstream else ""
        conf = os.path.join(folder, "config.yml")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(f"""version: 0.1
log: {{level: info, fields: {{service: registry}}}}
storage:
  cache: {{blobdescriptor: inmemory}}
  filesystem: {{rootdirectory: {self.data}}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:{port}"}}
health: {{storagedriver: {{enabled: true, interval: 10s, threshold: 3}}}}
{mirror}
""")
        super().__init__(["docker-registry", "serve", conf], port, f"{folder}/log")

    def place(self, digest):
        algorithm, _, digits = digest.partition(":")
        return os.path.join(self.data, "docker", "registry", "v2", "blobs", algorithm, digits[:2],
                            digits)

    def forget(self, digest):
        shutil.rmtree(self.place(digest))

    def settle(self, digest):
        """A mirror gives its first client one copy, and fetches another for itself meanwhile."""
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.place(digest), "data")):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def renew(self):
        """Begins with nothing."""
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        self.start()


# --- by hand -----------------------------------------------------------------------------------
# What a push can not do without: the bytes come over a connection, are hashed and are on the disk.
# Nothing of them passes through this interpreter: they are moved from pipe to pipe in the kernel.

def feed(port, blob, ready):
    with connect(("127.0.0.1", port)) as s:
        ready()
        send_file(s, blob.path)
        s.sendall(blob.tail)


def fork_of_pipes(connection, first, second, ready):
    """Gives both pipes all that comes on the connection, as tee(1) does, without copying."""
    source, into = os.pipe()
    for fd in (into, first, second):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, MIB)
    ready()
    while left := os.splice(connection.fileno(), into, MIB):
        while left:
            n = LIBC.tee(source, first, ctypes.c_size_t(left), 0)
            if n <= 0:
                raise OSError(ctypes.get_errno(), "tee")
            left -= n
            while n:
                n -= os.splice(source, second, n)


class Pipelines:
    """As many as there are blobs: a feed over loopback into `openssl dgst -sha256` beside
    `dd conv=fdatasync`."""
    name = "by hand"

    def __init__(self, folder):
        self.folder = folder

    def push(self, blobs):
        """Seconds until all of them are hashed and synced."""
        race, hashes, writers, files = Race(), [], [], []
        for i, blob in enumerate(blobs):
            files.append(os.path.join(self.folder, f"by-hand-{i}"))
            with socket.create_server(("127.0.0.1", 0)) as listener:
                race.add(feed, listener.getsockname()[1], blob)
                connection, _ = listener.accept()
            (to_hash, hash_in), (to_disk, disk_in) = os.pipe(), os.pipe()
            hashes.append(subprocess.Popen(["openssl", "dgst", "-sha256", "-r"], stdin=to_hash,
                                           stdout=subprocess.PIPE))
            writers.append(subprocess.Popen(
                ["dd", f"of={files[-1]}", "bs=1M", "iflag=fullblock", "conv=fdatasync",
                 "status=none"], stdin=to_disk))
            race.add(fork_of_pipes, connection, hash_in, disk_in)
            connection.close()
            for fd in (to_hash, hash_in, to_disk, disk_in):
                os.close(fd)
        seconds = race.run(hashes + writers)
        for blob, process, path in zip(blobs, hashes, files):
            with process.stdout as out:
                said = out.read().split()[0].decode()
            if "sha256:" + said != blob.digest or os.path.getsize(path) != blob.size:
                raise RuntimeError("a pipeline by hand lost bytes")
            os.unlink(path)
        return seconds
