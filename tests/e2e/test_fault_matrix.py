#!/usr/bin/env python3
"""Each fault that a registry, or the way to it, can have x (one reader, 50 readers, a reader that
leaves) x (a blob, a manifest). Whatever happens, each client gets the right bytes or an error that
names the upstream and the cause, and gets it in time; no descriptor stays open, and nothing stays
in incoming/ but what the next download goes on with. Without the fault the next pull is right, and
fetches only what is not here.

The tests are made from the table FAULTS: test_cut_blob_50_readers, and so on. One server has an
upstream for each, so that no test waits for what another's circuit breaker remembers."""

import hashlib
import http.client
import json
import os
import re
import select
import socket
import struct
import tempfile
import time
import unittest
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

from harness import REPORTS, Weighbridge, binary
from mirror_case import Authority, Noise, StandInRegistry

KEPT = 300_000       # where a body breaks; what is before it is kept
SIZE = 2 * KEPT
REDIRECTED = SIZE + 1  # and what is larger comes from the CDN, over a signed URL
CROWD = 50
BEGIN = 100_000      # of those in a crowd who ask for a range
LIMITS = {"connect_timeout": "1s", "stall_timeout": "1s", "revalidate_timeout": "1s", "retries": 1}
# The slowest way to fail: two attempts that drip for four stall_timeouts each, and a pause.
DEADLINE_S = 3 * (2 * 4 + 2)
SETTLED_S = 60       # for what has no barrier, on a loaded machine
CONNECTIONS = 4      # max_connections of each upstream
READERS = ("one_reader", f"{CROWD}_readers", "a_reader_that_leaves")
KINDS = ("blob", "manifest")

Fault = namedtuple("Fault", "name blob manifest statuses says kept size mended",
                   defaults=(None, SIZE, False))
"""blob, manifest: the switches that are on while that is pulled; None: makes no sense there.
statuses, says: of the error, and what its text matches; of a body that broke off, in the log.
kept: of the blob, what the next download does not fetch again (None: whatever that is).
mended: it comes whole in spite of the fault."""

GONE_URL = "a signed URL of the CDN that has run out"


def midway(name, **settings):
    """The first answer breaks, and what should follow goes wrong."""
    return [("cut", {"offset": KEPT, "times": 1}), (name, {"skip": 1, **settings})]


def both(name, **settings):
    return {"blob": [(name, settings)], "manifest": [(name, settings)]}


def at_both(name, **settings):
    """In the middle of the one and of the other."""
    return {"blob": [(name, {"offset": KEPT, **settings})],
            "manifest": [(name, {"fraction": 0.5, **settings})]}


CODES = {(403, "DENIED"), (413, "SIZE_INVALID"), (429, "TOOMANYREQUESTS"), (502, "UNAVAILABLE"),
         (504, "UNAVAILABLE")}
