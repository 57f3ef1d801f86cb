"""Served arms before a run: probes of their servers, and checks of the gate file.

A server returns tokens and texts, and some return log-probs for drift. Its times and memory are not measured, so a rule
on these could only end undecided: it is refused before anything is generated.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from qualgate.config import GateFile
from qualgate.errors import EvidenceMissing, NotInThisVersion, UsageError, close_names
from qualgate.quant.model_folder import ModelFolder, read_tokenizer_folder
from qualgate.records import (
    NOISE,
    ArmSpec,
    Case,
    Evalset,
    Job,
    JobFailure,
    JobResult,
    Plan,
    Probe,
    Rule,
)
from qualgate.records.metrics import METRICS
from qualgate.records.served import CACHE, STREAM
from qualgate.scoring.tools.dialects.registry import AUTO
from qualgate.scoring.tools.strict import dialect_of
from qualgate.served.asked import asked_of
from qualgate.served.declared import declared
from qualgate.served.engines import PROFILES
from qualgate.served.launch import check_programs
from qualgate.served.ledger import Ledger
from qualgate.served.local_weights import weights_of
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

Running = Callable[[Sequence[Job]], Iterator[JobResult | JobFailure]]  # runs jobs, yields their results
TOKEN_FOR_TOKEN = ("parity.tokens", "parity.prefix", "stability.rerun")  # metrics that compare answers' tokens
UNSEEN = {
    "latency": "a server's times are not judged yet",
    "cost": "a server's tokens and times are not priced yet",
    "service": "a server's times are not judged yet",
    "arm": "a server's weights and memory are not seen",
}


def told_of(arms: Sequence[ArmSpec], tell: Callable[[str], None] = lambda line: None) -> dict[str, str]:
    """Return arm → its server's own description, for arms with an `endpoint`. A server that is still loading is asked
    until it is ready (tell: receives a line on that). Raises UsageError for a server that refuses or does not serve the
    model, and InfrastructureError if none answers."""
    addressed = [arm for arm in arms if arm.served is not None and arm.served.endpoint]
    return asyncio.run(_ask(addressed, tell)) if addressed else {}


async def _ask(arms: Sequence[ArmSpec], tell: Callable[[str], None]) -> dict[str, str]:
    """Return arm → its server's own description, asking one server after the other. tell: receives a line while a
    server is still loading."""
    from qualgate.served.client import Client  # imported late: the HTTP library is slow to import

    declarations: dict[str, str] = {}
    for arm in arms:
        assert arm.served is not None, "chosen so"
        waits = lambda seconds, line: tell(line) if line else None  # noqa: E731
        async with Client(arm.name, arm.served, 1, tries=1, notify=waits) as client:
            declarations[arm.name] = await declared(client, arm)
    return declarations


def with_weights(gate: GateFile) -> GateFile:
    """Add the local weights of servers that a run starts. Raises UsageError if a server's program is missing."""
    check_programs((gate.baseline, *gate.variants), gate.path.parent)
    baseline, *variants = (_with_weights(arm, gate.path.parent) for arm in (gate.baseline, *gate.variants))
    return replace(gate, baseline=baseline, variants=tuple(variants))


def _with_weights(arm: ArmSpec, folder: Path) -> ArmSpec:
    if arm.served is None or not arm.served.command:
        return arm
    return replace(arm, served=replace(arm.served, weights=weights_of(arm.served.command, folder)))


def probed(
    jobs: Sequence[Job],
    warn: Callable[[str], None],
    ledger: Ledger | None,
    nonce: str = "",
    replies: dict[str, str] | None = None,
) -> dict[str, tuple[Probe, ...]]:
    """Return arm → probes of its server, for served arms but the A/A arm, which shares the baseline's server. ledger:
    counts the requests. nonce: makes one question new; replies: reply to that question → arm. warn: receives faults.
    Raises UsageError for a server that contradicts its arm, EvidenceMissing for a reply that another arm got before."""
    jobs_of_arms: dict[str, list[Job]] = {}
    for job in jobs:
        if job.arm.served is not None and not job.arm.name.endswith(NOISE):
            jobs_of_arms.setdefault(job.arm.name, []).append(job)
    if not jobs_of_arms:
        return {}
    from qualgate.served.probes import probe  # imported late: the HTTP library is slow to import

    probes: dict[str, tuple[Probe, ...]] = {}
    for name, arm_jobs in jobs_of_arms.items():
        arm = arm_jobs[0].arm
        assert arm.served is not None, "chosen so"
        prompts = [prompt for job in arm_jobs for prompt in job.prompts]
        tell = lambda line: warn(line) if line else None  # noqa: E731
        probes[name] = probe(arm, prompts, arm.served.concurrency, ledger, tell, nonce=nonce)
        for outcome in probes[name]:
            if outcome.fault:
                warn(
                    visible_line(
                        f"{name}, probe of {outcome.name}: {outcome.fault} (asked {outcome.asked}; saw {outcome.saw})"
                    )
                )
        _check_new(name, probes[name], {} if replies is None else replies)
    return probes


