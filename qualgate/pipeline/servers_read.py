"""Whose parser `tool_call.served` follows where a set does not say: that of the engine which serves the arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from qualgate.errors import UsageError
from qualgate.records import ArmSpec, Case, Evalset
from qualgate.scoring.tools.served import KEY, METRIC, SERVERS

OURS = "qualgate"  # an engine, whose server is read as vLLM is


def with_servers(sets: Sequence[Evalset], arms: Sequence[ArmSpec], tell: Callable[[str], None]) -> tuple[Evalset, ...]:
    """The sets, their cases naming the server where they named none and an arm's `engine` does.

    tell: told which server it is. UsageError where engines differ, for all arms are read one way, and for one whose
    parsers are not known.
    """
    engines = {arm.served.engine for arm in arms if arm.served is not None} - {"", OURS}
    return tuple(
        _told(item, engines, tell) if engines and METRIC in item.metrics and any(map(_untold, item.cases)) else item
        for item in sets
    )


def _untold(case: Case) -> bool:
    return KEY not in case.body and "tools" in case.body


def _told(item: Evalset, engines: set[str], tell: Callable[[str], None]) -> Evalset:
    name = min(engines)
    if len(engines) > 1 or name not in SERVERS:
        why = "whose parsers differ" if len(engines) > 1 else "whose parsers are not known here"
        raise UsageError(
            f"{item.name}: `{METRIC}` says what a server's parser executes, and the arms are served by "
            f"{' and '.join(sorted(engines))}, {why}. Declare `{KEY}` in {item.name}.yaml ({' or '.join(SERVERS)}), or "
            "leave the metric out."
        )
    tell(f"{item.name}: tool calls are read as served by {SERVERS[name].name}, for `engine: {name}` serves an arm")
    cases = (replace(case, body={**case.body, KEY: name}) if _untold(case) else case for case in item.cases)
    return replace(item, cases=tuple(cases))
