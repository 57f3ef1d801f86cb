"""Served arms before a run: probes of their servers, and checks of the gate file.

A server tells tokens and texts, and some the log-probs that drift is read of. What else a rule may be about (times,
memory) nobody here sees of it, and a rule that could only ever end undecided is refused before anything is generated.
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
from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.metrics import METRICS
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
from qualgate.records.served import CACHE, STREAM
from qualgate.scoring.tools.strict import AUTO, dialect_of
from qualgate.served.asked import asked_of
from qualgate.served.declared import declared
from qualgate.served.engines import PROFILES
from qualgate.served.launch import check_programs
from qualgate.served.ledger import Ledger
from qualgate.served.local_weights import weights_of

Running = Callable[[Sequence[Job]], Iterator[JobResult | JobFailure]]  # of jobs, what came of them one by one
TOKEN_FOR_TOKEN = ("parity.tokens", "parity.prefix", "stability.rerun")  # rules that hold answers' tokens together
UNSEEN = {
    "latency": "a server's times are not judged yet",
    "cost": "a server's tokens and times are not priced yet",
    "service": "a server's times are not judged yet",
    "arm": "a server's weights and memory are not seen",
}


def told_of(arms: Sequence[ArmSpec], tell: Callable[[str], None] = lambda line: None) -> dict[str, str]:
    """Arm → what its server says of itself, of those at an address; each is asked once, one that is still loading until
    it is ready (tell: a line about that). Raises UsageError for a server that refuses, or serves no such
    model, and InfrastructureError where none answers."""
    asked = [arm for arm in arms if arm.served is not None and arm.served.endpoint]
    return asyncio.run(_ask(asked, tell)) if asked else {}


async def _ask(arms: Sequence[ArmSpec], tell: Callable[[str], None]) -> dict[str, str]:
    from qualgate.served.client import Client  # what has no served arm need not wait for an HTTP library

    told: dict[str, str] = {}
    for arm in arms:
        assert arm.served is not None, "chosen so"
        waits = lambda seconds, line: tell(line) if line else None  # noqa: E731
        async with Client(arm.name, arm.served, 1, tries=1, notify=waits) as client:
            told[arm.name] = await declared(client, arm)
    return told


def with_weights(gate: GateFile) -> GateFile:
    """The gate file with what lies here of the models of servers that it starts. UsageError where one's program is not
    there."""
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
    seen: dict[str, str] | None = None,
) -> dict[str, tuple[Probe, ...]]:
    """Arm → what its server shows to fixed questions, of the served arms of these jobs but the A/A arm, whose server is
    the baseline's. ledger: in which requests are counted. nonce: of its new question; seen: replies to that, by whose
    they are. Raises UsageError for a server that contradicts what its arm declares, EvidenceMissing where a reply to
    the new question is another arm's. warn: told what is wrong."""
    asked: dict[str, list[Job]] = {}
    for job in jobs:
        if job.arm.served is not None and not job.arm.name.endswith(NOISE):
            asked.setdefault(job.arm.name, []).append(job)
    if not asked:
        return {}
    from qualgate.served.probes import probe  # what has no served arm need not wait for an HTTP library

    found: dict[str, tuple[Probe, ...]] = {}
    for name, of in asked.items():
        arm = of[0].arm
        assert arm.served is not None, "chosen so"
        prompts = [prompt for job in of for prompt in job.prompts]
        tell = lambda line: warn(line) if line else None  # noqa: E731
        found[name] = probe(arm, prompts, arm.served.concurrency, ledger, tell, nonce=nonce)
        for one in found[name]:
            if one.fault:
                warn(visible_line(f"{name}, probe of {one.name}: {one.fault} (asked {one.asked}; saw {one.saw})"))
        _check_new(name, found[name], {} if seen is None else seen)
    return found


def _check_new(name: str, probes: Sequence[Probe], seen: dict[str, str]) -> None:
    """EvidenceMissing where the arm's reply to the new question is one that another arm was given."""
    reply = next((one.saw for one in probes if one.name == CACHE), "")
    if reply and (other := seen.setdefault(reply, name)) != name:
        raise EvidenceMissing(
            f"{name} and {other} were asked a new question, and one reply came back to both, with its id and text: a "
            "cache between qualgate and the servers answered, and forgets who was asked. Turn it off for these runs; "
            "no case was asked."
        )


