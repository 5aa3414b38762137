"""`weighbridge warm` and POST /admin/v1/warm/: everything that a reference needs is brought before
anybody asks for it."""

import json
import resource
import socket
import subprocess
import unittest

from harness import EndToEnd, binary, safetensors_file
from mirror_case import LAYER, PREFIX, REPO, MirrorCase, Noise

FOREIGN = 12345


class Warming(MirrorCase):
    UPSTREAM = {"stall_timeout": "60s"}  # tests hold answers up

    def setUp(self):
        super().setUp()
        big = bytes(Noise(2_000_000, "for arm").read(0, 2_000_000))
        self.arm = self.repo.add_image([{"etc/name": b"three"}, big], architecture="arm64")
        self.index = self.repo.add_index({"amd64": self.image, "arm64": self.arm}, tag="all")
        self.everything = {*self.image.blobs, *self.arm.blobs}

    def warm(self, *references, status=0, wb=None):
        """(lines on standard output, standard error)."""
        done = subprocess.run([binary(), "warm", *references, "--server", (wb or self.wb).url],
                              capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout.splitlines(), done.stderr

    def post(self, reference, wb=None):
        """(status, the lines of the answer)."""
        status, headers, body = (wb or self.wb).request(
            "POST", f"/admin/v1/warm/{PREFIX}/{REPO}:{reference}", {"Content-Length": "0"})
        return status, headers, [json.loads(line) for line in body.decode().splitlines()]

    def test_all_of_an_index(self):
        lines, _ = self.warm(f"{PREFIX}/{REPO}:all")
        self.assertIn(self.index.digest, lines[0])
        self.assertIn(f"3 manifests, {len(self.everything)} blobs", lines[0])
        self.assertEqual({line.split()[1] for line in lines[1:]}, self.everything)
        self.assertEqual({line.split()[0] for line in lines[1:]}, {"fetched"})
        self.registry.stop()
        self.pulls(self.index, "all", warning="")
        for image in (self.image, self.arm):
            self.pulls(image, image.digest)
            for digest in image.blobs:
                self.pulls_blob(digest)

    def test_a_second_time_nothing_moves(self):
        self.warm(f"{PREFIX}/{REPO}:all")
        before = self.requests()
        lines, _ = self.warm(f"{PREFIX}/{REPO}:all")
        self.assertIn(" 0 to come", lines[0])
        self.assertEqual({line.split()[0] for line in lines[1:]}, {"held"})
        self.assertEqual(self.requests() - before, 1, "one question about the tag")

    def test_what_the_answer_says(self):
        status, headers, lines = self.post("v1")
        self.assertEqual(status, 200)
        self.assertEqual(headers["Content-Type"], "application/x-ndjson")
        first, last = lines[0], lines[-1]
        self.assertEqual((first["repository"], first["manifest"], first["manifests"]),
                         (f"{PREFIX}/{REPO}", self.image.digest, 1))
        self.assertEqual(first["blobs"], len(self.image.blobs))
        self.assertEqual(first["bytes"], first["missing_bytes"])
        self.assertEqual(sum(line["bytes"] for line in lines if "blob" in line), first["bytes"])
        self.assertEqual(last, {"done": True})
        self.until("the log line", lambda: self.wb.log_lines(event="warmed", level="info"))

    def test_by_digest_and_several(self):
        lines, _ = self.warm(f"{PREFIX}/{REPO}@{self.image.digest}", f"{PREFIX}/{REPO}:all",
                             "--quiet")
        self.assertEqual(lines, [])
        self.registry.stop()
        self.pulls_blob(self.layer, data=LAYER)

    def test_clients_share_its_downloads(self):
        hold = self.registry.hold(kind="blob", bytes=1000, path=self.layer)
        proc = subprocess.Popen([binary(), "warm", f"{PREFIX}/{REPO}:v1", "--server", self.wb.url],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            hold.wait_held(1)
            conn = self.wb.connect()
            conn.request("GET", f"/v2/{PREFIX}/{REPO}/blobs/{self.layer}")
            hold.release()
            self.assertEqual(conn.getresponse().read(), LAYER)
            conn.close()
        finally:
            hold.release()
            output = proc.communicate(timeout=60)[0]
        self.assertEqual(proc.returncode, 0, output)
        self.assertEqual(self.requests(kind="blob", path=self.layer, method="GET"), 1)

    def test_peer_bug_51_what_has_no_room_is_refused_first(self):
        wb = self.mirror(root={"limits": {"free_percent": 100}})
        lines, text = self.warm(f"{PREFIX}/{REPO}:v1", status=1, wb=wb)
        size = sum(layer["size"] for layer in json.loads(self.image.body)["layers"])
        size += json.loads(self.image.body)["config"]["size"]
        self.assertEqual(lines, [])
        self.assertIn(f"needs {size} bytes that are not here", text)
        self.assertRegex(text, r"\d+ of \d+ bytes of the filesystem would stay free")
        self.assertEqual(self.requests(kind="blob", method="GET"), 0)

    def test_peer_bug_51_what_fails_the_same_way_is_given_up(self):
        self.registry.fault("flip", kind="blob", offset=100_000, path=self.layer)
        _, text = self.warm(f"{PREFIX}/{REPO}:v1", status=1)
        self.assertIn(f"blob {self.layer}, tried three times", text)
        self.assertEqual(self.requests(kind="blob", path=self.layer, method="GET"), 3)
        self.until("the log line", lambda: self.wb.log_lines(event="warmed", level="warn"))
        self.registry.reset()
        self.warm(f"{PREFIX}/{REPO}:v1")
        self.pulls_blob(self.layer, data=LAYER)

    def test_one_failure_heals(self):
        self.registry.fault("flip", kind="blob", offset=100_000, path=self.layer, times=1)
        lines, _ = self.warm(f"{PREFIX}/{REPO}:v1")
        self.assertIn(f"{self.image.digest}, 1 manifest, {len(self.image.blobs)} blobs, ", lines[0])
        self.pulls_blob(self.layer, data=LAYER)

    def test_a_child_that_is_gone(self):
        self.repo.delete_manifest(self.arm.digest)
        _, text = self.warm(f"{PREFIX}/{REPO}:all", status=1)
        self.assertIn(f"manifest {self.arm.digest} of the index", text)
        self.assertEqual(self.requests(kind="blob", method="GET"), 0)

    def test_what_is_not_there(self):
        _, text = self.warm(f"{PREFIX}/{REPO}:nothing", status=1)
        self.assertIn("MANIFEST_UNKNOWN", text)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([binary(), "warm", f"{PREFIX}/{REPO}:v1", "--server", self.wb.url],
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not all of the output could be written", done.stderr)
        self.registry.stop()
        self.pulls_blob(self.layer)

    def test_usage(self):
        for wrong in ([], ["UPPER CASE:v1"]):
            done = subprocess.run([binary(), "warm", *wrong], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
        status, _, body = self.wb.request("POST", f"/admin/v1/warm/{PREFIX}/{REPO}")
        self.assertEqual(status, 400)
        self.assertIn(b"name what to warm as repository:tag", body)
        status, _, _ = self.wb.request("POST", f"/admin/v1/warm/{PREFIX}/{REPO}:v1",
                                       {"Origin": "http://evil.example"})
        self.assertEqual(status, 403)

    def test_it_ends_when_the_client_goes(self):
        hold = self.registry.hold(kind="blob", bytes=1000, path=self.layer)
        host, port = self.wb.url.removeprefix("http://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(f"POST /admin/v1/warm/{PREFIX}/{REPO}:v1 HTTP/1.1\r\nHost: {host}\r\n"
                           "Content-Length: 0\r\n\r\n".encode())
            self.assertIn(b"200", client.recv(100))
            hold.wait_held(1)
        self.until("the log line", lambda: self.wb.log_lines(event="warmed", error="cancelled"))
        hold.release()

    def test_it_ends_when_the_client_goes_before_the_upstream_has_answered(self):
        hold = self.registry.hold(kind="blob", before=True, path=self.layer)
        wb = self.mirror(stall_timeout="100s")
        host, port = wb.url.removeprefix("http://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(f"POST /admin/v1/warm/{PREFIX}/{REPO}:v1 HTTP/1.1\r\nHost: {host}\r\n"
                           "Content-Length: 0\r\n\r\n".encode())
            self.assertIn(b"200", client.recv(100))
            hold.wait_held(1)
        self.until("the log line", lambda: wb.log_lines(event="warmed", error="cancelled"),
                   timeout=40)
        hold.release()

    def test_what_can_not_be_kept_is_given_up_at_once(self):
        size = 12 << 20
        image = self.repo.add_image([bytes(Noise(size, "too big").read(0, size))], tag="big")
        hold = self.registry.hold(kind="blob", bytes=10 << 20, path=image.blobs[-1])
        resource.prlimit(self.wb.pid, resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
        _, text = self.warm(f"{PREFIX}/{REPO}:big", status=1)
        self.assertIn(f"blob {image.blobs[-1]}: not stored, only passed through", text)
        self.assertIn("File too large", text)
        hold.release()

    def test_names_that_leave_out_the_default_upstream(self):
        wb = self.mirror(root={"default_upstream": PREFIX})
        lines, _ = self.warm(f"{REPO}:v1", wb=wb)
        self.assertIn(self.image.digest, lines[0])
        self.registry.stop()
        self.pulls(self.image, self.image.digest, wb=wb)
        self.pulls_blob(self.layer, wb=wb)

    def test_manifests_that_name_very_many_parts(self):
        layer = self.repo.add_blob(b"again and again", "a/b")
        many = [self.repo.add_manifest({
            "schemaVersion": 2, "config": layer, "layers": [layer] * 33_000,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "annotations": {"n": str(i)}}) for i in range(9)]
        self.repo.add_index({str(i): manifest for i, manifest in enumerate(many)}, tag="many")
        _, text = self.warm(f"{PREFIX}/{REPO}:many", status=1)
        self.assertIn("more than 262144 parts", text)

    def test_a_stop_does_not_wait_for_it(self):
        hold = self.registry.hold(kind="blob", bytes=1000, path=self.layer)
        wb = self.mirror(root={"timeouts": {"drain": "0s"}})
        proc = subprocess.Popen([binary(), "warm", f"{PREFIX}/{REPO}:v1", "--server", wb.url],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        hold.wait_held(1)
        wb.stop()
        proc.communicate(timeout=60)
        self.assertEqual(proc.returncode, 1)
        hold.release()

    def test_layers_that_need_not_be_distributed(self):
        image = self.repo.add_image([{"a": b"1"}], tag="foreign",
                                    foreign={"https://layers.invalid/a": b"x" * FOREIGN})
        status, _, lines = self.post("foreign")
        self.assertEqual((status, lines[-1]), (200, {"done": True}))
        self.assertEqual(lines[0].get("left_out"), 1, image.body)


class WarmingAModel(EndToEnd):
    def test_a_model_from_the_hub(self):
        hub = self.make_hub()
        weights = safetensors_file({"a": ("F32", [512, 1024])})
        hub.add_repo("Org/Model", {"model.safetensors": weights, "config.json": b"{}",
                                   "README.md": b"# model\n"})
        wb = self.make_weighbridge(hub.url)
        done = subprocess.run([binary(), "warm", "hf/org/model:main", "--server", wb.url],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        hub.stop()
        _, manifest = self.pull_manifest(wb, "hf/org/model", "main")
        for layer in manifest["layers"]:
            status, _, body = wb.blob("hf/org/model", layer["digest"])
            self.assertEqual((status, len(body)), (200, layer["size"]))


if __name__ == "__main__":
    unittest.main()
