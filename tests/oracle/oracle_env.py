"""The reference readers, in a virtual environment of the tests' cache at pinned versions."""

import hashlib
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hub"))

from hub_clients import CannotInstall, Locked, cache_dir, last_line, pypi_answers  # noqa: E402

READERS = ("safetensors==0.8.0", "gguf==0.19.0", "onnx==1.23.2", "numpy==2.4.6",
           "ml_dtypes==0.6.0")


def python_with_readers():
    """Path of a Python that has them all."""
    name = "oracle-" + hashlib.sha256("\n".join(READERS).encode()).hexdigest()[:12]
    home = cache_dir() / name
    python = home / "bin" / "python"
    with Locked(name):
        if (home / "ready").exists():
            return python
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", *READERS],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            raise CannotInstall(last_line(done), offline=not pypi_answers())
        (home / "ready").touch()
    return python
