"""Speed as ratios against peers in the same run, on loopback.

Each measure runs in alternating rounds after a warm-up: weighbridge, a peer, another peer; next
round in the other order. The ratio of each round is taken; the median and the spread of the
ratios are printed, with the bar that the project has set itself and whether it is met. Above
1.00x weighbridge is the faster; below it, where the line says "the time of". Logs are on
everywhere. Speed is never a test: the exit status is 1 only when a run itself fails.

    blob-1           one client, a held blob          nginx: the same file, sendfile
    blob-16          sixteen clients, the same        docker-registry: the same blob
                     both with processor time per GiB
    manifest-tag     requests a second,               nginx: a file of the same bytes
    manifest-digest  64 connections                   docker-registry: the same manifest
    push-1           one push of a new blob, in       by hand: a feed over loopback into
                     one PUT                          `openssl dgst -sha256` beside `dd
    push-4           four at once                     conv=fdatasync`, as many
    push-1-patch     in one chunked PATCH, as         docker-registry: the same push
    push-4-patch     docker does
    cold             one client, a blob that must     nginx: proxy_cache in front of the same
                     come from the upstream, hashed   server, nothing checked
    cold-16          sixteen clients on one           nginx: the same with proxy_cache_lock
    cold-by-hand     one client, a blob that an       `curl | tee FILE | openssl dgst -sha256`
                     OCI registry has                 from there, then `sync FILE`
    cold-300         ... that gives 300 MB/s in all,  plain curl from there
                     and no more to more connections
    cold-50-each     ... 50 MB/s a connection         plain curl from there
    cold-100         a hundred clients at once        as many who pull what is held, and one who
                                                      pulls what is not
                     these four                       docker-registry as a mirror of that registry
    hf-warm          `hf download` of a held model    nginx: the same answers, as files
                                                      olah, which has it too
    hf-cold          ... of one that is on the Hub    olah
    headers          inspect of a large header        the formats' own Python readers
    memory-warm      RssAnon with 1,000 slow clients on a held blob
    memory-cold      ... on one that is still being downloaded
"""

import argparse
import hashlib
import mmap
import os
import pathlib
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

from clients import (MIB, Race, SlowReaders, drain, drain_all, push_patch, push_put,  # noqa: E402
                     put_manifest, write_chunked, wrk)
from cold import Cold  # noqa: E402
from harness import Weighbridge  # noqa: E402
from headers import headers  # noqa: E402
from hf import Downloads  # noqa: E402
from hub import StandInHub  # noqa: E402
from peers import DockerRegistry, Nginx, Pipelines, cpu_seconds  # noqa: E402

SLOW_CLIENTS = 1000
LIMIT_WARM, LIMIT_COLD = 64, 128  # MiB of RssAnon


class Blob:
    """A big file and a few bytes of its own behind it, so that every push is of a new blob while
    only the few bytes have to be hashed anew."""

    def __init__(self, path, chunked_path, state, tail):
        self.path, self.chunked_path, self.tail = path, chunked_path, tail
        self.size = os.path.getsize(path) + len(tail)
        state = state.copy()
        state.update(tail)
        self.digest = "sha256:" + state.hexdigest()


class Weighed:
    """One side of a comparison: what it does, how fast it was, what processor time it took."""

    def __init__(self, name, run, bar=None, cpu=None):
        self.name, self.run, self.bar, self.cpu = name, run, bar, cpu
        self.rates, self.used = [], 0.0

    def once(self):
        before = self.cpu() if self.cpu else 0
        self.rates.append(self.run())
        if self.cpu:
            self.used += self.cpu() - before


def verdict(value, bar, most=False):
    if bar is None:
        return ""
    met = value <= bar if most else value >= bar
    return f"   bar {'<= ' if most else ''}{bar:g}x: {'met' if met else 'MISSED'}"


