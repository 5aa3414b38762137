"""Looks at everything that a server holds, and says what is not as it must be."""

import json
import os
import time

from expectations import ABSENT, digest_of
from wire import INDEX, Unexpected, Wire, expect, offset_of

EXPIRE_WAIT_S = 60


class Examination:
    """Of a server on which nothing else is at work. partials: downloads that a crash may have left
    beside the uploads."""

    def __init__(self, world, wb, partials=0):
        self.world = world
        self.partials = partials
        self.data = wb.data
        self.wire = Wire(wb.host)
        self.wrong = []
        self.observed = {}

    def run(self):
        """What is wrong, as lines of text. The world then knows what is there."""
        for cell in list(self.world.cells.values()):
            self.observed[cell] = getattr(self, "look_at_" + cell.key[0])(cell)
        self.lists()
        self.sessions()
        self.wrong += self.world.settle(self.observed)
        self.incoming()
        self.wire.close()
        return self.wrong

    def get(self, path, headers=None):
        return self.wire.ask("GET", path, headers)

    def same(self, what, got, wanted):
        if got != wanted:
            self.wrong.append(f"{what}: is {str(got)[:300]}, expected {str(wanted)[:300]}")

    # --- what is there ---

    def look_at_blob(self, cell):
        _, repository, digest = cell.key
        answer = self.get(f"/v2/{repository}/blobs/{digest}")
        if answer.status == 200:
            if answer.body != self.world.blobs[digest]:
                self.wrong.append(f"{cell}: {len(answer.body)} wrong bytes; {cell.story()}")
            self.same(f"{cell}: digest", answer.headers["Docker-Content-Digest"], digest)
        return self.is_there(cell, answer)

    def look_at_manifest(self, cell):
        _, repository, digest = cell.key
        answer = self.get(f"/v2/{repository}/manifests/{digest}")
        if answer.status == 200:
            self.check_manifest(cell, answer, digest)
        return self.is_there(cell, answer)

    def is_there(self, cell, answer):
        if answer.status not in (200, 404):
            self.wrong.append(f"{cell}: status {answer.status}: {answer.body[:300]!r}")
        return answer.status == 200

    def look_at_tag(self, cell):
        _, repository, tag = cell.key
        answer = self.get(f"/v2/{repository}/manifests/{tag}")
        there = self.is_there(cell, answer)
        digest = answer.headers["Docker-Content-Digest"] if there else ABSENT["tag"]
        self.same(f"{cell}: the end of its history", self.newest_event(repository, tag), digest)
        if not there:
            return digest
        if digest not in self.world.manifests:
            self.wrong.append(f"{cell}: names {digest}, which nobody pushed; {cell.story()}")
        else:
            self.check_manifest(cell, answer, digest)
        return digest

    def newest_event(self, repository, tag):
        """The digest that it tells of, None of a removal, or of a tag that never was."""
        answer = self.get(f"/admin/v1/history/{repository}:{tag}?n=1")
        if answer.status == 404:
            return None
        (event,) = json.loads(expect(answer, 200, "history").body)["events"]
        return None if event.get("removed") else event["digest"]

    def check_manifest(self, cell, answer, digest):
        manifest = self.world.manifests[digest]
        if answer.body != manifest.data:
            self.wrong.append(f"{cell}: wrong bytes {answer.body[:200]!r}")
        self.same(f"{cell}: digest", answer.headers["Docker-Content-Digest"], digest)
        self.same(f"{cell}: type", answer.headers["Content-Type"], manifest.media_type)

    # --- lists, which must say what single questions say ---

    def names(self, kind, repository):
        return sorted(cell.key[2] for cell, value in self.observed.items()
                      if cell.key[:2] == (kind, repository) and value != ABSENT[kind])

    def lists(self):
        repositories = sorted({cell.key[1] for cell in self.observed})
        catalog = json.loads(expect(self.get("/v2/_catalog"), 200, "catalog").body)
        self.same("catalog", [r for r in catalog["repositories"] if not r.startswith("hf/")],
                  [r for r in repositories if self.names("manifest", r)])
        for repository in repositories:
            manifests = self.names("manifest", repository)
            answer = self.get(f"/v2/{repository}/tags/list")
            tags = json.loads(answer.body).get("tags") if answer.status == 200 else []
            self.same(f"tags of {repository} ({answer.status})", tags,
                      self.names("tag", repository))
            for tag in tags:
                cell = self.world.cell("tag", repository, tag)
                named = self.observed.get(cell)
                if named not in manifests:
                    self.wrong.append(f"{cell}: names {named}, which is not there")
            self.referrers(repository, manifests)

    def referrers(self, repository, manifests):
        wanted = {}
        for cell in self.observed:
            if cell.key[:2] == ("manifest", repository):
                subject = self.world.manifests[cell.key[2]].subject
                if subject:
                    wanted.setdefault(subject, set())
                    if cell.key[2] in manifests:
                        wanted[subject].add(cell.key[2])
        for subject, digests in wanted.items():
            answer = expect(self.get(f"/v2/{repository}/referrers/{subject}"), 200, "referrers")
            self.same("type of referrers", answer.headers["Content-Type"], INDEX)
            listed = {d["digest"]: d for d in json.loads(answer.body)["manifests"]}
            self.same(f"referrers of {repository} {subject}", sorted(listed), sorted(digests))
            for digest in digests & set(listed):
                self.same(f"referrer {digest}", listed[digest], self.descriptor(digest))

    def descriptor(self, digest):
        manifest = self.world.manifests[digest]
        out = {"mediaType": manifest.media_type, "digest": digest, "size": len(manifest.data)}
        if manifest.artifact_type:
            out["artifactType"] = manifest.artifact_type
        if manifest.annotations:
            out["annotations"] = manifest.annotations
        return out

    # --- uploads ---

    def sessions(self):
        for session in list(self.world.sessions):
            self.session(session)

    def session(self, session):
        what = f"session {session.path} of {session.digest}"
        answer = self.get(session.path)
        if answer.status == 404:
            if not session.may_have_ended:
                self.wrong.append(f"{what}: lost at {session.acknowledged} bytes")
            for cell, value in session.ending.effects.items() if session.may_have_ended else ():
                self.same(f"{what}: ended, and {cell}", self.observed[cell], value)
            self.world.sessions.remove(session)
            return
        expect(answer, 204, what)
        offset = offset_of(answer)
        least = session.acknowledged if session.acknowledged > 1 else 0  # `0-0` is none or one
        if not least <= offset <= session.sent:
            self.wrong.append(f"{what}: has {offset} bytes; {session.acknowledged} were "
                              f"acknowledged, {session.sent} sent")
        if session.may_have_ended:
            for cell, value in session.ending.effects.items():
                if cell.ops == [session.ending] and self.observed[cell] == value != cell.value:
                    self.wrong.append(f"{what}: still there, though {cell} is {value}")
        session.acknowledged = offset
        session.sent = offset or min(session.sent, 1)
        session.ending = None
        session.survived += 1

    def incoming(self):
        """Beyond open sessions nothing is left, but for those begun by a request that nobody has
        read the answer to."""
        n = len(os.listdir(os.path.join(self.data, "incoming")))
        known, unknown = len(self.world.sessions), self.world.unknown_sessions
        if not known <= n <= known + unknown + self.partials:
            self.wrong.append(f"incoming/ has {n} files for {known} open uploads, and at most "
                              f"{unknown} that no client knows of")


