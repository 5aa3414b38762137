#!/usr/bin/env python3
"""Checks ModelPack documents against the rules of model-spec's config schema and manifest text.

An independent second opinion on what model/modelpack*.c writes: the rules are written down here
again, from the specification (docs/config.md, docs/spec.md, schema/config-schema.json), not from
our C code. As a library: check_config(dict) and check_manifest(dict) return a list of complaints,
empty when all is well. As a program: with no argument it tests itself; else it checks the files
given (`config.json` or `manifest.json`, told apart by their content).
"""

import copy
import json
import re
import sys
from datetime import datetime

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.cncf.model.manifest.v1+json"
CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
LAYER_TYPE = re.compile(
    r"application/vnd\.cncf\.model\.(weight\.config|weight|doc|code|dataset)\.v1\."
    r"(raw|tar|tar\+gzip|tar\+zstd)"
)
KINDS = ["weight.config", "weight", "code", "doc"]  # the order of the layers
DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
PRECISIONS = set(
    "float32 float64 float16 bfloat16 float8_e4m3 float8_e5m2 complex32 complex64 complex128 int8 "
    "int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
)
PARAM_SIZE = re.compile(r"[0-9]+(\.[0-9])?[QTBMK]", re.IGNORECASE)
MEDIA = ["text", "image", "audio", "video", "embedding", "other"]
MANIFEST_MAX = 4 << 20


def _text(value):
    return None if isinstance(value, str) else "is not a string"


def _name(value):
    return _text(value) or (None if value else "is empty")


def _bool(value):
    return None if isinstance(value, bool) else "is not true or false"


