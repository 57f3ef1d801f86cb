"""Choose the tool parser for `tool_call.served`: the arms' servers themselves, or a server's parser of texts.

This is settled before anything is generated: without a parser the metric is null, and no rule can be proven by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.records import ArmSpec, Case, Evalset
from qualgate.scoring.tools.case_faults import SERVED_BY
from qualgate.scoring.tools.served import METRIC, NoParsers, server_version

ADVICE = "Write `served_by: {engine: vllm, python: PATH}` (or sglang), leave the metric out, or serve every arm"


def with_servers(
    sets: Sequence[Evalset], arms: Sequence[ArmSpec], gate: GateFile, tell: Callable[[str], None]
) -> tuple[Evalset, ...]:
    """Return the sets with the parser of texts in their cases: their own, else the gate file's `served_by`, and none if
    the arms' servers return calls themselves.

    tell: receives notes on the parser. Raises UsageError for a rule on the metric without a parser, for arms with
    different parsers, and for an environment that cannot be used.
    """
    named_sets = tuple(read_by(item, arms, gate.served_by) for item in sets)
    ruled = any(rule.metric == METRIC for rule in gate.policy.rules)
    for item in named_sets:
        if METRIC in item.metrics:
            _check(item, _return_calls(arms), ruled, tell)
    servers_held(named_sets, tell)
    return named_sets


def read_by(item: Evalset, arms: Sequence[ArmSpec], served_by: Mapping[str, str] | None) -> Evalset:
    """Return the set with the parser of texts in its cases; none if the arms' servers return calls themselves."""
    if METRIC not in item.metrics:
        return item
    silent = _return_calls(arms) == {True}
    return replace(item, cases=tuple(_with_parser(case, None if silent else served_by, silent) for case in item.cases))


def _return_calls(arms: Sequence[ArmSpec]) -> set[bool]:
    return {arm.served is not None and not arm.served.tokenizer for arm in arms}


def _with_parser(case: Case, served_by: Mapping[str, str] | None, silent: bool) -> Case:
    if "tools" not in case.body or (not silent and (SERVED_BY in case.body or served_by is None)):
        return case
    body = {key: value for key, value in case.body.items() if key != SERVED_BY}
    return replace(case, body=body | ({SERVED_BY: dict(served_by)} if served_by else {}))


def _check(item: Evalset, own_calls: set[bool], ruled: bool, tell: Callable[[str], None]) -> None:
    """Check and report who reads tool calls for the metric in this set. own_calls: whether an arm's server returns
    calls itself, for each of the arms; ruled: a rule names the metric. Raises UsageError if arms differ in that, or
    if a rule needs a parser and a case has none."""
    if len(own_calls) > 1:
        raise UsageError(
            f"{item.name}: some arms' servers give their own tool calls and others give texts, which `{METRIC}` cannot "
            "hold against each other. Serve every arm without `tokenizer`, or none, or leave the metric out."
        )
    if own_calls == {True}:
        tell(f"{item.name}: `{METRIC}` is decided by the calls that the arms' servers give themselves")
    elif unread := [case.id for case in item.cases if "tools" in case.body and SERVED_BY not in case.body]:
        fault = f"{item.name}: `{METRIC}` of {unread[0]} is null, for nobody says what a server executes of a text"
        if ruled:
            raise UsageError(f"{fault}, and a rule names it. {ADVICE}.")
        tell(f"{fault}. {ADVICE}")


def servers_held(sets: Sequence[Evalset], tell: Callable[[str], None] = lambda line: None) -> tuple[str, ...]:
    """Return the versions of the servers whose parsers read these sets. Raises UsageError, naming the set, for one that
    cannot be used on this machine. tell: receives a line for each parser."""
    versions: dict[tuple[str, str], str] = {}
    for item in sets:
        for parser in (
            case.body[SERVED_BY] for case in item.cases if METRIC in item.metrics and SERVED_BY in case.body
        ):
            key = (parser["engine"], parser["python"])
            if key not in versions:
                tell(f"{item.name}: texts are read by the tool parsers of {parser['engine']} in {parser['python']}")
                versions[key] = _version(item, parser)
    return tuple(sorted({*versions.values()}))


def _version(item: Evalset, parser: Mapping[str, str]) -> str:
    try:
        return server_version(parser)
    except NoParsers as error:
        raise UsageError(f"evalset {item.name}: `{SERVED_BY}`: {error}. Correct it, or leave `{METRIC}` out.") from None
