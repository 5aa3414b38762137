"""Cold pulls of what an OCI registry has, and the same from that registry itself. The clients are
curl, and cost the same on both sides. Other than bench.py's, these measures are of time: below
1.00x weighbridge is the faster.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "registry"))

from clients import MIB, drain_all  # noqa: E402
from harness import Weighbridge  # noqa: E402
from peers import DockerRegistry, NginxRegistry, free_port  # noqa: E402
from registry import StandInRegistry  # noqa: E402

TOTAL_RATE = 300_000_000      # bytes a second, however many connections
CONNECTION_RATE = 50_000_000  # on each
CROWD = 100
FIRST_BYTE_MS = 5


def curl(url, size):
    """(seconds, seconds to the first byte) of a pull that is thrown away."""
    began = time.perf_counter()
    said = subprocess.run(["curl", "-sS", "--fail", "-o", "/dev/null", "-w",
                           "%{size_download} %{time_starttransfer}", url],
                          check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    took = time.perf_counter() - began
    if int(said[0]) != size:
        raise RuntimeError(f"{url}: {said[0]} bytes instead of {size}")
    return took, float(said[1])


def by_hand(url, path, size):
    """(seconds,) until the bytes are in a file, hashed and on the disk."""
    began = time.perf_counter()
    said = subprocess.run(
        ["sh", "-ec", 'curl -sS --fail "$1" | tee "$2" | openssl dgst -sha256 -r; sync "$2"', "sh",
         url, path], check=True, stdout=subprocess.PIPE, text=True).stdout
    took = time.perf_counter() - began
    if said.split()[0] != url.rpartition(":")[2] or os.path.getsize(path) != size:
        raise RuntimeError("a pull by hand lost bytes")
    os.unlink(path)
    return (took,)


class Side:
    """run() returns numbers, seconds first: one of each for every round."""

    def __init__(self, name, run, bar=None):
        self.name, self.run, self.bar = name, run, bar
        self.rounds = []

    def median(self, i=0):
        return statistics.median(numbers[i] for numbers in self.rounds)


def verdict(value, bar, text):
    """bar: at most; None: there is none."""
    return "" if bar is None else f"   bar {text}: {'met' if value <= bar else 'MISSED'}"


def ratio_line(ratios, what, bar):
    ratios, median = sorted(ratios), statistics.median(ratios)
    return (f"{median:6.2f}x the time of {what}  ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            f"{verdict(median, bar, f'<= {bar}x')}")


class Cold:
    """Upstreams, and what pulls from them, for one Bench."""

    def __init__(self, bench):
        self.bench = bench
        self.rounds = bench.rounds
        self.near = bench.peer(NginxRegistry, "near")
        self.far = StandInRegistry().start()
        self.mirrors = {"near": bench.peer(DockerRegistry, "mirror-near", self.near.url),
                        "far": bench.peer(DockerRegistry, "mirror-far", self.far.url)}
        self.wb = Weighbridge(config={"upstreams": [
            {"prefix": "near", "kind": "oci", "url": self.near.url},
            {"prefix": "far", "kind": "oci", "url": self.far.url}]}, port=free_port())
        self.blobs = {}

    def stop(self):
        status = self.wb.stop()
        self.wb.clean()
        self.far.stop()
        return status

    # --- who pulls ---

    def blob(self, size):
        """(repository, its place under /v2/ of a registry). Both upstreams have it."""
        if size not in self.blobs:
            name = f"bench/{size // MIB}"
            path = self.bench.file(f"pulled-{size // MIB}", size)
            digest = self.near.add_repo(name, path)
            self.far.add_repo(name).add_artifact({"weights": pathlib.Path(path)}, tag="main")
            self.blobs[size] = (name, f"{name}/blobs/{digest}")
        return self.blobs[size]

    def forget(self, upstream, name):
        """A server that has nothing but the manifest."""
        if self.wb.stop():
            raise RuntimeError(f"the server ended badly:\n{self.wb.log}")
        shutil.rmtree(self.wb.data)
        self.wb.start()
        status, _, said = self.wb.manifest(f"{upstream}/{name}", "main")
        if status != 200:
            raise RuntimeError(f"no manifest: {said}")

    def pulled(self, pull, url):
        """Who comes second finds what the first one found."""
        os.sync()
        self.bench.warm_memory()
        return pull(url)

    def mirrored(self, upstream, size, pull):
        """Weighbridge and docker-registry, who do not have the blob yet."""
        name, place = self.blob(size)
        mirror = self.mirrors[upstream]

        def ours():
            self.forget(upstream, name)
            return self.pulled(pull, f"{self.wb.url}/v2/{upstream}/{place}")

        def theirs():
            mirror.renew()
            return self.pulled(pull, f"{mirror.url}/v2/{place}")
        return Side("weighbridge", ours), Side(mirror.name, theirs)

    # --- comparing ---

    @staticmethod
    def compare(rounds, *sides):
        for i in range(-1, rounds):
            for side in reversed(sides) if i % 2 else sides:
                numbers = side.run()
                if i >= 0:  # else it was the warm-up
                    side.rounds.append(numbers)

    @staticmethod
    def lines(ours, *peers):
        for peer in peers:
            ratios = [a[0] / b[0] for a, b in zip(ours.rounds, peer.rounds)]
            yield (f"{ratio_line(ratios, peer.name, peer.bar)}   weighbridge {ours.median():.2f} s, "
                   f"{peer.name} {peer.median():.2f} s")

    # --- the measures ---

    def hand(self):
        """From the quickest upstream: the same work by hand."""
        size = 2 * self.bench.size
        path = os.path.join(self.bench.folder, "by-hand")
        url = f"{self.near.url}/v2/{self.blob(size)[1]}"
        ours, docker = self.mirrored("near", size, lambda url: curl(url, size))
        hand = Side("by hand", lambda: self.pulled(lambda url: by_hand(url, path, size), url), 1.05)
        self.compare(self.rounds, ours, hand, docker)
        return self.lines(ours, hand, docker)

    def limited(self, size, rounds, bar):
        """From an upstream with a limit: plain curl, which keeps nothing."""
        url = f"{self.far.url}/v2/{self.blob(size)[1]}"
        ours, docker = self.mirrored("far", size, lambda url: curl(url, size))
        plain = Side("plain curl", lambda: self.pulled(lambda url: curl(url, size), url), bar)
        self.compare(rounds, ours, plain, docker)
        yield from self.lines(ours, plain, docker)
        later = (ours.median(1) - plain.median(1)) * 1000
        yield (f"{later:6.2f} ms later with the first byte than plain curl"
               f"{verdict(later, FIRST_BYTE_MS, f'<= {FIRST_BYTE_MS} ms')}   weighbridge "
               f"{ours.median(1) * 1000:.2f} ms, plain curl {plain.median(1) * 1000:.2f} ms, "
               f"{docker.name} {docker.median(1) * 1000:.2f} ms")

    def total_limit(self):
        """It gives no more to more connections."""
        self.far.set_options(total_rate=TOTAL_RATE, rate=None)
        return self.limited(2 * self.bench.size, self.rounds, 1.02)

    def connection_limit(self):
        """It limits each. A short blob ends before the connections are many."""
        self.far.set_options(total_rate=None, rate=CONNECTION_RATE)
        return self.limited(max(self.bench.size, 256 * MIB), self.rounds, 0.25)

    def crowd(self):
        """Many at once who want what is not here: against as many who want what is, and one who
        waits for it to come; and how much the upstream has to send."""
        size = self.bench.size // 4

        def pulls(settle, forget):
            def run(url):
                self.near.sent(0)
                cold = drain_all(url, CROWD)
                sent = self.near.sent(size) / size
                if sent < 1:
                    raise RuntimeError("the upstream's log lacks bytes that it sent")
                settle()
                warm = drain_all(url, CROWD)
                forget()
                return cold, warm + drain_all(url, 1), sent
            return run
        name, place = self.blob(size)
        mirror, digest = self.mirrors["near"], place.rpartition("/")[2]
        ours, _ = self.mirrored("near", size,
                                pulls(lambda: None, lambda: self.forget("near", name)))
        _, docker = self.mirrored("near", size, pulls(lambda: mirror.settle(digest), mirror.renew))
        ours.bar = 1.2
        self.compare(self.rounds, ours, docker)
        for side in ours, docker:
            ratios = [numbers[0] / numbers[1] for numbers in side.rounds]
            sent = max(numbers[2] for numbers in side.rounds)
            yield (f"{ratio_line(ratios, f'{CROWD} warm pulls and a cold one', side.bar)}   "
                   f"{side.name} {side.median():.2f} s and {side.median(1):.2f} s")
            yield (f"{sent:6.2f} blobs at most sent by the upstream"
                   f"{verdict(sent, side.bar and 1, '1')}   {side.name}")