class Bench:
    def __init__(self, short):
        self.rounds = 3 if short else 9
        self.size = (128 if short else 1024) * MIB
        self.seconds = 1 if short else 4
        self.trickles = 20 if short else 100
        self.folder = tempfile.mkdtemp(prefix="weighbridge-bench-", dir=os.environ.get("TMPDIR"))
        self.hub = StandInHub().start()
        self.cold = self.hashed = self.registry = self.mirrored = self.downloaded = None
        self.peers = []
        self.wb = None
        self.pushes = 0

    # --- setting up ---

    def file(self, name, size=None):
        """A file of random bytes (one random block, then counted blocks: quick to make)."""
        path = os.path.join(self.folder, name)
        block = os.urandom(MIB)
        with open(path, "wb") as f:
            for i in range((size or self.size) // MIB):
                f.write(i.to_bytes(8, "big") + name.encode().ljust(24) + block[32:])
        return path

    def start(self):
        root = os.path.join(self.folder, "root")
        os.mkdir(root)
        self.path = self.file("model.safetensors")
        os.link(self.path, os.path.join(root, "blob"))
        self.upstream = self.peer(Nginx, "upstream", root)
        self.nginx = self.peer(Nginx, "nginx", root, self.upstream.url)
        self.add_repo("Bench/Warm", self.path)
        self.wb = Weighbridge(self.hub.url)
        self.warm = self.pull_manifest("bench/warm")
        drain(self.warm)
        status, headers, self.manifest_bytes = self.wb.get("/v2/hf/bench/warm/manifests/main")
        if status != 200:
            raise RuntimeError(f"no manifest: {status}")
        self.manifest_digest = headers["Docker-Content-Digest"]
        self.manifest_type = headers["Content-Type"]
        with open(os.path.join(root, "manifest"), "wb") as f:
            f.write(self.manifest_bytes)

    def peer(self, kind, name, *args):
        self.peers.append(kind(os.path.join(self.folder, name), *args))
        return self.peers[-1]

    def add_repo(self, name, path):
        self.hub.add_repo(name, {"config.json": b'{"model_type":"bench"}',
                                 "weights.onnx": pathlib.Path(path)})

    def pull_manifest(self, name):
        status, _, manifest = self.wb.manifest("hf/" + name, "main")
        if status != 200:
            raise RuntimeError(f"no manifest: {manifest}")
        layer = max(manifest["layers"], key=lambda entry: entry["size"])
        return f"{self.wb.url}/v2/hf/{name}/blobs/{layer['digest']}"

    def docker_registry(self):
        """Has what hf/bench/warm has, as bench/warm."""
        if self.registry:
            return self.registry
        self.registry = self.peer(DockerRegistry, "docker-registry")
        _, _, manifest = self.wb.manifest("hf/bench/warm", "main")
        for i, entry in enumerate([manifest["config"], *manifest["layers"]]):
            path = os.path.join(self.folder, f"part-{i}")
            if entry["size"] == self.size:
                os.link(self.path, path)
            else:
                pathlib.Path(path).write_bytes(self.wb.blob("hf/bench/warm", entry["digest"])[2])
            with open(path, "rb") as f:
                state = hashlib.file_digest(f, "sha256")
            push_put(self.registry.url, "bench/warm", Blob(path, None, state, b""))
            os.unlink(path)
        put_manifest(self.registry.url, "bench/warm", "main", self.manifest_type,
                     self.manifest_bytes)
        return self.registry

    def cold_url(self):
        """A blob that the server knows and does not hold."""
        if not self.cold:
            path = self.file("cold.bin")
            self.add_repo("Bench/Cold", path)
            self.cold = self.pull_manifest("bench/cold")
        self.forget(self.cold.rpartition("/")[2])
        return self.cold

    def forget(self, digest):
        """The server finds out by itself that a file under blobs/ is gone."""
        algorithm, _, digits = digest.partition(":")
        path = os.path.join(self.wb.data, "blobs", algorithm, digits[:2], digits)
        pathlib.Path(path).unlink(missing_ok=True)

    def new_blob(self):
        if not self.hashed:
            path = self.file("push.bin")
            write_chunked(path, path + ".chunked")
            with open(path, "rb") as f:
                self.hashed = (path, path + ".chunked", hashlib.file_digest(f, "sha256"))
        self.pushes += 1
        return Blob(*self.hashed, b"push %16d of process %16d" % (self.pushes, os.getpid()))

    def warm_memory(self):
        """A virtual machine may have given free memory back to its host, and pays for it when it
        is touched again: whoever ran second would run faster. So all find the same."""
        time.sleep(0.2)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, 2 * self.size, flags).close()

    # --- comparing ---

    def compare(self, unit, ours, *peers):
        """A line for each peer."""
        sides = [ours, *peers]
        for side in sides:
            side.once()  # warm-up
            side.rates.clear()
            side.used = 0.0
        for i in range(self.rounds):
            for side in reversed(sides) if i % 2 else sides:
                side.once()
        lines = []
        for peer in peers:
            ratios = sorted(a / b for a, b in zip(ours.rates, peer.rates))
            median = statistics.median(ratios)
            lines.append(f"{median:6.2f}x {peer.name}  ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                         f"{verdict(median, peer.bar)}   weighbridge "
                         f"{statistics.median(ours.rates):.0f} {unit}, {peer.name} "
                         f"{statistics.median(peer.rates):.0f} {unit}")
        return lines

    def blobs(self, clients):
        times = max(1, 1024 * MIB // self.size // clients)  # long enough to be timed
        total = self.size * clients * times / MIB

        def pull(url):
            return lambda: total / drain_all(url, clients, times)
        digest = self.warm.rpartition("/")[2]
        registry = self.docker_registry()
        ours = Weighed("weighbridge", pull(self.warm), cpu=lambda: cpu_seconds(self.wb.pid))
        nginx = Weighed("nginx", pull(self.nginx.url + "/blob"), 1.0, self.nginx.cpu)
        docker = Weighed("docker-registry", pull(f"{registry.url}/v2/bench/warm/blobs/{digest}"),
                         cpu=registry.cpu)
        lines = self.compare("MiB/s", ours, nginx, docker)
        gib = self.rounds * total / 1024
        for peer, bar in ((nginx, 1.1), (docker, None)):
            ratio = ours.used / peer.used
            lines.append(f"{ratio:6.2f}x {peer.name}, processor time{verdict(ratio, bar, True)}"
                         f"   weighbridge {ours.used / gib:.3f} s/GiB, {peer.name} "
                         f"{peer.used / gib:.3f} s/GiB")
        return lines

    def manifests(self, reference):
        registry = self.docker_registry()

        def ask(url):
            return lambda: wrk(url, self.seconds, self.manifest_type)
        return self.compare(
            "req/s",
            Weighed("weighbridge", ask(f"{self.wb.url}/v2/hf/bench/warm/manifests/{reference}")),
            Weighed("nginx", ask(self.nginx.url + "/manifest"), 0.7),
            Weighed("docker-registry", ask(f"{registry.url}/v2/bench/warm/manifests/{reference}"),
                    30))

    def push(self, count, how):
        registry, by_hand = self.docker_registry(), Pipelines(self.folder)

        def pushes(url, forget):
            blobs = [self.new_blob() for _ in range(count)]
            self.warm_memory()
            race = Race()
            for blob in blobs:
                race.add(how, url, "bench/push", blob)
            seconds = race.run()
            for blob in blobs:
                forget(blob.digest)
            return self.size * count / MIB / seconds

        def pipelines():
            blobs = [self.new_blob() for _ in range(count)]
            self.warm_memory()
            return self.size * count / MIB / by_hand.push(blobs)
        return self.compare(
            "MiB/s",
            Weighed("weighbridge", lambda: pushes(self.wb.url, self.forget)),
            Weighed(by_hand.name, pipelines, 0.5 if count == 1 else 0.8),
            Weighed("docker-registry", lambda: pushes(registry.url, registry.forget), 2))

    def cold_clients(self, clients):
        total = self.size * clients / MIB

        def ours():
            url = self.cold_url()
            self.warm_memory()
            return total / drain_all(url, clients)

        def theirs():
            self.nginx.forget()
            self.warm_memory()
            return total / drain_all(self.nginx.url + "/cdn/blob", clients)
        return self.compare("MiB/s", Weighed("weighbridge", ours), Weighed("nginx", theirs))

    def pulls(self):
        self.mirrored = self.mirrored or Cold(self)
        return self.mirrored

    def downloads(self, cold):
        self.downloaded = self.downloaded or Downloads(self)
        return self.downloaded.compare(Weighed, cold)

    # --- memory ---

    def anonymous_mib(self):
        with open(f"/proc/{self.wb.pid}/status", encoding="ascii") as f:
            return int(re.search(r"RssAnon:\s+(\d+)", f.read()).group(1)) / 1024

    def slow_clients(self, url, limit):
        before = peak = self.anonymous_mib()
        readers = SlowReaders(url, SLOW_CLIENTS)
        try:
            for _ in range(self.trickles):
                readers.trickle()
                peak = max(peak, self.anonymous_mib())
                time.sleep(0.05)
        finally:
            readers.close()
        return [f"{peak:6.1f} MiB of RssAnon at most, {before:.1f} before   bar < {limit} MiB: "
                f"{'met' if peak < limit else 'MISSED'}"]

    def memory_cold(self):
        url = self.cold_url()
        hold = self.hub.hold("cdn", repo="Bench/Cold", path="weights.onnx", fraction=0.5)
        try:
            lines = self.slow_clients(url, LIMIT_COLD)
            if not hold.wait_held():
                raise RuntimeError("the download had ended before the clients had come")
        finally:
            hold.remove()
        return lines

    # --- the end ---

    def stop(self):
        status = 0
        if self.wb:
            status = self.wb.stop()
            self.wb.clean()
        for front in (self.mirrored, self.downloaded):
            if front:
                status = front.stop() or status
        for peer in self.peers:
            peer.stop()
        self.hub.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        if status:
            raise RuntimeError(f"weighbridge ended with {status}")


MEASURES = {
    "blob-1": lambda b: b.blobs(1),
    "blob-16": lambda b: b.blobs(16),
    "manifest-tag": lambda b: b.manifests("main"),
    "manifest-digest": lambda b: b.manifests(b.manifest_digest),
    "push-1": lambda b: b.push(1, push_put),
    "push-4": lambda b: b.push(4, push_put),
    "push-1-patch": lambda b: b.push(1, push_patch),
    "push-4-patch": lambda b: b.push(4, push_patch),
    "cold": lambda b: b.cold_clients(1),
    "cold-16": lambda b: b.cold_clients(16),
    "cold-by-hand": lambda b: b.pulls().hand(),
    "cold-300": lambda b: b.pulls().total_limit(),
    "cold-50-each": lambda b: b.pulls().connection_limit(),
    "cold-100": lambda b: b.pulls().crowd(),
    "hf-warm": lambda b: b.downloads(cold=False),
    "hf-cold": lambda b: b.downloads(cold=True),
    "headers": lambda b: headers(b.folder, b.rounds, b.rounds < 9),
    "memory-warm": lambda b: b.slow_clients(b.warm, LIMIT_WARM),
    "memory-cold": lambda b: b.memory_cold(),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="3 rounds of small sizes")
    parser.add_argument("--only", action="append", choices=MEASURES)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bench = Bench(args.short)
    try:
        bench.start()
        print(f"{bench.rounds} rounds, {bench.size // MIB} MiB blobs, {os.cpu_count()} cores")
        for name in args.only or MEASURES:
            for i, line in enumerate(MEASURES[name](bench)):
                print(f"{'' if i else name:15} {line}", flush=True)
    finally:
        bench.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
