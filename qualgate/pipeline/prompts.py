"""Turn cases into prompts of one model: token ids, limits, sampling, one prompt for each repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qualgate.config import GateFile
from qualgate.engine.prompts import Renderer
from qualgate.pipeline.check_constraints import check_constraints
from qualgate.pipeline.checks import check_lengths, check_repeats
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import GREEDY, Case, Evalset, Prompt, Sampling, UnitKey
from qualgate.scoring.constraint import grammar_of
from qualgate.scoring.reasoning import way_of


def prompts_of(
    gate: GateFile, folder: ModelFolder | None, renderer: Renderer | None, sets: Sequence[Evalset]
) -> list[Prompt]:
    """Return every prompt of the run under the baseline's keys, rendered by `renderer` of `folder`. Without a renderer
    prompts have no tokens: a server tokenizes them.

    Raises UsageError for a case that cannot be rendered, or that does not fit the model's context.
    """
    cases = [case for item in sets for case in item.cases]
    of_lm_eval = {item.name for item in sets if item.lm_eval is not None}
    answered = [case for case in cases if "requests" not in case.body]
    rendered = dict(zip(map(id, answered), renderer.render(answered), strict=True)) if renderer else {}
    prompts = [
        Prompt(
            key=UnitKey("baseline", case.evalset, case.id),
            case_hash=case.hash,
            token_ids=rendered.get(id(case), ()),
            max_new_tokens=case.max_new_tokens,
            until=tuple(case.body["until"]) if "until" in case.body else None,
            requests=renderer.requests(case) if renderer and "requests" in case.body else (),
            sampling=_sampling(gate, case, case.evalset in of_lm_eval),
            reasoning=way_of(case.body),
            constraint="" if case.evalset in of_lm_eval else _constraint(case),
        )
        for case in cases
    ]
    check_repeats(gate, prompts)
    if folder is not None and renderer is not None:
        check_lengths(folder, prompts)
        check_constraints(folder, renderer, prompts)
    return [
        replace(prompt, key=replace(prompt.key, repeat=repeat)) for prompt in prompts for repeat in range(gate.repeats)
    ]


def _constraint(case: Case) -> str:
    return grammar_of(case.body["constraint"]) if "constraint" in case.body else ""


def _sampling(gate: GateFile, case: Case, of_lm_eval: bool) -> Sampling:
    """Return the sampling of a case: an lm-eval task has its own, and a case that is only read draws nothing."""
    if "requests" in case.body:
        return GREEDY
    return Sampling.of(case.body) if of_lm_eval else gate.sampling
