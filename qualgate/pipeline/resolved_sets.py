"""Resolve what evalsets leave open: `reasoning: auto`, `dialect: auto`, and the parser of tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qualgate.config import GateFile
from qualgate.pipeline.reasoning_ways import with_ways
from qualgate.pipeline.servers_read import with_servers
from qualgate.pipeline.taught_dialects import with_dialects
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import Evalset


def resolved_sets(
    sets: Sequence[Evalset], gate: GateFile, folders: Mapping[str, ModelFolder], tell: Callable[[str], None]
) -> tuple[Evalset, ...]:
    """Return the sets with each `auto` resolved by the baseline's chat template, and with the parsers of calls.

    folders: by `ArmSpec.reads`; tell: receives the results and their reasons.
    """
    folder = folders.get(gate.baseline.reads)
    known = with_dialects(with_ways(sets, folder, tell), folder, tell)
    return with_servers(known, (gate.baseline, *gate.variants), gate, tell)
