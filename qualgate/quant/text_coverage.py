"""How far calibration texts K cover traffic texts T: n-grams, strata, and what must not be shared. Needs no torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from qualgate.records import Case
from qualgate.records.identity import content_hash

LEAK_WORDS = 13  # in a row, as in GPT-3's contamination study (arXiv 2005.14165, appendix C)
EXPECTED = 5  # calibration cases that a stratum must lead one to expect before its count says anything
RARER = "(rarer)"
_LANGUAGE = "language:"  # tag, such as language:de

# A word; in scripts that put no space between words, a sign.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One case as the model reads it: its prompt, then its reference answer."""

    id: str
    task: str
    token_ids: tuple[int, ...]
    words: tuple[str, ...]  # of question and answer, see `words_of`
    content: str  # hash of conversation, tools and answer, whatever the case is called
    language: str = "-"
    tools: tuple[str, ...] = ()  # name and schema of each tool offered, as text

    @property
    def stratum(self) -> tuple[str, str, str, str]:
        """Task, language, length bucket (tokens, to the next power of two), the tools offered."""
        bucket = 1 << max(0, len(self.token_ids) - 1).bit_length()
        return self.task, self.language, f"<={bucket}", " ".join(sorted(self.tools)) or "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramCoverage:
    """share: of T's n-grams, how many, counted with repeats, stand in K. unseen: Good-Turing N1 / N of K itself.

    Index 0 is n = 1. None where there is no n-gram to count.
    """

    share: tuple[float | None, ...]
    unseen: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrataCoverage:
    """min_ratio: the smallest share in K over share in T; divergence: Jensen-Shannon, nats, 0 to ln 2."""

    strata: int  # of T, after pooling
    min_ratio: float | None
    least_covered: str
    divergence: float | None
    tools: float | None  # of T's offered tools, counted with repeats, the share whose schema K offers too


@dataclass(frozen=True, slots=True, kw_only=True)
class Leakage:
    """What both sides share and must not: runs of 13 words, and whole cases."""

    grams: int  # different runs of LEAK_WORDS words that stand on both sides
    cases: tuple[str, ...]  # of T, that hold one or are the same case
    same: int  # of these, cases with the same conversation, tools and answer


def reading_of(case: Case, token_ids: tuple[int, ...] = ()) -> Reading:
    """Return what counts of `case`, which a model reads as `token_ids`. A system message says the same to all, so its
    words are no leak."""
    body = case.body
    messages = body.get("messages", [{"role": "user", "content": body.get("prompt", "")}])
    contents = [message["content"] for message in messages if message["role"] != "system"]
    return Reading(
        id=f"{case.evalset}/{case.id}",
        task=case.task,
        token_ids=token_ids,
        words=words_of([*contents, str(body.get("answer", ""))]),
        content=content_hash([messages, body.get("tools", []), body.get("answer")]),
        language=next((tag.removeprefix(_LANGUAGE) for tag in case.tags if tag.startswith(_LANGUAGE)), "-"),
        tools=tuple(_tool(tool) for tool in body.get("tools", [])),
    )


def _tool(tool: dict[str, Any]) -> str:
    """A tool by name and the hash of what it takes: two tools of one name with other arguments are two."""
    function = tool.get("function", tool)
    return f"{function.get('name')}:{content_hash(function)[:8]}"


