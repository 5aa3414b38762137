"""Switches: what the stand-in does wrong, to whom, and how many times.

A fault is one rule: a name, its parameters, and limits on where it applies
(host, repo glob, path glob, endpoint kind, method, skip the first N, at most N times).
FaultTable owns all rules and their counts; the servers ask it with take().
A hold is a fault that keeps answers waiting until a test lets them go.

Which faults there are is the stand-in's own: {name: {parameter: must it be given}}.
"""

import fnmatch
import itertools
import threading

LIMITS = {"host", "repo", "path", "kind", "method", "times", "skip"}


class Fault:
    """One rule. `hits` counts how often it was applied."""

    def __init__(self, table, number, name, params, limits):
        self.table = table
        self.id = number
        self.name = name
        self.params = params
        self.host = limits.get("host")
        self.repo = limits.get("repo")
        self.path = limits.get("path")
        self.kind = limits.get("kind")
        self.method = limits.get("method")
        self.times = limits.get("times")
        self.skip = limits.get("skip") or 0
        self.hits = 0

    def __getitem__(self, key):
        return self.params.get(key)

    def get(self, key, default=None):
        value = self.params.get(key)
        return default if value is None else value

    def matches(self, host, repo, path, kind, method):
        if self.host and host != self.host:
            return False
        if self.repo and (repo is None or not fnmatch.fnmatchcase(
                repo.lower(), self.repo.lower())):
            return False
        if self.path and (path is None or not fnmatch.fnmatchcase(path, self.path)):
            return False
        if self.kind and kind not in str(self.kind).split(","):
            return False
        return not self.method or method == self.method

    def remove(self):
        self.table.remove(self.id)

    def describe(self):
        return {"id": self.id, "fault": self.name, "hits": self.hits,
                "times": self.times, "host": self.host, "repo": self.repo, "path": self.path,
                "kind": self.kind, **self.params}


class Hold(Fault):
    """A barrier: each answer it matches waits at its point until release().

    wait_held(n) returns True when n answers have reached it (counted in all,
    released ones too). release(n) lets n of the waiting go; release() opens it
    for good, for the waiting and for all that come. With the parameter `until`
    it opens by itself when that many have arrived.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.cond = threading.Condition()
        self.arrived = 0
        self.tickets = 0
        self.passed = 0
        self.open = False

    @property
    def waiting(self):
        return self.arrived - self.passed

    def wait_held(self, count=1, timeout=30):
        with self.cond:
            return self.cond.wait_for(lambda: self.arrived >= count, timeout)

    def release(self, count=None):
        with self.cond:
            if count is None:
                self.open = True
            else:
                self.tickets += count
            self.cond.notify_all()

    def remove(self):
        super().remove()
        self.release()

    def pass_through(self):
        """Called by the server's thread: wait here until let go."""
        with self.cond:
            self.arrived += 1
            if self["until"] is not None and self.arrived >= int(self["until"]):
                self.open = True
            self.cond.notify_all()
            self.cond.wait_for(lambda: self.open or self.tickets > 0)
            if not self.open:
                self.tickets -= 1
            self.passed += 1

    def describe(self):
        return {**super().describe(), "arrived": self.arrived,
                "waiting": self.waiting, "open": self.open}


class FaultTable:
    """All active rules, in the order they were set."""

    def __init__(self, known):
        self.known = known
        self.lock = threading.Lock()  # guards rules, and the rules' counts
        self.rules = {}
        self.numbers = itertools.count(1)

    def add(self, name, **settings):
        if name not in self.known:
            raise ValueError(f"unknown fault {name!r}")
        limits = {k: v for k, v in settings.items() if k in LIMITS}
        params = {k: v for k, v in settings.items() if k not in LIMITS}
        known = self.known[name]
        for key in params:
            if key not in known:
                raise ValueError(f"{name} has no parameter {key!r}")
        for key, needed in known.items():
            if needed and params.get(key) is None:
                raise ValueError(f"{name} needs {key!r}")
        make = Hold if name.split("_")[-1] == "hold" else Fault
        fault = make(self, next(self.numbers), name, params, limits)
        with self.lock:
            self.rules[fault.id] = fault
        return fault

    def remove(self, number):
        with self.lock:
            self.rules.pop(number, None)

    def clear(self):
        with self.lock:
            gone = list(self.rules.values())
            self.rules.clear()
        for fault in gone:
            if isinstance(fault, Hold):
                fault.release()

    def all(self):
        with self.lock:
            return list(self.rules.values())

    def take_all(self, name, host=None, repo=None, path=None, kind=None, method=None,
                 when=None, limit=None):
        """The rules of this name that apply to this answer; each is counted.
        `when(fault)` may refuse a rule that would have no effect (an offset that
        is not sent), so that it is not used up. Rules past `limit` stay uncounted."""
        found = []
        if not self.rules:
            return found
        with self.lock:
            for fault in self.rules.values():
                if fault.name != name or not fault.matches(
                        host, repo, path, kind, method):
                    continue
                if fault.times is not None and fault.hits >= fault.times:
                    continue
                if when and not when(fault):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.hits += 1
                found.append(fault)
                if len(found) == limit:
                    break
        return found

    def take(self, name, **where):
        """The first rule that applies, or None."""
        found = self.take_all(name, limit=1, **where)
        return found[0] if found else None
