"""The ways to run a kind of test and to read what it says."""

import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

from tally import LOGS, ROOT, log_path, run

SYNTHESIS = re.compile(
    r"Tested:\D*(\d+).*?Passing:\D*(\d+).*?Failing:\D*(\d+).*?Crashing:\D*(\d+)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def sanitizer_options(options, folder):
    """The same options, with the reports written to files in the folder."""
    return {k: f"{v}:log_path={folder}/{k[:4].lower()}" for k, v in options.items()}


def sanitizer_reports(tally, label, folder):
    for path in sorted(glob.glob(f"{folder}/*")):
        with open(path, encoding="utf-8", errors="replace") as f:
            tally.fail(f"{label}: {os.path.basename(path)}", text=f.read()[:8000])


def ctest(tally, label, build, jobs, sanitizers, programs):
    """Runs ctest; a Criterion program counts as many tests as it says it holds. Each of `programs`
    must be among what it ran: CMake leaves out what it cannot build without Criterion, and folders
    that it does not know."""
    name = "ctest-" + os.path.basename(build)
    reports = os.path.join(LOGS, name + "-sanitizer")
    os.makedirs(reports)
    junit = os.path.join(LOGS, name + ".xml")
    env = dict(os.environ, **sanitizer_options(sanitizers, reports))
    status = run(name, ["ctest", "--test-dir", build, "-j", jobs, "--output-on-failure",
                        "--timeout", "600", "--no-tests=error",
                        "--test-output-size-passed", "10000000",
                        "--test-output-size-failed", "10000000", "--output-junit", junit], env)
    failed, missing = False, set(programs)
    if os.path.exists(junit):
        for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
            failed |= not count_case(tally, label, case)
            missing.discard(case.get("name"))
    for program in sorted(missing):
        failed = True
        tally.fail(f"{label}: {program}", text="ctest did not run it")
    sanitizer_reports(tally, label, reports)
    if status and not failed:
        tally.fail(f"{label}: ctest ended with {status}", name)


def count_case(tally, label, case):
    name = f"{label}: {case.get('name')}"
    output = COLOUR.sub("", case.findtext("system-out") or "")
    synthesis = None
    for synthesis in SYNTHESIS.finditer(output):
        pass  # the last one is the program's own, whatever a test printed
    if case.get("status") != "run":
        return tally.fail(name, text=output[-8000:])
    if synthesis and synthesis[1] != synthesis[2]:
        return tally.fail(name, text=output[-8000:])
    if synthesis and synthesis[1] == "0":
        return tally.fail(name, text="it holds no test")
    tally.ok(name, int(synthesis[1]) if synthesis else 1)
    return True


def unittest(tally, label, path, env, limit_s):
    """Runs one file of Python tests."""
    report = log_path(label) + ".json"
    env = dict(env, WEIGHBRIDGE_SUITE_LIMIT=str(limit_s))
    status = run(label, [sys.executable, "-u", "tests/lib/pyunit.py", report, path], env,
                 limit_s + 60)
    try:
        with open(report, encoding="utf-8") as f:
            outcomes = json.load(f)
    except (OSError, ValueError):
        return tally.fail(f"{label}: ended with {status} before its report", label)
    if not outcomes:
        return tally.fail(f"{label}: it holds no test", label)
    passed = sum(outcome == "passed" for outcome, _ in outcomes.values())
    if passed:
        tally.ok(label, passed)
    shown = False
    for test, (outcome, why) in outcomes.items():
        if outcome == "skipped":
            tally.skip(f"{label}: {test.split('.', 1)[-1]}", why)
        elif outcome == "failed":
            tally.fail(f"{label}: {test.split('.', 1)[-1]}", None if shown else label)
            shown = True
    if status and not shown:
        return tally.fail(f"{label}: ended with {status}", label)
    return not shown


def command(tally, label, arguments, limit_s=600):
    """One program, one test: its exit status says it all."""
    if run(label, arguments, timeout=limit_s):
        return tally.fail(label, label)
    tally.ok(label)
    return True


def counted(tally, label, arguments, limit_s):
    """Runs a program that closes with `N passed, N failed, N skipped` and has said
    `skipped: NAME: WHY` for each that it skipped."""
    status = run(label, arguments, timeout=limit_s)
    with open(log_path(label), encoding="utf-8", errors="replace") as f:
        said = f.read().splitlines()
    closing = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?",
                           said[-1] if said else "")
    if not closing:
        return tally.fail(f"{label}: ended with {status} before its closing line", label)
    passed, failed = int(closing[1]), int(closing[2])
    if not passed and not failed and not int(closing[3] or 0):
        return tally.fail(f"{label}: it holds no test", label)
    if passed:
        tally.ok(label, passed)
    for line in said:
        if line.startswith("skipped: "):
            # It fails by itself in CI when what is missing could have been had.
            tally.skip(label, line[len("skipped: "):], excused=True)
    for i in range(failed):
        tally.fail(f"{label}: {i + 1} of {failed}", None if i else label)
    if status and not failed:
        return tally.fail(f"{label}: ended with {status}", label)
    return not failed


# --- linters -------------------------------------------------------------------------------------


def c_files():
    tracked = subprocess.run(["git", "ls-files", "*.c", "*.h"], cwd=ROOT, capture_output=True,
                             text=True, check=True).stdout.split()
    return [path for path in tracked if os.path.exists(os.path.join(ROOT, path))]


def clang_format(tally):
    if not shutil.which("clang-format-14"):
        return tally.skip("clang-format", "clang-format-14 is not installed")
    if run("clang-format", ["clang-format-14", "--dry-run", "-Werror", *c_files()]):
        return tally.fail("clang-format", "clang-format")
    return tally.ok("clang-format")


def clang_tidy(tally, jobs):
    """The program's own sources, with the release build's flags."""
    if not shutil.which("run-clang-tidy-14"):
        return tally.skip("clang-tidy", "clang-tidy-14 is not installed")
    # GCC's own warning names are unknown to clang, and no business of a linter.
    status = run("clang-tidy", [
        "run-clang-tidy-14", "-quiet", "-p", "build/release", "-j", jobs,
        "-extra-arg=-Wno-unknown-warning-option",
        rf"^{re.escape(ROOT)}/(base|config|model|storage|upstream|server|cli)/"])
    if status:
        return tally.fail("clang-tidy", "clang-tidy")
    return tally.ok("clang-tidy")


# --- fuzzing -------------------------------------------------------------------------------------


def fuzz(tally, build, seconds, sanitizers):
    """Every target for some seconds, from its corpus in the tree; what it finds stays in
    build/fuzz-found/ for a look, and nothing is written into the tree."""
    targets = sorted(glob.glob(os.path.join(ROOT, "tests/fuzz/*/fuzz_*.c")))
    if not targets:
        return tally.fail("fuzz", text="there is no target")
    env = dict(os.environ, **sanitizers)

    def one(name):
        corpus = os.path.join(ROOT, "build", "fuzz-found", name)
        os.makedirs(corpus, exist_ok=True)
        return run(f"fuzz-{name}", [
            f"{build}/tests/{name}", f"-max_total_time={seconds}", "-timeout=10",
            "-rss_limit_mb=2048", f"-artifact_prefix={corpus}/", "-print_final_stats=1", corpus,
            f"tests/fuzz/corpora/{name}"], env, seconds * 3 + 120)

    names = [os.path.basename(source)[:-2] for source in targets]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, status in zip(names, pool.map(one, names)):
            if status:
                tally.fail(f"fuzz: {name}", f"fuzz-{name}")
            else:
                tally.ok(f"fuzz: {name}")
    return True