UPSTREAM, SILENT, LIMITED = (502,), (502, 504), (502, 429)
NOTHING_CAME = "nothing came for 1 s"
NO_ANSWER = "no answer came for 1 s"
NO_ADDRESS = "Could not resolve host|no connection within 1 s"  # where nobody resolves anything
FAULTS = [
    Fault("cut", **at_both("cut"), statuses=UPSTREAM, says="cut short at", kept=KEPT),
    Fault("reset", **at_both("reset"), statuses=UPSTREAM, says="cut short|reset by peer"),
    Fault("drop", **both("drop"), statuses=UPSTREAM, says="closed without an answer", kept=0),
    Fault("stall", **at_both("stall", seconds=600), statuses=SILENT, says=NOTHING_CAME, kept=KEPT),
    Fault("silence", **both("stall", seconds=600, before=True), statuses=SILENT, says=NO_ANSWER,
          kept=0),
    Fault("flip", [("flip", {"offset": KEPT})], [("flip", {"offset": 20})], UPSTREAM,
          "hash(es)? to sha256:|were wrong", 0),
    Fault("truncate", **both("truncate"), statuses=UPSTREAM,
          says=f"{KEPT} bytes|hashes to", kept=0),
    Fault("truncate_without_length", **{kind: [("chunked", {}), ("truncate", {})]
                                        for kind in KINDS},
          statuses=UPSTREAM, says="stopped at byte|hashes to"),
    Fault("401", **both("status", status=401), statuses=(403,),
          says="answered 401|refuses the token", kept=0),
    Fault("401_midway", midway("status", status=401), None, (403,), "answered 401", KEPT),
    Fault("403", **both("status", status=403), statuses=(403,), says="answered 403", kept=0),
    Fault("expired_url", [("url_expired", {"kind": "redirect"})], [("location", {"url": GONE_URL})],
          UPSTREAM, "answered 403", 0, REDIRECTED),
    Fault("expired_url_midway", midway("url_expired", kind="redirect"), None, UPSTREAM,
          "answered 403", KEPT, REDIRECTED),
    Fault("429_with_retry_after", **both("status", status=429, retry_after=1), statuses=LIMITED,
          says="answered 429", kept=0),
    Fault("429_with_retry_after_midway", midway("status", status=429, retry_after=1), None, LIMITED,
          "answered 429", KEPT),
    Fault("429_without_retry_after", **both("status", status=429), statuses=LIMITED,
          says="answered 429", kept=0),
    Fault("429_without_retry_after_midway", midway("status", status=429), None, LIMITED,
          "answered 429", KEPT),
    Fault("500", **both("status", status=500, html=True), statuses=UPSTREAM, says="answered 500",
          kept=0),
    Fault("503", **both("status", status=503, html=True), statuses=UPSTREAM, says="answered 503",
          kept=0),
    Fault("503_midway", midway("status", status=503, html=True), None, UPSTREAM, "answered 503",
          KEPT),
    Fault("dns_of_the_redirect", **both("location", url="https://gone.invalid/bytes?Signature=x"),
          statuses=SILENT, says=NO_ADDRESS, kept=0),
    Fault("slow_headers", **both("slow_head", interval=0.2), statuses=SILENT, says=NO_ANSWER,
          kept=0),
    Fault("endless_in_chunks", **both("endless"), statuses=(413, 502),
          says="larger than|sends more"),
    Fault("endless_until_closed", **both("endless", framing="close"), statuses=(413, 502),
          says="larger than|sends more"),
]
ENCRYPTED = [
    Fault("tls", **both("certificate", kind="none"), statuses=UPSTREAM, says="alert|handshake",
          kept=0),
    *(Fault(f"certificate_{kind}", **both("certificate", kind=kind), statuses=UPSTREAM,
            says="certificate", kept=0) for kind in ("wrong_name", "expired", "self_signed")),
]
NAMELESS = [Fault("dns", **both("name"), statuses=SILENT, says=NO_ADDRESS, kept=0)]


def passing(name, blob, manifest=None, size=SIZE):
    """Each switch acts once, and nobody but the log gets to know of it."""
    switches = [found and [(switch, {"times": 1, **settings}) for switch, settings in found]
                for found in (blob, manifest)]
    return Fault(name, *switches, (), "", size, size, True)


PASSING = [
    passing("cut", **at_both("cut")),
    passing("reset", **at_both("reset")),
    passing("drop", **both("drop")),
    passing("stall", at_both("stall", seconds=600)["blob"]),
    passing("silence", both("stall", seconds=600, before=True)["blob"]),
    passing("401", **both("status", status=401)),
    passing("401_midway", midway("status", status=401)),
    passing("expired_url", [("url_expired", {"kind": "redirect"})], size=REDIRECTED),
    passing("expired_url_midway", midway("url_expired", kind="redirect"), size=REDIRECTED),
    passing("429_with_retry_after_midway", midway("status", status=429, retry_after=1)),
    passing("429_without_retry_after_midway", midway("status", status=429)),
    passing("503", **both("status", status=503, html=True)),
    passing("503_midway", midway("status", status=503, html=True)),
    passing("dns_of_the_redirect", [("location", {"url": "https://gone.invalid/bytes"})]),
    passing("slow_headers", both("slow_head", interval=0.2)["blob"]),
]


def table(faults, kinds):
    """[(name of the test, fault, kind, readers)]"""
    return [(f"test_{fault.name}_{kind}_{readers}", fault, kind, readers)
            for fault in faults for kind in kinds for readers in READERS
            if getattr(fault, kind) is not None]


