"""Each switch of the stand-in Hub, with the newest and the oldest client of Python: a download by
the Hub's own API ends with the right files, or with an error that names the cause. The clients
check a file's length and nothing else: whatever the Hub does, none has a complete wrong file.

The tests are made from the table FAULTS: test_cdn_cut_once, and so on."""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hub_api_case import (HubApiCase, StandInHub, Weighbridge, end_hub,  # noqa: E402
                          end_server, git_blob_id, upstream)
from hub_clients import CannotInstall, client_env, python_client  # noqa: E402
from hub_faults import FAULTS as SWITCHES  # noqa: E402
from standin_sources import Noise  # noqa: E402

DRIVER = Path(__file__).resolve().parents[1] / "hub" / "client_driver.py"
OLDEST = "0.24.7"
VERSIONS = ("newest", OLDEST)
PATIENCE_S = 240
AT_ONCE = 12  # downloads
SIZE = 3_000_000
KEPT = 1_000_000
WEIGHTS = bytes(Noise(SIZE, "faults").read(0, SIZE))
FILES = {"config.json": b'{"model_type": "llama"}\n', "notes/small.txt": b"some notes\n" * 50,
         "model.safetensors": WEIGHTS}
WHERE = {"path": "model.safetensors"}
# What a client says of a body that ended early: the cause is in the server's log then.
ENDED = ("consistency check failed|peer closed|incompleteread|connection broken|"
         "incomplete (message|body)|remoteprotocolerror|chunkedencodingerror|connectionreset")
NOBODY = "http://127.0.0.1:1/x"

Fault = namedtuple("Fault", "name switches says", defaults=(None,))
"""says: what the error must say; None: it has to come right. With "|" at its end, it may."""


def cdn(name, says=None, once=False, label=None, after_a_cut=False, **settings):
    """On the weights. after_a_cut: the first answer breaks off, so that a range follows."""
    where = {**WHERE, **({"times": 1} if once else {})}
    switches = [("cdn_cut", {"offset": KEPT, "times": 1, **WHERE})] if after_a_cut else []
    return Fault(label or name + ("_once" if once else ""),
                 switches + [(name, {**settings, **where})], says)


def hub(name, says=None, label=None, **settings):
    return Fault(label or name, [(name, settings)], says)


