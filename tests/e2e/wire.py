"""A client's connection, that can say just before which byte a request counts."""

import collections
import http.client
import urllib.parse

MIB = 1 << 20
INDEX = "application/vnd.oci.image.index.v1+json"
IMAGE = "application/vnd.oci.image.manifest.v1+json"
OCTETS = "application/octet-stream"
TIMEOUT_S = 120  # sanitizer builds on a loaded machine

Answer = collections.namedtuple("Answer", "status headers body")


class Unexpected(Exception):
    """An answer that no server should have given."""


class Wire:
    def __init__(self, host):
        self.connection = http.client.HTTPConnection(host, timeout=TIMEOUT_S)

    def ask(self, method, path, headers=None, body=None, chunked=False, before_end=None,
            before_piece=None, piece=MIB):
        """before_end() is called when all but the last byte has left; before_piece(n) when n bytes
        of the body will have left after the next step. A body is bytes."""
        before_end = before_end or (lambda: None)
        self.connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            self.connection.putheader(name, value)
        if chunked:
            self.connection.putheader("Transfer-Encoding", "chunked")
        elif body is not None or method in ("POST", "PUT", "PATCH"):
            self.connection.putheader("Content-Length", str(len(body or b"")))
        if not body and not chunked:
            before_end()
        self.connection.endheaders()
        self._send(body or b"", chunked, before_end, before_piece or (lambda n: None), piece)
        return self.answer()

    def _send(self, body, chunked, before_end, before_piece, piece):
        body = memoryview(body)
        if chunked:
            for at in range(0, len(body), piece):
                part = body[at:at + piece]
                before_piece(at + len(part))
                self.connection.send(b"%x\r\n" % len(part) + bytes(part) + b"\r\n")
            before_end()
            self.connection.send(b"0\r\n\r\n")
            return
        rest = len(body) - 1
        for at in range(0, rest, piece):
            part = body[at:min(at + piece, rest)]
            before_piece(at + len(part))
            self.connection.send(part)
        if len(body):
            before_piece(len(body))
            before_end()
            self.connection.send(body[rest:])

    def break_off(self, method, path, headers, body, length, before_piece):
        """Sends some bytes of a longer body, and leaves."""
        self.connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            self.connection.putheader(name, value)
        self.connection.putheader("Content-Length", str(length))
        self.connection.endheaders()
        before_piece(len(body))
        self.connection.send(body)
        self.connection.close()

    def answer(self):
        response = self.connection.getresponse()
        return Answer(response.status, response.headers, response.read())

    def close(self):
        self.connection.close()


def expect(answer, statuses, what):
    if answer.status not in (statuses if isinstance(statuses, tuple) else (statuses,)):
        raise Unexpected(f"{what}: expected {statuses}, got {answer.status}: {answer.body[:600]!r}")
    return answer


def path_of(location):
    parts = urllib.parse.urlsplit(location)
    return parts.path + (f"?{parts.query}" if parts.query else "")


def with_query(path, query):
    return path + ("&" if "?" in path else "?") + query


def offset_of(answer):
    """How many bytes a Range header tells of. `0-0` is one byte or none."""
    first, last = answer.headers["Range"].split("-")
    if first != "0":
        raise Unexpected(f"Range: {answer.headers['Range']}")
    return int(last) + 1 if last != "0" else 0
