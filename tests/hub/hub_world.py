"""A Hub with one of everything that a client can meet, for tests that compare answers or files.

Two worlds of the same scratch folder have the same commits, whatever else differs."""

import hashlib
import random

from hub import File, StandInHub

TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"        # opens what is private and gated
OTHER_TOKEN = "hf_" + "zYxWvUtSrQpOnMlKjIhGfEdCbA76543210"  # valid, and opens nothing

MODEL, OLD_NAME, BARE = "Test-Org/Some.Model", "old-org/old-name", "gpt-bare"
PRIVATE, GATED = "Test-Org/Private", "Test-Org/Gated"
DATA, SPACE = "Test-Org/Some-Data", "Test-Org/Some-Space"
MIB = 1 << 20


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def hashes(files):
    return {path: sha256(data) for path, data in files.items()}


class World:
    """The hub with its repositories, and what each file must hash to."""

    def __init__(self, scratch, **options):
        rng = random.Random(20)
        self.files = {
            ".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n",
            "config.json": b'{"architectures": ["Test"], "n": 1}\n' * 40,
            "README.md": b"# A model\n\nFor tests.\n",
            "empty.txt": b"",
            "1_Pooling/config.json": b'{"pool": true}',
            "deep/er/still/notes.txt": b"nested\n" * 300,
            "sub dir/a+b c.txt": b"space and plus\n",
            "sub dir/weights+1.bin": rng.randbytes(70_000),
            "old-store.onnx": rng.randbytes(50_000),
            "tokenizer.json": b'{"vocab": "' + b"a" * 600_000 + b'"}',
        }
        weights = rng.randbytes(12 * MIB) + b"tail"
        big = scratch / "model.safetensors"
        if not big.exists():
            big.write_bytes(weights)
        self.files["model.safetensors"] = weights
        self.expected = hashes(self.files)
        served = dict(self.files)
        served["old-store.onnx"] = File(self.files["old-store.onnx"], xet=False)
        served["model.safetensors"] = big
        self.hub = StandInHub(**options)
        tag_files = {"config.json": b'{"old": 1}', "w.bin": rng.randbytes(3000)}
        repo = self.hub.add_repo(MODEL, renamed_from=[OLD_NAME])
        repo.add_commit(tag_files, tag="v1.0")
        self.tag_expected = hashes(tag_files)
        repo.add_commit(served, parent="v1.0")
        pr = {"config.json": b'{"pr": 1}'}
        repo.add_commit(pr, ref="refs/pr/1", keep=True)
        self.pr_expected = {**self.expected, "config.json": sha256(pr["config.json"])}
        self.repo = repo
        small = {"config.json": b"{}" * 900, "model.bin": rng.randbytes(4000)}
        self.small_expected = hashes(small)
        self.hub.add_repo(BARE, small)
        self.hub.add_repo(PRIVATE, small, private=True, tokens=[TOKEN])
        self.hub.add_repo(GATED, small, gated="manual", tokens=[TOKEN])
        self.hub.add_token(OTHER_TOKEN)
        self.add_other_kinds(rng)
        self.hub.start()

    def add_other_kinds(self, rng):
        """A dataset and a space with the model's name, and ones of their own."""
        rows = {"README.md": b"# Rows\n", "data/train-00000-of-00001.parquet":
                rng.randbytes(30_000), "data/text.csv": b"a,b\n" * 50}
        self.data_expected = hashes(rows)
        data = self.hub.add_repo(DATA, rows, kind="dataset")
        data.add_commit({"default/train/0000.parquet": rng.randbytes(9_000)},
                        ref="refs/convert/parquet")
        self.hub.add_repo("bare-data", {"x.csv": b"1\n"}, kind="dataset")
        app = {"app.py": b"print('space')\n", "README.md": b"---\nsdk: gradio\n---\n"}
        self.space_expected = hashes(app)
        self.hub.add_repo(SPACE, app, kind="space")
        twin = {"README.md": b"not the model\n"}
        self.hub.add_repo(MODEL, twin, kind="dataset")
        self.hub.add_repo(MODEL, twin, kind="space")

    def add_branch(self, name="feature/x"):
        """A branch with a slash in its name, with a file of its own."""
        return self.repo.add_commit({"only-here.json": b"[1]"}, branch=name, parent="main",
                                    keep=True)