def _check_new(name: str, probes: Sequence[Probe], replies: dict[str, str]) -> None:
    """Raise EvidenceMissing if the arm's reply to the new question was given to another arm before."""
    reply = next((probe.saw for probe in probes if probe.name == CACHE), "")
    if reply and (other_arm := replies.setdefault(reply, name)) != name:
        raise EvidenceMissing(
            f"{name} and {other_arm} were asked a new question, and one reply came back to both, with its id and text: "
            "a cache between qualgate and the servers answered, and forgets who was asked. Turn it off for these runs; "
            "no case was asked."
        )


def probing(run: Running, warn: Callable[[str], None], ledger: Ledger | None = None) -> Running:
    """Return `run` preceded by probes of the jobs' servers; results carry the probes, which the store keeps with the
    arm. An arm with faulty streams is asked for whole answers. Errors, `warn` and `ledger`: see `probed`."""
    nonce, replies = secrets.token_hex(8), dict[str, str]()

    def answered(jobs: Sequence[Job]) -> Iterator[JobResult | JobFailure]:
        """Probe the servers of these jobs, then run the jobs and yield their results with the probes."""
        probes_of_arms = probed(jobs, warn, ledger, nonce, replies)
        faulty = {
            name: probe.saw
            for name, probes in probes_of_arms.items()
            for probe in probes
            if probe.name == STREAM and probe.fault
        }
        reasons = [faulty.get(job.arm.name.removesuffix(NOISE), "") for job in jobs]
        for outcome in run(
            [replace(job, arm=job.arm.asked_whole(why)) for job, why in zip(jobs, reasons, strict=True)]
        ):
            if isinstance(outcome, JobResult) and outcome.arm in probes_of_arms:
                outcome = replace(outcome, footprint=replace(outcome.footprint, probes=probes_of_arms[outcome.arm]))
            yield outcome

    return answered


def leaves_the_machine(arms: Sequence[ArmSpec]) -> Iterator[str]:
    """Yield a note for each other host that prompts will be sent to."""
    servers = [arm.served for arm in arms if arm.served and arm.served.endpoint]
    hosts = [urlsplit(served.endpoint).hostname or "" for served in servers]
    for host in dict.fromkeys(hosts):
        if host not in ("localhost", "::1") and not host.startswith("127."):
            yield f"prompts leave this machine: those of every evalset here are sent to {host}"


def tokenizers_of(arms: Sequence[ArmSpec]) -> dict[str, ModelFolder]:
    """Return the tokenizer folders of served arms, by name. Raises UsageError for a folder without a tokenizer."""
    folders = dict.fromkeys(arm.served.tokenizer for arm in arms if arm.served is not None and arm.served.tokenizer)
    return {name: read_tokenizer_folder(Path(name)) for name in folders}


def of_server(case: Case, arm: ArmSpec) -> str:
    """Return `Prompt.asked` for an arm; "" for an arm of our own engine."""
    if arm.served is None:
        return ""
    declared = dialect_of(case.body) if "tools" in case.body else ""
    # Calls read by a server's parser need no dialect. Without a declared one they are written in the dialect that is
    # tried first when they are read.
    return asked_of(case, arm.served, "hermes" if declared == AUTO else declared)


def check_served(gate: GateFile, sets: Sequence[Evalset]) -> None:
    """Raise UsageError or NotInThisVersion for settings that served arms do not support."""
    arms = [arm for arm in (gate.baseline, *gate.variants) if arm.served is not None]
    if not arms:
        return
    names = _arm_names(arms)
    for arm in arms:
        _check_engine(gate, arm)
    for rule in gate.policy.rules:
        _check_rule(gate, rule, arms)
    _check_mixed(gate, arms)
    _check_started(gate, arms)
    for item in sets:
        check_cases(item, names)


def _arm_names(arms: Sequence[ArmSpec]) -> str:
    """Return the names of the arms that the user named, without the A/A arm."""
    return ", ".join(arm.name for arm in arms if not arm.name.endswith(NOISE))


def _check_engine(gate: GateFile, arm: ArmSpec) -> None:
    """Raise UsageError if an unknown engine's name looks like a misspelt known one."""
    assert arm.served is not None, "asked of served arms alone"
    engines, engine = [profile.name for profile in PROFILES], arm.served.engine
    plain = engine.lower().translate(str.maketrans("", "", "-_. "))
    if engine and engine not in engines and (close := close_names(plain, engines, cutoff=0.75)):
        raise UsageError(
            f"{gate.path.name}: {arm.name}: no engine is known as {engine!r:.80}; did you mean {close[0]!r}? `qualgate "
            "doctor` lists them"
        )