def words_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The words of `texts` one after the other, without signs and letter case: what leakage is counted on."""
    return tuple(_WORD.findall("\n".join(texts).lower()))


def ngram_coverage(calibration: Sequence[Reading], traffic: Sequence[Reading]) -> NgramCoverage:
    """Compare n-grams of tokens for n = 1, 2, 3, never across the border of two cases."""
    share: list[float | None] = []
    unseen: list[float | None] = []
    for n in (1, 2, 3):
        known_grams = Counter(gram for case in calibration for gram in _grams(case.token_ids, n))
        met = Counter(gram for case in traffic for gram in _grams(case.token_ids, n))
        share.append(_ratio(sum(count for gram, count in met.items() if gram in known_grams), met.total()))
        unseen.append(_ratio(sum(count == 1 for count in known_grams.values()), known_grams.total()))
    return NgramCoverage(share=tuple(share), unseen=tuple(unseen))


def strata_coverage(calibration: Sequence[Reading], traffic: Sequence[Reading]) -> StrataCoverage:
    """Compare the shares of task x language x length bucket x tools.

    A stratum so rare in T that K would hold fewer than EXPECTED of it is pooled with the others of its task, and what
    is still as rare with the rest: otherwise the smallest ratio would be that of a single odd case, nearly always 0.
    """
    pool = _pooled([case.stratum for case in traffic], len(calibration))
    in_k = Counter(pool(case.stratum) for case in calibration)
    in_t = Counter(pool(case.stratum) for case in traffic)
    ratios = {name: in_k[name] / in_k.total() / (count / in_t.total()) for name, count in in_t.items() if in_k.total()}
    least = min(ratios, key=lambda name: (ratios[name], name), default="")
    offered = Counter(tool for case in traffic for tool in case.tools)
    known_tools = {tool for case in calibration for tool in case.tools}
    return StrataCoverage(
        strata=len(in_t),
        min_ratio=ratios.get(least),
        least_covered=least,
        divergence=_jensen_shannon(in_k, in_t),
        tools=_ratio(sum(count for tool, count in offered.items() if tool in known_tools), offered.total()),
    )


def leakage(calibration: Sequence[Reading], traffic: Sequence[Reading]) -> Leakage:
    """Find what stands in both, on words: a shared template of tools or of the chat is no leak, a shared question is.

    A text of fewer than LEAK_WORDS words counts as one run.
    """
    known_grams = {gram for case in calibration for gram in _leak_grams(case.words)}
    contents = {case.content for case in calibration}
    shared: set[tuple[str, ...]] = set()
    cases, same_contents = [], 0
    for case in traffic:
        grams = known_grams.intersection(_leak_grams(case.words))
        shared |= grams
        same_contents += case.content in contents
        if grams or case.content in contents:
            cases.append(case.id)
    return Leakage(grams=len(shared), cases=tuple(cases), same=same_contents)


def _grams(items: Sequence, n: int) -> Iterable[tuple]:
    return (tuple(items[start : start + n]) for start in range(len(items) - n + 1))


def _leak_grams(words: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    return _grams(words, LEAK_WORDS) if len(words) > LEAK_WORDS else [words] if words else []


def _pooled(strata: Sequence[tuple[str, str, str, str]], calibration_cases: int) -> Callable[[tuple], str]:
    """Return a function from a stratum to the pool in which it is counted, given the strata of the traffic."""
    enough = EXPECTED / max(calibration_cases, 1) * len(strata)
    common = {stratum for stratum, count in Counter(strata).items() if count >= enough}
    rare_by_task = Counter(stratum[0] for stratum in strata if stratum not in common)
    tasks = {task for task, count in rare_by_task.items() if count >= enough}

    def place(stratum: tuple) -> str:
        if stratum in common:
            return " / ".join(stratum)
        return f"{stratum[0]} / {RARER}" if stratum[0] in tasks else RARER

    return place


def _jensen_shannon(left: Mapping[str, int], right: Mapping[str, int]) -> float | None:
    """Return the Jensen-Shannon divergence of two histograms, in nats. None when one is empty."""
    totals = sum(left.values()), sum(right.values())
    if not all(totals):
        return None
    total = 0.0
    for name in sorted({*left, *right}):
        shares = left.get(name, 0) / totals[0], right.get(name, 0) / totals[1]
        middle = sum(shares) / 2
        total += sum(share * log(share / middle) for share in shares if share) / 2
    return max(0.0, total)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
