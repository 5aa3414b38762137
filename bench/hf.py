"""`hf download` of a whole model, by the real client: through weighbridge, from an nginx that has
the same answers in files, and through olah. What the client itself costs is the same on all sides.
Clients and olah come from PyPI and are kept in the tests' cache.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "hub"))

from clients import MIB  # noqa: E402
from harness import Weighbridge  # noqa: E402
from hub import StandInHub  # noqa: E402
from hub_clients import (CannotInstall, Locked, cache_dir, client_env, last_line,  # noqa: E402
                         pypi_answers, python_client)
from peers import Server, free_port, nginx_command  # noqa: E402

REPO = "Bench/Model"
SHARDS = 4
OLAH = "olah==0.5.4"
SMALL = {"config.json": b'{"model_type": "bench"}\n', "tokenizer_config.json": b"{}\n",
         "README.md": b"# A model\n" * 50, "tokenizer.json": b'{"a": "' + b"b" * 500_000 + b'"}'}


def olah_python():
    home = cache_dir() / OLAH.replace("==", "-")
    python = home / "bin" / "python"
    with Locked(home.name):
        if (home / "ready").exists():
            return python
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", OLAH], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            raise CannotInstall(last_line(done), offline=not pypi_answers())
        (home / "ready").touch()
    return python


class Olah(Server):
    name = "olah"

    def __init__(self, folder, hub_url):
        port = free_port()
        host = hub_url.rpartition("/")[2]
        self.repos = os.path.join(folder, "repos")
        os.mkdir(folder)
        super().__init__(
            [olah_python(), "-c", "from olah.server import cli; cli()",
             "--host", "127.0.0.1", "--port", str(port), "--hf-scheme", "http",
             "--hf-netloc", host, "--hf-lfs-netloc", host,
             "--mirror-netloc", f"127.0.0.1:{port}", "--mirror-lfs-netloc", f"127.0.0.1:{port}",
             "--repos-path", self.repos, "--log-path", f"{folder}/logs"],
            port, f"{folder}/output")

    def forget(self):
        self.stop()
        shutil.rmtree(self.repos, ignore_errors=True)
        self.start()


class StaticHub(Server):
    """nginx with the hub's answers about one repository, and its files."""
    name = "nginx"

    def __init__(self, folder, hub, files):
        os.makedirs(os.path.join(folder, "answers"))
        port = free_port()
        commit = hub.repo(REPO).branches["main"]
        entries = hub.repo(REPO).commits[commit].files
        wanted = [f"/api/models/{REPO}/revision/main", f"/api/models/{REPO}/revision/{commit}",
                  f"/api/models/{REPO}/tree/{commit}?recursive=true&expand=false"]
        places = []
        for i, path in enumerate(wanted):
            answer = os.path.join(folder, "answers", str(i))
            with urllib.request.urlopen(hub.url + path) as r, open(answer, "wb") as f:
                shutil.copyfileobj(r, f)
            places.append(f"location = {path.partition('?')[0]} {{ default_type application/json;"
                          f" alias {answer}; }}")
        for name, path in files.items():
            for revision in ("main", commit):
                places.append(
                    f"location = /{REPO}/resolve/{revision}/{name} {{ alias {path}; etag off;"
                    f" default_type application/octet-stream; add_header X-Repo-Commit {commit};"
                    f""" add_header ETag '"{entries[name].etag}"'; }}""")
        super().__init__(nginx_command(folder, port, f"{folder}/answers", "\n    ".join(places)),
                         port, f"{folder}/output")


class Downloads:
    """A hub with one repository and who stands in front of it, for one Bench."""

    def __init__(self, bench):
        self.bench = bench
        self.folder = os.path.join(bench.folder, "hf")
        os.mkdir(self.folder)
        self.python = python_client("newest")
        files = {}
        for name, data in SMALL.items():
            files[name] = os.path.join(self.folder, name)
            pathlib.Path(files[name]).write_bytes(data)
        for i in range(SHARDS):
            name = f"model-{i + 1:05}-of-{SHARDS:05}.safetensors"
            files[name] = bench.file(name, bench.size // SHARDS)
        self.size = sum(map(os.path.getsize, files.values()))
        self.hub = StandInHub(xet=False).start()
        self.hub.add_repo(REPO, {n: SMALL.get(n) or pathlib.Path(p) for n, p in files.items()})
        self.nginx = bench.peer(StaticHub, "static-hub", self.hub, files)
        self.wb = Weighbridge(self.hub.url, port=free_port())
        try:
            self.olah = bench.peer(Olah, "olah", self.hub.url)
            self.without_olah = None
        except CannotInstall as error:
            self.olah, self.without_olah = None, f"skipped: {OLAH}: {error}"

    def stop(self):
        status = self.wb.stop()
        self.wb.clean()
        self.hub.stop()
        return status

    def download(self, url):
        """Bytes a second, of a client with an empty cache that writes to memory."""
        os.sync()
        self.bench.warm_memory()
        with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
            began = time.perf_counter()
            done = subprocess.run(
                [self.python.parent / "hf", "download", REPO], capture_output=True, text=True,
                check=False, env=client_env(url, home, HF_HUB_DISABLE_XET="1"))
            took = time.perf_counter() - began
            got = sum(p.stat().st_size for p in pathlib.Path(home).glob("hub/*/blobs/*"))
        if done.returncode or got != self.size:
            raise RuntimeError(f"{url}: {got} bytes instead of {self.size}; "
                               f"hf download said:\n{done.stderr[-3000:]}")
        return self.size / MIB / took

    def forget(self):
        if self.wb.stop():
            raise RuntimeError(f"the server ended badly:\n{self.wb.log}")
        shutil.rmtree(self.wb.data)
        self.wb.start()

    def sides(self, weighed, cold):
        """What Bench.compare() takes, weighbridge first."""
        def ours():
            if cold:
                self.forget()
            return self.download(self.wb.url)

        def olahs():
            if cold:
                self.olah.forget()
            return self.download(self.olah.url)
        sides = [weighed("weighbridge", ours)]
        if not cold:
            sides.append(weighed("nginx", lambda: self.download(self.nginx.url), bar=0.95))
        if self.olah:
            sides.append(weighed("olah", olahs))
        return sides

    def compare(self, weighed, cold):
        sides = self.sides(weighed, cold)
        lines = self.bench.compare("MiB/s", *sides) if len(sides) > 1 else \
            [f"{sides[0].run():.0f} MiB/s"]
        return lines + ([self.without_olah] if self.without_olah else [])
