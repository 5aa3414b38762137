"""One client that pushes in all the ways there are, and notes what it was told."""

import contextlib
import random

from expectations import Manifest, Session, digest_of
from wire import (IMAGE, INDEX, MIB, OCTETS, Unexpected, Wire, expect, offset_of, path_of,
                  with_query)

SHARED = "kill/shared"  # where everybody pushes the same things, and nobody deletes but tags
TAGS = ["latest", "v1", "v2", "Main_3.x", "a-b", "z" * 128]
SHARED_TAGS = TAGS[:2]
BLOBS, MANIFESTS, SESSIONS = 14, 10, 4  # what a repository, and a client, keeps at most
ARTIFACTS = ["application/vnd.example.sbom+json", "application/vnd.example.signature"]
POOL = [random.Random(f"pool {i}").randbytes(size)
        for i, size in enumerate((0, 1, 2, 700, 4096, 65536, 65537, 300_000, 1_500_000))]


class Pusher:
    """Its repositories are its own; only the shared one has other writers."""

    def __init__(self, world, name, largest=12 * MIB):
        self.world = world
        self.name = name
        self.largest = largest
        self.repositories = [f"kill/{name}", f"kill/{name}/deeper/blobs/uploads"]
        self.sessions = []
        self.wire = self.random = None
        self.done = self.resumed = 0

    MOVES = {"push": 8, "push_shared": 3, "leave_open": 2, "go_on": 4, "mount": 2, "image": 6,
             "index": 1, "refer": 2, "image_shared": 2, "move_tag": 2, "delete_tag": 1,
             "delete_manifest": 1, "delete_blob": 1, "wrong_digest": 1, "out_of_order": 1,
             "missing_blob": 1, "break_off": 1, "read_back": 2, "cancel": 1}

    def run(self, host, seed, until):
        """Moves until until() says so, or the connection breaks."""
        self.wire = Wire(host)
        self.random = random.Random(seed)
        self.sessions = [s for s in self.sessions if s in self.world.sessions]
        with contextlib.closing(self.wire):
            while not until():
                move = self.random.choices(list(self.MOVES), list(self.MOVES.values()))[0]
                self.make_room()
                getattr(self, move)()
                self.done += 1

    def every_move(self, host, seed):
        """Each way once or more, one after the other."""
        self.wire = Wire(host)
        self.random = random.Random(seed)
        with contextlib.closing(self.wire):
            for algorithm in ("sha256", "sha512"):
                for way in self.WAYS:
                    data = self.random.randbytes(70_000)
                    for repository in self.repositories:
                        self.push_by(way, repository, data, algorithm)
            for repository in self.repositories:
                self.drop(self.begin(repository, b""))
            for move in self.MOVES:
                for _ in range(2):
                    getattr(self, move)()
                    self.done += 1
                self.make_room()

    def push_small(self, host, n):
        """So many blobs that no manifest needs."""
        self.wire = Wire(host)
        self.random = random.Random(self.name)
        with contextlib.closing(self.wire):
            for i in range(n):
                self.by_post(self.repositories[0], b"%s %d" % (self.name.encode(), i), "sha256")

    # --- content ---

    def fresh(self):
        kind = self.random.random()
        top = 3000 if kind < 0.5 else 200_000 if kind < 0.85 else 2 * MIB
        if kind >= 0.98:
            top = self.largest
        return self.random.randbytes(self.random.randint(64, min(top, self.largest)))

    def any_repository(self):
        return self.random.choice(self.repositories)

    def some(self, kind, repository, at_most=1):
        names = self.world.present(kind, repository)
        return self.random.sample(names, min(at_most, len(names)))

    def make_room(self):
        for repository in self.repositories:
            if len(self.world.present("manifest", repository)) > MANIFESTS:
                self.delete_manifest(repository)
            if len(self.world.present("blob", repository)) > BLOBS:
                self.delete_blob(repository)

    # --- requests that change something ---

    def change(self, name, effects, statuses, method, path, headers=None, body=None, **how):
        """One request; (answer, whether it did what it was to do). The first status means yes."""
        op = self.world.op(name, effects)
        answer = self.wire.ask(method, path, headers, body, before_end=op.begin, **how)
        return self.finish(op, answer, statuses, f"{method} {path}")

    @staticmethod
    def finish(op, answer, statuses, what):
        if op.start is None:  # answered before the whole request had left
            raise Unexpected(f"{what}: early answer {answer.status} {answer.body[:600]!r}")
        if answer.status == statuses[0]:
            op.acknowledge()
        else:
            op.refuse()
            expect(answer, statuses[1:], what)
        return answer, answer.status == statuses[0]

    def begin(self, repository, data, algorithm="sha256", announce=False):
        """A new session."""
        path = f"/v2/{repository}/blobs/uploads/"
        if announce:
            path += f"?digest-algorithm={algorithm}"
        with self.world.asking_for_session():
            answer = expect(self.wire.ask("POST", path), 202, f"POST {path}")
        return self.opened(answer, repository, data, digest_of(data, algorithm))

    def opened(self, answer, repository, data, digest):
        session = Session(repository, path_of(answer.headers["Location"]), data, digest)
        self.world.sessions.add(session)
        self.sessions.append(session)
        return session

    def patch(self, session, length, streamed=False):
        """Appends so many bytes at the acknowledged offset."""
        at = session.acknowledged
        data = session.data[at:at + length]
        headers = {"Content-Type": OCTETS}
        if not streamed:
            headers["Content-Range"] = f"{at}-{at + len(data) - 1}"
        answer = self.wire.ask(
            "PATCH", session.path, headers, data, chunked=streamed,
            before_piece=lambda n: self.sending(session, at + n),
            piece=self.random.choice((1000, 65536, MIB)))
        if answer.status == 416 and at == 0 and not streamed:  # `0-0` was one byte, not none
            session.acknowledged = 1
            return self.patch(session, length)
        expect(answer, 202, f"PATCH {session.path} at {at}")
        session.acknowledged = at + len(data)
        if offset_of(answer) != (session.acknowledged if session.acknowledged > 1 else 0):
            raise Unexpected(f"PATCH {session.path}: {answer.headers['Range']} after "
                             f"{session.acknowledged} bytes")
        session.path = path_of(answer.headers["Location"])
        return answer

    @staticmethod
    def sending(session, up_to):
        session.sent = max(session.sent, up_to)

    def commit(self, session, chunked=False, others=()):
        """The closing PUT, with what has not been sent yet in its body. Whether it did it; others:
        statuses that say no and are no fault."""
        at = session.acknowledged
        rest = session.data[at:]
        headers = {}
        if rest:
            headers["Content-Type"] = OCTETS
            if not chunked and self.random.random() < 0.5:
                headers["Content-Range"] = f"{at}-{len(session.data) - 1}"
        path = with_query(session.path, f"digest={session.digest}")
        cell = self.world.cell("blob", session.repository, session.digest)
        self.world.blobs[session.digest] = session.data
        session.ending = self.world.op(f"commit of {session.path}", {cell: True})
        answer = self.wire.ask("PUT", path, headers, rest, chunked, session.ending.begin,
                               lambda n: self.sending(session, at + n),
                               self.random.choice((1000, 65536, MIB)))
        if not self.finish(session.ending, answer, (201, *others), f"PUT {path} at {at}")[1]:
            session.ending = None
            return False
        self.resumed += session.survived > 0
        self.forget(session)
        self.check_location(answer, session.repository, session.digest, session.data)
        return True

    def forget(self, session):
        self.world.sessions.discard(session)
        self.sessions.remove(session)

    def check_location(self, answer, repository, digest, data):
        if self.random.random() < 0.3:
            where = path_of(answer.headers["Location"])
            got = expect(self.wire.ask("GET", where), 200, f"GET {where} of {repository} {digest}")
            if got.body != data:
                raise Unexpected(f"GET {where}: {len(got.body)} wrong bytes")

    # --- blobs ---

    def by_post(self, repository, data, algorithm):
        digest = digest_of(data, algorithm)
        cell = self.world.blob(repository, data, algorithm)
        with self.world.asking_for_session():
            answer, _ = self.change(
                "POST of " + digest, {cell: True}, (201,), "POST",
                f"/v2/{repository}/blobs/uploads/?digest={digest}", {"Content-Type": OCTETS}, data,
                chunked=self.random.random() < 0.2)
        self.check_location(answer, repository, digest, data)

    def by_put(self, repository, data, algorithm):
        self.commit(self.begin(repository, data, algorithm, self.random.random() < 0.5))

    def by_chunked_put(self, repository, data, algorithm):
        self.commit(self.begin(repository, data, algorithm), chunked=True)

    def by_chunks(self, repository, data, algorithm):
        session = self.begin(repository, data, algorithm, self.random.random() < 0.5)
        step = max(1, len(data) // self.random.randint(1, 5))
        while session.acknowledged + step <= len(data):
            self.patch(session, step)
        self.commit(session)

    def by_stream(self, repository, data, algorithm):
        session = self.begin(repository, data, algorithm, self.random.random() < 0.5)
        self.patch(session, len(data), streamed=True)
        self.commit(session)

    def by_chunks_and_put(self, repository, data, algorithm):
        session = self.begin(repository, data, algorithm)
        for share in (3, 2):
            self.patch(session, (len(data) - session.acknowledged) // share or 1,
                       streamed=self.random.random() < 0.3)
        self.commit(session)

    WAYS = ("by_put", "by_post", "by_chunked_put", "by_chunks", "by_stream", "by_chunks_and_put")

    def push_by(self, way, repository, data, algorithm):
        if len(data) < 8 and way in ("by_chunks", "by_chunks_and_put"):
            way = "by_put"
        getattr(self, way)(repository, data, algorithm)

    def push(self, repository=None):
        data = self.fresh() if self.random.random() < 0.8 else self.random.choice(POOL)
        algorithm = "sha512" if self.random.random() < 0.2 else "sha256"
        self.push_by(self.random.choice(self.WAYS), repository or self.any_repository(), data,
                     algorithm)

    def push_shared(self):
        self.push_by(self.random.choice(self.WAYS), SHARED, self.random.choice(POOL), "sha256")

    # --- sessions ---

    def leave_open(self):
        if len(self.sessions) >= SESSIONS:
            return self.go_on()
        size = self.random.choice((5000, 100_000, 3 * MIB, 9 * MIB))
        data = self.random.randbytes(min(size, self.largest))
        session = self.begin(self.any_repository(), data,
                             self.random.choice(("sha256", "sha256", "sha512")))
        return self.patch(session, self.random.randint(2, len(data) - 10))

    def go_on(self):
        """With a session that was left, by us or by a server that died."""
        if not self.sessions:
            return self.leave_open()
        session = self.random.choice(self.sessions)
        self.status(session)
        if session.acknowledged == 0:  # or 1: `0-0` does not say
            return self.patch(session, 2) if len(session.data) > 1 else self.drop(session)
        rest = len(session.data) - session.acknowledged
        if rest > 20 and self.random.random() < 0.6:
            return self.patch(session, self.random.randint(2, rest - 10),
                              self.random.random() < 0.5)
        return self.commit(session)

    def status(self, session):
        answer = expect(self.wire.ask("GET", session.path), 204, f"GET {session.path}")
        at = offset_of(answer)
        if not session.acknowledged <= at <= session.sent and session.acknowledged > 1:
            raise Unexpected(f"GET {session.path}: {at} bytes; {session.acknowledged} were "
                             f"acknowledged, {session.sent} sent")
        session.acknowledged = max(at, session.acknowledged)

    def cancel(self):
        if self.sessions:
            self.drop(self.random.choice(self.sessions))

    def drop(self, session):
        session.ending = self.world.op(f"cancel of {session.path}", {})
        answer = self.wire.ask("DELETE", session.path, before_end=session.ending.begin)
        self.finish(session.ending, answer, (204,), f"DELETE {session.path}")
        self.forget(session)
        expect(self.wire.ask("GET", session.path), 404, f"GET {session.path} after its end")

    def wrong_digest(self):
        """The session stays, and can be ended rightly."""
        data = self.fresh()
        session = self.begin(self.any_repository(), data)
        self.patch(session, len(data) // 2)
        self.sending(session, len(data))
        path = with_query(session.path, "digest=" + digest_of(data + b"!"))
        expect(self.wire.ask("PUT", path, {"Content-Type": OCTETS}, data[session.acknowledged:]),
               400, f"PUT {path}")
        self.status(session)
        self.commit(session)

    def out_of_order(self):
        data = self.random.randbytes(4000)
        session = self.begin(self.any_repository(), data)
        self.patch(session, 1000)
        for at in (0, 999, 1001, 3000):
            answer = self.wire.ask("PATCH", session.path, {
                "Content-Type": OCTETS, "Content-Range": f"{at}-{at + 99}"}, data[at:at + 100])
            expect(answer, 416, f"PATCH {session.path} at {at} instead of 1000")
        self.status(session)
        if session.acknowledged != 1000:
            raise Unexpected(f"{session.path} has {session.acknowledged} bytes instead of 1000")
        self.commit(session)

    def break_off(self):
        """A client that leaves in mid-request, and comes back."""
        data = self.random.randbytes(300_000)
        session = self.begin(self.any_repository(), data)
        self.patch(session, 100_000)
        self.wire.break_off("PATCH", session.path, {
            "Content-Type": OCTETS, "Content-Range": "100000-299999"}, data[100_000:250_000],
            200_000, lambda n: self.sending(session, 100_000 + n))
        # The server may come to the broken request after this one, which is then the older one.
        for _ in range(3):
            self.status(session)
            if self.commit(session, others=(409,)):
                return
        raise Unexpected(f"{session.path} is taken over again and again")

    def mount(self):
        """From a repository of ours, from the shared one, or from anywhere."""
        to = self.any_repository()
        source = self.random.choice([r for r in self.repositories if r != to] + [SHARED])
        digests = ([cell.key[2] for cell in list(self.world.cells.values())
                    if cell.key[:2] == ("blob", SHARED) and cell.possible() == {True}]
                   if source == SHARED else self.some("blob", source))
        if not digests:
            return
        digest = self.random.choice(sorted(digests))
        anywhere = self.random.random() < 0.3
        path = f"/v2/{to}/blobs/uploads/?mount={digest}" + ("" if anywhere else f"&from={source}")
        with self.world.asking_for_session():
            answer, mounted = self.change(f"mount of {digest}", {
                self.world.cell("blob", to, digest): True}, (201, 202) if anywhere else (201,),
                "POST", path)
        if not mounted:
            self.drop(self.opened(answer, to, b"", digest))

    # --- manifests ---

    def descriptor(self, digest, media_type):
        return {"mediaType": media_type, "digest": digest, "size": len(self.world.blobs[digest])}

    def compose(self, repository, **more):
        """An image of blobs that are there."""
        blobs = self.some("blob", repository, self.random.randint(1, 4))
        if not blobs:
            self.push(repository)
            blobs = self.some("blob", repository)
        return self.image_of(blobs, annotations={"nonce": str(self.random.random())}, **more)

    def image_of(self, blobs, **more):
        return Manifest({
            "schemaVersion": 2, "mediaType": IMAGE,
            "config": self.descriptor(blobs[0], "application/vnd.example.config+json"),
            "layers": [self.descriptor(d, "application/vnd.oci.image.layer.v1.tar")
                       for d in blobs[1:]], **more}, IMAGE)

    def put_manifest(self, repository, manifest, tags=(), algorithm="sha256", by_tag=False):
        cell = self.world.manifest(repository, manifest, algorithm)
        digest = cell.key[2]
        effects = {cell: True, **{self.world.cell("tag", repository, t): digest for t in tags}}
        reference = tags[0] if by_tag else digest
        path = f"/v2/{repository}/manifests/{reference}"
        if tags and not by_tag:
            path += "?" + "&".join(f"tag={t}" for t in tags)
        answer, _ = self.change(
            f"PUT {path}", effects, (201,), "PUT", path, {"Content-Type": manifest.media_type},
            manifest.data, chunked=self.random.random() < 0.2)
        wanted = {"Docker-Content-Digest": digest}
        if manifest.subject:
            wanted["OCI-Subject"] = manifest.subject
        for name, value in wanted.items():
            if answer.headers[name] != value:
                raise Unexpected(f"PUT {path}: {name}: {answer.headers[name]}, not {value}")
        return digest

    def image(self):
        repository = self.any_repository()
        way = self.random.random()
        manifest = self.compose(repository)
        if way < 0.4:
            self.put_manifest(repository, manifest, [self.random.choice(TAGS)], by_tag=True)
        elif way < 0.6:
            self.put_manifest(repository, manifest)
        elif way < 0.8:
            self.put_manifest(repository, manifest, self.random.sample(TAGS, 3))
        else:
            self.put_manifest(repository, manifest, self.random.sample(TAGS, 1), "sha512")

    def image_shared(self):
        """One of a few that everybody pushes, and a tag that everybody moves."""
        blobs = self.random.sample(POOL[:4], 2)
        for data in blobs:
            if self.world.blob(SHARED, data).possible() != {True}:
                self.push_by("by_put", SHARED, data, "sha256")
        self.put_manifest(SHARED, self.image_of([digest_of(data) for data in blobs]),
                          [self.random.choice(SHARED_TAGS)], by_tag=True)
        if self.random.random() < 0.3:
            cell = self.world.cell("tag", SHARED, self.random.choice(SHARED_TAGS))
            self.change("delete of a shared tag", {cell: None}, (202, 404), "DELETE",
                        f"/v2/{SHARED}/manifests/{cell.key[2]}")

    def index(self):
        repository = self.any_repository()
        children = self.some("manifest", repository, 3)
        manifests = [(d, self.world.manifests[d]) for d in children]
        index = Manifest({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            {"mediaType": m.media_type, "digest": d, "size": len(m.data)} for d, m in manifests],
            "annotations": {"nonce": str(self.random.random())}}, INDEX)
        self.put_manifest(repository, index, [self.random.choice(TAGS)], by_tag=True)

    def refer(self):
        """To a manifest that is there, or to one that nobody has pushed yet."""
        repository = self.any_repository()
        subject = (self.some("manifest", repository) or [digest_of(self.random.randbytes(8))])[0]
        known = self.world.manifests.get(subject)
        self.put_manifest(repository, self.compose(
            repository, artifactType=self.random.choice(ARTIFACTS),
            subject={"mediaType": IMAGE, "digest": subject,
                     "size": len(known.data) if known else 1234}))

    def move_tag(self):
        repository = self.any_repository()
        for digest in self.some("manifest", repository):
            manifest = self.world.manifests[digest]
            if manifest.media_type == IMAGE and all(
                    self.world.cell("blob", repository, d).now for d in manifest.blobs):
                self.put_manifest(repository, manifest, [self.random.choice(TAGS)],
                                  digest.split(":")[0])

    def missing_blob(self):
        """A manifest whose blob was never pushed is refused, and nothing of it stays."""
        repository = self.any_repository()
        data = self.random.randbytes(100)
        digest = digest_of(data)
        self.world.blobs[digest] = data
        manifest = self.image_of([digest])
        cell = self.world.manifest(repository, manifest)
        path = f"/v2/{repository}/manifests/never"
        answer = expect(self.wire.ask("PUT", path, {"Content-Type": IMAGE}, manifest.data), 404,
                        f"PUT {path} without its blob")
        if digest.encode() not in answer.body or b"MANIFEST_BLOB_UNKNOWN" not in answer.body:
            raise Unexpected(f"PUT {path}: {answer.body[:600]!r}")
        for name in ("never", cell.key[2]):
            expect(self.wire.ask("HEAD", f"/v2/{repository}/manifests/{name}"), 404, name)

    def delete_tag(self):
        repository = self.any_repository()
        for tag in self.some("tag", repository):
            self.change("delete of " + tag, {self.world.cell("tag", repository, tag): None},
                        (202,), "DELETE", f"/v2/{repository}/manifests/{tag}")

    def delete_manifest(self, repository=None):
        repository = repository or self.any_repository()
        for digest in self.some("manifest", repository):
            effects = {self.world.cell("manifest", repository, digest): False}
            for tag in self.world.present("tag", repository):
                cell = self.world.cell("tag", repository, tag)
                if cell.now == digest:
                    effects[cell] = None
            path = f"/v2/{repository}/manifests/{digest}"
            self.change("delete of " + digest, effects, (202,), "DELETE", path)
            expect(self.wire.ask("HEAD", path), 404, f"HEAD {path} after its end")

    def delete_blob(self, repository=None):
        repository = repository or self.any_repository()
        for digest in self.some("blob", repository):
            path = f"/v2/{repository}/blobs/{digest}"
            self.change("delete of " + digest, {
                self.world.cell("blob", repository, digest): False}, (202,), "DELETE", path)
            expect(self.wire.ask("HEAD", path), 404, f"HEAD {path} after its end")

    def read_back(self):
        """What was acknowledged is there at once."""
        repository = self.any_repository()
        for digest in self.some("blob", repository):
            path = f"/v2/{repository}/blobs/{digest}"
            if expect(self.wire.ask("GET", path), 200, path).body != self.world.blobs[digest]:
                raise Unexpected(f"GET {path}: wrong bytes")
        for tag in self.some("tag", repository):
            path = f"/v2/{repository}/manifests/{tag}"
            wanted = self.world.cell("tag", repository, tag).now
            got = expect(self.wire.ask("HEAD", path), 200, path).headers["Docker-Content-Digest"]
            if got != wanted:
                raise Unexpected(f"HEAD {path}: {got} instead of {wanted}")