def made_from(faults, kinds=KINDS):
    """Gives a class its tests, and the upstreams that they need."""
    def fill(cls):
        cls.cases = table(faults, kinds)
        for number, (name, *case) in enumerate(cls.cases):
            def test(self, number=number, case=case):
                self.run_case(number, *case)
            test.__name__ = name
            setattr(cls, name, test)
        return cls
    return fill


Got = namedtuple("Got", "status headers body whole seconds first")


def descriptors(pid, data, ports):
    """How many of each sort a process has open: `upstream` are connections to one of the ports,
    `content` the files of blobs, `wakeups` sockets that lead nowhere."""
    sockets = {}
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as f:
            for row in list(f)[1:]:
                columns = row.split()
                sockets[columns[9]] = int(columns[2].split(":")[1], 16)
    found = Counter()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        inode = re.fullmatch(r"socket:\[(\d+)\]", target)
        if inode and inode[1] in sockets:
            found["upstream" if sockets[inode[1]] in ports else "client"] += 1
        elif target.startswith((data + "/incoming/", data + "/blobs/")):
            found["content"] += 1
        else:
            found["wakeups" if inode else "other"] += 1
    return found


class Matrix(unittest.TestCase):
    """One registry and one server for all tests of a class."""

    cases = []

    @classmethod
    def setUpClass(cls):
        binary()
        cls.registry = StandInRegistry(auth="bearer", redirect_blobs=REDIRECTED, **cls.options())
        cls.addClassCleanup(cls.end_registry)
        cls.registry.start()
        cls.config = {"upstreams": [cls.upstream(f"c{i}.test") for i in range(len(cls.cases) + 1)],
                      "limits": {"free_percent": 0}, "timeouts": {"drain": "1s"}}
        cls.wb = Weighbridge(config=cls.config)
        cls.addClassCleanup(cls.end_server)
        cls.warm = cls.registry.add_repo("warm/up").add_image([b"w" * SIZE], tag="v1")
        cls.warm_up()

    @classmethod
    def warm_up(cls):
        """What a crowd makes the server open once is no leak. The last upstream is for that."""
        with ThreadPoolExecutor(CROWD) as pool:
            for path in ("manifests/v1", f"blobs/{cls.warm.blobs[-1]}"):
                for got in pool.map(cls.read, [f"/v2/{cls.spare()}/warm/up/{path}"] * CROWD):
                    if got.status != 200:
                        raise AssertionError(got.body)

    @classmethod
    def spare(cls):
        return f"c{len(cls.cases)}.test"

    @classmethod
    def options(cls):
        return {}

    @classmethod
    def upstream(cls, prefix):
        return {"prefix": prefix, "kind": "oci", "url": cls.registry.url, "tag_ttl": "0s",
                "negative_ttl": "0s", "breaker_failures": 1000, "max_connections": CONNECTIONS,
                **LIMITS}

    @classmethod
    def end_registry(cls):
        cls.registry.stop()
        if cls.registry.errors:
            raise AssertionError(f"the stand-in registry itself failed: {cls.registry.errors}")

    @classmethod
    def end_server(cls):
        try:
            code = cls.wb.stop()
            if code or REPORTS.search(cls.wb.log):
                raise AssertionError(f"the server ended with {code}:\n{cls.wb.log[-20000:]}")
            for folder, _, names in os.walk(os.path.join(cls.wb.data, "blobs", "sha256")):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as f:
                        if hashlib.file_digest(f, "sha256").hexdigest() != name:
                            raise AssertionError(f"{name} does not hash to its name")
            if "X-Amz-Signature" in cls.wb.log or "Bearer " in cls.wb.log:
                raise AssertionError("the log shows a secret")
        finally:
            cls.wb.clean()

    # --- clients ---

    @classmethod
    def begin(cls, path, first=0):
        connection = http.client.HTTPConnection(cls.wb.host, timeout=DEADLINE_S)
        connection.request("GET", path, headers={"Range": f"bytes={first}-"} if first else {})
        return connection

    @classmethod
    def read(cls, path, first=0):
        """Everything that comes, however it ends. A client that hangs raises."""
        start = time.monotonic()
        connection = cls.begin(path, first)
        try:
            answer = connection.getresponse()
            try:
                body, whole = answer.read(), True
            except (http.client.IncompleteRead, ConnectionError) as error:
                body, whole = getattr(error, "partial", b""), False
            return Got(answer.status, answer.headers, body, whole, time.monotonic() - start, first)
        finally:
            connection.close()

    def leave(self, path, faults):
        """Asks, and goes with a RST when the fault has begun, or an answer has come."""
        connection = self.begin(path)
        self.until("the fault", lambda: any(fault.hits for fault in faults)
                   or select.select([connection.sock], [], [], 0)[0])
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def until(self, what, condition):
        end = time.monotonic() + SETTLED_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"waited {SETTLED_S} s for {what}; the log:\n{self.wb.log[-4000:]}")
            time.sleep(0.02)

    # --- switches ---

    def switch_on(self, repo, kind, switches):
        """The faults, for one repository only."""
        gone = {"url": f"{self.registry.cdn_url}/docker/x?X-Amz-Signature=old"}
        return [self.registry.fault(name, repo=repo, method="GET", **{
            "kind": kind, **settings, **(gone if settings.get("url") == GONE_URL else {})})
            for name, settings in switches]

    def switch_off(self, faults):
        for fault in faults:
            fault.remove()

    # --- a case ---

    def run_case(self, number, fault, kind, readers):
        self.prefix = f"c{number}.test"
        self.base = f"/v2/{self.prefix}/case/{number}"
        repo = self.registry.add_repo(f"case/{number}")
        self.data = bytes(Noise(fault.size, f"{type(self).__name__} {number}").read(0, fault.size))
        self.image = repo.add_image([self.data], tag="v1")
        self.digest = self.image.blobs[-1]
        paths = [f"{self.base}/manifests/v1", f"{self.base}/manifests/{self.image.digest}"]
        right = self.image.body
        if kind == "blob":
            # The time limits are short enough for a loaded machine to run into them.
            self.until("the manifest to come", lambda: self.read(paths[0]).body == right)
            paths, right = [f"{self.base}/blobs/{self.digest}"] * 2, self.data
        self.seen = len(self.wb.log)
        faults = self.switch_on(repo.name, kind, getattr(fault, kind))
        before = self.descriptors()
        answers = self.ask(kind, readers, paths, faults)
        # A crowd's ranges come over connections of their own, and may miss one of them.
        enough = all if readers == READERS[0] else any
        self.until("the fault to act", lambda: enough(f.hits for f in faults))
        self.wrong_bytes = fault.name == "flip"
        for got in answers:
            self.is_right_or_clear(got, fault, right)
        self.settles(before)
        partials = 1 if kind == "blob" and fault.kept != 0 and not fault.mended else 0
        self.assertLessEqual(len(self.incoming()), partials)
        self.switch_off(faults)
        self.recovers(paths, right, fault.kept if kind == "blob" else None)
        self.settles(before)
        self.assertEqual(self.incoming(), [])

    def ask(self, kind, readers, paths, faults):
        if readers == READERS[0]:
            return [self.read(paths[0])]
        if readers == READERS[2]:
            self.leave(paths[0], faults)
            return [self.read(paths[0])]  # who comes then may wait for the same answer
        first = BEGIN if kind == "blob" else 0
        with ThreadPoolExecutor(CROWD) as pool:
            return list(pool.map(lambda i: self.read(paths[i % 2], first * (i % 5 == 4)),
                                 range(CROWD)))

    def is_right_or_clear(self, got, fault, right):
        self.assertLess(got.seconds, DEADLINE_S)
        if got.status in (200, 206):
            self.assertEqual(got.status, 206 if got.first else 200)
            right = right[got.first:]
            if got.whole or not self.wrong_bytes:  # they are found out at the end
                self.assertTrue(got.body == right[:len(got.body)], "other bytes")
            self.assertEqual(got.whole, len(got.body) == len(right))
            if got.whole:
                return
            self.assertFalse(fault.mended, "broke off")
            text = self.log_of_the_download()
        else:
            error = json.loads(got.body)["errors"][0]
            text = error["message"]
            self.assertIn(got.status, fault.statuses, text)
            self.assertIn((got.status, error["code"]), CODES)
            self.assertEqual("Retry-After" in got.headers,
                             got.status == 429 or "is not asked" in text)
            self.assertNotIn("Signature", text)
            self.assertIn(self.prefix, text)
        self.assertRegex(text, fault.says)

    def log_of_the_download(self):
        def lines():
            return [line for line in self.wb.log[self.seen:].splitlines()
                    if {"event=transfer", f"upstream={self.prefix}"} <= set(line.split())]

        self.until("the log to tell of the download", lines)
        return "\n".join(lines())

    def descriptors(self):
        ports = {self.registry.address(host)[1] for host in ("registry", "token", "cdn")}
        return descriptors(self.wb.pid, os.path.realpath(self.wb.data), ports)

    def metric(self, name):
        return int(re.search(rf"^{name}(?:{{[^}}]*}})? (\d+)", self.wb.get("/metrics")[2].decode(),
                             re.M)[1])

    def settles(self, before):
        """Nothing runs any more, and only idle connections are open."""
        for name in ("weighbridge_transfers_running", "weighbridge_transfer_readers"):
            self.until(f"{name} to be 0", lambda: self.metric(name) == 0)

        # What an upstream keeps for its next requests: a connection to each of its hosts, and two
        # sockets to be woken by.
        allowed = {"upstream": 3 * CONNECTIONS, "wakeups": 2 * CONNECTIONS}

        def are_closed():
            now = self.descriptors()
            return all(now[sort] <= before[sort] + allowed.get(sort, 0) for sort in now)

        self.until(f"descriptors to be {before} again", are_closed)

    def incoming(self):
        return os.listdir(os.path.join(self.wb.data, "incoming"))

    def recovers(self, paths, right, kept):
        """As soon as the upstream is asked again, the right bytes, and no byte twice."""
        def sent():
            return sum(self.registry.bytes_sent(kind="blob", path=self.digest, status=status)
                       for status in (200, 206))

        def is_refused():
            nonlocal got, before
            before = sent()
            got = self.read(paths[0])
            return got.status in (429, 502) and "Retry-After" in got.headers

        got, before = None, 0
        self.until("the upstream to be asked again", lambda: not is_refused())
        self.assertEqual(got.status, 200, got.body[:2000])
        for again in (got, self.read(paths[1])):
            self.assertTrue(again.whole and again.body == right, self.wb.log[self.seen:][-4000:])
        if kept is not None:
            self.assertLessEqual(sent() - before, len(right) - kept)