def _check_rule(gate: GateFile, rule: Rule, arms: Sequence[ArmSpec]) -> None:
    """Raise an error for a rule that could never be decided of the served arms `arms`: one on tokens of an arm asked
    by messages, on drift without log-probs, or on a server's times, cost and memory."""
    where, names = f"{gate.path}:{rule.line}", _arm_names(arms)
    kind = METRICS[rule.metric].kind
    if rule.metric in TOKEN_FOR_TOKEN:
        if texts := [arm for arm in arms if not arm.reads]:
            raise UsageError(
                f"{where}: a rule on {rule.metric} compares tokens, and {_arm_names(texts)} returns only text. "
                "Give it `tokenizer: FOLDER`, so that it is asked by token ids, or remove the rule."
            )
    elif kind == "drift":
        _check_drift(gate, rule)
    elif kind in UNSEEN:
        raise NotInThisVersion(
            f"{where}: a rule on {rule.metric}, where {names} is served: {UNSEEN[kind]}, so this version cannot "
            "decide it. Rules on quality, parity and stability work with servers."
        )


def drift_is_read(arm: ArmSpec, baseline: ArmSpec) -> bool:
    """Whether the arm's distributions can be compared with the baseline's: both from our own engine, or both from
    servers that list log-probs."""
    if arm.served is None or baseline.served is None:
        return arm.served is None and baseline.served is None
    return bool(arm.served.prompt_logprobs and baseline.served.prompt_logprobs)


def rests_on_lists(plan: Plan) -> Iterator[str]:
    """Yield a note for each variant whose drift rests on servers' lists of log-probs."""
    for arm in plan.arms[1:]:
        if arm.served is None or not drift_is_read(arm, plan.arms[0]) or "@" in arm.name:
            continue
        k = arm.served.prompt_logprobs
        lists = "every token" if k < 0 else f"the {counted(k, 'likeliest token')}"
        yield (
            f"{arm.name}: drift rests on {lists} that servers list at each place of the baseline's answers: agreement "
            "exactly, KL as an interval"
            + ("" if k < 0 else ", which only a server that lists the least likely token too closes from above")
        )


def _check_drift(gate: GateFile, rule: Rule) -> None:
    """Raise an error for a drift rule unless every arm is served and lists log-probs."""
    arms = (gate.baseline, *gate.variants)
    if unread := [arm for arm in arms if arm.served is not None and not arm.served.prompt_logprobs]:
        raise UsageError(
            f"{gate.path}:{rule.line}: a rule on {rule.metric} needs the probabilities behind the answers of "
            f"{_arm_names(unread)}, which are not requested. Give each served arm `prompt_logprobs: 20` and a "
            "`tokenizer`, if its server lists log-probs of prompt tokens as vLLM does. Otherwise remove the rule."
        )
    if own_arms := [arm.name for arm in arms if arm.served is None]:
        raise NotInThisVersion(
            f"{gate.path}:{rule.line}: a rule on {rule.metric}, but {', '.join(own_arms)} is generated here and others "
            "are served. This version compares a server's log-probs only with another server's. Serve all arms, or "
            "remove the rule."
        )


def _check_mixed(gate: GateFile, arms: Sequence[ArmSpec]) -> None:
    """Raise UsageError if our own engine and a server would both draw tokens: they draw from different random
    numbers. arms: the served ones."""
    own_arms = [arm for arm in (gate.baseline, *gate.variants) if arm.served is None]
    if own_arms and gate.sampling.drawn:
        raise UsageError(
            f"{gate.path.name}: {own_arms[0].name} samples here and {arms[0].name} at its server, from different "
            "random numbers, so their answers cannot be compared. Serve both, or use temperature 0."
        )


def _check_started(gate: GateFile, arms: Sequence[ArmSpec]) -> None:
    """Raise NotInThisVersion for `stop: early` with servers that the run starts: these run one after the other, and
    early stopping asks all arms in turns."""
    started = [arm.name for arm in arms if arm.served is not None and arm.served.command]
    if started and gate.policy.stop is not None:
        raise NotInThisVersion(
            f"{gate.path.name}: `stop: early` asks all arms in turns, and servers that a run starts "
            f"({', '.join(started)}) run one after the other; together they are not in this version. Start the server "
            "yourself and name its `endpoint`, or take `stop: early` out."
        )


def check_cases(item: Evalset, names: str) -> None:
    """Raise NotInThisVersion for cases that a server cannot answer. names: the served arms, for messages."""
    read_cases = [case.id for case in item.cases if "requests" in case.body]
    if read_cases:
        raise NotInThisVersion(
            f"evalset {item.name}: {counted(len(read_cases), 'case')} ({read_cases[0]}, …) need the likelihood of "
            f"a text, and this version does not ask a server ({names}) for it."
        )
    other_cases = [
        case.id for case in item.cases if set(case.body.get("constraint", ("json_schema",))) != {"json_schema"}
    ]
    if other_cases:
        raise NotInThisVersion(
            f"evalset {item.name}: {counted(len(other_cases), 'case')} ({other_cases[0]}, …) constrain answers by a "
            f"regular expression or a grammar. This version asks servers ({names}) for `json_schema` only, because "
            "they do not agree on the others."
        )
