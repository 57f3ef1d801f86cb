"""Detect a streamed answer that was doubled, shuffled, mixed or lost; without token ids, only its pieces show it.

Two equal pieces in a row may be a repeat or two words; arguments that are no JSON may be the model's own. So such an
answer is requested again, whole, which counts if the stream was the same with a repeat or in another order. Pieces of
several answers never make one, and an empty answer counts only if the whole one is empty too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

from qualgate.text.numbers import counted

Doubt = Literal["", "mixed", "empty", "rearranged"]
MIXED: Doubt = "mixed"  # its pieces have the ids of several answers
EMPTY: Doubt = "empty"  # it is empty, although its finish reason or count shows content
REARRANGED: Doubt = "rearranged"  # pieces may have come twice or in another order
Content = tuple[str, str, Sequence[tuple[str, str]]]  # thought, text, and of each call name and arguments


def doubtful(texts: Iterable[Sequence[str]], arguments: Iterable[Sequence[str]]) -> bool:
    """Return whether pieces may have come twice or in another order. texts: of the answer and its thought; arguments:
    of each call."""
    calls = [pieces for pieces in map(_speaking, arguments) if len(pieces) > 1]
    return any(map(_doubled, [*map(_speaking, texts), *calls])) or not all(is_json("".join(pieces)) for pieces in calls)


def _speaking(pieces: Sequence[str]) -> list[str]:
    return [piece for piece in pieces if piece]


def _doubled(pieces: Sequence[str]) -> bool:
    """Return whether pieces of a stream repeat each other.

    A piece repeats the one before it, or begins with all before it; or each begins with the last.
    """
    if any(before == after for before, after in pairwise(pieces)):
        return True
    grows = len(pieces) > 2 or len("".join(pieces[:1])) > 2  # "1" and "10" may well be two pieces
    if len(pieces) > 1 and grows and all(after.startswith(before) for before, after in pairwise(pieces)):
        return True
    all_of_it, sizes = "".join(pieces), [0, *accumulate(map(len, pieces))]
    return any(
        len(piece) >= size and piece.startswith(all_of_it[:size])
        for size, piece in zip(sizes[2:], pieces[2:], strict=False)
    )


def is_json(text: str) -> bool:
    """Return whether a call's arguments are complete."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def rearranged(streamed: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Return whether the stream has the whole answer's content, but repeated, in another order, or with several calls
    as one. Each: the number of tokens that the server counts, thought, text and calls. Outer blanks do not count."""
    if streamed[0] != whole[0]:
        return False
    streamed, whole = _without_blanks(streamed), _without_blanks(whole)
    streamed_json, whole_json = json.dumps(streamed), json.dumps(whole)
    if len(streamed[3]) < len(whole[3]):
        streamed_json, whole_json = json.dumps(_joined(streamed)), json.dumps(_joined(whole))
    return streamed != whole and Counter(whole_json) <= Counter(streamed_json)


def _without_blanks(answer: Sequence[Any]) -> tuple[Any, ...]:
    count, thought, text, calls = answer
    return count, thought.strip(), text.strip(), calls


def _joined(answer: Sequence[Any]) -> tuple[Any, ...]:
    """Return an answer with its calls as one: their names, each once, and their arguments."""
    _, thought, text, calls = answer
    return thought, text, sorted({name for name, _ in calls}), "".join(arguments for _, arguments in calls)


def otherwise(streamed: Content, whole: Content) -> str:
    """Return in words how a streamed answer differs from the whole one, "" if it does not. Outer blanks, the spelling
    of a call's JSON, and a thought that only the stream has are no differences."""
    (thought, text, calls), (whole_thought, whole_text, whole_calls) = map(_plain, (streamed, whole))
    if not (whole_text or whole_calls or whole_thought):  # it answers by streams alone
        return ""
    if calls != whole_calls:
        fewer = f"{counted(len(calls), 'call')} in place of {len(whole_calls)}"
        return fewer if len(calls) != len(whole_calls) else "other calls"
    if text != whole_text:
        return "another text"
    return "another thought" if whole_thought not in ("", thought) else ""


def misput(streamed: Content, whole: Content) -> bool:
    """Return whether a streamed answer that differs from the whole one was certainly put together wrongly: only it
    repeats a text or thought, or has arguments that are no JSON."""
    streamed_parts, whole_parts = _plain(streamed), _plain(whole)
    repeats = any(
        _again(part) and not _again(whole_part)
        for part, whole_part in zip(streamed_parts[:2], whole_parts[:2], strict=True)
    )
    return repeats or (_broken(streamed) and not _broken(whole))


def _plain(answer: Content) -> tuple[str, str, list[tuple[str, Any]]]:
    thought, text, calls = answer
    return thought.strip(), text.strip(), [(name, _read(arguments)) for name, arguments in calls]


def _read(arguments: str) -> Any:
    return json.loads(arguments or "{}") if is_json(arguments or "{}") else arguments


def _again(text: str) -> bool:
    """Return whether the text's second half equals its first."""
    half = len(text) // 2
    return half > 0 and text[:half] == text[-half:] and not text[half:-half].strip()


def _broken(answer: Content) -> bool:
    return not all(is_json(arguments or "{}") for _, arguments in answer[2])