@made_from(FAULTS)
class FaultMatrix(Matrix):
    """A fault that stays: an error, and after it a right pull."""

    QUICK = [fault for fault in FAULTS if fault.statuses != SILENT]

    def test_faults_again_and_again_leak_nothing(self):
        """A descriptor for each of them would show."""
        before = None
        for turn in range(3):
            for number, fault in enumerate(self.QUICK):
                repo = self.registry.add_repo(f"again/{turn}-{number}")
                image = repo.add_image([b"%d %d" % (turn, number) * KEPT], tag="v1")
                base = f"/v2/{self.spare()}/{repo.name}"
                for kind, path in (("manifest", "manifests/v1"),
                                   ("blob", f"blobs/{image.blobs[-1]}")):
                    if before is None:
                        before = self.descriptors()
                    faults = self.switch_on(repo.name, kind, getattr(fault, kind) or ())
                    self.read(f"{base}/{path}")
                    self.switch_off(faults)
                    self.until("a right answer", lambda path=path: self.succeeds(f"{base}/{path}"))
        self.settles(before)
        self.assertEqual(self.incoming(), [])

    def succeeds(self, path):
        got = self.read(path)
        return got.status == 200 and got.whole


@made_from(PASSING)
class PassingFaults(Matrix):
    """A fault that passes is ours to mend: the clients do not notice."""

    @classmethod
    def upstream(cls, prefix):
        """The break and what follows it are two attempts."""
        return {**super().upstream(prefix), "retries": 2}


