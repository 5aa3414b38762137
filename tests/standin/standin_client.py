"""A raw HTTP client for the stand-ins' own tests: it shows what came, and follows nothing."""

import http.client
import json
from urllib.parse import urlsplit


class Answer:
    """A whole answer, or how far it got: `cut` when the body ended early."""

    def __init__(self, status, headers, body, cut=False):
        self.status = status
        self.headers = headers
        self.body = body
        self.cut = cut

    def __getitem__(self, name):
        return self.headers.get(name)

    @property
    def json(self):
        return json.loads(self.body)


def connect(url, context=None, timeout=20):
    """A connection to a URL's host. context: for TLS."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout,
                                           context=context)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)


def send(url, method="GET", body=None, context=None, **headers):
    """One request, no redirects, nothing sent that is not asked for. Header names
    are given with underscores."""
    parts = urlsplit(url)
    connection = connect(url, context)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        try:
            data, cut = answer.read(), False
        except http.client.IncompleteRead as short:
            data, cut = short.partial, True
        except ConnectionResetError:
            data, cut = b"", True
        return Answer(answer.status, answer.headers, data, cut)
    finally:
        connection.close()


def start(url, **headers):
    """(connection, answer) with the body not yet read."""
    parts = urlsplit(url)
    connection = connect(url)
    connection.request("GET", parts.path + f"?{parts.query}",
                       headers={k.replace("_", "-"): v for k, v in headers.items()})
    return connection, connection.getresponse()