def probing(run: Running, warn: Callable[[str], None], ledger: Ledger | None = None) -> Running:
    """`run` behind the probes of its jobs' servers; results hold what these showed, which the store keeps with the arm.
    An arm whose streams are at fault is asked for whole answers. Errors, `warn` and `ledger`: see `probed`."""

    nonce, seen = secrets.token_hex(8), dict[str, str]()

    def answered(jobs: Sequence[Job]) -> Iterator[JobResult | JobFailure]:
        shown = probed(jobs, warn, ledger, nonce, seen)
        faulty = {name: one.saw for name, probes in shown.items() for one in probes if one.name == STREAM and one.fault}
        whole = [faulty.get(job.arm.name.removesuffix(NOISE), "") for job in jobs]
        for one in run([replace(job, arm=job.arm.asked_whole(why)) for job, why in zip(jobs, whole, strict=True)]):
            if isinstance(one, JobResult) and one.arm in shown:
                one = replace(one, footprint=replace(one.footprint, probes=shown[one.arm]))
            yield one

    return answered


def leaves_the_machine(arms: Sequence[ArmSpec]) -> Iterator[str]:
    """A line for the user for each host elsewhere that prompts will be sent to."""
    asked = [arm.served for arm in arms if arm.served and arm.served.endpoint]
    hosts = [urlsplit(served.endpoint).hostname or "" for served in asked]
    for host in dict.fromkeys(hosts):
        if host not in ("localhost", "::1") and not host.startswith("127."):
            yield f"prompts leave this machine: those of every evalset here are sent to {host}"


def tokenizers_of(arms: Sequence[ArmSpec]) -> dict[str, ModelFolder]:
    """The folders that served arms' tokens are made by. UsageError for one that has no tokenizer."""
    named = dict.fromkeys(arm.served.tokenizer for arm in arms if arm.served is not None and arm.served.tokenizer)
    return {name: read_tokenizer_folder(Path(name)) for name in named}


def of_server(case: Case, arm: ArmSpec) -> str:
    """`Prompt.asked` of an arm; "" of one that our own engine answers for."""
    if arm.served is None:
        return ""
    declared = dialect_of(case.body) if "tools" in case.body else ""
    # Calls that a server's parser read need no dialect: where none is declared they are written in the one that is
    # tried first when they are read.
    return asked_of(case, arm.served, "hermes" if declared == AUTO else declared)


def check_served(gate: GateFile, sets: Sequence[Evalset]) -> None:
    """Raise UsageError, or NotInThisVersion, for what a gate file with served arms may not ask."""
    arms = [arm for arm in (gate.baseline, *gate.variants) if arm.served is not None]
    if not arms:
        return
    named = _named(arms)
    for arm in arms:
        _check_engine(gate, arm)
    if gate.policy.four_arm is not None:
        _check_four(gate, arms)
    for rule in gate.policy.rules:
        _check_rule(gate, rule, arms)
    _check_mixed(gate, arms)
    _check_started(gate, arms)
    for item in sets:
        check_cases(item, named)


def _named(arms: Sequence[ArmSpec]) -> str:
    """Those that the user named: the A/A arm is the baseline over again."""
    return ", ".join(arm.name for arm in arms if not arm.name.endswith(NOISE))


def _check_engine(gate: GateFile, arm: ArmSpec) -> None:
    """An engine that nobody here knows is taken at its name, unless that is a known one's, misspelt."""
    assert arm.served is not None, "asked of served arms alone"
    known, engine = [one.name for one in PROFILES], arm.served.engine
    plain = engine.lower().translate(str.maketrans("", "", "-_. "))
    if engine and engine not in known and (near := close_names(plain, known, cutoff=0.75)):
        raise UsageError(
            f"{gate.path.name}: {arm.name}: no engine is known as {engine!r:.80}; did you mean {near[0]!r}? `qualgate "
            "doctor` lists them"
        )


def _check_four(gate: GateFile, served: Sequence[ArmSpec]) -> None:
    """Arms that are compared by what they cost are served alike; what a user waits under load is another question."""
    if own := [arm.name for arm in (gate.baseline, *gate.variants) if arm not in served]:
        raise UsageError(
            f"{gate.path.name}: of the four arms {', '.join(own)} would be generated here and "
            f"{', '.join(arm.name for arm in served)} served, so what one costs says nothing of the other: serve all"
        )
    for what, values in _asked_by(served).items():
        if len(set(values)) > 1:
            told = ", ".join(f"{arm.name} {value}" for arm, value in zip(served, values, strict=True))
            raise UsageError(
                f"{gate.path.name}: value is held together by what answers take, and four arms are asked with another "
                f"`{what}` each ({told}): say the same of all"
            )
    if gate.policy.slo is not None:
        raise NotInThisVersion(
            f"{gate.path.name}: `slo` limits what users wait, and how many ask a server at once nobody says here: of "
            "four served arms it is not judged in this version. Take it out; parity, quality and value are judged"
        )
    for rule in gate.policy.rules:
        if METRICS[rule.metric].kind == "drift":
            raise NotInThisVersion(
                f"{gate.path}:{rule.line}: a rule on {rule.metric} of four served arms, which take turns: one that "
                "comes before the baseline has none of its answers to read. Drift among them is not in this version: "
                "take the rule out, or judge drift by a gate file without `four_arm`."
            )


