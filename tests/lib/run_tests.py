#!/usr/bin/env python3
"""What ./test runs, once Debian's packages are there. Each step is one function; each adds what it
saw to the tally. Output of every step goes to build/test-logs/ and is shown when the step failed.
"""

import argparse
import glob
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checks  # noqa: E402
from tally import LOGS, ROOT, Tally, run  # noqa: E402

SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:second_deadlock_stack=1:suppressions='"
                    + os.path.join(ROOT, "tests", "lib", "tsan.supp") + "'",
}
SUITE_LIMIT_S = 1200


def jobs():
    return str(os.cpu_count() or 2)


def build(tally, preset, *targets):
    """False when it failed: what needs this build is then failed, not run."""
    log = f"build-{preset}"
    if not os.path.exists(f"build/{preset}/build.ninja"):
        if run(log, ["cmake", "--preset", preset]):
            return tally.fail(f"cmake --preset {preset}", log)
    command = ["cmake", "--build", "--preset", preset, "-j", jobs()]
    if run(log, command + (["--target", *targets] if targets else [])):
        return tally.fail(f"build {preset}", log)
    return True


# --- C programs ----------------------------------------------------------------------------------


def programs(*kinds):
    """The names that tests/CMakeLists.txt gives to what it builds from the sources of these kinds."""
    names = []
    for kind in kinds:
        for path in suites(f"tests/{kind}/*/{'test' if kind == 'unit' else kind}_*.c"):
            folder, name = os.path.split(os.path.splitext(path)[0])
            names.append(name if kind == "fuzz" else f"{os.path.basename(folder)}_{name}")
    return names


def unit(tally):
    """Unit tests, stress programs and fuzz corpora under ASan and UBSan. Criterion passes a test
    that leaks, so the sanitizers write files, and any such file is a failure."""
    if build(tally, "asan"):
        checks.ctest(tally, "unit (asan)", "build/asan", jobs(), SANITIZERS,
                     programs("unit", "stress", "fuzz"))
    for path in suites("tests/unit/*/check_*.py"):  # checkers that test themselves
        checks.command(tally, path, [sys.executable, path])


def stress(tally):
    """Criterion cannot run under TSan: plain programs and fuzz corpora can."""
    if build(tally, "tsan"):
        checks.ctest(tally, "stress (tsan)", "build/tsan", "1", SANITIZERS,
                     programs("stress", "fuzz"))


# --- Python suites -------------------------------------------------------------------------------


def suites(*patterns):
    found = [p for pattern in patterns for p in sorted(glob.glob(os.path.join(ROOT, pattern)))]
    return [os.path.relpath(p, ROOT) for p in found]


def python_suite(tally, path, preset, label="", **more):
    env = {**os.environ, **SANITIZERS, **more}
    env["WEIGHBRIDGE_BIN"] = os.path.join(ROOT, "build", preset, "weighbridge")
    env["WEIGHBRIDGE_RELEASE_BIN"] = os.path.join(ROOT, "build", "release", "weighbridge")
    env["WEIGHBRIDGE_BUILD"] = preset
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    checks.unittest(tally, path + label, path, env, SUITE_LIMIT_S)


def side_by_side(tally, paths, preset, label):
    """Suites that spend most of their time waiting, as many at once as there are cores."""
    with ThreadPoolExecutor(int(jobs())) as pool:
        for running in [pool.submit(python_suite, tally, path, preset, label) for path in paths]:
            running.result()


def hub(tally):
    """The stand-in Hub against the clients that define what a Hub is."""
    for path in suites("tests/hub/test_*.py"):
        python_suite(tally, path, "asan")
    for path in suites("tests/hub/check_*.py"):
        checks.counted(tally, path, [sys.executable, "-u", path], SUITE_LIMIT_S)


def registry(tally):
    """The stand-in registry, against real clients and beside a real registry."""
    for path in suites("tests/registry/test_*.py"):
        python_suite(tally, path, "asan")


def e2e(tally):
    if build(tally, "asan") and build(tally, "release", "weighbridge"):
        side_by_side(tally, suites("tests/cli/test_*.py", "tests/e2e/test_*.py"), "asan", " (asan)")