@made_from(FAULTS, ["manifest"])
class HeldFaultMatrix(Matrix):
    """What is here is given out whatever the upstream does when it is asked about the tag: with a
    warning, unless its answer will do."""

    # The registry has taken our token, so that this is its word: the tag goes.
    WORD = {"401", "403"}
    # An answer to HEAD has no body that could be wrong.
    RIGHT = {"cut", "reset", "stall", "flip", "truncate", "truncate_without_length",
             "endless_in_chunks", "endless_until_closed"}

    def switch_on(self, repo, kind, switches):
        faults = super().switch_on(repo, kind, switches)
        for fault in faults:
            fault.method = None  # it is asked with HEAD
        return faults

    def run_case(self, number, fault, kind, readers):
        self.prefix, self.seen = f"c{number}.test", 0
        base = f"/v2/{self.prefix}/case/{number}"
        repo = self.registry.add_repo(f"case/{number}")
        image = repo.add_image([b"%d" % number], tag="v1")
        tag = f"{base}/manifests/v1"
        parts = {f"{base}/manifests/{image.digest}": image.body,
                 f"{base}/blobs/{image.blobs[-1]}": b"%d" % number}
        for path, right in {tag: image.body, **parts}.items():
            self.assertEqual(self.read(path).body, right)
        faults = self.switch_on(repo.name, "manifest", fault.manifest)
        before = self.descriptors()
        for got in self.ask("manifest", readers, [tag, tag], faults):
            self.assertLess(got.seconds, DEADLINE_S)
            if fault.name in self.WORD:
                self.assertEqual(got.status, 403, got.body)
            else:
                self.assertEqual((got.status, got.body), (200, image.body))
                self.assertEqual(got.headers["Warning"] is None, fault.name in self.RIGHT)
        for path, right in parts.items():
            got = self.read(path)
            self.assertEqual((got.status, got.body, got.headers["Warning"]), (200, right, None))
        self.switch_off(faults)
        self.settles(before)
        self.until("the upstream's word", lambda: self.is_confirmed(tag, image.body))

    def is_confirmed(self, path, right):
        got = self.read(path)
        return got.status == 200 and got.body == right and got.headers["Warning"] is None


