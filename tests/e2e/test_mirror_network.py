#!/usr/bin/env python3
"""The way to a registry that is mirrored: certificates and proxies."""

import os
import shutil
import time
import unittest
from urllib.parse import urlsplit

from mirror_case import Authority, MirrorCase
from registry_proxy import ForwardProxy


class Certificates(MirrorCase):
    TLS = ("registry", "token", "cdn")
    UPSTREAM = {"tag_ttl": "1h"}

    def upstream(self, **settings):
        # A handshake is work: on a loaded machine it may take longer than the others' 2 s.
        return super().upstream(**{"connect_timeout": "20s", **settings})

    def make_registry(self, **options):
        self.authority = Authority(self.scratch(""))
        return super().make_registry(auth="bearer", redirect_blobs=True, authority=self.authority,
                                     tls=self.TLS, **options)

    def mirror(self, *args, **settings):
        return super().mirror(*args, **{"ca_file": self.authority.ca_file, **settings})


class AuthorityOfOurOwn(Certificates):
    def test_peer_bug_90_counts_for_tokens_and_redirects_too(self):
        self.pulls_image()
        self.assertGreater(self.registry.count("cdn"), 0)
        self.assertGreater(self.registry.count("token"), 0)

    def test_peer_bug_90_is_needed(self):
        self.wb.stop()
        wb = self.mirror(ca_file=None)
        self.assertIn("ca_file", self.fails(502, "UNAVAILABLE", wb=wb))

    def test_peer_bug_90_read_again_when_it_changes(self):
        self.wb.stop()
        os.mkdir(self.scratch("strangers"))
        stranger = Authority(self.scratch("strangers"))
        ours = self.scratch("used.pem")
        shutil.copy(stranger.ca_file, ours)
        wb = self.mirror(ca_file=ours, negative_ttl="0s")
        self.assertIn("certificate", self.fails(502, "UNAVAILABLE", wb=wb))
        shutil.copy(self.authority.ca_file, ours + ".new")
        os.replace(ours + ".new", ours)
        self.until("it is read again", lambda: self.get_manifest(wb=wb)[0] == 200)
        self.pulls_image(wb=wb)
        # While it is away, what was in it counts.
        os.remove(ours)
        self.registry.close_connections("registry")
        time.sleep(1.1)  # it is looked at once a second
        self.pulls(self.other, self.other.digest, wb=wb)

    def test_peer_bug_90_a_certificate_of_our_own(self):
        certificate, key = self.authority.certificate("good")
        both = self.scratch("both.pem")
        with open(both, "w", encoding="ascii") as to:
            for path in (certificate, key):
                with open(path, encoding="ascii") as f:
                    to.write(f.read())
        for host in self.TLS:
            self.registry.use_certificate(host, client=True)
        for settings in ({"client_cert": certificate, "client_key": key}, {"client_cert": both}):
            self.wb.stop()
            self.wb = self.mirror(**settings)
            self.pulls_image()
        self.wb.stop()
        self.wb = self.mirror()
        self.fails(502, "UNAVAILABLE")
        self.wb.stop()
        self.wb = self.mirror(client_cert=certificate, client_key=self.authority.ca_file)
        self.assertIn("client_cert and client_key", self.fails(502, "UNAVAILABLE"))

    def refuses(self, host, name):
        if host == "cdn":  # only the bytes come from there
            self.pulls(self.image)
            status, _, body = self.get_blob()
            text = self.error_text(502, "UNAVAILABLE", status, body)
        else:
            text = self.fails(502, "UNAVAILABLE")
        self.assertIn(name, text)
        self.assertIn("certificate", text)
        self.assertEqual(self.registry.count(host), 0, "nothing was sent to it")

    def test_peer_bug_90_wrong_certificates(self):
        """Of the registry, its token server and the host that it redirects to alike."""
        names = {"registry": self.registry.host, "token": "%s:%d" % self.registry.address("token"),
                 "cdn": urlsplit(self.registry.cdn_url).netloc}
        for host, name in names.items():
            for kind in ("wrong_name", "expired", "not_yet", "self_signed"):
                with self.subTest(host, kind=kind):
                    self.wb.stop()
                    self.registry.use_certificate(host, kind)
                    self.registry.close_connections(host)
                    self.registry.reset()
                    self.wb = self.mirror()
                    self.refuses(host, name)
                    self.registry.use_certificate(host)
                    self.wb.stop()
                    self.wb.start()
                    self.pulls_image()


class InTheClear(Certificates):
    TLS = ("registry", "token")

    def test_peer_bug_72_no_way_from_https_to_http(self):
        self.pulls(self.image)
        status, _, body = self.get_blob()
        self.error_text(502, "UNAVAILABLE", status, body)
        self.assertEqual(self.registry.count("cdn"), 0)


