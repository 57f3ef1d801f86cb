"""Tell misspelt keys of a JSON object from keys that users added for themselves.

`clustr` for `cluster` would be ignored, and dependent cases would count as independent. So an unknown key near a known
one is refused if the known one is absent; any other key is left to its writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

NEAR = 2  # most edits of a misspelling; 1 for short keys, since two make `test`, `text` or `rank` of `task`
SHORT = 5  # most letters of a short key
OWN = frozenset({"metadata", "score", "scores", "mode"})  # never misspellings, although near `scorer` and `model`


def is_own(key: str) -> bool:
    """Whether a key is marked as the writer's own: `metadata`, `x-…`."""
    return key in OWN or key.startswith("x-")


def misspelt(keys: frozenset[str], known: frozenset[str], absent: frozenset[str]) -> Iterator[str]:
    """Yield a line for each unknown key at most `NEAR` edits from an absent known one.

    A swap of neighbouring letters is one edit (optimal string alignment distance); case does not count.
    """
    for key in sorted(keys - known):
        meant = None if is_own(key) else _meant(key, absent - keys)
        if meant is not None:
            yield (
                f"`{key:.60}` is read by nothing; did you mean `{meant}`, which is missing? A key of your own may be "
                f"called `x-{key:.60}`, or stand in `metadata`"
            )


@lru_cache(maxsize=1024)
def _meant(key: str, absent: frozenset[str]) -> str | None:
    near = [(_edits(key.casefold(), name), name) for name in sorted(absent) if abs(len(key) - len(name)) <= NEAR]
    fitting = [
        (edits, name) for edits, name in near if edits <= (0 if len(name) < 4 else 1 if len(name) <= SHORT else NEAR)
    ]
    return min(fitting)[1] if fitting else None


def _edits(left: str, right: str) -> int:
    """Return the optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours."""
    before, last = list[int](), list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        row = [i]
        for j, b in enumerate(right, 1):
            least = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, left[i - 2]) == (right[j - 2], b):
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
