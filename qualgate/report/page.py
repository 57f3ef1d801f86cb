"""An HTML page whose security policy keeps it from running or loading anything."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256


def page(title: str, style: str, body: str, schemes: str = "light") -> str:
    """Return the page. Its security policy forbids scripts, pictures, frames, forms, every address, and all style but
    `style`. title, body: HTML already. schemes: the browser's colour schemes that the style supports."""
    digest = b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{schemes}"><meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style></head><body>{body}</body></html>
"""
