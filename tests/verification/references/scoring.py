"""Benchmark `scoring`: do the scorers agree with the field's references, hold against hostile answers, and how fast?

Speed is checks a second of processor time on one core.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from qualgate.records import Case, Evalset
from qualgate.scoring import registry
from qualgate.scoring.schema import first_error
from qualgate.scoring.tools import strict
from tests.benchmarks.shape import told
from tests.verification.escapes import hostile_math, sandbox
from tests.verification.escapes.hostile_answers import BODY, CALL, SEED, TOOL, hostile
from tests.verification.goals import SANDBOX, SCORING
from tests.verification.references import (
    bfcl_agreement,
    bfcl_calls,
    choice_styles,
    containment,
    dialect_agreement,
    dialect_strings,
    filters_fuzz,
    ifeval_fuzz,
    judges,
    languages,
    lm_eval_log,
    match_rules,
    math_pairs,
    readings,
    reasoning_splits,
    served_parsers,
)
from tests.verification.references.agreement import NoReference
from tests.verification.references.maskbench import maskbench
from tests.verification.references.readings_unfinished import unfinished
from tests.verification.references.schema_suite import schema_suite, whole_suite
from tests.verification.shared import DATA

MUTANTS = 10_000
ROUNDS = 5
CHECKS = 20_000
FUZZED = 100_000
THOUGHTS = 11_000
CHOSEN = 18_000
LABELS_MET, LANGUAGES_SEEN = 0.995, 0.98
SILENT = {"iri", "iri-reference", "format-assertion"}  # files of the suite in which we may give no verdict


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part's rows, or of those that measure a row of `only`. quick: slices, which meet no goal."""
    rounds: list[dict[str, Any]] = []
    rows = {id: SCORING.not_run(id, "not asked for") for id in SCORING.goals if only}
    parts = [(part, ids) for part, ids in PARTS if not only or set(only) & set(ids)]
    for part, _ in told("scoring", parts, lambda part: ", ".join(part[1])):
        taken, found = part(quick)
        rounds += taken
        rows |= {row["id"]: row for row in found}
    return SCORING.result(rounds=rounds, rows=[rows[id] for id in SCORING.goals])


Part = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # rounds, goal rows


