"""Prompts for a load: the cases of the gate file's evalsets, as a run asks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.config import GateFile
from qualgate.engine.prompts import Renderer
from qualgate.errors import UsageError
from qualgate.pipeline.load.trace import Arrival
from qualgate.pipeline.named_sets import load_set, set_refs
from qualgate.pipeline.prompts import prompts_of
from qualgate.pipeline.served_arms import check_cases, of_server, tokenizers_of
from qualgate.records import ArmSpec, Prompt, UnitKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPrompts:
    """An arm and its prompts, which have the same order for all arms."""

    arm: ArmSpec
    prompts: tuple[Prompt, ...]


def prompts_of_arms(gate: GateFile) -> tuple[ArmPrompts, ...]:
    """Return the served arms with their prompts. UsageError if no arm is served, or a case cannot be asked."""
    arms = [arm for arm in (gate.baseline, *gate.variants) if arm.served is not None]
    if not arms:
        raise UsageError(
            f"{gate.path.name}: no arm is served, so none can be loaded. Give one an `endpoint` (a server that runs) "
            "or `serve` (a command that starts one)."
        )
    sets = [load_set(ref, gate.path.parent) for ref in set_refs(gate)]
    for item in sets:
        check_cases(item, ", ".join(arm.name for arm in arms))
    cases = {(item.name, case.id): case for item in sets for case in item.cases}
    folders, by_arm = tokenizers_of(arms), list[ArmPrompts]()
    renderers = {name: Renderer(folder.files) for name, folder in folders.items()}
    for arm in arms:
        prompts = prompts_of(replace(gate, repeats=1), folders.get(arm.reads), renderers.get(arm.reads), sets)
        of_arm = (
            replace(
                prompt,
                key=UnitKey(arm.name, prompt.key.evalset, prompt.key.case_id),
                asked=of_server(cases[prompt.key.evalset, prompt.key.case_id], arm),
            )
            for prompt in prompts
        )
        by_arm.append(ArmPrompts(arm=arm, prompts=tuple(of_arm)))
    return tuple(by_arm)


def places_in(prompts: Sequence[Prompt], trace: Sequence[Arrival], where: str) -> Mapping[int, int]:
    """Return arrival number → index of its prompt, for arrivals that name a case. UsageError for a case in no evalset,
    or in several. where: the trace's name."""
    indices: dict[tuple[str, str], list[int]] = {}
    for index, prompt in enumerate(prompts):
        indices.setdefault((prompt.key.evalset, prompt.key.case_id), []).append(index)
        indices.setdefault(("", prompt.key.case_id), []).append(index)
    by_number: dict[int, int] = {}
    for number, arrival in enumerate(trace):
        if not arrival.case:
            continue
        matching = indices.get((arrival.evalset, arrival.case), [])
        if len(matching) != 1:
            named = f"{arrival.evalset}/{arrival.case}" if arrival.evalset else arrival.case
            fault = "several evalsets have; add `evalset`" if matching else "no evalset of the gate file has"
            raise UsageError(f"{where}: it asks the case {named!r:.120}, which {fault}")
        by_number[number] = matching[0]
    return by_number