FAULTS = [
    cdn("cdn_cut", once=True, offset=KEPT),
    cdn("cdn_cut", "cut short at", offset=KEPT),
    cdn("cdn_reset", once=True, offset=KEPT),
    cdn("cdn_reset", "cut short|reset by peer", offset=KEPT),
    cdn("cdn_drop", once=True),
    cdn("cdn_drop", "closed without an answer|cut short"),
    cdn("cdn_flip", "hash(es)? to|sha256|were wrong|digest|", offset=1000, once=True),
    cdn("cdn_flip", "hash(es)? to|sha256|were wrong|digest", offset=1000),
    cdn("cdn_flip", "hash(es)? to|sha256|were wrong|digest", label="cdn_flip_of_the_last_byte",
        offset=-1),
    cdn("cdn_length", f"{SIZE}|length|cut short", label="cdn_length_short", delta=-10),
    cdn("cdn_length", f"{SIZE}|length", label="cdn_length_long", delta=10),
    cdn("cdn_total", "are expected", after_a_cut=True, delta=1),
    cdn("cdn_ignore_range", "range|", after_a_cut=True),
    cdn("cdn_range_start", "asked for bytes", after_a_cut=True, delta=5),
    cdn("cdn_range_start", "content-range", label="cdn_range_start_of_right_bytes",
        after_a_cut=True, delta=5, body="asked"),
    cdn("cdn_stall", once=True, seconds=600, offset=KEPT),
    cdn("cdn_stall", "nothing came for", seconds=600, offset=KEPT),
    cdn("cdn_throttle", rate=1 << 20),
    cdn("cdn_hold", bytes=1000),
    *(cdn("cdn_status", f"answered {status}", label=f"cdn_status_{status}", status=status,
          headers={"Retry-After": "1"})
      for status in (400, 403, 404, 429, 500, 503)),
    *(cdn("cdn_status", label=f"cdn_status_{status}_once", once=True, status=status)
      for status in (403, 500, 503)),
    cdn("cdn_headers", set={"ETag": '"0000"', "X-Linked-Etag": f'"{"0" * 64}"',
                            "X-Repo-Commit": "0" * 40, "X-Linked-Size": "5"}),
    cdn("url_expired", once=True),
    cdn("url_expired", "answered 403"),
    cdn("url_uses", uses=1),
    *(hub("hub_status", says, label=f"hub_status_{status}", status=status) for status, says in (
        (401, "not found|401"), (403, "gated|restricted|403"), (404, "not found|404"),
        (429, "429|limit"), (500, "answered 500"), (503, "answered 503"))),
    hub("hub_status", "answered 500", label="hub_status_of_files", status=500, kind="resolve"),
    hub("hub_status", "answered 500", label="hub_status_of_small_files", status=500, kind="small"),
    hub("hub_headers", "x-repo-commit", label="hub_headers_another_commit", kind="resolve,small",
        set={"X-Repo-Commit": "0" * 40}),
    hub("hub_headers", "x-repo-commit", label="hub_headers_no_commit", kind="resolve,small",
        drop=["X-Repo-Commit"]),
    hub("hub_headers", "x-linked-etag", label="hub_headers_another_etag", **WHERE,
        set={"X-Linked-ETag": f'"{"1" * 64}"'}),
    hub("hub_headers", "x-linked-etag", label="hub_headers_no_etag", drop=["X-Linked-ETag"],
        **WHERE),
    hub("hub_headers", "x-linked-size", label="hub_headers_another_size",
        set={"X-Linked-Size": "5"}, **WHERE),
    hub("hub_headers", "etag|", label="hub_headers_another_etag_of_a_small_file", kind="small",
        set={"ETag": f'"{"2" * 40}"'}),
    hub("hub_stall", seconds=0.3),
    hub("hub_stall", "no answer came|nothing came", label="hub_stall_for_ever", seconds=600),
    hub("hub_hold"),
    hub("hub_drop", "closed without an answer|cut short"),
    hub("hub_drop", "closed without an answer|", label="hub_drop_once", times=1),
    *(hub("hub_body", "json|cut short|missing|has no", label=f"hub_body_{mode}_{kind}", mode=mode,
          kind=kind, **({"raw": "[1, 2]"} if mode == "raw" else {}))
      for mode in ("malformed", "empty", "html", "truncated", "raw") for kind in ("info", "tree")),
    hub("tree_add", r"\.\./\.\./x", label="tree_add_a_way_out",
        entry={"path": "../../x", "type": "file", "oid": "0" * 40, "size": 1}),
    hub("tree_add", "etc/passwd", label="tree_add_an_absolute_path",
        entry={"path": "/etc/passwd", "type": "file", "oid": "0" * 40, "size": 1}),
    hub("tree_edit", "x-linked-size|3000000", label="tree_edit_a_size", kind="tree",
        file="model.safetensors", set={
            "size": 5, "lfs": {"oid": hashlib.sha256(WEIGHTS).hexdigest(), "size": 5,
                               "pointerSize": 130}}),
    hub("tree_edit", "oid|git", label="tree_edit_without_an_oid", file="config.json", drop=["oid"]),
    hub("tree_edit", "git|object|etag", label="tree_edit_another_oid", file="config.json",
        set={"oid": "3" * 40}),
    hub("tree_duplicate", "twice|config.json|", file="config.json"),
    hub("tree_lfs_oid", label="tree_lfs_oid_masked", value="masked"),
    hub("tree_lfs_oid", label="tree_lfs_oid_absent", value="absent"),
    hub("tree_lfs_oid", "x-linked-etag", label="tree_lfs_oid_another", value="4" * 64),
    hub("tree_loop", "page|link|next"),
    hub("tree_next", "link|host|origin|next", url=NOBODY),
    hub("small_flip", "git|object|hash|were wrong", path="config.json"),
    hub("small_flip", "git|object|hash|were wrong|", label="small_flip_once", path="config.json",
        times=1),
    hub("small_cut", "cut short|", label="small_cut_once", bytes=10, times=1),
    hub("small_cut", "cut short", bytes=10),
    *(hub("resolve_location", "location|scheme|file:|ftp:|redirect", label=f"resolve_location_{n}",
          url=url, **WHERE) for n, url in (("file", "file:///etc/passwd"),
                                           ("ftp", "ftp://127.0.0.1/x"))),
    hub("resolve_location", "connect|refused", label="resolve_location_nobody", url=NOBODY,
        **WHERE),
    hub("redirect_loop", "redirect", **WHERE),
]