def _date_time(value):
    wrong = _text(value)
    if wrong:
        return wrong
    if not re.fullmatch(
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})", value, re.IGNORECASE
    ):
        return "is not an RFC 3339 date and time"
    try:
        datetime.strptime(value[:19].upper(), "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return "is not a date and time that exists"
    return None


def _one_of(*allowed):
    return lambda value: None if value in allowed else "is not one of " + ", ".join(allowed)


def _pattern(regex):
    return lambda value: _text(value) or (
        None if regex.search(value) else "does not match " + regex.pattern
    )


def _list(item, least=0):
    def check(value):
        if not isinstance(value, list):
            return "is not an array"
        if len(value) < least:
            return "is empty"
        for i, element in enumerate(value):
            wrong = item(element)
            if wrong:
                return "[%d] %s" % (i, wrong)
        return None

    return check


def _object(members, required=()):
    """A closed object: no member but these."""

    def check(value):
        if not isinstance(value, dict):
            return "is not an object"
        for key in required:
            if key not in value:
                return "lacks " + key
        for key, member in value.items():
            if key not in members:
                return "has the unknown member " + key
            wrong = members[key](member)
            if wrong:
                return "%s %s" % (key, wrong)
        return None

    return check


_CAPABILITIES = _object(
    {
        "inputTypes": _list(_one_of(*MEDIA)),
        "outputTypes": _list(_one_of(*MEDIA)),
        "knowledgeCutoff": _date_time,
        "reasoning": _bool,
        "toolUsage": _bool,
        "reward": _bool,
        "languages": _list(_pattern(re.compile(r"^[a-z]{2}$"))),
    }
)
_CONFIG = _object(
    {
        "descriptor": _object(
            {
                "createdAt": _date_time,
                "authors": _list(_text),
                "name": _name,
                "datasetsURL": _list(_text),
                "licenses": _list(_text),
                **{
                    key: _text
                    for key in "family version docURL sourceURL revision vendor title "
                    "description".split()
                },
            }
        ),
        "config": _object(
            {
                "capabilities": _CAPABILITIES,
                **{
                    key: _text
                    for key in "architecture format paramSize precision quantization".split()
                },
            }
        ),
        "modelfs": _object(
            {"type": _one_of("layers"), "diffIds": _list(_text, least=1)},
            required=("type", "diffIds"),
        ),
    },
    required=("descriptor", "config", "modelfs"),
)


def check_schema(config):
    """Only what the JSON schema says."""
    wrong = _CONFIG(config)
    return [wrong] if wrong else []


def _empties(value, where):
    """Members that Go's omitempty would not have written."""
    if isinstance(value, dict):
        for key, member in value.items():
            if member == "" or member == []:
                yield "%s.%s is empty" % (where, key)
            yield from _empties(member, "%s.%s" % (where, key))


def check_config(config):
    """The schema, the words that docs/config.md allows, and what other readers stumble over."""
    wrong = check_schema(config)
    if wrong:
        return wrong
    inner, descriptor = config["config"], config["descriptor"]
    wrong += _empties(config, "config")
    if "name" not in descriptor:
        wrong.append("descriptor.name is missing")
    if "datasetsURL" in descriptor:
        wrong.append("descriptor.datasetsURL is refused by validators of v0.0.7")
    if "paramSize" in inner and not PARAM_SIZE.fullmatch(inner["paramSize"]):
        wrong.append("config.paramSize is %r" % inner["paramSize"])
    for word in inner.get("precision", "bool").split(","):
        if word not in PRECISIONS:
            wrong.append("config.precision has %r" % word)
    if inner.get("format", "pt") not in ("onnx", "safetensors", "gguf", "pt"):
        wrong.append("config.format is %r" % inner["format"])
    if inner.get("architecture", "cnn") not in ("transformer", "cnn", "rnn"):
        wrong.append("config.architecture is %r" % inner["architecture"])
    for digest in config["modelfs"]["diffIds"]:
        if not DIGEST.fullmatch(digest):
            wrong.append("modelfs.diffIds has %r" % digest)
    return wrong


def _check_descriptor(descriptor, where, media_type):
    if list(descriptor)[:3] != ["mediaType", "digest", "size"]:
        yield where + " has its keys in another order: " + ", ".join(descriptor)
    if not media_type(descriptor.get("mediaType", "")):
        yield "%s.mediaType is %r" % (where, descriptor.get("mediaType"))
    if not DIGEST.fullmatch(str(descriptor.get("digest"))):
        yield "%s.digest is %r" % (where, descriptor.get("digest"))
    size = descriptor.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        yield "%s.size is %r" % (where, size)


def _check_layer(layer, where):
    yield from _check_descriptor(layer, where, LAYER_TYPE.fullmatch)
    annotations = layer.get("annotations", {})
    path = annotations.get("org.cncf.model.filepath", "")
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts):
        yield "%s: the file path %r" % (where, path)
    if annotations.get("org.opencontainers.image.title") != path:
        yield where + ": the title is not the path"
    if annotations.get("org.cncf.model.file.mediatype.untested") not in ("true", "false"):
        yield where + ": mediatype.untested is missing"
    if list(annotations) != sorted(annotations):
        yield where + ": annotations out of order"
    try:
        metadata = json.loads(annotations.get("org.cncf.model.file.metadata+json", ""))
    except ValueError:
        yield where + ": its metadata is not JSON"
        return
    if list(metadata) != ["name", "mode", "uid", "gid", "size", "mtime", "typeflag"]:
        yield where + ": its metadata has other keys: " + ", ".join(metadata)
    elif (metadata["name"], metadata["size"]) != (parts[-1], layer.get("size")):
        yield where + ": its metadata is about another file"
    elif _date_time(metadata["mtime"]) or metadata["typeflag"] not in (0, 48):
        yield where + ": its metadata has a wrong mtime or typeflag"


def _layer_key(layer):
    kind = LAYER_TYPE.fullmatch(layer["mediaType"]).group(1)
    path = layer["annotations"]["org.cncf.model.filepath"]
    return (KINDS.index(kind), path.encode())


