"""Certificates for the stand-ins: a private authority, made with the openssl command."""

import os
import ssl
import subprocess
import threading

NAMES = "IP:127.0.0.1,DNS:localhost"
CA_CONFIG = """
[ca]
default_ca = here
[here]
dir = {folder}
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""
LIVES = {"good": ("20200101000000Z", "20991231235959Z"),
         "expired": ("20200101000000Z", "20210101000000Z"),
         "not_yet": ("20980101000000Z", "20991231235959Z")}


class Authority:
    """A certificate authority in a folder. Kinds of certificate: good, expired, not_yet,
    wrong_name (for another host), self_signed (by nobody that anybody knows)."""

    def __init__(self, folder):
        self.folder = os.fspath(folder)
        self.ca_file = os.path.join(self.folder, "ca.pem")
        self.lock = threading.Lock()  # guards the folder
        with open(self._path("ca.cnf"), "w", encoding="utf-8") as f:
            f.write(CA_CONFIG.format(folder=self.folder))
        for name, text in (("index.txt", ""), ("serial", "01\n")):
            with open(self._path(name), "w", encoding="utf-8") as f:
                f.write(text)
        self._openssl("req", "-x509", *self._new_key("ca"), "-subj", "/CN=stand-in authority",
                      "-days", "3650", "-out", self.ca_file)

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"openssl {arguments[0]}: {done.stderr}")

    def _new_key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                self._path(name + ".key")]

    def certificate(self, kind="good"):
        """(certificate file, key file) of one kind; the same each time."""
        certificate, key = self._path(kind + ".pem"), self._path(kind + ".key")
        with self.lock:
            if not os.path.exists(certificate):
                self._issue(kind, certificate)
        return certificate, key

    def _issue(self, kind, certificate):
        names = "DNS:elsewhere.example" if kind == "wrong_name" else NAMES
        subject = ["-subj", f"/CN={kind}"]
        extension = f"subjectAltName={names}"
        if kind == "self_signed":
            self._openssl("req", "-x509", *self._new_key(kind), *subject, "-days", "3650",
                          "-addext", extension, "-out", certificate)
            return
        begin, end = LIVES.get(kind, LIVES["good"])
        self._openssl("req", "-new", *self._new_key(kind), *subject,
                      "-out", self._path(kind + ".csr"))
        with open(self._path(kind + ".ext"), "w", encoding="utf-8") as f:
            f.write(extension + "\n")
        self._openssl("ca", "-batch", "-notext", "-config", self._path("ca.cnf"),
                      "-cert", self.ca_file, "-keyfile", self._path("ca.key"),
                      "-in", self._path(kind + ".csr"), "-out", certificate,
                      "-startdate", begin, "-enddate", end, "-extfile", self._path(kind + ".ext"))

    def server_context(self, kind="good", client=False):
        """client=True: asks for a client's certificate of this authority. The kind "none" has no
        certificate at all, so that no handshake succeeds."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if kind == "none":
            return context
        context.load_cert_chain(*self.certificate(kind))
        if client:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
