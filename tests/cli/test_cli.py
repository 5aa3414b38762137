#!/usr/bin/env python3
"""The commands as people type them: what is printed where, and the exit status (0 done, 1 failed,
2 not understood). WEIGHBRIDGE_BIN names the program."""

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("WEIGHBRIDGE_BIN", os.path.join(ROOT, "build/release/weighbridge"))
PATIENCE_S = 60
DIGEST = "sha256:" + "0" * 64


def environment(**more):
    """Nothing of the machine's own settings, but what the sanitizers of a test build need."""
    kept = {k: v for k, v in os.environ.items()
            if k in ("PATH", "LANG") or k.endswith("SAN_OPTIONS")}
    return {**kept, "HOME": "/nonexistent", **more}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="wb-cli-")
        self.addCleanup(shutil.rmtree, self.dir)

    def file(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def run_it(self, *args, env=None, **kwargs):
        return subprocess.run([BIN, *args], env=environment(**(env or {})), cwd=self.dir, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False, **kwargs)

    def check(self, *args, status=0, out="", err="", env=None):
        """Runs to the end; out and err are found in what it printed, and an empty err is empty.
        A failure is one line on standard error, and nothing on standard output."""
        done = self.run_it(*args, env=env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(out, done.stdout)
        self.assertIn(err, done.stderr)
        if not err:
            self.assertEqual(done.stderr, "")
        if status:
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("weighbridge"), done.stderr)
        return done


class Usage(Case):
    def test_help(self):
        for args in (["--help"], ["-h"], ["help"]):
            done = self.check(*args, out="usage: weighbridge COMMAND")
            for command in ("serve", "config check", "config show", "config reference", "rm", "gc",
                            "history", "warm", "version"):
                self.assertIn(f"\n  {command} ", done.stdout)
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: weighbridge COMMAND", done.stderr)

    def test_every_command_has_help(self):
        for command in ("serve", "config check", "config show", "config reference", "rm", "gc",
                        "history", "warm", "version"):
            done = self.check(*command.split(), "--help", out=f"usage: weighbridge {command}")
            self.assertIn("--help", done.stdout)
        done = self.check("serve", "--help")
        for flag in ("--config FILE", "--listen ADDRESS:PORT", "--data DIR", "--hub URL",
                     "--log-level LEVEL", "--external-url URL"):
            self.assertIn(flag, done.stdout)

    def test_version(self):
        with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as f:
            version = re.search(r"VERSION (\d+\.\d+\.\d+)", f.read())[1]
        self.assertEqual(self.check("version").stdout, f"weighbridge {version}\n")
        self.assertEqual(self.check("--version").stdout, f"weighbridge {version}\n")

    def test_what_is_not_understood(self):
        for args, words in (
                (["serv"], 'unknown command "serv", did you mean "serve"?'),
                (["config"], "config is followed by check, show or reference"),
                (["config", "chekc"], 'did you mean "config check"?'),
                (["frobnicate"], 'unknown command "frobnicate"; see weighbridge --help'),
                (["serve", "--lisen", "x"], "unknown option --lisen, did you mean --listen?"),
                (["serve", "--lis=x"], "unknown option --lis, did you mean --listen?"),
                (["serve", "-l"], "unknown option"),
                (["serve", "--listen"], "--listen needs a value"),
                (["serve", "--listen="], "--listen has an empty value"),
                (["serve", "--data=a", "--data", "b"], "--data is given twice"),
                (["serve", "here"], 'one argument too many: "here"'),
                (["serve", "--", "--data"], 'one argument too many: "--data"'),
                (["gc"], "--data DIR is missing"),
                (["gc", "--dry-run=yes"], "--dry-run takes no value"),
                (["gc", "--help=yes"], "--help takes no value"),
                (["gc", "--data", "d", "--grace", "soon"], "--grace soon is no duration"),
                (["gc", "--data", "d", "--grace", "366d"], "is no duration up to 365d"),
                (["gc", "--data", "d", "--grace=-1"], "--grace -1 is no duration"),
                (["warm"], "the REFERENCE to warm is missing"),
                (["history"], "the REFERENCE, repository:tag, is missing"),
                (["history", f"a@{DIGEST}"], "a digest never moves"),
                (["history", "a:b", "--data", "x", "--server", "http://h"], "exclude each other"),
                (["history", "a:b", "--limit", "0"], "--limit must be a number from 1 to 1000"),
                (["history", "a:b", "--limit", "1001"], "--limit must be a number from 1 to 1000"),
                (["history", "a:b", "--limit", "1x"], "--limit must be a number from 1 to 1000"),
                (["history", "a:-b"], "-b"),
                (["rm"], "the REFERENCE to remove is missing"),
                (["rm", "a:b", "--data", "x", "--server", "http://h"], "exclude each other"),
                (["rm", "a/b"], "name what to remove as repository:tag or repository@digest"),
                (["rm", "a//b:c"], '"a//b" is not a repository name'),
                (["rm", "a@sha256:12"], "sha256"),
                (["config", "check"], "the FILE to check is missing"),
                (["version", "now"], 'one argument too many: "now"')):
            self.check(*args, status=2, err=words)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([BIN, "version"], stdout=full, stderr=subprocess.PIPE, text=True,
                                  env=environment(), timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output cannot be written: No space left", done.stderr)


class Config(Case):
    def test_check(self):
        good = self.file("good.json", "{ // a comment\n}")
        self.assertEqual(self.check("config", "check", good).stdout, f"{good}: ok\n")
        bad = self.file("bad.json", '{"upstreams": [\n {"prefix": "hf"},\n'
                                    ' {"prefix": "b", "ulr": "x"}]}')
        self.check("config", "check", bad, status=1,
                   err=f'weighbridge: {bad}:3: upstreams[1].ulr: unknown key; did you mean "url"?')
        exposed = self.file("open.json", '{"listen": "0.0.0.0:5000"}')
        self.check("config", "check", exposed, status=1,
                   err=f'{exposed}: refusing to listen on 0.0.0.0:5000 without access rules')
        self.check("config", "check", exposed,
                   env={"WEIGHBRIDGE_ACCESS": '[{"repositories": "**", "allow": ["pull"]}]'})
        self.check("config", "check", "/nonexistent", status=1, err="/nonexistent: No such file")
        self.check("config", "check", good, status=1, env={"WEIGHBRIDGE_LISTN": "x"},
                   err="the nearest known one is WEIGHBRIDGE_LISTEN")

    def test_check_reads_the_files_of_upstreams(self):
        """What keeps the server from starting is found."""
        for key, text, said in (
                ("docker_config", "{", "not JSON"),
                ("docker_config", '{"credsStore": "desktop"}', "docker-credential-desktop"),
                ("ca_file", "-----BEGIN CERTIFICATE-----\n", "holds no certificate in PEM form")):
            with self.subTest(key, text=text):
                file = self.file("named", text)
                config = self.file("registry.json", json.dumps({"upstreams": [
                    {"prefix": "r", "kind": "oci", "url": "https://r.example", key: file}]}))
                for command in (["config", "check", config], ["serve", "--config", config]):
                    done = self.check(*command, status=1, err=said)
                    self.assertIn("upstream r: ", done.stderr)
                    self.assertIn(file, done.stderr)

    def test_show(self):
        path = self.file("c.json", '{"data": "/d",\n"log": {"level": "warn"}}')
        done = self.check("config", "show", "--config", path, "--listen=127.0.0.1:7",
                          "--hub", "http://127.0.0.1:9",
                          env={"WEIGHBRIDGE_LIMITS_CLIENTS": "9", "HF_TOKEN": "hf_s3cret",
                               "WEIGHBRIDGE_UPSTREAMS_HF_PROXY": "http://me:pa55@proxy:1"})
        for line in ('"listen": "127.0.0.1:7", // --listen', f'"data": "/d", // {path}:1',
                     f'"level": "warn" // {path}:2', '"clients": 9, // WEIGHBRIDGE_LIMITS_CLIENTS',
                     '"url": "http://127.0.0.1:9", // --hub', '"transfers": 16, // default',
                     '// "token": "***" from HF_TOKEN'):
            self.assertIn(line, done.stdout)
        self.assertNotIn("s3cret", done.stdout)
        self.assertNotIn("pa55", done.stdout)
        # What is shown is a configuration file, and without its comments it is plain JSON.
        shown = self.file("shown.json", done.stdout)
        self.check("config", "check", shown)
        plain = "\n".join(line.split(" // ")[0] for line in done.stdout.split("\n")
                          if not line.lstrip().startswith("//"))
        self.assertEqual(json.loads(plain)["upstreams"][0]["url"], "http://127.0.0.1:9")

    def test_reference_is_what_the_documentation_holds(self):
        with open(os.path.join(ROOT, "docs/config.md"), encoding="utf-8") as f:
            self.assertIn(self.check("config", "reference").stdout, f.read())


class Offline(Case):
    """rm, gc and history on a directory: what the store does has tests of its own."""

    def test_a_directory_that_is_none_is_not_made(self):
        for args in (["gc"], ["rm", "a:b"], ["history", "a:b"]):
            self.check(*args, "--data", "typo", status=1, err="typo is not a data directory")
            self.assertFalse(os.path.exists(os.path.join(self.dir, "typo")))

    def test_an_empty_store(self):
        with Server(self):
            pass
        for args in (["--dry-run"], []):
            done = self.check("gc", "--data", "data", *args)
            self.assertEqual(done.stdout, ("would remove" if args else "removed") +
                             " 0 blobs and 0 unfinished downloads: 0 bytes\n")
        self.check("rm", "a/b:c", "--data", "data", status=1, err="a/b")
        self.check("rm", f"a/b@{DIGEST}", "--data", "data", status=1, err="a/b")
        self.check("history", "a/b:c", "--data", "data", status=1,
                   err='data: no event is recorded for a/b:c')

    def test_refused_while_a_server_runs(self):
        with Server(self):
            for command in (["gc"], ["rm", "a:b"], ["history", "a:b"]):
                for words in ("in use by process", "when --data is left out"):
                    self.check(*command, "--data", "data", status=1, err=words)


class Recorder(ThreadingHTTPServer):
    """Stands in for a server's admin API: answers what it is told to, keeps what it was asked."""

    def __init__(self, status, body):
        self.asked, self.status, self.body = [], status, body
        super().__init__(("127.0.0.1", 0), RecorderHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class RecorderHandler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.do_DELETE()

    def do_DELETE(self):
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization")))
        body = self.server.body.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Rm(Case):
    def test_request_and_answer(self):
        with Recorder(200, '{"removed":"x"}') as server:
            done = self.check("rm", "HF/Org/Name:v1.0", "--server", server.url + "/")
            self.assertEqual(done.stdout, "removed hf/org/name:v1.0\n")
            self.check("rm", f"a@{DIGEST}", env={
                "WEIGHBRIDGE_SERVER": server.url, "HF_TOKEN": "hf_s3cret",
                "http_proxy": "http://127.0.0.1:1"})
            self.assertEqual(server.asked,
                             [("DELETE", "/admin/v1/references/hf/org/name:v1.0", None),
                              ("DELETE", f"/admin/v1/references/a@{DIGEST}", None)])

    def test_errors_of_the_server(self):
        body = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no \x1b[1m tag c"}]})
        for status, answer, words in (
                (404, body, "MANIFEST_UNKNOWN: no  [1m tag c"),
                (403, '{"errors":[{"code":"DENIED"}]}', "DENIED"),
                (404, "<html>", "answered 404, not as a weighbridge server does"),
                (500, "", "answered 500"),
                (404, '{"errors":[]}', "answered 404"),
                (404, '{"errors":"x"}', "answered 404"),
                (200, "ok", "does not answer as a weighbridge server"),
                (200, "{}", "does not answer as a weighbridge server")):
            with Recorder(status, answer) as server:
                self.check("rm", "a:b", "--server", server.url, status=1, err=words)

    def test_no_server(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{s.getsockname()[1]}"
            self.check("rm", "a:b", "--server", url, status=1, err="use --data DIR")
        self.check("rm", "a:b", "--server", "127.0.0.1:5000", status=1,
                   err="the server's URL must begin with http://")
        done = self.check("rm", "a:b", "--server", "http://me:s3cret@h", status=1, err="password")
        self.assertNotIn("s3cret", done.stderr)

    def test_real_server(self):
        with Server(self) as server:
            self.check("rm", "a/b:c", "--server", server.url, status=1, err="MANIFEST_UNKNOWN")


class History(Case):
    EVENTS = [{"at": "2026-11-30T11:05:00.123Z", "digest": DIGEST, "source": "push 127.0.0.1"},
              {"at": "2026-11-30T11:04:00.000Z", "removed": True, "source": "rm\x1b[1m"}]

    def answer(self, events):
        return json.dumps({"repository": "a/b", "tag": "v1", "events": events})

    def test_request_and_answer(self):
        text = self.answer(self.EVENTS)
        with Recorder(200, text + "\n") as server:
            done = self.check("history", "A/b:v1", "--server", server.url)
            self.assertEqual(done.stdout, f"2026-11-30T11:05:00.123Z  {DIGEST}  push 127.0.0.1\n"
                             f"2026-11-30T11:04:00.000Z  {'removed':71}  rm?[1m\n")
            done = self.check("history", "a", "--json", "--limit", "7",
                              env={"WEIGHBRIDGE_SERVER": server.url})
            self.assertEqual(done.stdout, text + "\n")
            self.assertEqual(server.asked, [("GET", "/admin/v1/history/a/b:v1?n=100", None),
                                            ("GET", "/admin/v1/history/a:latest?n=7", None)])

    def test_commits_have_a_column(self):
        commit = "c" * 40
        events = [{**self.EVENTS[0], "commit": commit}, self.EVENTS[0]]
        with Recorder(200, self.answer(events)) as server:
            done = self.check("history", "a/b:v1", "--server", server.url)
        self.assertEqual([line.split("  ", 2)[2] for line in done.stdout.splitlines()],
                         [commit + "  push 127.0.0.1", " " * 42 + "push 127.0.0.1"])

    def test_errors_of_the_server(self):
        event = self.EVENTS[0]
        body = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no tag c"}]})
        cases = [(404, body, "MANIFEST_UNKNOWN: no tag c"), (500, "", "answered 500"),
                 (200, "ok", "does not answer as a weighbridge server"),
                 (200, "{}", "does not answer as a weighbridge server"),
                 (200, '{"events":{}}', "does not answer as a weighbridge server")]
        for wrong in ({"at": 1}, {"source": None}, {"digest": 1}, {"commit": 1}):
            cases.append((200, self.answer([event, {**event, **wrong}]),
                          "does not answer as a weighbridge server"))
        for status, answer, words in cases:
            for args in ([], ["--json"]):
                with Recorder(status, answer) as server:
                    self.check("history", "a:b", "--server", server.url, *args, status=1,
                               err=words)


class Server:
    """`weighbridge serve` on a free port and the test's own directory."""

    def __init__(self, case, *args, env=None, **kwargs):
        self.case = case
        self.process = subprocess.Popen(
            [BIN, "serve", "--listen", "127.0.0.1:0", "--data", "data", *args], cwd=case.dir,
            env=environment(**(env or {})), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **kwargs)
        self.url = None

    def __enter__(self):
        try:
            first = self.process.stdout.readline()
            found = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", first)
            self.case.assertTrue(found, first)
            self.url = found[1]
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            out, err = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise
        self.case.assertEqual(self.process.returncode, 0, err)
        self.case.assertEqual(out, "", "only the address is printed on standard output")

    def wait_event(self, event):
        for line in self.process.stderr:
            if f" event={event} " in line:
                return line
        self.case.fail(f"it ended without the event {event}")

    def get(self, path):
        return self.request("GET", path)

    def request(self, method, path):
        connection = http.client.HTTPConnection(self.url[len("http://"):], timeout=PATIENCE_S)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class Serve(Case):
    def test_first_line_and_stop(self):
        for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with Server(self) as server:
                self.assertEqual(server.get("/v2/")[0], 200)
                server.process.send_signal(stop)
                server.wait_event("stopped")

    def test_what_is_stored_is_not_for_everybody(self):
        with Server(self, umask=0):
            for folder, folders, names in os.walk(os.path.join(self.dir, "data")):
                for name in folders + names:
                    mode = os.lstat(os.path.join(folder, name)).st_mode
                    self.assertEqual(mode & 0o027, 0, name)

    def test_settings_reach_the_store_and_the_api(self):
        settings = {"WEIGHBRIDGE_LIMITS_UPLOADS": "1", "WEIGHBRIDGE_DELETE": "deny"}
        with Server(self, env=settings) as s:
            self.assertEqual(s.request("POST", "/v2/a/blobs/uploads/")[0], 202)
            status, body = s.request("POST", "/v2/a/blobs/uploads/")
            self.assertEqual(status, 503, body)
            status, body = s.request("DELETE", "/v2/a/manifests/v1")
            self.assertEqual((status, json.loads(body)["errors"][0]["code"]), (405, "UNSUPPORTED"))

    def test_descriptors(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        with Server(self, preexec_fn=few) as server:
            with open(f"/proc/{server.process.pid}/limits", encoding="utf-8") as f:
                soft, upper = re.search(r"Max open files\s+(\d+)\s+(\d+)", f.read()).groups()
            self.assertEqual(soft, upper)

    def test_too_few_descriptors_are_mentioned(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
        with Server(self, preexec_fn=few) as server:
            self.assertIn("limit=512 wanted=8704", server.wait_event("few_descriptors"))

    def test_start_failures(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.check("serve", "--data", "d", "--listen", address, status=1, err=address)
        self.file("plain", "")
        for args, words in (
                (["--listen", "0.0.0.0:0", "--data", "exposed"], "access"),
                (["--listen", "nowhere"], "--listen: listen: "),
                (["--listen", "127.0.0.1:0", "--data", "plain"], "plain"),
                (["--listen", "127.0.0.1:0", "--data", "plain/x"], "plain"),
                (["--config", "/nonexistent"], "/nonexistent"),
                (["--hub", "huggingface.co"], "--hub: upstreams[0].url: must begin with http://")):
            self.check("serve", *args, status=1, err=words)
        self.assertFalse(os.path.exists(os.path.join(self.dir, "exposed")), "no store is made")

    def test_second_server_on_a_directory(self):
        with Server(self) as server:
            self.check("serve", "--listen", "127.0.0.1:0", "--data", "data", status=1,
                       err=f"in use by process {server.process.pid}; stop it, or give")

    def ask_silent_hub(self, server, hub):
        """A request that is under way: its upstream has taken the connection and says nothing."""
        client = socket.create_connection(server.url[len("http://"):].split(":"))
        client.sendall(b"GET /v2/hf/a/b/manifests/main HTTP/1.1\r\nHost: localhost\r\n\r\n")
        silent, _ = hub.accept()
        return client, silent

    def stop_while_busy(self, drain, more_signals):
        with socket.socket() as hub:
            hub.bind(("127.0.0.1", 0))
            hub.listen()
            hub.settimeout(PATIENCE_S)
            url = f"http://127.0.0.1:{hub.getsockname()[1]}"
            with Server(self, "--hub", url, env={"WEIGHBRIDGE_TIMEOUTS_DRAIN": drain}) as server:
                client, silent = self.ask_silent_hub(server, hub)
                with client, silent:
                    server.process.send_signal(signal.SIGTERM)
                    server.wait_event("draining")
                    for _ in range(more_signals):
                        server.process.send_signal(signal.SIGTERM)
                    self.assertIn("answers=cut", server.wait_event("stopped"))

    def test_drain_ends(self):
        self.stop_while_busy("1s", 0)

    def test_no_drain(self):
        self.stop_while_busy("0", 0)

    def test_second_signal_cuts_the_drain(self):
        self.stop_while_busy("1h", 1)


if __name__ == "__main__":
    unittest.main()