class Switched:
    """A switch that is not one of the registry's: `off` ends it, and `count` says what it hit."""

    def __init__(self, count, off):
        self.count, self.off = count, off

    @property
    def hits(self):
        return self.count()

    def remove(self):
        self.off()


@made_from(ENCRYPTED)
class EncryptedFaultMatrix(Matrix):
    @classmethod
    def options(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        return {"authority": Authority(folder.name)}

    @classmethod
    def upstream(cls, prefix):
        # A handshake is work: on a loaded machine it may take longer than the others' second.
        return {**super().upstream(prefix), "ca_file": cls.registry.authority.ca_file,
                "connect_timeout": "10s", "revalidate_timeout": "10s"}

    def switch_on(self, repo, kind, switches):
        (_, settings), = switches
        self.registry.use_certificate("registry", settings["kind"])
        self.registry.close_connections("registry")
        accepted = self.registry.connections("registry")["accepted"]
        return [Switched(
            lambda: self.registry.connections("registry")["accepted"] - accepted,
            lambda: self.registry.use_certificate("registry"))]


@made_from(NAMELESS)
class NamelessFaultMatrix(Matrix):
    """The upstream's own name has no address. A file of the configuration changes that."""

    def switch_on(self, repo, kind, switches):
        self.configure("http://no-such-registry.invalid")
        return [Switched(lambda: re.search(NO_ADDRESS, self.wb.log[self.seen:]) is not None,
                         lambda: self.configure(self.registry.url))]

    def configure(self, url):
        mine = next(u for u in self.config["upstreams"] if u["prefix"] == self.prefix)
        mine["url"] = url
        self.assertEqual(self.wb.stop(), 0)
        with open(os.path.join(self.wb.scratch, "config.json"), "w", encoding="utf-8") as f:
            json.dump(self.config, f)
        self.wb.start()
        self.warm_up()


if __name__ == "__main__":
    unittest.main()
