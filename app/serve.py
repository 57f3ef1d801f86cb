"""`python -m qualgate_app.serve PORT`: the dashboard's server, for `qualgate dashboard`, and what browsers hold it to.

It ends when its standard input does: that end closes however the command that started it ends, killed too.
"""

from __future__ import annotations

import os
import re
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from threading import Thread

import streamlit as st
from qualgate_app import STREAMLIT_CONFIG
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def serve(port: int) -> None:
    """Serve the pages on this machine until standard input ends."""
    Thread(target=_end_with_input, daemon=True).start()
    app = st.App(Path(__file__).with_name("main.py"), middleware=[Middleware(Guarded, headers=security_headers())])
    app.run(config={**STREAMLIT_CONFIG, "server.port": port})


def _end_with_input() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)  # a thread cannot end the others; the store's transactions are whole or not at all


def security_headers() -> dict[str, str]:
    """Scripts are Streamlit's own alone (its page has one that stands in it, known by its hash), nothing is loaded from
    or sent to another address, and no other page may frame this one, where a click could be led to Approve."""
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
        "frame-src": "'none'",  # the pictures are pages written into their frame, which have no address
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
    """Every answer of the server with these headers, whatever made it."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self.app = app
        self.headers = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        names = {name for name, _ in self.headers}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [one for one in message["headers"] if one[0].lower() not in names]
                message = {**message, "headers": [*kept, *self.headers]}
            await send(message)

        await self.app(scope, receive, guarded)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