class Client:
    """A client of one version, that is kept running."""

    def __init__(self, version, scratch):
        self.process = subprocess.Popen(
            [python_client(version), DRIVER, "-"], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=client_env("http://127.0.0.1:9", scratch))

    def ask(self, **asked):
        """{"ok": hashes} or {"error": texts}"""
        watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise AssertionError(f"the client did not end within {PATIENCE_S} s: {asked}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


def is_of_trees(fault):
    """The oldest client asks for none: it goes by the names in the repository's info."""
    return all(name.startswith("tree_") or settings.get("kind") == "tree"
               for name, settings in fault.switches)


class Outcome:
    """What came of one download: the client's answer, the server's log, and what is wrong in the
    client's cache."""

    def __init__(self, fault, version, scratch):
        begun = time.monotonic()
        hub = StandInHub(**({"page_size": 2} if fault.name.startswith(("tree_loop", "tree_next"))
                            else {})).start()
        hub.add_repo("Org/Model", FILES)
        try:
            wb = Weighbridge(config={"upstreams": [upstream(
                hub, stall_timeout="1s", connect_timeout="1s", retries=2, breaker_failures=1000,
                revalidate_timeout="1s")]})
            try:
                self.said, self.wrong = self.download(hub, wb, fault, version, scratch)
                self.log = wb.log
            finally:
                end_server(wb)
        finally:
            end_hub(hub)
        self.seconds = time.monotonic() - begun

    @staticmethod
    def download(hub, wb, fault, version, scratch):
        for name, settings in fault.switches:
            hold = hub.fault(name, **settings)
            if name.endswith("_hold"):
                threading.Thread(target=lambda hold=hold: (hold.wait_held(1, PATIENCE_S),
                                                           hold.release())).start()
        cache = tempfile.mkdtemp(dir=scratch)
        said = client_of(version, scratch).ask(do="snapshot", repo="Org/Model", endpoint=wb.url,
                                               cache=cache)
        return said, list(wrong_in(cache))


def wrong_in(cache):
    """A file in a client's cache has the name of what it hashes to, or is not complete."""
    for path in Path(cache).rglob("blobs/*"):
        if path.name.endswith((".incomplete", ".lock")) or not path.is_file():
            continue
        data = path.read_bytes()
        name = hashlib.sha256(data).hexdigest() if len(path.name) == 64 else git_blob_id(data)
        if path.name != name:
            yield f"{path.name}: {len(data)} bytes that hash to {name}"
    for path in Path(cache).rglob("snapshots/*/**/*"):
        known = str(Path(*path.relative_to(cache).parts[3:]))
        if path.is_file() and known not in FILES:
            yield f"{known}: the repository does not have it"


mine = threading.local()  # each thread's own clients
ALL_CLIENTS = []


def client_of(version, scratch):
    clients = mine.__dict__.setdefault("clients", {})
    if version not in clients:
        clients[version] = Client(version, tempfile.mkdtemp(dir=scratch))
        ALL_CLIENTS.append(clients[version])
    return clients[version]


class Faults(HubApiCase):
    """All downloads are begun at first, some at a time: most of their time the newest client waits
    to try again."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for version in VERSIONS:
            try:
                python_client(version)
            except CannotInstall as error:
                raise unittest.SkipTest(("unreachable: " if error.offline else "")
                                        + f"huggingface_hub {version}: {error}") from error
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.scratch = folder.name
        cls.addClassCleanup(lambda: [client.close() for client in ALL_CLIENTS])
        pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        cls.addClassCleanup(pool.shutdown, cancel_futures=True)
        cls.outcomes = {(fault.name, version): pool.submit(Outcome, fault, version, cls.scratch)
                        for fault in FAULTS for version in VERSIONS}

    def outcome(self, fault, version):
        """Not yet begun: then it is done here."""
        future = self.outcomes[fault.name, version]
        if future.cancel():
            return Outcome(fault, version, self.scratch)
        return future.result(2 * PATIENCE_S)

    def holds(self, fault):
        for version in VERSIONS:
            with self.subTest(version):
                got = self.outcome(fault, version)
                self.assertEqual(got.wrong, [], "a complete wrong file")
                if "ok" in got.said:
                    self.assertTrue(fault.says is None or fault.says.endswith("|")
                                    or (version == OLDEST and is_of_trees(fault)),
                                    f"it is no fault that can be mended: {fault}")
                    self.assertEqual(got.said["ok"], {path: hashlib.sha256(data).hexdigest()
                                                      for path, data in FILES.items()})
                else:
                    self.names_the_cause(fault, "\n".join(got.said["error"]), got.log)

    def names_the_cause(self, fault, text, log):
        self.assertIsNotNone(fault.says, f"it did not come right: {text}\n{log[-3000:]}")
        says = f"(?is){fault.says.rstrip('|')}"
        if re.search(f"(?is){ENDED}", text):
            self.assertRegex(log, says, f"the log does not say why; the client: {text}")
        else:
            self.assertRegex(text, says, f"the client was not told why; the log:\n{log[-3000:]}")

    def test_every_switch_is_in_the_table(self):
        used = {name for fault in FAULTS for name, _ in fault.switches}
        self.assertEqual(used, set(SWITCHES))
        names = [fault.name for fault in FAULTS]
        self.assertEqual(len(names), len(set(names)))


for each in FAULTS:
    setattr(Faults, f"test_{each.name}", lambda self, fault=each: self.holds(fault))


if __name__ == "__main__":
    unittest.main()
