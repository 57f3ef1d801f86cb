"""The rows `verdict.same`, `wire.drafted` and `kl.bounds`: a server of our own is judged as the same weights in
process, case by case; what the baseline's answers save over the wire, and what lists prove of the KL."""

from __future__ import annotations

from typing import Any

import numpy as np

from qualgate.records import Completion, Drift
from tests.benchmarks.questions import asked, asked_of
from tests.verification.goals import SERVED
from tests.verification.served.ours import Arms, arms

PER_SET, PER_SET_QUICK = 400, 2  # of seven sets
SETS = {"calls": ("tool_calls",), "text": ("arithmetic",)}
CASES, CASES_QUICK = 240, 6  # of each
MOST = {"int8": 0.25, "int4": 0.5}  # of a plain run's tokens
LISTED, LISTED_QUICK = (20, 100, 5, 1), (5,)
POSITIONS = 10_000


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the rows. quick: 14 cases of the baseline and of its int4, then 12 of int4."""
    judged, same = _same(quick)
    prompts = [one for kind in asked_of(SETS, CASES_QUICK if quick else CASES).values() for one in kind]
    variants = ("int4",) if quick else tuple(MOST)
    with arms(prompts, variants) as found:
        here = {name: found.here(name) for name in ("baseline", *variants)}
        drafted = [_drafted(found, name, [one.token_ids for one in here[name].completions]) for name in variants]
        bounds = [_bounds(found, k, here["int4"].drifts) for k in (LISTED_QUICK if quick else LISTED)]
    few = f"{len(prompts)} cases" if quick else None
    saves = all(one["share"] <= MOST[one["arm"]] and one["same"] for one in drafted)
    inside = all(one["inside"] == one["positions"] and one["same_agreement"] for one in bounds)
    positions = min(one["positions"] for one in bounds)
    return [*judged, *drafted, *bounds], [
        same,
        SERVED.row("wire.drafted", {one["arm"]: round(one["share"], 3) for one in drafted}, met=saves, few=few),
        SERVED.row("kl.bounds",
                   {"positions": positions, "outside": sum(one["positions"] - one["inside"] for one in bounds),
                    "median width by k": {one["k"]: float(f"{one['width_median']:.2g}") for one in bounds}},
                   met=inside and (quick or positions >= POSITIONS), few=few),
    ]  # fmt: skip


def _same(quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """2,800 cases of the baseline and of its int4, in process and over the wire. quick: 14. What is
    scored and judged is what is compared: text, tokens, why it ended, tokens of the prompt."""
    prompts = [one for kind in asked(PER_SET_QUICK if quick else PER_SET).values() for one in kind]
    rounds = []
    with arms(prompts, ("int4",)) as found:
        for name in ("baseline", "int4"):
            pairs = zip(found.here(name).completions, found.served(name, 0).completions, strict=True)
            other = [here.key.question for here, there in pairs if _judged(here) != _judged(there)]
            rounds.append({"arm": name, "cases": len(prompts), "other": other})
    mismatches = sum(len(one["other"]) for one in rounds)
    few = f"{len(prompts)} cases" if quick else None
    told = {"cases": len(prompts), "arms": len(rounds), "other answers": mismatches}
    return rounds, SERVED.row("verdict.same", told, met=not mismatches, few=few)


def _judged(one: Completion) -> tuple[Any, ...]:
    return one.case_hash, one.text, one.token_ids, one.finish_reason, one.prompt_tokens


def _drafted(found: Arms, name: str, plain: list[tuple[int, ...]]) -> dict[str, Any]:
    """Tokens said where the baseline's answers are drafts, against those of all answers."""
    found.served("baseline", 1)
    result = found.served(name, 1)
    tokens, said = sum(map(len, plain)), result.generation.tokens
    return {
        "arm": name,
        "tokens": tokens,
        "said": said,
        "share": said / tokens,
        "same": [one.token_ids for one in result.completions] == plain and not result.generation.because,
    }


def _bounds(found: Arms, k: int, here: tuple[Drift, ...]) -> dict[str, Any]:
    """Where the true KL of every position lies against what lists of k tokens prove."""
    found.served("baseline", k)
    listed = found.served("int4", k).drifts
    true = np.concatenate([one.kl for one in here])
    least, most = (np.concatenate(of) for of in zip(*((one.kl, one.kl_upper) for one in listed), strict=True))
    width = most - least
    return {
        "k": k,
        "positions": len(true),
        "inside": int(((least <= true) & (true <= most)).sum()),
        "same_agreement": [one.top1_differs for one in listed] == [one.top1_differs for one in here],
        "kl_mean": float(true.mean()),
        "interval_mean": [float(least.mean()), float(most.mean())],
        "width_median": float(np.median(width)),
        "width_p99": float(np.percentile(width, 99)),
    }
