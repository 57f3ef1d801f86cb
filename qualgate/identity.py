"""Content identities: what makes two things the same is their content, never their name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys, no spaces, UTF-8 text, NaN refused (ValueError)."""
    return _CANONICAL.encode(value)


def sha256_text(text: str) -> str:
    """sha256 of the UTF-8 bytes, 64 lowercase hex digits. A lone surrogate keeps its code (surrogatepass)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def content_hash(value: Any) -> str:
    """sha256 of the canonical JSON of a plain value."""
    return sha256_text(canonical_json(value))


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def case_hash(case: dict[str, Any]) -> str:
    """Identity of a case: its JSON without `tags` (a label must not break a pairing)."""
    return content_hash({key: value for key, value in case.items() if key != "tags"})


def question_hash(case: dict[str, Any]) -> str:
    """What a case asks, whatever it is called and however the answer is scored; "" for a body that asks nothing.

    A model gives one answer to one question: two cases that ask it are one observation.
    """
    asked = {key: case.get(key) for key in ("messages", "prompt", "tools", "requests")}
    return content_hash(asked) if any(asked.values()) else ""
