"""`python -m qualgate_app.serve PORT ADDRESS BASE_PATH [HOST…]`: the dashboard's server, for `qualgate dashboard`.

It sends security headers, and refuses requests for another host (DNS rebinding), because Streamlit's
`server.allowedHosts` protects only the websocket. It ends with its standard input, which closes however the parent
command ends, even if killed.
"""

from __future__ import annotations

import os
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import streamlit as st
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qualgate_app import LOGIN, STREAMLIT_CONFIG

_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
LOCAL = ("localhost", "127.0.0.1", "::1")
ALLOWED_BY = "If you meant to come by this name, start it with: qualgate dashboard --allow-host NAME"
EVERY = ("0.0.0.0", "::")  # addresses to listen on that are no host's name


def serve(port: int, address: str, base_path: str, hosts: Sequence[str], login: str = "") -> None:
    """Serve the pages until standard input ends. hosts: allowed host names besides this machine's own. login:
    file with the section `[auth]` of Streamlit's secrets."""
    Thread(target=_end_with_input, daemon=True).start()
    guard = Middleware(Guarded, headers=security_headers(), local=(*LOCAL, address), hosts=hosts)
    app = st.App(Path(__file__).with_name("main.py"), middleware=[guard])
    app.run(
        config={
            **STREAMLIT_CONFIG,
            "server.port": port,
            "server.address": address,
            "server.baseUrlPath": base_path,
            **({"secrets.files": [login]} if login else {}),
            "server.corsAllowedOrigins": [f"https://{host}" for host in hosts],  # of a proxy with another name
        }
    )


def _end_with_input() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)  # a thread cannot end the others; the store's transactions are whole or not at all


def security_headers() -> dict[str, str]:
    """Return headers that allow only Streamlit's scripts (inline ones by their hash), no other address, and no
    framing by other pages, which could redirect a click to Approve."""
    page = Path(st.__file__).with_name("static") / "index.html"
    scripts = " ".join(f"'sha256-{_digest(script)}'" for script in _INLINE.findall(page.read_text(encoding="utf-8")))
    policy = {
        "default-src": "'none'",
        "script-src": f"'self' {scripts}",
        "style-src": "'self' 'unsafe-inline'",  # Streamlit writes the style of every element into the page
        "img-src": "'self' data:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "manifest-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-src": "'none'",  # pictures are inline pages (srcdoc), which have no address
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {allowed}" for name, allowed in policy.items()),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
    }


def _digest(script: str) -> str:
    return b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii")


class Guarded:
    """Middleware that adds headers to every response and refuses requests for another host.

    Another site can let its name point at this machine (DNS rebinding); its requests then carry that name in `Host`. A
    page elsewhere that opens a connection carries its site in `Origin`. local: names of this machine. hosts: names of
    a proxy or of a container's host.
    """

    def __init__(self, app: ASGIApp, headers: dict[str, str], local: Iterable[str], hosts: Iterable[str]) -> None:
        self.app = app
        self.headers = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        self.hosts = frozenset(hosts)
        self.names = self.hosts.union(local).difference(EVERY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: by the app, or with 403 (a websocket: 1008) if it is refused."""
        names = {name for name, _ in self.headers}

        async def guarded(message: Message) -> None:
            """Send a message of the app's, with our headers in place of its own of the same names."""
            if message["type"] == "http.response.start":
                headers = [header for header in message["headers"] if header[0].lower() not in names]
                message = {**message, "headers": [*headers, *self.headers]}
            await send(message)

        if scope["type"] == "lifespan" or not (refusal := self._refusal(scope)):
            await self.app(scope, receive, guarded)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await PlainTextResponse(refusal + "\n", status_code=403)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str:
        """Return why the request is refused; "" if it is not."""
        host, origins = (
            [value.decode("latin-1") for name, value in scope["headers"] if name == header]
            for header in (b"host", b"origin")
        )
        names = [_host_name(f"//{value}") for value in host]
        if len(names) != 1 or names[0] not in self.names:
            return f"This dashboard is not called {', '.join(names) or 'nothing'}. {ALLOWED_BY}"
        for origin in origins:
            if urlsplit(origin).netloc != host[0] and _host_name(origin) not in self.hosts:
                return f"The page that asks is of another site, {_host_name(origin) or 'unnamed'}. {ALLOWED_BY}"
        return ""


def _host_name(address: str) -> str:
    """Return the host of an address without its port; "" if there is none."""
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:], os.environ.get(LOGIN, ""))
