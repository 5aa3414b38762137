"""A network namespace with nothing in it but a loopback, on which some ports lead to servers of
ours. What runs in it can reach those and nothing else, whatever it tries."""

import os
import shutil
import socket
import subprocess
import sys
import threading

PIECE = 1 << 18
START_S = 30

# In the namespace: a socket belongs to the namespace that it is made in, whoever uses it. This
# makes listening ones for the ports that are asked for, and hands them out.
INSIDE = """
import array, fcntl, socket, struct, sys
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
asked = socket.socket(fileno=int(sys.argv[1]))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    name, flags = struct.unpack("16sH14x", fcntl.ioctl(
        s, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0)))
    fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))
asked.send(b"up")
while port := asked.recv(16):
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=256)
    socket.send_fds(asked, [b"ok"], [listener.fileno()])
    listener.close()
"""


class CannotMake(Exception):
    """This machine gives us no namespace."""


def pump(source, target):
    """Passes bytes on until one side ends."""
    try:
        while data := source.recv(PIECE):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def both_ways(client, port):
    with client:
        try:
            server = socket.create_connection(("127.0.0.1", port))
        except OSError:
            return
        with server:
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join()


class Namespace:
    def __init__(self):
        """Raises CannotMake."""
        for program in ("unshare", "nsenter"):
            if not shutil.which(program):
                raise CannotMake(f"{program} is not installed (apt-get install util-linux)")
        self.user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self.asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                ["unshare", *self.user, "--net", "--", sys.executable, "-c", INSIDE,
                 str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE)
        self.asking.settimeout(START_S)
        self.listeners = []
        if self.asking.recv(16) != b"up":
            said = self.process.stderr.read().decode(errors="replace").strip()
            self.close()
            raise CannotMake(said.splitlines()[-1] if said else "unshare failed")

    def lead(self, port):
        """From now on 127.0.0.1:port leads to our own 127.0.0.1:port from within."""
        self.asking.send(str(port).encode())
        said, fds, _, _ = socket.recv_fds(self.asking, 16, 1)
        if said != b"ok" or not fds:
            raise RuntimeError(f"no port {port} in the namespace")
        listener = socket.socket(fileno=fds[0])
        self.listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    @staticmethod
    def _accept(listener, port):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=both_ways, args=(client, port), daemon=True).start()

    @property
    def command(self):
        """What goes before a command that is to run in it."""
        return ["nsenter", *(["--user", "--preserve-credentials"] if self.user else []), "--net",
                f"--target={self.process.pid}", "--"]

    def close(self):
        for listener in self.listeners:
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            listener.close()
        self.asking.close()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
