"""Tokens: who may have one, for what, and for how long; and the token server."""

import base64
import binascii
import secrets
import threading
import time
from urllib.parse import parse_qs

from registry_answer import Answerer

DEFAULT_LIFE = 60  # what "no expires_in" means, by the specification


def parse_scopes(values):
    """[(type, name, {actions})] of scope parameters, each of which may hold several."""
    found = []
    for scope in " ".join(values).split():
        kind, _, rest = scope.partition(":")
        name, _, actions = rest.rpartition(":")
        if kind and name:
            found.append((kind, name, set(actions.split(","))))
    return found


def basic_of(header):
    """(user, password) of an Authorization header, or None."""
    scheme, _, value = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None


class Token:
    def __init__(self, text, user, access, expires):
        self.text = text
        self.user = user
        self.access = access    # [(type, name, {actions})]; a name "*" is any
        self.expires = expires  # on the monotonic clock

    def grants(self, kind, name, action):
        return any(k == kind and n in (name, "*") and (action in a or "*" in a)
                   for k, n, a in self.access)


class Tokens:
    """Users and tokens. One of these a registry."""

    def __init__(self):
        self.users = {}    # name -> password
        self.lock = threading.Lock()  # guards what follows
        self.tokens = {}
        self.refresh = {}  # refresh token -> user

    def issue(self, user, access, life, size=0):
        text = "tk." + secrets.token_hex(16)
        text += "x" * max(0, size - len(text))
        token = Token(text, user, access, time.monotonic() + life)
        with self.lock:
            self.tokens[text] = token
        return token

    def refresh_token(self, user):
        text = "rt." + secrets.token_hex(16)
        with self.lock:
            self.refresh[text] = user
        return text

    def revoke(self, user=None):
        """Every token so far (of one user) is refused from now on; refresh tokens stay."""
        with self.lock:
            for token in self.tokens.values():
                if user is None or token.user == user:
                    token.expires = 0

    def look_up(self, text):
        """The live token, or None."""
        with self.lock:
            token = self.tokens.get(text)
        return token if token and token.expires > time.monotonic() else None

    def user_of(self, pair):
        """The user that a (name, password) logs in, or None."""
        return pair[0] if pair and self.users.get(pair[0]) == pair[1] else None


class TokenAnswers(Answerer):
    """What a token server says: on its own port, or on the registry's."""

    def give(self):
        if self.record.kind != "token":
            return self.refuse(404, "not found")
        options = self.standin.options
        if self.command == "GET":
            if options["token_get"] is not True:
                return self.refuse(options["token_get"], "GET is not for tokens here")
            return self.by_get(parse_qs(self.path.partition("?")[2], keep_blank_values=True))
        if self.command == "POST":
            if options["token_post"] is not True:
                return self.refuse(options["token_post"], "POST is not for tokens here")
            return self.by_post(parse_qs(self.body.decode(errors="replace"),
                                         keep_blank_values=True))
        return self.refuse(405, "GET or POST")

    def refuse(self, status, message):
        self.respond_json(status, {"details": message})

    def by_get(self, form):
        header = self.record.headers.get("authorization")
        user = self.standin.tokens.user_of(basic_of(header))
        if header and not user:
            return self.refuse(401, "incorrect username or password")
        if not user and not self.standin.options["anonymous"]:
            return self.refuse(401, "log in")
        offline = form.get("offline_token", [""])[0] == "true"
        return self.grant(user, form, offline)

    def by_post(self, form):
        kind = form.get("grant_type", [""])[0]
        if kind == "password":
            user = self.standin.tokens.user_of(
                (form.get("username", [""])[0], form.get("password", [""])[0]))
        elif kind == "refresh_token":
            user = self.standin.tokens.refresh.get(form.get("refresh_token", [""])[0])
        else:
            return self.respond_json(400, {"error": "unsupported_grant_type"})
        if not user:
            return self.respond_json(400, {"error": "invalid_grant"})
        return self.grant(user, form, form.get("access_type", [""])[0] == "offline")

    def grant(self, user, form, offline):
        options = self.standin.options
        if form.get("service", [options["service"]])[0] != options["service"]:
            return self.refuse(400, "unknown service")
        access = []
        for kind, name, actions in parse_scopes(form.get("scope", [])):
            allowed = {a for a in actions if self.standin.allows(user, kind, name, a)}
            if allowed:
                access.append((kind, name, allowed))
        stated = options["expires_in"]
        life = options["token_life"]
        if life is None:
            life = DEFAULT_LIFE if stated is None else stated
        token = self.standin.tokens.issue(user, access, life, options["token_size"])
        text = "tk.nobody-knows-it" if self.take("bad_token") else token.text
        answer = {name: text for name in ("token", "access_token")
                  if options["token_name"] in (name, "both")}
        if stated is not None:
            answer["expires_in"] = stated
        if options["issued_at"]:
            answer["issued_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(
                time.time() + options["clock_skew"]))
        if self.command == "POST":
            answer["scope"] = " ".join(f"{k}:{n}:{','.join(sorted(a))}" for k, n, a in access)
        if offline and user:
            answer["refresh_token"] = self.standin.tokens.refresh_token(user)
        return self.respond_json(200, answer)


class TokenHandler(TokenAnswers):
    """The token server's own port."""

    host = "token"

    def serve(self):
        self.record.kind = "token" if self.path.partition("?")[0] == "/token" else "other"
        self.standin.log.start(self.record)
        self.answer_with(self.give)
