"""Detect lm-eval samples whose answer is empty, or right in a form that the task's filter missed."""

from __future__ import annotations

import re
from typing import Any, Literal

from qualgate.text.escaping import says_something

READ = 300  # characters of an answer's last line: where it commits itself
_NUMBER = re.compile(r"(?<![\w.])(?<!\d,)-?\d{1,30}(?:\.\d{1,30})?(?!\w|[.,]\d)", re.ASCII)
_THOUSANDS = re.compile(r"(?<![\w.,])-?[1-9]\d{0,2}(?:,\d{3})+(?![\d,])", re.ASCII)
_DENIED = re.compile(
    r"\b(?:no|not|never|neither|nor|none|cannot|without|wrong|incorrect|false|except|instead|rather than|nicht|"
    r"kein\w*|falsch|pas|non|ni|nunca|n[ãa]o|нет|не)\b|n['’]t\b|[不没非無]|ない|아니|ません|≠|!=",
    re.IGNORECASE,
)
NOTHING = ("", "[invalid]", "[]", "None")  # output of filters without a match


def written_texts(sample: dict[str, Any]) -> list[str]:
    """Texts that the model wrote; [] for likelihood requests."""
    groups = sample.get("resps")
    each = [group if isinstance(group, list) else [group] for group in groups] if isinstance(groups, list) else []
    return [text for group in each for text in group if isinstance(text, str)]


def unanswered(sample: dict[str, Any], value: float | None) -> Literal["", "empty", "unfiltered"]:
    """Classify the sample's answer. value: the sample's score."""
    texts = written_texts(sample)
    if not texts:
        return ""
    if not any(map(says_something, texts)):
        return "empty"
    filtered = sample.get("filtered_resps")
    extracted = filtered[0] if isinstance(filtered, list) and filtered else filtered
    found_nothing = (
        extracted is None or extracted == [] or (isinstance(extracted, str) and extracted.strip() in NOTHING)
    )
    return "unfiltered" if found_nothing and not value and states(texts[0], sample.get("target")) else ""


def states(text: str, target: Any) -> bool:
    """Whether the answer's last line states the reference without a negation; of GSM8K's references, the part after
    `####`."""
    reference = _plain(str(target).rpartition("####")[2].strip().strip("()"))
    line = next((line for line in reversed(text.splitlines()) if says_something(line)), "")
    if not reference or len(reference) > READ:
        return False
    end = _plain(line[-READ:])
    if _NUMBER.fullmatch(reference):
        numbers = _NUMBER.findall(end)
        return bool(numbers) and float(numbers[-1]) == float(reference) and not _DENIED.search(line)
    before, after = r"(?<!\w)", r"(?!\w)"
    if len(reference) == 1 and reference.isalpha():
        before = r"""(?:^|[(:*={>#,'"]|\b(?:is|[Aa]nswer|ANSWER|[Oo]ption|[Tt]herefore|[Tt]hus))\s*\(?\**"""
        after = r"""(?=[).:*;}\]<'"]|\s*$|\s+is the\b)"""
    stated = re.search(before + re.escape(reference) + after, end)
    return stated is not None and not _DENIED.search(line[:-READ] + end[: stated.start()] + " … " + end[stated.end() :])


def _plain(text: str) -> str:
    """Remove commas between groups of three digits."""
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
