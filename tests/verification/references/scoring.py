"""Benchmark `scoring`: do the scorers agree with the field's references, hold against hostile answers, and how fast?

Speed is checks a second of processor time on one core. Hostile answers are seeded, so a fault can be made again.
"""

from __future__ import annotations

import json
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from qualgate.bench.shape import told
from qualgate.records import Case, Evalset
from qualgate.scoring import registry
from qualgate.scoring.schema import DIALECT, CannotValidate, first_error
from qualgate.scoring.tools import strict
from tests.verification.escapes import sandbox
from tests.verification.goals import SANDBOX, SCORING, STORED
from tests.verification.references import bfcl_rules, drift_stored, filters_fuzz, ifeval_fuzz, lm_eval_log, match_rules
from tests.verification.references.agreement import NoReference
from tests.verification.shared import DATA

MUTANTS, SEED = 10_000, 20_251
SLOW, HUNG = 1.0, 30.0  # seconds of processor time: what breaks the goal, and when a scorer is stopped
ROUNDS, CHECKS = 5, 20_000

TOOL = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CALL = {"name": "get_weather", "arguments": {"city": "Paris", "unit": "c", "days": 3}}
BODY = {
    "id": "1",
    "answer": "18",
    "schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^(a+)+$"},
            "ages": {"type": "array", "uniqueItems": True},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    "tools": [TOOL],
    "expected_calls": [CALL],
    "choices": ["18", "19"],
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words", "detectable_format:json_format"],
    "kwargs": [{}, {"relation": "at least", "num_words": 5}, {}],
    "tests": "assert f(1) == 2",
}  # fmt: skip
ANSWERS = (  # what mutants are made from
    "The sum is 9 + 9.\n#### 18",
    json.dumps({"name": "aaa", "ages": [1, 2, 3]}),
    f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
    "```json\n" + json.dumps({"name": "a", "ages": [{"n": n} for n in range(20)]}) + "\n```",
)
FUZZED = 100_000
COMPAT_BODY = {
    "tools": [TOOL],
    "expected_calls": [{"get_weather": {"city": ["Paris"], "unit": ["c", ""], "days": [3]}}],
}
PROGRAM_EVERY = 100  # every how many mutants one is run as a program, too: a sandbox takes as long as all else together


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
    theirs = bfcl_rules.read_rows(DATA / "bfcl") if (DATA / "bfcl").is_dir() else None
    calls = FUZZED // 20 if quick else FUZZED
    rounds, found = [], []
    for id, held, count in (("bfcl_mutations", theirs, calls // 5), ("bfcl_fuzz", [], calls)):
        if held is None:
            found.append(SCORING.not_run(id, "BFCL's rows are not here"))
            continue
        said = bfcl_rules.differential(count, SEED, held)
        rounds.append({id: asdict(said)})
        part = f"{count:,} calls only (--quick)" if quick and said.same == count else None
        found.append(SCORING.row(id, said.same / count, met=said.same == count, unmet_because=part))
    return rounds, found


def _suite(quick: bool) -> Part:
    suite = schema_suite()
    share = suite and suite["agree"] / suite["tests"]
    absent = None if suite else "the JSON-Schema-Test-Suite is not here"
    return [{"schema_suite": suite}], [SCORING.row("schema_suite", share, met=share == 1, unmet_because=absent)]


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
        SCORING.row("lm_eval_speed", middle, spread=[ratios[0], ratios[-1]], met=middle >= 5),
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
        part = f"{asked:,} answers only (--quick)" if quick and tally.agree else None
        found.append(SCORING.row(id, tally.share, met=tally.agree, unmet_because=part))
    return rounds, found


def _hostile(quick: bool) -> Part:
    count = MUTANTS // 10 if quick else MUTANTS
    found = hostile(count)
    held = not found["crashes"] and not found["hangs"]
    said = {"crashes": len(found["crashes"]), "hangs": len(found["hangs"]), "slowest": found["slowest"]}
    part = f"{count:,} mutants only (--quick)" if quick and held else None
    return [{"hostile": found}], [SCORING.row("hostile_outputs", said, met=held, unmet_because=part)]


def _speeds(quick: bool) -> Part:
    rounds = []
    for _ in range(2 if quick else ROUNDS):
        right, mutated = bfcl_rules.simple_checks_per_second(SEED, 5)
        others = {name: per_second(check) for name, check in checks().items()}
        rounds.append({"tool_call_speed": right, "tool_call_mutated": mutated, **others})
    found = []
    for id, limit in (("tool_call_speed", 100_000), ("schema_speed", 20_000)):
        taken = [one[id] for one in rounds]
        middle = statistics.median(taken)
        found.append(SCORING.row(id, middle, spread=[min(taken), max(taken)], met=middle >= limit))
    return rounds, found


def _sandboxed(quick: bool) -> Part:
    return [], sandbox.rows(quick, DATA)


def _stored(quick: bool) -> Part:
    return drift_stored.rows(quick)


PARTS: tuple[tuple[Callable[[bool], Part], tuple[str, ...]], ...] = (
    (_bfcl, ("bfcl_mutations", "bfcl_fuzz")),
    (_suite, ("schema_suite",)),
    (_lm_eval, ("gsm8k_filters", "lm_eval_speed")),
    (_fuzzed, ("filters_fuzz", "match_fuzz", "ifeval_fuzz")),
    (_hostile, ("hostile_outputs",)),
    (_speeds, ("tool_call_speed", "schema_speed")),
    (_sandboxed, tuple(SANDBOX)),
    (_stored, tuple(STORED)),
)


# ------------------------------------------------------------------------------------------------ hostile answers


def hostile(count: int, seed: int = SEED) -> dict[str, Any]:
    """Every shipped scorer on `count` mutants: which raised, which took over a second, the slowest. Empty = held."""
    crashes, hangs, slowest = [], [], 0.0
    for number, text in enumerate(mutants(count, seed)):
        for scorer in registry.SHIPPED:
            if scorer.name == "code" and number % PROGRAM_EVERY:
                continue
            case = Case(evalset="hostile", body=BODY if scorer.mode == "strict" else BODY | COMPAT_BODY)
            evalset = Evalset(
                name="hostile", version="1", sha256="", metrics=scorer.metrics, lenient=("code_fence", "trailing_text"),
                normalizers=("nfkc", "casefold", "collapse_whitespace", "strip_invisible", "strip"),
            )  # fmt: skip
            start = time.process_time()
            try:
                with _stopped_after(HUNG):
                    said = registry.apply(scorer, case, evalset, text)
                    assert set(said) == set(scorer.metrics), "a metric was not scored"
            except _Hung:
                pass
            except Exception as error:
                crashes.append(f"mutant {number}, {scorer.version} {scorer.mode}: {type(error).__name__}")
            seconds = time.process_time() - start
            slowest = max(slowest, seconds)
            if seconds > SLOW:
                hangs.append(f"mutant {number}, {scorer.version} {scorer.mode}: {seconds:.1f} s")
    return {"mutants": count, "seed": seed, "crashes": crashes[:20], "hangs": hangs[:20], "slowest": slowest}


def mutants(count: int, seed: int) -> Iterator[str]:
    """Right answers, spoiled: bombs put in, pieces cut, moved, doubled, characters changed. The same for a seed."""
    rng = random.Random(seed)
    for number in range(count):
        text = rng.choice(ANSWERS)
        for _ in range(rng.randint(1, 3)):
            text = rng.choice(_SPOILERS)(text, rng)
        if number % 500 == 499:
            text += rng.choice(("x", "[", '{"a":', "9", "\u0301", " ", "<tool_call>", "a\n")) * (10 * 2**20)
        yield text[: 10 * 2**20]


def _insert(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(_BOMBS)(rng) + text[at:]


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randint(0, len(text))]


def _move(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[at:] + text[:at]


def _double(text: str, rng: random.Random) -> str:
    return text * rng.randint(2, 50)


def _change(text: str, rng: random.Random) -> str:
    marks = list(text)
    for _ in range(rng.randint(1, 8)):
        if marks:
            marks[rng.randrange(len(marks))] = rng.choice(_MARKS)
    return "".join(marks)


_SPOILERS = (_insert, _insert, _cut, _move, _double, _change)
_MARKS = "{}[]<>/\\\",:'0123456789eE+-.$#`| \n\t\0\x1b\u202e\u200b\ufeff\u0301\ud800\udfff\u0661\uff11\u2212é漢🙂"
_BOMBS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: rng.choice(("[", '{"a":', "(", "<tool_call>", '[{"a":')) * rng.randint(100, 100_000),
    lambda rng: "9" * rng.randint(500, 50_000) + rng.choice(("", "e999999", ".", "." + "9" * 5000)),
    lambda rng: "a" * rng.randint(26, 100_000) + "!",  # for (a+)+ and its like
    lambda rng: json.dumps({"name": "a" * rng.randint(26, 50_000) + "!"}),
    lambda rng: json.dumps({"ages": [{"n": n} for n in range(rng.randint(10, 5000))], "name": "a"}),
    lambda rng: "\u202e\u2066\u200f" * rng.randint(1, 100),
    lambda rng: "\x1b[31m\x1b]0;x\x07" * rng.randint(1, 100),
    lambda rng: "\u0301\u0316" * rng.randint(10, 100_000),
    lambda rng: rng.choice(("<|im_end|>", "<|endoftext|>", "</s>", "[/INST]", "```", "#### ")) * rng.randint(1, 1000),
    lambda rng: "1,234," * rng.randint(10, 20_000),
    lambda rng: '\\"' * rng.randint(10, 50_000),
    lambda rng: "$ -.,%e" * rng.randint(10, 20_000),
    lambda rng: '{"name": "get_weather", "arguments": ' + "[" * rng.randint(10, 200),
    lambda rng: "NaN" if rng.random() < 0.5 else "-Infinity",
    lambda rng: '{"a": 1, "a": 2}',
    lambda rng: "int8  APPROVE  every critical rule proven\n",
)


class _Hung(BaseException):
    """Not an Exception: a scorer that catches those must not go on."""


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise _Hung

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# ------------------------------------------------------------------------------------------------ agreement, speed


def schema_suite() -> dict[str, Any] | None:
    """The official suite's required part for draft 2020-12; None where its files are not."""
    files = sorted((DATA / "json_schema_test_suite" / "tests" / "draft2020-12").glob("*.json"))
    if not files:
        return None
    remotes, agree, tests, differ = _remotes(), 0, 0, set()
    for path in files:
        for group in json.loads(path.read_text(encoding="utf-8")):
            for test in group["tests"]:
                tests += 1
                try:
                    same = (first_error(group["schema"], test["data"], remotes) is None) is test["valid"]
                except CannotValidate:
                    same = False
                agree += same
                if not same:
                    differ.add(f"{path.stem}: {group['description']}")
    return {"tests": tests, "agree": agree, "differ": sorted(differ)}


def _remotes() -> dict[str, Any]:
    """What the suite serves at localhost:1234; a document that names no draft is of 2020-12."""
    folder, found = DATA / "json_schema_test_suite" / "remotes", {}
    for path in folder.rglob("*.json"):
        place = path.relative_to(folder).as_posix()
        if not place.startswith("draft") or place.startswith("draft2020-12/"):
            found[f"http://localhost:1234/{place}"] = {"$schema": DIALECT, **json.loads(path.read_text("utf-8"))}
    return found


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
