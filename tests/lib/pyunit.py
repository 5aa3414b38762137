#!/usr/bin/env python3
"""Runs one unittest file and writes what happened as JSON, so that every test is counted once:
unittest's own closing line counts subtests and class-level skips as it likes.

    pyunit.py REPORT FILE [unittest arguments]
"""

import faulthandler
import importlib.util
import json
import os
import re
import sys
import time
import unittest

CLASS = re.compile(r"(?:setUp|tearDown)Class \((.*)\)")


class Result(unittest.TextTestResult):
    """Keeps one outcome a test; a failure (of a subtest, too) outdoes everything else."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outcomes = {}
        self.started = 0.0

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.write(f"        {time.monotonic() - self.started:.1f} s\n")
        self.stream.flush()

    def note(self, test, outcome, why=""):
        # What becomes of a whole class carries the name of the method that said so.
        key = CLASS.sub(r"\1", (getattr(test, "test_case", None) or test).id())
        if self.outcomes.get(key, ("",))[0] != "failed":
            self.outcomes[key] = (outcome, why)

    def addSuccess(self, test):
        super().addSuccess(test)
        if test.id() not in self.outcomes:
            self.note(test, "passed")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed", str(err[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed", str(err[1]))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed", str(err[1]))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "failed", "unexpected success")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return name


def main():
    report, path = sys.argv[1:3]
    # A test that hangs says where before the caller ends the whole suite.
    limit = int(os.environ.get("WEIGHBRIDGE_SUITE_LIMIT", "0"))
    if limit:
        faulthandler.dump_traceback_later(limit, exit=True)
    name = load(path)
    runner = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result)
    program = unittest.main(module=name, argv=[path, *sys.argv[3:]], testRunner=runner, exit=False)
    with open(report, "w", encoding="utf-8") as f:
        json.dump(program.result.outcomes, f, indent=1)
    sys.stderr.flush()
    os._exit(0 if program.result.wasSuccessful() else 1)  # no thread of a test may keep us here


if __name__ == "__main__":
    main()
