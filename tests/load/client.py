#!/usr/bin/env python3
"""Some of the clients of the load test, as one process: test_load.py starts several, so that Python
is not what limits the server. Each client is a thread with a repository of its own, of which it
knows at any time exactly what must be there, and with a look at what all share.

    client.py HOST SEED FIRST COUNT

Reads SECONDS from a line of standard input, pushes and pulls for so long, and writes {"moves",
"errors"} as a line of JSON; then, asked by another line, pulls all that was acknowledged and not
deleted, and writes {"pulled", "digests", "errors"}, where digests are all that it ever pushed."""

import collections
import hashlib
import json
import os
import random
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

from wire import (IMAGE, INDEX, MIB, OCTETS, Unexpected, Wire, expect, path_of,  # noqa: E402
                  with_query)

SHARED = "load/shared"
SHOWN = 5
NOISE = random.Random("noise").randbytes(4 * MIB)
KEEP = 25  # blobs, and half as many manifests, that a client has at most
SAME_SIZE = 300_000


def content(name, size):
    """Bytes that no other name has, cheaply."""
    head = hashlib.sha256(name.encode()).digest()[:size]
    start = head[0] * 4096 if head else 0
    out = head + NOISE[start:start + size - len(head)]
    while len(out) < size:
        out += NOISE[:size - len(out)]
    return out


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Client:
    def __init__(self, host, seed, number):
        self.random = random.Random(f"{seed} {number}")
        self.number = number
        self.repository = f"load/c{number:03d}"
        self.wire = Wire(host)
        self.host = host
        self.blobs = {}      # digest -> size
        self.shared = {}     # of the shared repository
        self.manifests = {}  # digest -> (bytes, subject)
        self.tags = {}       # tag -> digest
        self.pushed = set()
        self.moves = collections.Counter()
        self.started = 0.0

    WEIGHTS = {"push": 18, "push_chunks": 5, "push_post": 5, "push_same": 7, "push_big": 0.2,
               "pull": 14, "pull_range": 10, "pull_shared": 4, "put_image": 9, "get_image": 14,
               "list_tags": 4, "list_referrers": 3, "catalog": 1, "mount": 3, "cancel": 1,
               "delete": 4, "reconnect": 1}

    def run(self, started, seconds):
        self.started = started
        while time.monotonic() < started + seconds:
            move = self.random.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
            getattr(self, move)()
            self.moves[move] += 1
            if len(self.blobs) > KEEP:
                self.delete_blob()
            if len(self.manifests) > KEEP // 2:
                self.delete_manifest()

    def ask(self, statuses, method, path, headers=None, body=None, **how):
        answer = self.wire.ask(method, path, headers, body, **how)
        return expect(answer, statuses, f"{method} {path}")

    def pick(self, of):
        return self.random.choice(sorted(of)) if of else None

    # --- pushes ---

    def fresh(self):
        size = int(10 ** self.random.uniform(1, 5.7))
        return content(f"{self.repository} {self.random.random()}", size)

    def note(self, repository, data):
        digest = sha256(data)
        self.pushed.add(digest)
        (self.blobs if repository == self.repository else self.shared)[digest] = len(data)

    def begin(self, repository):
        answer = self.ask(202, "POST", f"/v2/{repository}/blobs/uploads/")
        return path_of(answer.headers["Location"])

    def put(self, location, repository, data, rest, chunked=False):
        self.ask(201, "PUT", with_query(location, "digest=" + sha256(data)),
                 {"Content-Type": OCTETS}, rest, chunked=chunked)
        self.note(repository, data)

    def push(self, data=None, repository=None):
        repository = repository or self.repository
        data = self.fresh() if data is None else data
        self.put(self.begin(repository), repository, data, data)

    def push_chunks(self):
        data = self.fresh()
        location = self.begin(self.repository)
        half, chunked = len(data) // 2, self.random.random() < 0.5
        for piece, at in ((data[:half // 2], 0), (data[half // 2:half], half // 2)):
            if piece:
                headers = {"Content-Type": OCTETS}
                if not chunked:
                    headers["Content-Range"] = f"{at}-{at + len(piece) - 1}"
                answer = self.ask(202, "PATCH", location, headers, piece, chunked=chunked)
                location = path_of(answer.headers["Location"])
        self.put(location, self.repository, data, data[half:], chunked)

    def push_post(self):
        data = self.fresh()
        self.ask(201, "POST", f"/v2/{self.repository}/blobs/uploads/?digest={sha256(data)}",
                 {"Content-Type": OCTETS}, data)
        self.note(self.repository, data)

    def push_same(self):
        """What many others push in the same second, to the same place and to others."""
        data = content(f"same {int(time.monotonic() - self.started)}", SAME_SIZE)
        self.push(data, self.random.choice((SHARED, self.repository)))

    def push_big(self):
        self.push(content(f"{self.repository} {self.random.random()}",
                          self.random.randint(8, 32) * MIB))

    def mount(self):
        digest = self.pick(self.shared)
        if digest:
            self.ask(201, "POST", f"/v2/{self.repository}/blobs/uploads/?mount={digest}"
                     f"&from={SHARED}")
            self.blobs[digest] = self.shared[digest]

    def cancel(self):
        location = self.begin(self.repository)
        self.ask(202, "PATCH", location, {"Content-Type": OCTETS}, self.fresh())
        self.ask(204, "GET", location)
        self.ask(204, "DELETE", location)
        self.ask(404, "GET", location)

    # --- pulls ---

    def pull_blob(self, repository, digest, size):
        path = f"/v2/{repository}/blobs/{digest}"
        body = self.ask(200, "GET", path).body
        if len(body) != size or sha256(body) != digest:
            raise Unexpected(f"GET {path}: {len(body)} wrong bytes")

    def pull(self):
        digest = self.pick(self.blobs)
        if digest:
            self.pull_blob(self.repository, digest, self.blobs[digest])

    def pull_shared(self):
        digest = self.pick(self.shared)
        if digest:
            self.pull_blob(SHARED, digest, self.shared[digest])

    def pull_range(self):
        digest = self.pick(self.shared)
        if digest:
            first = self.random.randint(0, SAME_SIZE - 1)
            last = self.random.randint(first, SAME_SIZE - 1)
            answer = self.ask(206, "GET", f"/v2/{SHARED}/blobs/{digest}",
                              {"Range": f"bytes={first}-{last}"})
            wanted = f"bytes {first}-{last}/{SAME_SIZE}"
            if answer.headers["Content-Range"] != wanted or len(answer.body) != last - first + 1:
                raise Unexpected(f"{answer.headers['Content-Range']} instead of {wanted}")

    # --- manifests ---

    def put_image(self):
        blobs = self.random.sample(sorted(self.blobs), min(len(self.blobs), 3))
        if not blobs:
            return self.push()
        parts = [{"mediaType": OCTETS, "digest": d, "size": self.blobs[d]} for d in blobs]
        document = {"schemaVersion": 2, "mediaType": IMAGE, "config": parts[0], "layers": parts[1:],
                    "annotations": {"nonce": str(self.random.random())}}
        subject = self.pick(self.manifests) if self.random.random() < 0.3 else None
        if subject:
            document["subject"] = {"mediaType": IMAGE, "digest": subject,
                                   "size": len(self.manifests[subject][0])}
        body = json.dumps(document).encode()
        digest = sha256(body)
        tag = self.random.choice(("latest", "v1", "v2", "v3"))
        answer = self.ask(201, "PUT", f"/v2/{self.repository}/manifests/{tag}",
                          {"Content-Type": IMAGE}, body)
        if answer.headers["Docker-Content-Digest"] != digest:
            raise Unexpected(f"PUT {tag}: {answer.headers['Docker-Content-Digest']}, not {digest}")
        self.manifests[digest] = (body, subject)
        self.tags[tag] = digest
        return None

    def get_image(self):
        tag, digest = self.pick(self.tags), self.pick(self.manifests)
        for reference, wanted in ((tag, self.tags.get(tag)), (digest, digest)):
            if reference:
                self.pull_image(reference, wanted, self.random.choice(("GET", "HEAD")))

    def pull_image(self, reference, digest, method="GET"):
        path = f"/v2/{self.repository}/manifests/{reference}"
        answer = self.ask(200, method, path)
        body = self.manifests[digest][0]
        if (answer.headers["Docker-Content-Digest"] != digest or
                answer.headers["Content-Length"] != str(len(body)) or
                method == "GET" and answer.body != body):
            raise Unexpected(f"{method} {path}: not {digest}: {answer.body[:300]!r}")

    def list_tags(self):
        answer = self.ask((200, 404), "GET", f"/v2/{self.repository}/tags/list")
        tags = json.loads(answer.body)["tags"] if answer.status == 200 else []
        if tags != sorted(self.tags) or (answer.status == 404 and self.manifests):
            raise Unexpected(f"tags of {self.repository}: {tags}, not {sorted(self.tags)}")

    def list_referrers(self):
        subject = self.pick(self.manifests)
        if subject:
            answer = self.ask(200, "GET", f"/v2/{self.repository}/referrers/{subject}")
            listed = sorted(d["digest"] for d in json.loads(answer.body)["manifests"])
            wanted = sorted(d for d, (_, s) in self.manifests.items() if s == subject)
            if answer.headers["Content-Type"] != INDEX or listed != wanted:
                raise Unexpected(f"referrers of {subject}: {listed}, not {wanted}")

    def catalog(self):
        path, all_ = "/v2/_catalog?n=50", []
        while path:
            answer = self.ask(200, "GET", path)
            all_ += json.loads(answer.body)["repositories"]
            link = answer.headers["Link"]
            path = link[1:link.index(">")] if link else None
        if all_ != sorted(set(all_)) or bool(self.manifests) != (self.repository in all_):
            raise Unexpected(f"catalog: {all_}")

    # --- deletes, of what is one's own ---

    def delete(self):
        self.random.choice((self.delete_blob, self.delete_manifest, self.delete_tag))()

    def gone(self, path):
        self.ask(202, "DELETE", path)
        self.ask(404, "HEAD", path)

    def delete_blob(self):
        digest = self.pick(self.blobs)
        if digest:
            self.gone(f"/v2/{self.repository}/blobs/{digest}")
            del self.blobs[digest]

    def delete_manifest(self):
        digest = self.pick(self.manifests)
        if digest:
            self.gone(f"/v2/{self.repository}/manifests/{digest}")
            del self.manifests[digest]
            self.tags = {t: d for t, d in self.tags.items() if d != digest}

    def delete_tag(self):
        tag = self.pick(self.tags)
        if tag:
            self.gone(f"/v2/{self.repository}/manifests/{tag}")
            del self.tags[tag]

    def reconnect(self):
        self.wire.close()
        self.wire = Wire(self.host)

    # --- at the end ---

    def pull_all(self):
        for digest, size in self.blobs.items():
            self.pull_blob(self.repository, digest, size)
        for digest in self.shared:  # of which others pull the rest
            self.ask(200, "HEAD", f"/v2/{SHARED}/blobs/{digest}")
        for digest in self.random.sample(sorted(self.shared), min(3, len(self.shared))):
            self.pull_blob(SHARED, digest, self.shared[digest])
        for digest in self.manifests:
            self.pull_image(digest, digest)
        for tag, digest in self.tags.items():
            self.pull_image(tag, digest)
        self.list_tags()
        self.wire.close()


def each(clients, call):
    """In a thread for each client; what they raised."""
    errors = []

    def one(client):
        try:
            call(client)
        except Exception:  # whatever it was, the parent shows it
            errors.append(f"client {client.number}: {traceback.format_exc(limit=-4)}")

    threads = [threading.Thread(target=one, args=(c,)) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors[:SHOWN]


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    host, seed, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    clients = [Client(host, seed, first + i) for i in range(count)]
    seconds = float(sys.stdin.readline())
    started = time.monotonic()
    errors = each(clients, lambda c: c.run(started, seconds))
    moves = sum((c.moves for c in clients), collections.Counter())
    say(moves=moves, errors=errors)
    sys.stdin.readline()
    errors = each(clients, Client.pull_all)
    say(pulled=sum(len(c.blobs) + len(c.shared) + len(c.manifests) + len(c.tags) for c in clients),
        digests=sorted(set().union(*(c.pushed for c in clients))), errors=errors)


if __name__ == "__main__":
    main()
