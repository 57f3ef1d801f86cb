"""Names of people and models as they are compared: what looks the same is the same."""

from __future__ import annotations

import unicodedata


def folded(name: str) -> str:
    """Return a name without letter case, blanks, invisible marks and other forms of its characters."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(c for c in plain if not c.isspace() and unicodedata.category(c) != "Cf")
