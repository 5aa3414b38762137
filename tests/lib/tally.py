"""What passed, what failed and what was skipped, and running a command into a log."""

import os
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOGS = os.path.join(ROOT, "build", "test-logs")
SHOWN_BYTES = 12000

# A skip whose reason starts so is one that nobody here can help; every other one fails in CI.
UNREACHABLE = "unreachable: "


def log_path(name):
    return os.path.join(LOGS, name.replace("/", "-").replace(" ", "-") + ".log")


def run(log, command, env=None, timeout=None):
    """Exit status of a command whose output is added to a log; 124 when it took too long."""
    with open(log_path(log), "ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                  env=env, cwd=ROOT, timeout=timeout, check=False).returncode
        except subprocess.TimeoutExpired:
            out.write(f"\nended after {timeout} s\n".encode())
            return 124


def tail(log):
    try:
        with open(log_path(log), "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - SHOWN_BYTES))
            return f.read().decode(errors="replace")
    except OSError:
        return ""


class Tally:
    """For several threads at once."""

    def __init__(self, ci):
        self.lock = threading.RLock()
        self.ci = ci
        self.passed = 0
        self.failures = []
        self.skips = []

    def ok(self, name, n=1):
        with self.lock:
            self.passed += n
            print(f"   ok       {name}" + (f": {n}" if n != 1 else ""), flush=True)

    def fail(self, name, log=None, text=None):
        """Shows the end of the log, or the text. Returns False."""
        shown = text if text is not None else tail(log) if log else ""
        with self.lock:
            print(f"   FAILED   {name}", flush=True)
            for line in shown.splitlines():
                print(f"   |  {line}")
            self.failures.append(name)
        return False

    def skip(self, name, why, excused=False):
        if self.ci and not excused and not why.startswith(UNREACHABLE):
            return self.fail(name, text=f"skipped in CI: {why}")
        with self.lock:
            print(f"   skipped: {name}: {why}", flush=True)
            self.skips.append(f"{name}: {why}")
        return False

    def close(self, seconds):
        """The summary; returns the exit status. A run without a single test has failed."""
        print(f"\n{seconds:.0f} s; logs are in build/test-logs/")
        for skip in self.skips:
            print(f"skipped: {skip}")
        for failure in self.failures:
            print(f"failed: {failure}")
        if not self.passed and not self.failures:
            self.failures.append("no test was run")
            print("failed: no test was run")
        print(f"{self.passed} passed, {len(self.failures)} failed, {len(self.skips)} skipped")
        return 1 if self.failures else 0