def e2e_tsan(tally):
    if build(tally, "tsan") and build(tally, "release", "weighbridge"):
        # What runs without a server has one thread.
        paths = [p for p in suites("tests/e2e/test_*.py") if "/test_inspect" not in p]
        side_by_side(tally, paths, "tsan", " (tsan)")


def oracle(tally):
    """What inspect says of models, beside what the formats' own readers say."""
    if build(tally, "release", "weighbridge"):
        for path in suites("tests/oracle/test_*.py"):
            python_suite(tally, path, "release")


def clients(tally):
    """Real clients, against the program as it is shipped."""
    if build(tally, "release", "weighbridge"):
        for path in suites("tests/clients/test_*.py"):
            python_suite(tally, path, "release")


def conformance(tally):
    """The distribution specification's own suites, against the program as it is shipped."""
    if build(tally, "release", "weighbridge"):
        for path in suites("tests/conformance/test_*.py"):
            python_suite(tally, path, "release")


def faults(tally):
    """Crashes: at random moments of the program as it is shipped, and at each named point."""
    if build(tally, "release", "weighbridge"):
        for path in suites("tests/faults/test_expectations.py", "tests/faults/test_kill.py"):
            python_suite(tally, path, "release")
    if build(tally, "asan", "weighbridge", "weighbridge_faults"):
        python_suite(tally, "tests/faults/test_points.py", "asan", " (asan)")


def load(tally):
    """Many clients at once: in CI for a minute each."""
    seconds = os.environ.get("WEIGHBRIDGE_LOAD_S") or ("60" if tally.ci else "15")
    if build(tally, "release", "weighbridge"):
        python_suite(tally, "tests/load/test_load.py", "release", WEIGHBRIDGE_LOAD_S=seconds)
    if build(tally, "tsan", "weighbridge"):
        python_suite(tally, "tests/load/test_load.py", "tsan", " (tsan)",
                     WEIGHBRIDGE_LOAD_S=seconds)


# --- everything else -----------------------------------------------------------------------------


def lint(tally):
    checks.clang_format(tally)
    if build(tally, "release", "weighbridge"):
        checks.clang_tidy(tally, jobs())


def fuzz(tally):
    if build(tally, "fuzz"):
        checks.fuzz(tally, "build/fuzz", int(os.environ.get("WEIGHBRIDGE_FUZZ_S", "20")),
                    SANITIZERS)


def bench(tally):
    if build(tally, "release", "weighbridge"):
        checks.command(tally, "bench", [os.path.join(ROOT, "bench", "run"), "--short"])


STEPS = {f.__name__: f for f in (
    unit, stress, hub, registry, e2e, oracle, conformance, clients, faults, load, e2e_tsan, lint,
    fuzz, bench)}
QUICK = ("unit", "e2e")
NORMAL = ("unit", "stress", "hub", "registry", "e2e", "oracle", "conformance", "clients", "faults",
          "load")
FULL = tuple(STEPS)


def main():
    parser = argparse.ArgumentParser(prog="./test", description="Builds and runs the tests.")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--full", action="store_true", help=f"all of {', '.join(FULL)}")
    parser.add_argument("--only", metavar="STEP[,STEP]", help="just these steps")
    options = parser.parse_args()
    names = QUICK if options.quick else FULL if options.full else NORMAL
    if options.only:
        names = options.only.split(",")
        unknown = [n for n in names if n not in STEPS]
        if unknown:
            parser.error(f"no step {unknown[0]}; there are {', '.join(STEPS)}")
    os.chdir(ROOT)
    shutil.rmtree(LOGS, ignore_errors=True)
    os.makedirs(LOGS)
    tally = Tally(ci=os.environ.get("CI") == "true")
    begun = time.monotonic()
    for name in names:
        at = time.monotonic()
        print(f"== {name}", flush=True)
        STEPS[name](tally)
        print(f"   {time.monotonic() - at:.0f} s", flush=True)
    return tally.close(time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
