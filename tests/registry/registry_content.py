"""What the stand-in registry holds: repositories with their manifests, tags and blobs.

No HTTP here. Digests are those of the bytes, unless one is given: then the registry lies.
"""

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading

from standin_sources import Disk, Memory

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
OCI_FOREIGN = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DOCKER_FOREIGN = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
TITLE = "org.opencontainers.image.title"


def sha256_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def to_source(data):
    """bytes, a path, or a source (Sparse, Noise) -> a source."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return Memory(data)
    return Disk(data) if isinstance(data, os.PathLike) else data


def to_json(value):
    return json.dumps(value, separators=(",", ":")).encode()


def layer_of(files):
    """A gzipped tar of {path: bytes}, the same in each run; and the digest of the tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0), sha256_of(out.getvalue())


class Blob:
    """The bytes behind a digest. `version` is part of the CDN's ETag: see touch()."""

    def __init__(self, digest, source):
        self.digest = digest
        self.source = source
        self.version = 0

    @property
    def size(self):
        return self.source.size

    def touch(self):
        """The CDN's object is another one from now on, by its ETag."""
        self.version += 1

    @property
    def cdn_etag(self):
        """As S3's: hex, and no hash that a client could check."""
        return '"%s"' % hashlib.sha256(
            f"{self.digest} {self.version}".encode()).hexdigest()[:32]


class Manifest:
    def __init__(self, digest, media_type, body):
        self.digest = digest
        self.media_type = media_type
        self.body = body

    @property
    def descriptor(self):
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.body)}

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def blobs(self):
        """The digests of the config and the layers."""
        value = self.json
        return [d["digest"] for d in [value.get("config"), *value.get("layers", ())] if d]


class Repo:
    """private: only `users` may pull (None: any user)."""

    def __init__(self, name, private=False, users=None):
        self.name = name
        self.private = private
        self.users = users
        self.lock = threading.Lock()  # guards what follows
        self.manifests = {}
        self.tags = {}
        self.blobs = {}

    def find(self, reference):
        """The manifest that a tag or digest names, or None."""
        with self.lock:
            return self.manifests.get(self.tags.get(reference, reference))

    def tag_names(self):
        with self.lock:
            return sorted(self.tags)

    def referrers(self, digest):
        """Descriptors of the manifests whose subject this is."""
        with self.lock:
            manifests = list(self.manifests.values())
        found = []
        for manifest in manifests:
            try:
                value = manifest.json
            except ValueError:
                continue
            if (value.get("subject") or {}).get("digest") != digest:
                continue
            kind = value.get("artifactType") or (value.get("config") or {}).get("mediaType")
            row = {**manifest.descriptor, "artifactType": kind,
                   "annotations": value.get("annotations")}
            found.append({k: v for k, v in row.items() if v is not None})
        return found

    # --- filling it ---

    def add_blob(self, data, media_type="application/octet-stream", digest=None, **more):
        """Its descriptor. With a digest of another algorithm, or of other bytes: as given."""
        source = to_source(data)
        digest = digest or "sha256:" + source.sha256()
        with self.lock:
            self.blobs[digest] = Blob(digest, source)
        return {"mediaType": media_type, "digest": digest, "size": source.size, **more}

    def add_manifest(self, body, media_type=OCI_MANIFEST, tag=None, digest=None):
        """body: bytes, or what becomes JSON."""
        if not isinstance(body, bytes):
            body = to_json(body)
        manifest = Manifest(digest or sha256_of(body), media_type, body)
        with self.lock:
            self.manifests[manifest.digest] = manifest
            if tag:
                self.tags[tag] = manifest.digest
        return manifest

    def add_image(self, layers=None, tag=None, architecture="amd64", docker=False, foreign=(),
                  **more):
        """A container image. layers: a list of {path: bytes}, or of finished layers (bytes of a
        gzipped tar, a path, a source), whose diff ids are then made up. foreign: {url: bytes} of
        layers that only their URL has. more: the manifest's."""
        descriptors, diff_ids = [], []
        for layer in layers if layers is not None else [{"etc/name": b"image\n"}]:
            if isinstance(layer, dict):
                layer, diff_id = layer_of(layer)
            else:
                diff_id = "sha256:" + to_source(layer).sha256()
            descriptors.append(self.add_blob(layer, DOCKER_LAYER if docker else OCI_LAYER))
            diff_ids.append(diff_id)
        for url, data in dict(foreign).items():
            descriptors.append({
                "mediaType": DOCKER_FOREIGN if docker else OCI_FOREIGN,
                "digest": sha256_of(data), "size": len(data), "urls": [url]})
            diff_ids.append(sha256_of(data))
        config = self.add_blob(
            to_json({"architecture": architecture, "os": "linux", "config": {},
                     "rootfs": {"type": "layers", "diff_ids": diff_ids}}),
            DOCKER_CONFIG if docker else OCI_CONFIG)
        media_type = DOCKER_MANIFEST if docker else OCI_MANIFEST
        return self.add_manifest({"schemaVersion": 2, "mediaType": media_type, "config": config,
                                  "layers": descriptors, **more}, media_type, tag)

    def add_index(self, images, tag=None, docker=False):
        """images: {architecture: Manifest}."""
        media_type = DOCKER_LIST if docker else OCI_INDEX
        return self.add_manifest({
            "schemaVersion": 2, "mediaType": media_type,
            "manifests": [{**image.descriptor,
                           "platform": {"architecture": architecture, "os": "linux"}}
                          for architecture, image in images.items()]}, media_type, tag)

    def add_artifact(self, files, artifact_type="application/vnd.example.thing", tag=None,
                     subject=None, annotations=None, fallback=False):
        """An artifact with a layer a file. subject: a Manifest. fallback: listed in the index
        under the subject's fallback tag too, as a client does where there is no referrers API."""
        layers = [self.add_blob(data, annotations={TITLE: name})
                  for name, data in files.items()]
        body = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "artifactType": artifact_type,
                "config": self.add_blob(b"{}", OCI_EMPTY), "layers": layers}
        if subject:
            body["subject"] = subject.descriptor
        if annotations:
            body["annotations"] = annotations
        manifest = self.add_manifest(body, tag=tag)
        if fallback:
            self.add_manifest({"schemaVersion": 2, "mediaType": OCI_INDEX,
                               "manifests": self.referrers(subject.digest)}, OCI_INDEX,
                              subject.digest.replace(":", "-"))
        return manifest

    # --- changing it ---

    def move_tag(self, tag, manifest):
        with self.lock:
            self.tags[tag] = manifest.digest

    def delete_tag(self, tag):
        with self.lock:
            del self.tags[tag]

    def delete_manifest(self, digest):
        with self.lock:
            del self.manifests[digest]
            self.tags = {t: d for t, d in self.tags.items() if d != digest}

    def delete_blob(self, digest):
        with self.lock:
            del self.blobs[digest]

    def replace_blob(self, digest, data):
        """Other bytes under the same digest: the registry lies from now on."""
        self.add_blob(data, digest=digest)

    def touch_blob(self, digest):
        self.blobs[digest].touch()
