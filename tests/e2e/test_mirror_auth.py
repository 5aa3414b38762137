#!/usr/bin/env python3
"""Logging in to a registry that is mirrored: tokens, token servers, and what of them is shown."""

import os
import unittest

from harness import sha256
from mirror_case import PASSWORD, PREFIX, REPO, USER, MirrorCase


class Logins(MirrorCase):
    OPTIONS = {"auth": "bearer", "expires_in": 60}
    PRIVATE = True
    UPSTREAM = {"username": USER, "negative_ttl": "0s"}

    def mirror(self, *args, **settings):
        secret = self.scratch("password")
        if not os.path.exists(secret):
            with open(secret, "w", encoding="ascii") as f:
                f.write(PASSWORD + "\n")
        return super().mirror(*args, password_file=secret, **settings)

    def test_peer_bug_66_a_new_token_when_one_is_refused(self):
        self.pulls_image()
        self.registry.revoke_tokens()
        self.pulls(self.image)
        self.registry.revoke_tokens()
        self.pulls(self.other, self.other.digest)
        self.pulls_blob(self.other.blobs[0])

    def test_peer_bug_74_tokens_that_live_shorter_than_they_say(self):
        self.registry.set_options(token_life=1)
        for _ in range(3):
            self.pulls(self.image)

    def test_peer_bug_74_a_new_password_without_a_restart(self):
        self.pulls_image()
        self.registry.add_user(USER, "another:password")
        self.registry.revoke_tokens()
        with open(self.scratch("password"), "w", encoding="ascii") as f:
            f.write("another:password\n")
        self.pulls(self.image)
        self.pulls(self.other, self.other.digest)

    def test_peer_bug_67_one_token_serves_many_requests(self):
        self.pulls_image()
        self.pulls_image()
        self.assertEqual(self.registry.count("token"), 1)

    def test_peer_bug_67_a_new_repository_costs_no_challenge(self):
        self.pulls(self.image)
        self.assertEqual(self.requests(status=401), 1)
        for i in range(3):
            repo = self.registry.add_repo(f"team/more-{i}", private=True)
            image = repo.add_image([{"a": b"%d" % i}], tag="v1")
            self.registry.reset()
            self.pulls(image, repo=repo.name)
            self.assertEqual(self.requests(), 1, "steady state is one request")
            self.pulls_blob(image.blobs[-1], repo=repo.name)
            self.assertEqual(self.requests(), 2, "also for a cold blob")
            self.assertEqual(self.registry.count("token"), 1)

    def test_peer_bug_67_a_blob_of_a_new_repository(self):
        """Of which no manifest was pulled: asked about by HEAD, and then fetched."""
        self.pulls(self.image)
        data = b"only a blob"
        self.registry.add_repo("team/blobs", private=True).add_blob(data)
        self.registry.reset()
        self.pulls_blob(sha256(data), repo="team/blobs", data=data)
        self.assertEqual(self.requests(), 2)
        self.assertEqual(self.requests(status=401), 0)

    def test_peer_bug_67_a_token_that_nobody_wants(self):
        """The token server refuses what was guessed; the registry has the last word."""
        public = self.registry.add_repo("public/app").add_image([{"a": b"open"}], tag="v1")
        self.pulls(self.image)
        self.registry.set_options(auth="none")
        self.registry.fault("status", host="token", status=403)
        self.pulls(public, repo="public/app")
        self.pulls(public, repo="public/app")
        self.assertEqual(self.registry.count("token"), 2, "the first pull's, and one guess")

    def black_hole(self, host, **settings):
        self.registry.close_connections(host)
        self.registry.blackhole(host)
        self.wb.stop()
        self.wb = self.mirror(data=self.wb.data, username=USER, **settings)

    def test_peer_bug_54_a_token_server_that_swallows_everything(self):
        self.pulls_image()
        self.black_hole("token", connect_timeout="8s", revalidate_timeout="2s")
        took = self.timed(self.pulls, self.image, warning="has not answered in time")
        self.assertLess(took, 4)
        times = [self.timed(self.pulls, self.image, warning="") for _ in range(20)]
        self.assertLess(sorted(times)[10], 0.2, times)
        self.pulls(self.image, self.image.digest)
        self.registry.serve("token")

    def test_peer_bug_54_what_is_not_here_waits_once(self):
        """And the registry is not blamed: its breaker stays closed."""
        self.pulls_image()
        self.black_hole("token", connect_timeout="2s", breaker_failures=2)
        took = self.timed(self.fails, 504, "UNAVAILABLE", "new")
        self.assertLess(took, 10)
        took = self.timed(self.fails, 502, "UNAVAILABLE", "newer")
        self.assertLess(took, 2, "the token server is left alone")
        metrics = self.wb.get("/metrics")[2].decode()
        self.assertIn(f'weighbridge_upstream_left_alone{{upstream="{PREFIX}"}} 0\n', metrics)
        self.registry.serve("token")

    def test_peer_bug_72_a_redirect_to_who_wants_a_login(self):
        """Ours is for the registry; the error names the host that wants another one."""
        other = self.make_registry(auth="bearer")
        other.add_repo(REPO, private=True).add_image(tag="v1")
        to = f"{other.url}/v2/{REPO}/manifests/v1"
        self.registry.fault("location", url=to, kind="manifest")
        text = self.fails(502, "UNAVAILABLE")
        self.assertIn(f"redirects to {other.host}, which answered 401 and wants a login of its own",
                      text)
        self.assertIn("an upstream with its own login", text)
        self.assertEqual(other.count("token"), 0)
        for record in other.requests("registry"):
            self.assertNotIn("authorization", record.headers)

    def test_peer_bug_72_a_blob_of_who_wants_a_login(self):
        """Its size is known from the manifest, so that the download finds out."""
        self.pulls(self.image)
        other = self.make_registry(auth="bearer")
        digest = other.add_repo(REPO, private=True).add_image([b"x"], tag="v1").blobs[-1]
        self.registry.fault("location", url=f"{other.url}/v2/{REPO}/blobs/{digest}", kind="blob")
        got, _, body = self.get_blob(self.image.blobs[-1])
        self.assertIn(f"upstream {PREFIX} redirects to {other.host}, which answered 401 and wants "
                      "a login of its own", self.error_text(502, "UNAVAILABLE", got, body))
        self.assertEqual(other.count("token"), 0)
        for record in other.requests("registry"):
            self.assertNotIn("authorization", record.headers)

    def test_peer_bug_72_no_credential_to_another_host(self):
        self.registry.set_options(redirect_blobs=True)
        self.pulls_image()
        sent = self.registry.requests("cdn")
        self.assertGreater(len(sent), 0)
        for record in sent:
            self.assertNotIn("Authorization", record.headers)

    def test_peer_bug_53_our_login_is_refused(self):
        self.pulls_image()
        self.registry.add_user(USER, "changed")
        self.registry.revoke_tokens()
        self.pulls_image(warning="login")
        self.assertIn("login", self.fails(502, "UNAVAILABLE", "new"))

    def test_peer_bug_53_tokens_that_the_registry_calls_invalid(self):
        """Its keys were changed, say, and the token server's were not: no word about the tag."""
        self.pulls_image()
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()
        fault = self.registry.fault("bad_token", kind="token")
        for _ in range(2):
            self.pulls_image(warning="calls the token invalid that its token server")
        self.assertIn("do not agree", self.fails(502, "UNAVAILABLE", "v2"))
        fault.remove()
        self.assertEqual(self.wb.stop(), 0)
        self.wb.start()
        self.pulls_image()

    def test_peer_bug_53_the_token_server_is_down(self):
        self.pulls_image()
        self.registry.refuse("token")
        self.registry.revoke_tokens()
        self.pulls_image(warning="login")
        self.registry.serve("token")

    def test_peer_bug_57_a_repository_that_we_may_not_read_any_more(self):
        self.pulls_image()
        self.repo.users = {"somebody else"}
        self.registry.revoke_tokens()
        self.fails(403, "DENIED")
        self.pulls(self.image, self.image.digest)

    def test_peer_bug_77_no_secret_is_shown(self):
        self.pulls_image()
        self.registry.set_options(redirect_blobs=True)
        self.registry.fault("status", status=401, kind="manifest", path="echo",
                            message="you sent " + PASSWORD)
        self.fails(403, "DENIED", "echo")
        for fault in ("url_expired", "cut"):
            self.registry.fault(fault, host="cdn", kind="blob")
            self.get_blob(self.other.blobs[0])
            self.registry.clear_faults()
        for secret in (PASSWORD, "X-Amz-Signature", "Bearer "):
            self.assertNotIn(secret, self.wb.log)

    def test_basic(self):
        self.registry.set_options(auth="basic")
        self.pulls_image()

    def test_peer_bug_68_what_our_login_reads_is_not_for_everybody(self):
        self.wb.stop()
        access = [{"repositories": "elsewhere/**", "allow": ["pull"]}]
        open_to_all = self.mirror(username=USER)
        self.pulls_image(wb=open_to_all)
        open_to_all.stop()
        wb = self.mirror(username=USER, data=open_to_all.data, root={"access": access})
        self.registry.reset()
        for reference in ("v1", self.image.digest):
            self.assertNotEqual(self.get_manifest(reference, wb=wb)[0], 200)
        self.assertNotEqual(self.get_blob(wb=wb)[0], 200)
        self.assertEqual(self.requests(), 0)


if __name__ == "__main__":
    unittest.main()