def check_manifest(manifest, config=None):
    """The manifest, and with its config blob also that they fit together."""
    wrong = []
    keys = ["schemaVersion", "mediaType", "artifactType", "config", "layers", "annotations"]
    if not isinstance(manifest, dict) or list(manifest) not in (keys, keys[:-1]):
        return ["the manifest's keys are not " + ", ".join(keys)]
    head = (manifest["schemaVersion"], manifest["mediaType"], manifest["artifactType"])
    if head != (2, MANIFEST_TYPE, ARTIFACT_TYPE):
        wrong.append("the manifest begins with %r" % (head,))
    wrong += _check_descriptor(manifest["config"], "config", CONFIG_TYPE.__eq__)
    for i, layer in enumerate(manifest["layers"]):
        wrong += _check_layer(layer, "layers[%d]" % i)
    annotations = manifest.get("annotations", {})
    if list(annotations) != sorted(annotations):
        wrong.append("annotations out of order")
    if any(not isinstance(value, str) for value in annotations.values()):
        wrong.append("an annotation is no string")
    if len(json.dumps(manifest, separators=(",", ":"))) > MANIFEST_MAX:
        wrong.append("the manifest is over 4 MiB")
    if wrong:
        return wrong
    order = [_layer_key(layer) for layer in manifest["layers"]]
    if order != sorted(order):
        wrong.append("the layers are not in order")
    if len({path for _, path in order}) != len(order):
        wrong.append("two layers have one path")
    if config is not None:
        digests = [layer["digest"] for layer in manifest["layers"]]
        if config.get("modelfs", {}).get("diffIds") != digests:
            wrong.append("modelfs.diffIds are not the layers' digests")
    return wrong


# ---- its own test ------------------------------------------------------------------------------

BASE = {
    "descriptor": {"name": "x"},
    "config": {"paramSize": "8b"},
    "modelfs": {"type": "layers", "diffIds": ["sha256:" + "0" * 64]},
}
MUST_FAIL = [
    ("config", None),
    ("descriptor.version", 3.1),
    ("descriptor.revision", 1234),
    ("descriptor.createdAt", "2025/01/01T00:00:00Z"),
    ("descriptor.createdAt", "2025-02-30T00:00:00Z"),
    ("descriptor.authors", "John Doe"),
    ("descriptor.licenses", "Apache-2.0"),
    ("descriptor.datasetsURL", "https://example.com"),
    ("descriptor.docURL", ["https://example.com"]),
    ("descriptor.sourceURL", ["https://example.com"]),
    ("descriptor.name", ""),
    ("descriptor.namee", "x"),
    ("config.paramSize", 8000000),
    ("config.precision", 16),
    ("config.unknown", "x"),
    ("modelfs.type", "layer"),
    ("modelfs.diffIds", "sha256:" + "0" * 64),
    ("modelfs.diffIds", []),
    ("modelfs.diffIds", None),
    ("config.capabilities", {"inputTypes": "text"}),
    ("config.capabilities", {"outputTypes": "text"}),
    ("config.capabilities", {"inputTypes": ["img"]}),
    ("config.capabilities", {"outputTypes": ["img"]}),
    ("config.capabilities", {"knowledgeCutoff": "2025-01-01"}),
    ("config.capabilities", {"reasoning": "true"}),
    ("config.capabilities", {"toolUsage": "true"}),
    ("config.capabilities", {"reward": "true"}),
    ("config.capabilities", {"languages": "en"}),
    ("config.capabilities", {"languages": ["fra"]}),
    ("config.capabilities", {"unknown": True}),
]
MUST_PASS = [
    ("descriptor.createdAt", "2025-01-01T00:00:00Z"),
    ("descriptor.createdAt", "2025-01-01T00:00:00.5+01:00"),
    ("descriptor.licenses", ["Apache-2.0"]),
    ("config.precision", "float16,bfloat16"),
    ("config.capabilities", {"inputTypes": ["text", "image"], "languages": ["en"], "reward": True}),
    ("config.capabilities", {"knowledgeCutoff": "2025-01-01T00:00:00Z"}),
]
OURS_MUST_FAIL = [
    ("config.paramSize", "134.55M"),
    ("config.paramSize", "8"),
    ("config.precision", "Q4_K"),
    ("config.precision", "float16,"),
    ("config.format", ""),
    ("config.format", "pickle"),
    ("descriptor.family", ""),
    ("descriptor.authors", []),
    ("descriptor.name", None),
    ("descriptor.datasetsURL", ["https://example.com"]),
    ("modelfs.diffIds", ["sha256:abc"]),
]


