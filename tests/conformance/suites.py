"""Runs the OCI distribution specification's own conformance suites, and reads what they say.

The newest is a program with some 1,000 checks; the one before it, behind most published badges, a
ginkgo test binary with 79. Both say "passed" in cases where nothing was tried, so a run is judged
by its numbers, never by its exit status alone.
"""

import os
import re
import secrets
import subprocess
import xml.etree.ElementTree

SUITE_S = 300
SHOWN_CHECKS = 40

# Everything that the newest suite can be told to try. What no run tries is OCI_DATA_SPARSE:
# manifests without the blobs that they name, which a registry may refuse, and ours does.
EVERYTHING = {name: "true" for name in (
    *(f"OCI_API_{api}" for api in (
        "PING", "PULL", "PUSH", "REFERRER", "BLOBS_ATOMIC", "BLOBS_DELETE", "BLOBS_DIGEST_HEADER",
        "BLOBS_MOUNT_ANONYMOUS", "BLOBS_UPLOAD_CANCEL", "MANIFESTS_ATOMIC", "MANIFESTS_DELETE",
        "MANIFESTS_DIGEST_HEADER", "MANIFESTS_TAG_PARAM", "TAGS_ATOMIC", "TAGS_DELETE",
        "TAGS_LIST")),
    *(f"OCI_DATA_{data}" for data in (
        "IMAGE", "INDEX", "INDEX_LIST", "ARTIFACT", "SUBJECT", "SUBJECT_MISSING", "ARTIFACT_LIST",
        "SUBJECT_LIST", "DATA_FIELD", "NONDISTRIBUTABLE", "CUSTOM_FIELDS", "NO_LAYERS",
        "EMPTY_BLOB", "SHA512")))}

COUNT = re.compile(r"^  (Disabled|Skip|Pass|FAIL|Error)\.+: +(\d+)$", re.MULTILINE)
SUMMARY = re.compile(r"Ran (\d+) of (\d+) Specs.*?(\d+) Passed.*?(\d+) Failed.*?(\d+) Pending"
                     r".*?(\d+) Skipped", re.DOTALL)
SKIPPED = re.compile(r"^S \[SKIPPED\].*\n.*\[It\] (.*)$", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Verdict:
    """What one run of a suite came to."""

    def __init__(self, status, counts, checks, output):
        self.status = status    # exit status of the program
        self.counts = counts    # {"Pass": n, "FAIL": n, ...}; empty when it never got that far
        self.checks = checks    # [(name, outcome, why)] of all that did not pass
        self.output = output
        self.skipped = set(SKIPPED.findall(output))  # of a ginkgo suite: the names of specs

    def __str__(self):
        """The numbers, and the checks that did not pass."""
        shown = [f"{outcome}: {name}\n    {why}" for name, outcome, why in
                 self.checks[:SHOWN_CHECKS]] or [self.output[-6000:]]
        return f"exit status {self.status}, {self.counts}\n" + "\n".join(shown)


def run(command, scratch, settings):
    env = {"PATH": os.environ["PATH"], "HOME": scratch, "TMPDIR": scratch, **settings}
    done = subprocess.run(command, cwd=scratch, env=env, capture_output=True, timeout=SUITE_S,
                          check=False)
    return done.returncode, COLOUR.sub("", (done.stdout + done.stderr).decode(errors="replace"))


def fresh_prefix():
    """Of repositories that nobody has used before."""
    return f"conformance/{secrets.token_hex(4)}"


def newest(program, host, scratch, version, settings):
    """Runs the newest suite."""
    results = os.path.join(scratch, f"results-{secrets.token_hex(4)}")
    prefix = fresh_prefix()
    status, output = run([program], scratch, {
        "OCI_REGISTRY": host, "OCI_TLS": "disabled", "OCI_REPO1": f"{prefix}/one",
        "OCI_REPO2": f"{prefix}/two", "OCI_VERSION": version, "OCI_LOG": "error",
        "OCI_RESULTS_DIR": results, **settings})
    counts = {name: int(n) for name, n in COUNT.findall(output)}
    return Verdict(status, counts, not_passed(os.path.join(results, "junit.xml")), output)


def not_passed(path):
    try:
        cases = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
    except (OSError, xml.etree.ElementTree.ParseError):
        return []
    return [(case.get("name"), case.get("status"), " ".join((
        case.findtext("system-out") or case.findtext("system-err") or "").split())[:600])
        for case in cases if case.get("status") != "passed"]


def ginkgo(program, host, scratch, prefix, settings):
    """Runs a suite of the kind that the specification's versions up to 1.1.1 have, in the
    repositories one and two under a prefix."""
    status, output = run([program, "--ginkgo.v"], scratch, {
        "OCI_ROOT_URL": f"http://{host}", "OCI_NAMESPACE": f"{prefix}/one",
        "OCI_CROSSMOUNT_NAMESPACE": f"{prefix}/two", "OCI_TEST_PULL": "1", "OCI_TEST_PUSH": "1",
        "OCI_TEST_CONTENT_DISCOVERY": "1", "OCI_TEST_CONTENT_MANAGEMENT": "1",
        "OCI_REPORT_DIR": scratch, **settings})
    found = SUMMARY.search(output)
    names = ("run", "all", "Pass", "FAIL", "Pending", "Skip")
    counts = dict(zip(names, map(int, found.groups()))) if found else {}
    failed = re.findall(r"^\s*\[FAIL\] (.*)$", output, re.MULTILINE)
    return Verdict(status, counts, [(name, "FAIL", "") for name in failed], output)
