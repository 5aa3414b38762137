"""What a stand-in is, whatever it plays: servers on loopback ports, options, switches, counts, and
a control door over HTTP for tests that are not in Python.

A subclass names its HANDLERS, OPTIONS and FAULTS, and may have started() and own_command().
"""

import json
import socket
import sys
import threading
import weakref

from standin_faults import FaultTable, Hold
from standin_wire import Log, Server, keep_port

BLACKHOLE_PROBE_S = 0.05
BLACKHOLE_PROBES = 8


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


class StandIn:
    """The servers of one upstream, by the names of their hosts."""

    OPTIONS = {}   # name -> default
    FAULTS = {}    # name -> {parameter: must it be given}
    HANDLERS = {}  # host -> handler class

    def __init__(self, listen, options):
        """listen: {host: (address, port)}; port 0 takes a free one and keeps it."""
        self.faults = FaultTable(self.FAULTS)
        self.log = Log(tuple(self.HANDLERS))
        self.options = dict(self.OPTIONS)
        self.set_options(**options)
        self.stopping = threading.Event()
        self.errors = []
        self._listen = dict(listen)
        self._servers = {}
        self._holes = {}  # host -> the sockets of a blackhole
        self._kept = set()  # hosts whose ports are ours, also while they are not served

    # --- life ---

    def start(self):
        """Serve. After a stop() it serves on the same ports again."""
        self.stopping = threading.Event()
        for host in self.HANDLERS:
            self._serve(host)
        self.started()
        return self

    def started(self):
        """For a subclass: the ports are known now."""

    def stop(self):
        """Refuse connections and cut the open ones; every fault is off after it."""
        self.stopping.set()
        self.faults.clear()
        for host in self.HANDLERS:
            self._close(host)

    __enter__ = start

    def __exit__(self, *exc):
        self.stop()

    def _serve(self, host):
        if host not in self._kept:
            kept = keep_port(self._listen[host])
            weakref.finalize(self, kept.close)
            self._kept.add(host)
            self._listen[host] = kept.getsockname()
        server = Server(self._listen[host], self.HANDLERS[host], self, host, self.tls(host))
        self._servers[host] = server
        threading.Thread(target=server.serve_forever, args=(0.05,),
                         name=f"stand-in-{host}", daemon=True).start()

    def _close(self, host):
        for sock in self._holes.pop(host, ()):
            sock.close()
        server = self._servers.pop(host, None)
        if server:
            server.shutdown()
            server.close_all()
            server.server_close()

    def tls(self, host):
        """For a subclass: the TLS context of a host, or None."""

    def address(self, host):
        """(address, port)"""
        return self._listen[host]

    def base_url(self, host):
        return "http%s://%s:%d" % ("s" if self.tls(host) else "", *self._listen[host])

    def close_connections(self, host):
        """Cut every open connection of one host now, idle ones too."""
        if host in self._servers:
            self._servers[host].close_all()

    def refuse(self, host):
        """Connections to this host are refused, and the open ones cut, until serve()."""
        self._close(host)

    def blackhole(self, host):
        """Connections to this host are never answered: the packets that would open one are
        dropped. The open ones are cut. Until serve()."""
        self._close(host)
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(self._listen[host])
        listener.listen(0)
        self._holes[host] = [listener]
        # The kernel drops what does not fit into the queue of connections that nobody accepts.
        for _ in range(BLACKHOLE_PROBES):
            probe = socket.socket()
            probe.settimeout(BLACKHOLE_PROBE_S)
            self._holes[host].append(probe)
            try:
                probe.connect(self._listen[host])
            except TimeoutError:
                return
        raise RuntimeError(f"{host} still takes connections")

    def serve(self, host):
        """Ends refuse() and blackhole(), on the same port."""
        if host not in self._servers:
            self._close(host)
            self._serve(host)

    # --- switches ---

    def set_options(self, **options):
        for key, value in options.items():
            if key not in self.OPTIONS:
                raise ValueError(f"unknown option {key!r}")
            self.options[key] = value

    def fault(self, name, **settings):
        """Switch a fault on; returns it (hits, remove(); a hold: wait_held(n),
        release(n=None), waiting). Limits: host, repo, path, kind, method, times, skip."""
        return self.faults.add(name, **settings)

    def clear_faults(self):
        self.faults.clear()

    # --- counters ---

    def requests(self, host=None, **where):
        """The matching log records (kind, method, repo, path, status as limits)."""
        return self.log.select(host=host, **where)

    def count(self, host=None, **where):
        return len(self.requests(host, **where))

    def bytes_sent(self, host=None, **where):
        return sum(r.sent for r in self.requests(host, **where))

    def wait_requests(self, count, timeout=30, done=False, **where):
        return self.log.wait(count, timeout=timeout, done=done, **where)

    def counters(self):
        return self.log.counters()

    def reset(self):
        """Empty the log and counters, switch off every fault."""
        self.faults.clear()
        self.log.reset()

    # --- for the handlers ---

    def note_error(self, name):
        """An exception in a handler is a bug of the stand-in: keep it and say so."""
        error = sys.exc_info()[1]
        self.errors.append(error)
        sys.excepthook(*sys.exc_info())

    def control(self, handler, path):
        """GET /_counters, /_log, /_faults; POST /_control, /_reset."""
        try:
            if handler.command == "GET" and path == "/_counters":
                return handler.send_json(200, self.counters())
            if handler.command == "GET" and path == "/_log":
                return handler.send_json(200, [r.as_dict() for r in self.log.select()])
            if handler.command == "GET" and path == "/_faults":
                return handler.send_json(200, [f.describe() for f in self.faults.all()])
            if handler.command == "POST" and path == "/_reset":
                self.reset()
                return handler.send_json(200, {"ok": True})
            if handler.command == "POST" and path == "/_control":
                return handler.send_json(200, self.command(json.loads(handler.body)))
        except (ValueError, KeyError, TypeError) as error:
            return handler.send_json(400, {"error": str(error)})
        return handler.send_json(404, {"error": "no such control"})

    def command(self, asked):
        """One command of POST /_control, as a dict with one leading key."""
        asked = dict(asked)
        if "fault" in asked:
            return {"id": self.fault(asked.pop("fault"), **asked).id}
        if "options" in asked:
            self.set_options(**asked["options"])
        elif "remove" in asked:
            self.faults.remove(asked["remove"])
        elif "clear" in asked:
            self.clear_faults()
        elif "wait_held" in asked or "release" in asked:
            number = asked.get("wait_held", asked.get("release"))
            hold = next((f for f in self.faults.all() if f.id == number), None)
            if not isinstance(hold, Hold):
                raise ValueError(f"no hold {number}")
            if "release" in asked:
                hold.release(asked.get("count"))
            else:
                return {"ok": hold.wait_held(asked.get("count", 1),
                                             asked.get("timeout", 30))}
        else:
            return self.own_command(asked)
        return {"ok": True}

    def own_command(self, asked):
        """For a subclass: the commands that only it has."""
        raise ValueError("unknown command")