def _changed(path, value):
    document = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    place = document
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


def _example_manifest():
    metadata = {"name": "m.gguf", "mode": 420, "uid": 0, "gid": 0, "size": 5}
    metadata.update(mtime="1970-01-01T00:00:00Z", typeflag=0)
    digest = "sha256:" + "0" * 64
    layer = {
        "mediaType": "application/vnd.cncf.model.weight.v1.raw",
        "digest": digest,
        "size": 5,
        "annotations": {
            "org.cncf.model.file.mediatype.untested": "false",
            "org.cncf.model.file.metadata+json": json.dumps(metadata),
            "org.cncf.model.filepath": "a/m.gguf",
            "org.opencontainers.image.title": "a/m.gguf",
        },
    }
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": digest, "size": 1},
        "layers": [layer],
    }


def _manifest_failures():
    good = _example_manifest()
    if check_manifest(good, BASE):
        yield "the example manifest fails: %s" % check_manifest(good, BASE)
    changes = [
        lambda m: m.update(schemaVersion=1),
        lambda m: m.update(artifactType="x"),
        lambda m: m.update(subject={}),
        lambda m: m["config"].update(size=-1),
        lambda m: m["config"].update(mediaType="x"),
        lambda m: m["layers"][0].update(mediaType="application/vnd.cncf.model.weight.v1.zip"),
        lambda m: m["layers"][0].update(digest="sha256:0"),
        lambda m: m["layers"][0].update(size=6),
        lambda m: m["layers"][0]["annotations"].pop("org.cncf.model.filepath"),
        lambda m: m["layers"][0]["annotations"].update({"org.cncf.model.filepath": "../m.gguf"}),
        lambda m: m["layers"][0]["annotations"].pop("org.opencontainers.image.title"),
        lambda m: m["layers"].append(copy.deepcopy(m["layers"][0])),
        lambda m: m.update(annotations={"b": "", "a": ""}),
        lambda m: m.update(annotations={"a": 1}),
    ]
    for i, change in enumerate(changes):
        bad = _example_manifest()
        change(bad)
        if not check_manifest(bad):
            yield "the manifest change %d passes" % i
    other = copy.deepcopy(BASE)
    other["modelfs"]["diffIds"] = ["sha256:" + "1" * 64]
    if not check_manifest(good, other):
        yield "diffIds of another order pass"


def self_test():
    failures = list(_manifest_failures())
    if check_config(BASE):
        failures.append("the base config fails: %s" % check_config(BASE))
    for table, check, must_fail in (
        (MUST_FAIL, check_schema, True),
        (MUST_PASS, check_config, False),
        (OURS_MUST_FAIL, check_config, True),
    ):
        for path, value in table:
            complaints = check(_changed(path, value))
            if bool(complaints) != must_fail:
                failures.append("%s = %r: %s" % (path, value, complaints or "passes"))
    return failures


def main(paths):
    complaints = [] if paths else self_test()
    for path in paths:
        with open(path, "rb") as f:
            document = json.load(f)
        check = check_manifest if "schemaVersion" in document else check_config
        complaints += ["%s: %s" % (path, wrong) for wrong in check(document)]
    for wrong in complaints:
        print(wrong, file=sys.stderr)
    print("%d complaints" % len(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
