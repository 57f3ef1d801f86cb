"""Read who is asking from a trusted proxy's header, which nobody else may set."""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hmac import compare_digest
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from qualgate.errors import UsageError
from qualgate.text.escaping import says_something, visible_line

OWN = "x-qualgate-person"  # set by `Proxy.headers` for the pages
SIGNED_BY = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]  # no shared keys
FRESH_HOURS = 8  # after signing in, a person decides for this long
LEEWAY = 60  # s between the clocks of two machines
BY_SECRET = ("secret_header", "secret_file")
BY_KEYS = ("jwks", "issuer", "audience")
Headers = list[tuple[bytes, bytes]]


class NotTrusted(Exception):
    """A header that names a person, and that the proxy did not set. The message says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The section `[proxy]` of the file of `qualgate dashboard --proxy`."""

    header: str  # names the person: an address, or a signed assertion (JWT) if there are `jwks`
    addresses: tuple[IPv4Network | IPv6Network, ...]  # from which the header may come
    session_hours: float | None  # from signing in at the proxy to the header that says so, at most; None: untold
    secret_header: str = ""  # with a plain header: the one that carries the secret
    secret: bytes = b""
    jwks: Path = Path()  # with an assertion: the file of its public keys; the proxy's owner may replace it
    issuer: str = ""
    audience: str = ""
    claim: str = "email"  # of the assertion, which names the person

    def headers(self, sent: Headers, peer: str) -> Headers:
        """Return a request's headers with the person in `OWN` in place of what the proxy sent about them. NotTrusted
        for a person whom the proxy did not name. peer: the address of the socket."""
        mine = {name.lower().encode("ascii") for name in (self.header, self.secret_header, OWN) if name}
        rest = [(name, value) for name, value in sent if name.lower() not in mine]
        if any(name.lower() == OWN.encode("ascii") for name, _ in sent):
            raise NotTrusted(f"{OWN} is the dashboard's own header")
        values = _values(sent, self.header)
        if not values:
            return rest
        try:
            known = any(ip_address(peer) in network for network in self.addresses)
        except ValueError:
            known = False
        if not known:
            raise NotTrusted(f"{self.header} names a person, and {peer or 'this socket'} may not set it")
        if len(values) > 1:
            raise NotTrusted(f"{self.header} is there {len(values)} times")
        person = (
            self._asserted(values[0]) if self.issuer else self._vouched(values[0], _values(sent, self.secret_header))
        )
        return [*rest, (OWN.encode("ascii"), json.dumps(person).encode("ascii"))]

    def _vouched(self, value: bytes, secrets: list[bytes]) -> dict[str, Any]:
        if len(secrets) != 1 or not compare_digest(secrets[0], self.secret):
            raise NotTrusted(f"{self.header} names a person without the proxy's secret in {self.secret_header}")
        identity = self._identity(value.decode("utf-8", "replace"))
        return {"identity": identity, "name": identity, "since": time.time() - (self.session_hours or 0) * 3600}

    def _asserted(self, value: bytes) -> dict[str, Any]:
        try:
            claims = jwt.decode(value, key_set(self.jwks), algorithms=SIGNED_BY).claims
            wanted = {
                "iss": {"essential": True, "value": self.issuer},
                "aud": {"essential": True, "value": self.audience},
            }
            rules: Any = {**wanted, "exp": {"essential": True}, "iat": {"essential": True}}
            jwt.JWTClaimsRegistry(leeway=LEEWAY, **rules).validate(claims)
        except (UsageError, JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            why = visible_line(str(error))[:100] or type(error).__name__
            raise NotTrusted(
                f"{self.header} holds no assertion for this dashboard that {self.jwks.name} proves: {why}"
            ) from None
        verified = claims.get("email_verified", True)  # not every provider sends it; some send it as text
        if self.claim == "email" and verified is not True and verified != "true":
            raise NotTrusted(f"{self.header} names an address that nobody verified")
        identity = self._identity(str(claims.get(self.claim) or ""))
        signed_in = claims.get("auth_time")
        if isinstance(signed_in, bool) or not isinstance(signed_in, int | float):
            hours = self.session_hours  # without them it may be made anew for each request, whoever signed in when
            signed_in = 0 if hours is None else claims["iat"] - hours * 3600
        return {"identity": identity, "name": str(claims.get("name") or identity)[:200], "since": signed_in}

    def _identity(self, value: str) -> str:
        """Return the person as `people` names them."""
        value = value.strip()
        if not says_something(value) or len(value) > 200 or not value.isprintable():
            raise NotTrusted(f"{self.header} names nobody")
        return value if "://" in value else value.lower()


def read_proxy(file: Path) -> Proxy:
    """Return the settings in a TOML file. UsageError for settings that are missing, unknown, or trust too much."""
    try:
        section = tomllib.loads(file.read_text(encoding="utf-8")).get("proxy")
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read as TOML ({error}).") from None
    found: Mapping[str, Any] = section if isinstance(section, dict) else {}
    ways = [way for way in (BY_SECRET, BY_KEYS) if any(name in found for name in way)]
    if len(ways) != 1:
        raise UsageError(
            f"{file}: the section [proxy] must prove the header by {' and '.join(BY_SECRET)}, or, for a signed "
            f"assertion, by {', '.join(BY_KEYS)}."
        )
    needed = ("header", "addresses", *ways[0], *(("session_hours",) if ways[0] is BY_SECRET else ()))
    if lacking := [name for name in needed if not found.get(name)]:
        raise UsageError(f"{file}: the section [proxy] lacks {', '.join(lacking)}.")
    if unknown := sorted(found.keys() - {*needed, "session_hours", *(("claim",) if ways[0] is BY_KEYS else ())}):
        raise UsageError(f"{file}: the section [proxy] has no {', '.join(unknown)}.")
    texts = {name: found[name] for name in found if name not in ("addresses", "session_hours")}
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise UsageError(f"{file}: {wrong[0]} is no text.")
    names = [texts[name].lower() for name in ("header", "secret_header") if name in texts]
    if len({*names}) < len(names) or not all(re.fullmatch(r"[a-z0-9-]+", name) for name in names):
        raise UsageError(f"{file}: header and secret_header must be names of two headers, such as X-Forwarded-Email.")
    hours = found.get("session_hours")
    if isinstance(hours, bool) or not isinstance(hours, int | float | None) or not 0 <= (hours or 0) < FRESH_HOURS:
        raise UsageError(
            f"{file}: session_hours is how long the proxy lets a person in without signing in again. It must be below "
            f"{FRESH_HOURS}: who signed in longer ago may not decide."
        )
    proved = _proof(file, texts)
    return Proxy(header=texts["header"], addresses=_networks(file, found["addresses"]), session_hours=hours, **proved)


def _proof(file: Path, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings by which a header is proven, with the files that they name."""
    if "jwks" in texts:
        jwks = file.parent / texts["jwks"]
        key_set(jwks)
        return {name: texts[name] for name in ("issuer", "audience", "claim") if texts.get(name)} | {"jwks": jwks}
    path = file.parent / texts["secret_file"]
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"{path}: the secret cannot be read ({error.strerror}).") from None
    if not 32 <= len(secret) <= 1_000:
        raise UsageError(f"{path}: a secret has 32 to 1,000 characters, as `openssl rand -hex 32` prints them.")
    return {"secret_header": texts["secret_header"], "secret": secret}


def key_set(path: Path) -> KeySet:
    """Return the public keys in a file (JWKS), also if it changed since. UsageError for a file that holds none."""
    try:
        return _key_set(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: the keys cannot be read ({error.strerror}).") from None
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UsageError(f"{path}: this is no set of public keys (JWKS).") from None


@cache
def _key_set(content: bytes) -> KeySet:
    found = json.loads(content)
    keys = [key for key in found["keys"] if key.get("kty") != "oct"]  # whoever reads a shared key can sign with it
    if not keys:
        raise ValueError
    return KeySet.import_key_set({"keys": keys})


def _networks(file: Path, addresses: object) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        found = tuple(ip_network(address) for address in addresses if isinstance(address, str))  # type: ignore[attr-defined]
        if len(found) == len(addresses) and all(network.prefixlen for network in found):  # type: ignore[arg-type]
            return found
    except (TypeError, ValueError):
        pass
    raise UsageError(
        f'{file}: addresses is a list of the proxy\'s own addresses, such as ["127.0.0.1", "10.0.0.0/28"].'
    )


def _values(sent: Headers, name: str) -> list[bytes]:
    return [value for key, value in sent if key.lower() == name.lower().encode("ascii")]
