"""Connections to a server: trusted certificates, the proxy, and the diagnosis of a failed connection."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import certifi

from qualgate.errors import UsageError

HANDSHAKE = 3.0  # s in which a server shows that it speaks TLS
# What OpenSSL calls the first bytes of a server that speaks no TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def trusted() -> ssl.SSLContext:
    """Return a context that trusts the authorities of SSL_CERT_FILE and SSL_CERT_DIR, else those that Mozilla trusts.
    UsageError for a file or folder that cannot be read."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if folder and not any(Path(path).is_dir() for path in folder.split(os.pathsep)):
        raise UsageError(f"SSL_CERT_DIR names {folder}, which is no folder: mend the variable, or unset it.")
    try:
        return ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    except OSError as error:
        why = "holds no certificate" if isinstance(error, ssl.SSLError) else f"cannot be read ({error.strerror})"
        raise UsageError(
            f"SSL_CERT_FILE names {file}, which {why}: name a file with your authority's certificates (PEM), or unset "
            "the variable."
        ) from None


def environment_proxy(address: str) -> tuple[str, str] | None:
    """Return the variable that names a proxy for this address, and the proxy; None if none does."""
    parts = urlsplit(address)
    if proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies_environment()
    for kind in (parts.scheme, "all"):
        if proxy := proxies.get(kind):
            return max(name for name in os.environ if name.lower() == f"{kind}_proxy"), proxy
    return None


def about_proxy(address: str, *, used: bool) -> str:
    """Explain the role of the environment's proxy in a failed connection; "" if it names none."""
    if (proxy := environment_proxy(address)) is None:
        return ""
    if used:
        return f"It was asked through the proxy that {proxy[0]} names"
    return f"{proxy[0]} is set and not used: `trust_env: true` beside `endpoint` asks through that proxy"


async def speaks_tls(address: str) -> bool:
    """Return whether the server at a plain address accepts a TLS handshake. Nothing else is sent to it."""
    parts, context = urlsplit(address), ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no word is sent over it
    try:
        async with asyncio.timeout(HANDSHAKE):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, ssl=context)
    except (OSError, ValueError):
        return False
    writer.transport.abort()
    return True


def tls_advice(error: BaseException) -> str:
    """Return what to do about a secure connection that failed."""
    if getattr(error, "reason", "") in _PLAIN:
        return "The server speaks no TLS at this port: write `endpoint: http://…`, or the port that does"
    if isinstance(error, ssl.CertificateError):  # that of a host that it is not for, or of no known authority
        file = os.environ.get("SSL_CERT_FILE")
        authority = f"SSL_CERT_FILE names {file}" if file else "name the file of your own authority in SSL_CERT_FILE"
        return f"Its certificate is verified always; {authority}, or use the address that the certificate is for"
    return (
        "See in the server's log why it refused the handshake: its versions of TLS, or a certificate that it asks for"
    )