class Proxies(MirrorCase):
    """All of an upstream's traffic, or of what the variables say."""

    OPTIONS = {"auth": "bearer", "redirect_blobs": True}
    LOGIN = ("porter", "open-sesame")
    NAMES = {"registry.invalid": "127.0.0.1"}

    def setUp(self):
        super().setUp()
        self.wb.stop()

    def proxy(self, *login):
        proxy = ForwardProxy(*login, hosts=self.NAMES).start()
        self.addCleanup(proxy.stop)
        return proxy

    def seen(self, proxy):
        """The hosts that were asked for."""
        return {urlsplit(target).netloc for _, target in proxy.seen}

    def hosts(self):
        return {urlsplit(url).netloc for url in (
            self.registry.url, self.registry.token_url, self.registry.cdn_url)}

    def by_name(self):
        return self.registry.url.replace("127.0.0.1", "registry.invalid")

    def test_peer_bug_91_a_proxy_of_the_upstreams_own(self):
        proxy = self.proxy()
        self.pulls_image(wb=self.mirror(proxy=proxy.url))
        self.assertEqual(self.seen(proxy), self.hosts())

    def test_peer_bug_91_with_a_login(self):
        proxy = self.proxy(*self.LOGIN)
        wb = self.mirror(proxy=proxy.url.replace("//", "//%s:%s@" % self.LOGIN))
        self.pulls_image(wb=wb)
        self.assertEqual(proxy.refused, 0)
        wb.stop()
        self.assertNotIn(self.LOGIN[1], wb.log)
        self.registry.reset()
        wb = self.mirror(proxy=proxy.url)
        self.assertIn("407", self.fails(502, "UNAVAILABLE", wb=wb))
        self.assertEqual(self.requests(), 0)

    def test_peer_bug_91_a_proxy_that_is_down(self):
        proxy = ForwardProxy().start()
        proxy.stop()
        self.fails(502, "UNAVAILABLE", wb=self.mirror(proxy=proxy.url))
        self.assertEqual(self.requests(), 0, "it is not gone round")

    def test_peer_bug_91_variables_in_both_cases(self):
        for name in ("http_proxy", "HTTP_PROXY"):
            with self.subTest(name):
                proxy = self.proxy()
                wb = self.mirror(url=self.by_name(), env={name: proxy.url})
                self.pulls(self.image, wb=wb)
                self.assertEqual(self.seen(proxy), {urlsplit(self.by_name()).netloc},
                                 "the token server is on a loopback address")
                wb.stop()

    def test_peer_bug_91_the_setting_wins(self):
        ours, theirs = self.proxy(), self.proxy()
        wb = self.mirror(proxy=ours.url, env={
            "http_proxy": theirs.url, "HTTPS_PROXY": theirs.url, "no_proxy": "*"})
        self.pulls_image(wb=wb)
        self.assertEqual(self.seen(ours), self.hosts())
        wb.stop()
        wb = self.mirror(url=self.by_name(), proxy="none", env={"http_proxy": theirs.url})
        self.fails(502, "UNAVAILABLE", wb=wb)
        self.assertEqual(theirs.seen, [])

    def test_peer_bug_91_exceptions(self):
        port = urlsplit(self.registry.url).port
        for excepted, wanted in (("registry.invalid", True), (f"registry.invalid:{port}", True),
                                 (".invalid", True), ("*", True), (f"invalid:{port + 1}", False),
                                 ("10.0.0.0/8, other.invalid", False)):
            for name in ("no_proxy", "NO_PROXY"):
                with self.subTest(excepted, name=name):
                    proxy = self.proxy()
                    wb = self.mirror(url=self.by_name(),
                                     env={"http_proxy": proxy.url, name: excepted})
                    if wanted:  # nobody else knows that name
                        self.fails(502, "UNAVAILABLE", wb=wb)
                    else:
                        self.pulls(self.image, wb=wb)
                    self.assertEqual(proxy.seen == [], wanted)
                    wb.stop()


class Tunnels(Certificates):
    """https through a proxy: it sees where to, and nothing else."""

    def test_peer_bug_91_tunnels_with_a_login(self):
        self.wb.stop()
        with ForwardProxy("porter", "open-sesame") as proxy:
            wb = self.mirror(proxy=proxy.url.replace("//", "//porter:open-sesame@"))
            self.pulls_image(wb=wb)
            self.assertEqual({method for method, _ in proxy.seen}, {"CONNECT"})
            self.assertEqual({target for _, target in proxy.seen}, {
                urlsplit(url).netloc for url in (
                    self.registry.url, self.registry.token_url, self.registry.cdn_url)})
            wb.stop()
            self.assertNotIn("open-sesame", wb.log)
            wb = self.mirror(proxy=proxy.url)
            self.assertIn("407", self.fails(502, "UNAVAILABLE", wb=wb))
            wb.stop()

    def test_peer_bug_90_wrong_certificates_in_a_tunnel(self):
        self.wb.stop()
        self.registry.use_certificate("registry", "wrong_name")
        with ForwardProxy() as proxy:
            wb = self.mirror(proxy=proxy.url)
            self.assertIn("certificate", self.fails(502, "UNAVAILABLE", wb=wb))
            wb.stop()


if __name__ == "__main__":
    unittest.main()
