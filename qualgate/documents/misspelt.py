"""Keys of a JSON object that nothing reads: a slip of the pen is told from a key of somebody's own.

`clustr` for `cluster` would be ignored, and cases that depend on each other would count as many. So an unknown key that
is near a known one is refused where that one is absent; any other is its writer's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

NEAR = 2  # edits; 1 where the right key is short, for two of `task` are half of it: `test`, `text`, `rank`
SHORT = 5  # letters
OWN = frozenset({"metadata", "score", "scores", "mode"})  # words of their own, however near `scorer` and `model` are


def is_own(key: str) -> bool:
    """A key that is said to be its writer's: `metadata`, `x-…`."""
    return key in OWN or key.startswith("x-")


def misspelt(keys: frozenset[str], known: frozenset[str], absent: frozenset[str]) -> Iterator[str]:
    """A line for each of `keys` that is not known and at most `NEAR` edits from one that is absent.

    Letters beside each other that changed places are one edit (optimal string alignment); capitals are none.
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
    near = [(_edits(key.casefold(), one), one) for one in sorted(absent) if abs(len(key) - len(one)) <= NEAR]
    fitting = [
        (edits, one) for edits, one in near if edits <= (0 if len(one) < 4 else 1 if len(one) <= SHORT else NEAR)
    ]
    return min(fitting)[1] if fitting else None


def _edits(one: str, other: str) -> int:
    """Insertions, deletions, substitutions and exchanges of neighbours that make one of the other."""
    before, last = list[int](), list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            least = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, one[i - 2]) == (other[j - 2], b):
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