def _asked_by(served: Sequence[ArmSpec]) -> dict[str, list[str]]:
    """What of how arms are asked has a part in their times, of each arm."""
    asked = [arm.served for arm in served if arm.served is not None]
    return {
        "concurrency": [str(one.concurrency) for one in asked],
        "stream": [str(one.stream).lower() for one in asked],
    }


def _check_rule(gate: GateFile, rule: Rule, arms: Sequence[ArmSpec]) -> None:
    where, named = f"{gate.path}:{rule.line}", _named(arms)
    kind = METRICS[rule.metric].kind
    if rule.metric in TOKEN_FOR_TOKEN:
        if texts := [arm for arm in arms if not arm.reads]:
            raise UsageError(
                f"{where}: a rule on {rule.metric} compares tokens, and {_named(texts)} is asked by messages and "
                "tells none. Give it `tokenizer: FOLDER`, and it is asked by token ids; or leave the rule out."
            )
    elif kind == "drift":
        _check_drift(gate, rule)
    elif kind in UNSEEN:
        raise NotInThisVersion(
            f"{where}: a rule on {rule.metric}, where {named} is served: {UNSEEN[kind]}, so it could never be decided; "
            "that is not in this version. Rules on quality, parity and stability are."
        )


def drift_is_read(arm: ArmSpec, baseline: ArmSpec) -> bool:
    """Whether the arm's distributions are held against the baseline's: both by our own engine, or both as their servers
    list them."""
    if arm.served is None or baseline.served is None:
        return arm.served is None and baseline.served is None
    return bool(arm.served.prompt_logprobs and baseline.served.prompt_logprobs)


def rests_on_lists(plan: Plan) -> Iterator[str]:
    """A line for the user for each variant whose drift is read of what servers list."""
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
    arms = (gate.baseline, *gate.variants)
    if unread := [arm for arm in arms if arm.served is not None and not arm.served.prompt_logprobs]:
        raise UsageError(
            f"{gate.path}:{rule.line}: a rule on {rule.metric}, and nothing tells the probabilities behind the answers "
            f"of {_named(unread)}, so it could never be decided. Give each served arm `prompt_logprobs: 20`, of "
            "servers that list log-probs of a prompt's tokens as vLLM does, and a `tokenizer`; or leave the rule out."
        )
    if here := [arm.name for arm in arms if arm.served is None]:
        raise NotInThisVersion(
            f"{gate.path}:{rule.line}: a rule on {rule.metric}, where {', '.join(here)} is generated here and others "
            "are served: what a server lists is held against what another lists alone in this version. Serve all, "
            "or leave the rule out."
        )


def _check_mixed(gate: GateFile, arms: Sequence[ArmSpec]) -> None:
    own = [arm for arm in (gate.baseline, *gate.variants) if arm.served is None]
    if own and gate.sampling.drawn:
        raise UsageError(
            f"{gate.path.name}: {own[0].name} draws its tokens here and {arms[0].name} at its server, by others; "
            "at a temperature the two are not held together. Serve both, or use temperature 0."
        )


def _check_started(gate: GateFile, arms: Sequence[ArmSpec]) -> None:
    started = [arm.name for arm in arms if arm.served is not None and arm.served.command]
    if started and gate.policy.stop is not None:
        raise NotInThisVersion(
            f"{gate.path.name}: `stop: early` asks all arms in turns, and servers that a run starts "
            f"({', '.join(started)}) run one after the other; together they are not in this version. Start the server "
            "yourself and name its `endpoint`, or take `stop: early` out."
        )


def check_cases(item: Evalset, named: str) -> None:
    """Raise NotInThisVersion for cases that a server cannot be asked. named: the arms that are served."""
    read = [case.id for case in item.cases if "requests" in case.body]
    if read:
        raise NotInThisVersion(
            f"evalset {item.name}: {counted(len(read), 'case')} ({read[0]}, …) are read instead of answered, and a "
            f"server ({named}) is not asked for the likelihood of a text in this version"
        )
    other = [case.id for case in item.cases if set(case.body.get("constraint", ("json_schema",))) != {"json_schema"}]
    if other:
        raise NotInThisVersion(
            f"evalset {item.name}: {counted(len(other), 'case')} ({other[0]}, …) hold answers to a regular expression "
            f"or a grammar, which servers ({named}) name each in a way of their own; of constraints they are asked for "
            "`json_schema` alone in this version"
        )
