"""Compare two answers piece by piece and mark what only one of them has.

Model text is hostile: invisible characters are made visible, and HTML output is always escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from qualgate.store.queries import Flip
from qualgate.text.escaping import visible

if TYPE_CHECKING:
    from qualgate.scoring.reasoning import Said

MOST = 3000  # pieces of both answers between their common beginning and end

_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one answer."""

    text: str
    changed: bool  # the other answer does not have it


def difference(before: str, after: str, most: int = MOST) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return both answers as spans; joined, they are the output of `visible`.

    most: with more pieces than this, all between the common beginning and end is one change. Time grows with the
    square of the pieces: at worst 2 s for 3,000, 0.2 s for 1,000.
    """
    old, new = _PIECES.findall(visible(before)), _PIECES.findall(visible(after))
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    changes = [(start, len(old) - end, start, len(new) - end)]
    if sum(map(len, (old, new))) - 2 * (start + end) <= most:
        changes = list(_changes(old[start : len(old) - end], new[start : len(new) - end], start))
    return _spans(old, [(i, j) for i, j, _, _ in changes]), _spans(new, [(k, m) for _, _, k, m in changes])


def parted(before: str, after: str) -> tuple[str, str, str]:
    """Return the common beginning and the rest of each answer, with invisible characters made visible."""
    old, new = _PIECES.findall(visible(before)), _PIECES.findall(visible(after))
    start = _common(old, new)
    return "".join(old[:start]), "".join(old[start:]), "".join(new[start:])


def parts_in(flip: Flip) -> str:
    """Return `thought` or `answer`, whichever differs first; "" if the case declares no format for thoughts."""
    from qualgate.scoring.reasoning import parted as differing  # imported late: most readers need no scorer

    return differing(*answers) if (answers := _apart(flip)) else ""


def hashes_of(flip: Flip) -> dict[str, dict[str, str]]:
    """Return the sha256 of each side's thought and of its answer; {} if the case declares no format for thoughts."""
    return {
        side: dict(zip(("thought", "answer"), answer.hashes, strict=True))
        for side, answer in zip(("baseline", "variant"), _apart(flip), strict=False)
    }


def _apart(flip: Flip) -> tuple[Said, ...]:
    from qualgate.scoring.reasoning import WAYS, split

    if flip.reasoning not in WAYS:
        return ()
    return tuple(split(text, flip.reasoning, flip.prompt) for text in (flip.baseline, flip.variant))


def marked(before: str, after: str, most: int = MOST) -> tuple[str, str]:
    """Return both answers as HTML, with what only the first has in <del>, only the second in <ins>."""
    old, new = difference(before, after, most)
    return _html("del", old), _html("ins", new)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _changes(old: Sequence[str], new: Sequence[str], start: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (i, j, k, m): pieces i to j of the old became pieces k to m of the new, both counted from `start`."""
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield start + i, start + j, start + k, start + m


def _spans(pieces: Sequence[str], changes: Sequence[tuple[int, int]]) -> tuple[Span, ...]:
    ends = [0, *(end for change in changes for end in change), len(pieces)]
    stretches = ["".join(pieces[i:j]) for i, j in pairwise(ends)]
    return tuple(Span(text, changed=bool(number % 2)) for number, text in enumerate(stretches) if text)


def _html(tag: str, spans: Sequence[Span]) -> str:
    return "".join(_marked(tag, span.text) if span.changed else escape(span.text) for span in spans) or EMPTY


EMPTY = "<i>empty answer</i>"


def _marked(tag: str, text: str) -> str:
    # A changed line end would be an invisible mark.
    return f"<{tag}>{escape(text).replace(chr(10), '↵' + chr(10))}</{tag}>"