def _bfcl(quick: bool) -> Part:
    theirs = bfcl_calls.read_rows(DATA / "bfcl") if (DATA / "bfcl").is_dir() else None
    calls = FUZZED // 20 if quick else FUZZED
    rounds, found = [], []
    for id, held, count in (("bfcl_mutations", theirs, calls // 5), ("bfcl_fuzz", [], calls)):
        if held is None:
            found.append(SCORING.not_run(id, "BFCL's rows are not here"))
            continue
        said = bfcl_agreement.differential(count, SEED, held)
        rounds.append({id: asdict(said)})
        few = f"{count:,} calls" if quick else None
        found.append(SCORING.row(id, said.same / count, met=said.same == count, few=few))
    return rounds, found


def _suite(quick: bool) -> Part:
    suite = schema_suite()
    share = suite and suite["agree"] / suite["tests"]
    absent = None if suite else "the JSON-Schema-Test-Suite is not here"
    row = SCORING.row("schema_suite", share, met=share == 1, unmet_because=absent)
    whole = None if quick else whole_suite()
    if whole is None:
        why = absent or ("not asked for by --quick" if quick else "its optional parts are not here")
        return [{"schema_suite": suite}], [row, SCORING.not_run("suite", why)]
    tests, explained, met = 0, 0, share == 1
    for part in whole.values():
        silent = sum(part["silent"].values())
        tests, explained = tests + part["tests"], explained + part["agree"] + part["library"]
        met &= part["agree"] + part["library"] + silent == part["tests"] and part["silent"].keys() <= SILENT
    return [{"schema_suite": suite, "suite": whole}], [row, SCORING.row("suite", explained / tests, met=met)]


def _maskbench(quick: bool) -> Part:
    if (found := maskbench(50 if quick else 1)) is None:
        return [], [SCORING.not_run("maskbench", "MaskBench's data is not here: MASKBENCH names its folder")]
    share = found["met"] / found["tests"]
    met = share >= LABELS_MET and not found["of_a_draft"]
    few = "1 file in 50" if quick else None
    return [{"maskbench": found}], [SCORING.row("maskbench", share, met=met, few=few)]


def _languages(quick: bool) -> Part:
    found = languages.measured()
    right, asked = sum(found["right"].values()), sum(found["asked"].values())
    met = not found["alarms"] and right >= LANGUAGES_SEEN * asked
    return [{"languages": found}], [SCORING.row("languages", right / asked, met=met)]


def _lm_eval(quick: bool) -> Part:
    try:
        found = lm_eval_log.measured(DATA / "gsm8k", 2 if quick else ROUNDS)
    except lm_eval_log.CannotRun as why:
        ids = ("gsm8k_filters", "lm_eval_speed")
        return [], [SCORING.not_run(id, str(why)) for id in ids]
    share = min(found["agree"].values()) / found["samples"]
    ratios = sorted(one["lm_eval"] / one["qualgate"] for one in found["seconds"])
    middle = statistics.median(ratios)
    return [{"lm_eval_log": found}], [
        SCORING.row("gsm8k_filters", share, met=share == 1),
        SCORING.row(
            "lm_eval_speed", middle, spread=[ratios[0], ratios[-1]], met=middle >= 5, few=_fast(quick), by_chance=True
        ),
    ]


def _fuzzed(quick: bool) -> Part:
    """Made answers, scored by lm-eval or by rules written independently, and by us."""
    rounds, found = [], []
    for id, compare, count in (
        ("filters_fuzz", filters_fuzz.differential, FUZZED),
        ("match_fuzz", match_rules.differential, FUZZED),
        ("ifeval_fuzz", ifeval_fuzz.differential, FUZZED // 4),
    ):
        asked = count // 50 if quick else count
        start = time.process_time()
        try:
            tally = compare(asked, SEED)
        except NoReference as why:
            found.append(SCORING.not_run(id, str(why)))
            continue
        rounds.append({id: tally.as_row(), "answers": asked, "seconds": time.process_time() - start})
        few = f"{asked:,} answers" if quick else None
        found.append(SCORING.row(id, tally.share, met=tally.agree, few=few))
    return rounds, found


def _reasoning(quick: bool) -> Part:
    tally = reasoning_splits.differential(THOUGHTS, SEED)
    said = {"wrong": tally.asked.total() - tally.same.total(), "of": tally.asked.total()}
    return [{"reasoning": tally.as_row()}], [SCORING.row("reasoning", said, met=tally.agree)]


def _choice(quick: bool) -> Part:
    try:
        tally = choice_styles.differential(CHOSEN, SEED)
    except NoReference as why:
        return [], [SCORING.not_run("choice", str(why))]
    shares = [tally.same[name] / asked for name, asked in tally.asked.items()]
    return [{"choice": tally.as_row()}], [SCORING.row("choice", min(shares), met=min(shares) >= 0.999)]


def _contains(quick: bool) -> Part:
    found = containment.compared()
    said = {"pairs": found.pairs, "same": found.same, "listed": found.listed, "unlisted": found.unlisted[:10]}
    return [{"contains": said}], [SCORING.row("contains", said, met=not found.unlisted)]


def _readings(quick: bool) -> Part:
    every = 16 if quick else 1
    with tempfile.TemporaryDirectory() as folder:
        found = {kind.__name__: kind(every) for kind in readings.KINDS}
        found["unfinished"] = unfinished(Path(folder), every)
    said = {
        name: {"asked": one.asked, "agreed": one.agreed, "approved": one.approved, "different": one.different[:10]}
        for name, one in found.items()
    }
    met = all(one.held for one in found.values())
    few = f"1 line in {every}" if quick else None
    return [{"readings": said}], [SCORING.row("readings", said, met=met, few=few)]


def _judge(quick: bool) -> Part:
    found, held = judges.proof(quick)
    few = f"{found['worlds']} worlds" if quick else None
    return [{"judge": found}], [SCORING.row("judge", found["held"], met=held, few=few)]


def _dialects(quick: bool) -> Part:
    version, rows = dialect_strings.kept()
    found = dialect_agreement.compared(rows)
    said = {"unexplained": len(found.unexplained), "strings": len(rows)}
    row = SCORING.row("dialects", said, met=found.holds and len(rows) >= 1_000)
    return [{"dialects": found.as_row() | {"vllm": version}}], [row]


def _servers(quick: bool) -> Part:
    every, rounds, found = 16 if quick else 1, [], []
    for engine in served_parsers.INTERPRETERS:
        try:
            same = served_parsers.proof(engine, every)
        except NoReference as why:
            found.append(SCORING.not_run(f"parsers.{engine}", str(why)))
            continue
        said = {"strings": same.strings.total(), "same": same.same.total()}
        rounds.append({f"parsers.{engine}": said | {"different": same.different}})
        few = f"1 string in {every}" if quick else None
        found.append(SCORING.row(f"parsers.{engine}", said, met=same.holds, few=few))
    return rounds, found


def _mathematics(quick: bool) -> Part:
    """Quick: a sixteenth of the pairs, and of the hostile ones."""
    pairs, bombs = (math_pairs.PAIRS, MUTANTS) if not quick else (math_pairs.PAIRS // 16, MUTANTS // 16)
    held = hostile_math.hostile(bombs, SEED)
    met = not held.hangs and not held.crashes and not held.right
    said = {"hangs": len(held.hangs), "crashes": len(held.crashes), "right": len(held.right), "slowest": held.slowest}
    few = f"{bombs:,} expressions" if quick else None
    speed = math_pairs.plain_per_second()
    rows = [SCORING.row("math_hostile", said, met=met, few=few),
            SCORING.row("math_speed", speed, met=speed >= 2_000, few=_fast(quick), by_chance=True)]  # fmt: skip
    try:
        tally = math_pairs.differential(pairs)
    except NoReference as why:
        return [{"math_hostile": held.as_row()}], [SCORING.not_run("math", str(why)), *rows]
    same = tally.share >= 0.995 and not math_pairs.unlike_listed()
    few = f"{pairs:,} pairs" if quick else None
    rows.append(SCORING.row("math", tally.share, met=same, few=few))
    return [{"math": tally.as_row(), "math_hostile": held.as_row()}], rows


def _hostile(quick: bool) -> Part:
    count = MUTANTS // 10 if quick else MUTANTS
    found = hostile(count)
    held = not found["crashes"] and not found["hangs"]
    said = {"crashes": len(found["crashes"]), "hangs": len(found["hangs"]), "slowest": found["slowest"]}
    few = f"{count:,} mutants" if quick else None
    return [{"hostile": found}], [SCORING.row("hostile_outputs", said, met=held, few=few)]


def _speeds(quick: bool) -> Part:
    rounds = []
    for _ in range(2 if quick else ROUNDS):
        right, mutated = bfcl_agreement.simple_checks_per_second(SEED, 5)
        others = {name: per_second(check) for name, check in checks().items()}
        rounds.append({"tool_call_speed": right, "tool_call_mutated": mutated, **others})
    found = []
    for id, limit in (("tool_call_speed", 100_000), ("schema_speed", 50_000)):
        taken = [one[id] for one in rounds]
        middle = statistics.median(taken)
        spread = [min(taken), max(taken)]
        found.append(SCORING.row(id, middle, spread=spread, met=middle >= limit, few=_fast(quick), by_chance=True))
    return rounds, found


def _fast(quick: bool) -> str | None:
    """A quick run shares its machine with others: what it says of a speed decides nothing."""
    return "a machine that others use" if quick else None


def _sandboxed(quick: bool) -> Part:
    return [], sandbox.rows(quick, DATA)


PARTS: tuple[tuple[Callable[[bool], Part], tuple[str, ...]], ...] = (
    (_bfcl, ("bfcl_mutations", "bfcl_fuzz")),
    (_suite, ("schema_suite", "suite")),
    (_maskbench, ("maskbench",)),
    (_languages, ("languages",)),
    (_lm_eval, ("gsm8k_filters", "lm_eval_speed")),
    (_fuzzed, ("filters_fuzz", "match_fuzz", "ifeval_fuzz")),
    (_reasoning, ("reasoning",)),
    (_choice, ("choice",)),
    (_contains, ("contains",)),
    (_readings, ("readings",)),
    (_judge, ("judge",)),
    (_dialects, ("dialects",)),
    (_servers, ("parsers.vllm", "parsers.sglang")),
    (_mathematics, ("math", "math_hostile", "math_speed")),
    (_hostile, ("hostile_outputs",)),
    (_speeds, ("tool_call_speed", "schema_speed")),
    (_sandboxed, tuple(SANDBOX)),
)


def checks() -> dict[str, Callable[[], Any]]:
    """One check of each: calls in strict mode, judged alone and with all their scores, and a schema."""
    scorer = registry.find("tool_call")
    case = Case(evalset="speed", body=BODY)
    evalset = Evalset(name="speed", version="1", sha256="", metrics=scorer.metrics)
    assert scorer.decoded is not None
    return {
        "tool_call_judged": partial(strict.judge, BODY["tools"], BODY["expected_calls"], strict.read_calls([CALL])),
        "tool_call_strict": partial(scorer.decoded, case, evalset, [CALL]),
        "schema_speed": partial(first_error, TOOL["parameters"], CALL["arguments"]),
    }


def per_second(check: Callable[[], Any], times: int = CHECKS) -> float:
    """How often `check` runs in a second of processor time."""
    check()  # what is remembered from case to case is remembered
    start = time.process_time()
    for _ in range(times):
        check()
    return times / (time.process_time() - start)
