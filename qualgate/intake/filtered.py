"""Tell of a sample of lm-eval's whether its answer is empty, or right in a form that the task's filter did not find."""

from __future__ import annotations

import re
from typing import Any, Literal

from qualgate.escaping import says_something

READ = 300  # characters of an answer's last line: where it commits itself
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,30}(?:\.\d{1,30})?(?![\w]|\.\d)", re.ASCII)
NOTHING = ("", "[invalid]", "[]", "None")  # what filters leave that found nothing


def written_texts(sample: dict[str, Any]) -> list[str]:
    """What the model wrote; [] where its likelihoods were asked."""
    groups = sample.get("resps")
    each = [group if isinstance(group, list) else [group] for group in groups] if isinstance(groups, list) else []
    return [text for group in each for text in group if isinstance(text, str)]


def unanswered(sample: dict[str, Any], value: float | None) -> Literal["", "empty", "unfiltered"]:
    """value: the sample's score."""
    texts = written_texts(sample)
    if not texts:
        return ""
    if not any(map(says_something, texts)):
        return "empty"
    filtered = sample.get("filtered_resps")
    left = filtered[0] if isinstance(filtered, list) and filtered else filtered
    found_nothing = left is None or left == [] or (isinstance(left, str) and left.strip() in NOTHING)
    return "unfiltered" if found_nothing and not value and _commits(texts[0], sample.get("target")) else ""


def _commits(text: str, target: Any) -> bool:
    """Whether the answer's last line states the reference; of GSM8K's references what stands behind `####`."""
    reference = str(target).rpartition("####")[2].strip().strip("()").replace(",", "")
    end = next((line for line in reversed(text.splitlines()) if says_something(line)), "")[-READ:].replace(",", "")
    if not reference or len(reference) > READ:
        return False
    if _NUMBER.fullmatch(reference):
        numbers = _NUMBER.findall(end)
        return bool(numbers) and float(numbers[-1]) == float(reference)
    before, after = r"(?<!\w)", r"(?!\w)"
    if len(reference) == 1 and reference.isalpha():
        before = r"""(?:^|[(:*={>#,'"]|\b(?:is|[Aa]nswer|ANSWER|[Oo]ption|[Tt]herefore|[Tt]hus))\s*\(?\**"""
        after = r"""(?=[).:*;}\]<'"]|\s*$|\s+is the\b)"""
    return re.search(before + re.escape(reference) + after, end) is not None