def examine(world, wb, partials=0):
    examination = Examination(world, wb, partials)
    try:
        return examination.run()
    except (Unexpected, OSError, KeyError, ValueError) as error:
        return examination.wrong + [f"{type(error).__name__}: {error}"]


def expire_uploads(wb):
    """Of a server that does not run: with a short life for uploads nothing is left in incoming/,
    not even of those that no client knows of. What is still there, after a while."""
    incoming = os.path.join(wb.data, "incoming")
    wb.env["WEIGHBRIDGE_UPLOADS_EXPIRE"] = "1s"
    wb.start()
    deadline = time.monotonic() + EXPIRE_WAIT_S
    while os.listdir(incoming) and time.monotonic() < deadline:
        time.sleep(0.05)
    del wb.env["WEIGHBRIDGE_UPLOADS_EXPIRE"]
    return os.listdir(incoming)


def check_disk(world, data, besides=()):
    """After a collection: what is under blobs/ is what links name, or what a manifest needs that
    has lost its link to it, and hashes to its name. besides: digests that the world knows not."""
    wrong, found = [], set()
    top = os.path.join(data, "blobs")
    for folder, _, names in os.walk(top):
        algorithm = os.path.relpath(folder, top).split(os.sep)[0]
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                if digest_of(f.read(), algorithm) != f"{algorithm}:{name}":
                    wrong.append(f"blobs/{algorithm}/{name} holds other bytes")
            found.add(f"{algorithm}:{name}")
    wanted = {cell.key[2] for cell in world.cells.values() if cell.key[0] == "blob" and cell.value}
    wanted |= set(besides)
    needed = {digest for cell in world.cells.values() if cell.key[0] == "manifest" and cell.value
              for digest in world.manifests[cell.key[2]].blobs}
    wrong += [f"{digest} is on disk for no reason" for digest in sorted(found - wanted - needed)]
    wrong += [f"{digest} is not on disk" for digest in sorted(wanted - found)]
    return wrong
