"""The real clients, installed on demand into the tests' cache and reused.

Owns the folders hf-<version>/ (virtual environments) and hfjs/ (node_modules)
below $WEIGHBRIDGE_TEST_CACHE, by default ~/.cache/weighbridge-tests.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON_VERSIONS = ("newest", "0.36.2", "0.30.2", "0.24.7")
# What is installed for each, with the compiled clients that it can use. hf_xet is there by default
# from 0.32 on, and unknown to 0.24.7; hf_transfer was given up with 1.0.
REQUIREMENTS = {
    "newest": ("huggingface_hub", "hf_xet"),
    "0.36.2": ("huggingface_hub==0.36.2", "hf_xet", "hf_transfer"),
    "0.30.2": ("huggingface_hub==0.30.2", "hf_xet", "hf_transfer"),
    "0.24.7": ("huggingface_hub==0.24.7", "hf_transfer"),
    "transformers": ("transformers", "hf_xet"),  # with the huggingface_hub that it wants
}


class CannotInstall(Exception):
    """A client could not be had. `offline`: its registry does not answer at all."""

    def __init__(self, message, offline):
        super().__init__(message)
        self.offline = offline


def cache_dir():
    path = Path(os.environ.get("WEIGHBRIDGE_TEST_CACHE")
                or Path.home() / ".cache" / "weighbridge-tests")
    path.mkdir(parents=True, exist_ok=True)
    return path


class Locked:
    """One installer at a time for one name in the cache."""

    def __init__(self, name):
        self.path = cache_dir() / f"{name}.lock"

    def __enter__(self):
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *exc):
        self.file.close()


def last_line(done):
    """What went wrong, in one line: the last, but npm's first."""
    lines = (done.stderr or done.stdout).strip().splitlines()
    npm = [line for line in lines if line.startswith("npm error")]
    lines = npm[:1] or lines
    return lines[-1][:200] if lines else f"exit {done.returncode}"


def pypi_answers():
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir",
             "--retries", "0", "--timeout", "15", "-d", scratch, "six"], capture_output=True, check=False)
    return done.returncode == 0


def npm_answers():
    done = subprocess.run(["npm", "view", "--fetch-retries=0", "--fetch-timeout=15000",
                           "--prefer-online", "semver", "version"],
                          capture_output=True, check=False)
    return done.returncode == 0


def python_client(version="newest"):
    """Path of the python of a virtual environment with what REQUIREMENTS has of that name."""
    home = cache_dir() / f"hf-{version}"
    python, ready = home / "bin" / "python", home / "ready"
    wanted = " ".join(REQUIREMENTS[version])
    with Locked(f"hf-{version}"):
        if ready.exists() and ready.read_text() == wanted:
            return python
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", *REQUIREMENTS[version]],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            raise CannotInstall(last_line(done), offline=not pypi_answers())
        ready.write_text(wanted)
    return python


def js_client():
    """A folder whose node_modules has @huggingface/hub; node runs scripts there."""
    home = cache_dir() / "hfjs"
    if not shutil.which("node") or not shutil.which("npm"):
        raise CannotInstall("node and npm are not installed", offline=False)
    with Locked("hfjs"):
        if (home / "ready").exists():
            return home
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        (home / "package.json").write_text('{"private": true, "type": "module"}\n')
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund",
                               "@huggingface/hub"],
                              cwd=home, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            raise CannotInstall(last_line(done), offline=not npm_answers())
        (home / "ready").touch()
    return home


def js_version(home):
    package = home / "node_modules/@huggingface/hub/package.json"
    return json.loads(package.read_text())["version"]


def client_env(endpoint, home, **more):
    """The environment for a Hub client: nothing of the caller's Hub settings."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("HF_", "HUGGING")) and not k.lower().endswith("_proxy")}
    env.update(HF_ENDPOINT=endpoint, HF_HOME=str(home), HF_HUB_DISABLE_TELEMETRY="1",
               HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_UPDATE_CHECK="1",
               PYTHONDONTWRITEBYTECODE="1")
    env.update(more)
    return env
