"""The row `verdict.same`: a server of our own is judged as the same weights in process, case by case."""

from __future__ import annotations

from typing import Any

from qualgate.bench.questions import asked
from qualgate.records import Completion
from tests.verification.goals import SERVED
from tests.verification.served.ours import arms

PER_SET, PER_SET_QUICK = 400, 2  # of seven sets


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row: 2,800 cases of the baseline and of its int4, in process and over the wire. quick: 14. What is
    scored and judged is what is compared: text, tokens, why it ended, tokens of the prompt."""
    prompts = [one for kind in asked(PER_SET_QUICK if quick else PER_SET).values() for one in kind]
    rounds = []
    with arms(prompts, ("int4",)) as found:
        for name in ("baseline", "int4"):
            pairs = zip(found.here(name).completions, found.served(name, 0).completions, strict=True)
            other = [here.key.question for here, there in pairs if _judged(here) != _judged(there)]
            rounds.append({"arm": name, "cases": len(prompts), "other": other})
    mismatches = sum(len(one["other"]) for one in rounds)
    few = f"{len(prompts)} cases only (--quick)" if quick and not mismatches else None
    told = {"cases": len(prompts), "arms": len(rounds), "other answers": mismatches}
    return rounds, [SERVED.row("verdict.same", told, met=not mismatches, unmet_because=few)]


def _judged(one: Completion) -> tuple[Any, ...]:
    return one.case_hash, one.text, one.token_ids, one.finish_reason, one.prompt_tokens
