"""Ask the baseline a few cases, and choose the strictest metric by which it is right often enough to be judged.

A model that answers in sentences is always wrong by `exact_match`, so no variant could be worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.evalsets.own_rows import BY_FORM, SETTINGS, OwnSet, question_of, references_in
from qualgate.gate.comparisons.quality import LEAST_BASELINE_RATE
from qualgate.pipeline.few_cases import with_few_cases
from qualgate.records import Case, Evalset
from qualgate.records.metrics import MARGINS_OF_BASELINE
from qualgate.scoring import score
from qualgate.scoring.outcome import quote
from qualgate.scoring.registry import scorers_of
from qualgate.stats.intervals import binomial_lower, clustered_share
from qualgate.store.database import Store
from qualgate.store.queries import CaseDetail, case_detail, side_by_side
from qualgate.text.numbers import counted

LENGTH = 256  # tokens of an answer, before the length of the baseline's answers is known
CASES = 12  # cases asked of each set
CLOSED = 10  # most different references, shared by several cases, that count as a closed list
FORGIVING = ("strip", "strip_final_period", "casefold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The baseline's answer to one case."""

    case: Mapping[str, Any]  # the case's body
    text: str
    tokens: int
    cut: bool  # ended by max_new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to score a set: its metrics, and other settings of its YAML."""

    metrics: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Metrics and settings, for messages."""
        return ", ".join(self.metrics) + "".join(
            f" ({key}: {value if isinstance(value, str) else ', '.join(value)})" for key, value in self.settings.items()
        )

    def values(self, answers: Sequence[Answer]) -> list[float]:
        """Return each answer's score, 0..1: the lowest of its metrics; 0 for an answer that cannot be scored."""
        normalizers, lenient = (tuple(self.settings.get(key, ())) for key in ("normalizers", "lenient"))
        evalset = Evalset(
            name="own", version="1", sha256="", metrics=self.metrics, normalizers=normalizers, lenient=lenient
        )
        added = {"pattern": self.settings["pattern"]} if "pattern" in self.settings else {}
        values = []
        for answer in answers:
            case = Case(evalset="own", body={**added, **answer.case})
            scores = score(case, evalset, answer.text, "length" if answer.cut else "eos")
            values.append(min(scored.value or 0.0 for scored in scores))
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Result of asking one set. way: None if the baseline is right too rarely by every way; advice: what to change."""

    way: Way | None
    advice: str = ""
    answers: tuple[Answer, ...]
    tried: tuple[tuple[Way, int], ...]  # (way, number of right answers), the strictest first


def first_answers(gate: GateFile, progress: Callable[[str], None]) -> dict[str, tuple[Answer, ...]]:
    """Return evalset → the baseline's answers to a few cases. Raises UsageError as a run of the gate file does."""
    from qualgate.engine.job import run_job
    from qualgate.engine.load import load_arm
    from qualgate.pipeline.plan import make_plan

    plan = make_plan(with_few_cases(gate, CASES))
    cases = {(item.name, case.id): case.body for item in plan.evalsets for case in item.cases}
    jobs = [job for job in plan.jobs if job.arm.is_baseline]
    progress(f"asking the baseline {sum(len(job.prompts) for job in jobs)} cases")
    arm = load_arm(gate.baseline, Path(plan.artifacts) / "packed", {}, device="cpu")
    by_set: dict[str, list[Answer]] = {}
    for job in jobs:
        for completion in run_job(arm, replace(job, artifact="", timed=False)).completions:
            case = cases[completion.key.evalset, completion.key.case_id]
            cut = completion.finish_reason == "length"
            answer = Answer(case=case, text=completion.text, tokens=len(completion.token_ids), cut=cut)
            by_set.setdefault(completion.key.evalset, []).append(answer)
    return {name: tuple(answers) for name, answers in by_set.items()}


def choose(own_set: OwnSet, answers: Sequence[Answer], margin: float) -> Looked:
    """Choose the strictest way to score the set by which the baseline is right often enough to lose `margin`: at the
    rate seen here the gate's lower bound must exceed its floor. For a set without references, take every such metric.
    """
    min_rate = max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin)
    tried, fit = [], []
    for way in ways_of(own_set):
        if fit and (own_set.kind not in BY_FORM or way.metrics == fit[-1].metrics):
            continue
        values = np.array(way.values(answers))
        tried.append((way, round(float(values.sum()))))
        if _lower_bound(np.resize(np.sort(values), len(own_set.cases))) >= min_rate:
            fit.append(way)
    metrics = tuple(metric for way in fit for metric in way.metrics)
    return Looked(
        way=Way(metrics=metrics, settings=fit[-1].settings) if fit else None,
        answers=tuple(answers),
        tried=tuple(tried),
        advice=_advice(own_set, answers),
    )


def length_for(answers: Sequence[Answer]) -> int:
    """Return a limit that hardly any answer reaches: four times the longest answer, rounded up to a power of two."""
    return max(32, 1 << (4 * max(answer.tokens for answer in answers) - 1).bit_length())


def _lower_bound(values: np.ndarray, alpha: float = 0.05) -> float:
    """Return the lower bound of the baseline's rate, computed as the gate does."""
    if np.isin(values, (0, 1)).all():
        return binomial_lower(int(values.sum()), len(values), alpha)
    return clustered_share(values, np.ones(len(values)), np.arange(len(values)), 0.0, alpha).lower


def way_of(looked: Looked) -> Way:
    """Return how the set is scored."""
    assert looked.way is not None, "refuse_unjudgeable"
    return looked.way


def why_chosen(looked: Looked) -> str:
    """Explain the choice of metrics, with the cases that were asked: a comment in the set's YAML."""
    count = len(looked.answers)
    findings = "; ".join(f"by {way.label} it is right on {right} of {count}" for way, right in looked.tried)
    ids = ", ".join(str(answer.case["id"]) for answer in looked.answers)
    text = f"The baseline was asked {counted(count, 'case')} ({ids}): {findings}."
    chosen = way_of(looked).metrics
    if len(chosen) > 1 and (omitted := [way.label for way, _ in looked.tried if not {*way.metrics} & {*chosen}]):
        text += f" Left out, as it is right too rarely to lose any: {', '.join(omitted)}."
    return text


def looked_as_lines(name: str, looked: Looked) -> list[str]:
    """Return a line for each asked case with answer and reference, then one on the choice."""
    lines = [f"{name}: {_answer_line(answer)}" for answer in looked.answers]
    return [*lines, f"{name}: {why_chosen(looked)}"] if looked.way else lines


def refuse_unjudgeable(looked: Mapping[str, Looked]) -> None:
    """Raise UsageError for a set on which the baseline is right too rarely by every way of scoring."""
    for name, look in looked.items():
        if look.way is not None:
            continue
        count = len(look.answers)
        tried = "; ".join(f"{right} of {count} by {way.label}" for way, right in look.tried)
        way = max(look.tried, key=lambda tried: tried[1])[0]
        wrong = [answer for answer, value in zip(look.answers, way.values(look.answers), strict=True) if value < 1]
        examples = "\n".join(f"  {_answer_line(answer)}" for answer in wrong[:3])
        raise UsageError(
            f"{name}: the baseline is right on too few cases to lose any: {tried}. {look.advice}; `--no-look` writes "
            f"the files all the same.\n{examples}"
        )


_ASK_FOR = {  # kind → what to write into the prompts
    "choices": "the choice alone (`Answer with the letter alone.`)",
    "json": "the JSON object alone, and name the schema's keys",
    "json-answers": "the JSON object alone, and name the schema's keys",
    "code": "the function alone, in a code block",
    "tools": "a call: see that the chat template shows the model its tools, or show them and a call in the messages",
    "calls": "a call: see that the chat template shows the model its tools, or show them and a call in the messages",
}


def _advice(own_set: OwnSet, answers: Sequence[Answer]) -> str:
    """Suggest a change for a set on which the baseline is right too rarely: a higher limit if most answers were cut,
    else a clearer prompt for this kind of set."""
    if 2 * sum(answer.cut for answer in answers) > len(answers):
        return f"Most answers were cut at {own_set.length:,} tokens: give --max-new-tokens more"
    if own_set.kind in _ASK_FOR:
        return f"Ask in the prompt for {_ASK_FOR[own_set.kind]}, or bring cases that this model can answer"
    return (
        f"{_too_short(own_set)}Ask for the form of the reference in the prompt (`Answer with the name alone.`), list "
        "every right answer as `references`, or bring cases that this model can answer"
    )


def _answer_line(answer: Answer) -> str:
    expected = answer.case.get("references", answer.case.get("answer", answer.case.get("contains", "")))
    cut = ", cut" if answer.cut else ""
    reference = f"; reference {quote(expected, 40)}" if expected != "" else ""
    return f"{quote(question_of(answer.case), 60)} -> {quote(answer.text, 80)}{cut}{reference}"


def ways_of(own_set: OwnSet) -> tuple[Way, ...]:
    """Return the ways to score the set's rows, the strictest first."""
    plain = Way(metrics=own_set.metrics, settings=SETTINGS.get(own_set.kind, {}))
    match own_set.kind:
        case "answers":
            normalized = Way(metrics=own_set.metrics, settings={"normalizers": FORGIVING})
            return plain, normalized, *_in_sentences(own_set)
        case "numbers":
            return plain, *_in_sentences(own_set)
        case "choices":
            return plain, Way(metrics=own_set.metrics, settings={"lenient": ("trailing_text",)})
        case "json-answers":
            fenced = replace(plain, settings={**plain.settings, "lenient": ("code_fence",)})
            return (
                plain,
                fenced,
                Way(metrics=("json.schema",)),
                Way(metrics=("json.schema",), settings={"lenient": ("code_fence",)}),
            )
        case "json":
            fenced = Way(metrics=own_set.metrics, settings={"lenient": ("code_fence",)})
            return plain, fenced, Way(metrics=own_set.metrics, settings={"lenient": ("code_fence", "trailing_text")})
        case "code":
            return plain, Way(metrics=own_set.metrics, settings={"lenient": ("code_fence",)})
        case kind if kind in BY_FORM:
            fenced = Way(metrics=("json.valid",), settings={"lenient": ("code_fence",)})
            alone = tuple(Way(metrics=(metric,)) for metric in own_set.metrics)
            return (*alone, fenced) if kind == "json-prompts" else alone
    return (plain,)


def _in_sentences(own_set: OwnSet) -> tuple[Way, ...]:
    """Return the way to score answers in sentences: `pattern` for a closed list of references, else `contains`, which
    needs references of two characters or more."""
    references = [text for case in own_set.cases for text in references_in(case)]
    different = dict.fromkeys(text.strip().casefold() for text in references)
    shared = len(different) <= min(CLOSED, len(references) // 2)
    if shared or different.keys() <= {"yes", "no", "true", "false", "maybe", "unknown"}:
        if not all(text.isascii() and text.replace(" ", "").isalnum() for text in different):
            return ()
        labels = "|".join(sorted(different, key=len, reverse=True))
        return (Way(metrics=("pattern",), settings={"pattern": f"(?i)\\b({labels})\\b"}),)
    return () if _too_short(own_set) else (Way(metrics=("contains",)),)


def _too_short(own_set: OwnSet) -> str:
    """Explain why `contains` is not proposed for short references; "" if all are long enough."""
    short = [case["id"] for case in own_set.cases if any(len(text.strip()) < 2 for text in references_in(case))]
    if own_set.kind not in ("answers", "numbers") or not short:
        return ""
    return (
        f"`contains` was not tried, as references of one character are in many an answer by chance "
        f"({counted(len(short), 'case')}: {', '.join(short[:3])}{', …' if len(short) > 3 else ''}): write them out, or "
        "move these cases into a file of their own. "
    )


def read_otherwise(store: Store, run_id: str, variant: str) -> Iterator[str]:
    """Yield a note for each set of the run on which another metric would find many more right answers."""
    by_set: dict[str, list[CaseDetail]] = {}
    for row in side_by_side(store, run_id, variant, limit=CASES)[0]:
        detail = case_detail(store, run_id, variant, row.evalset, row.case_id, row.repeat)
        by_set.setdefault(row.evalset, []).append(detail)
    for name, details in by_set.items():
        answers = [
            Answer(case=detail.body, text=detail.baseline.text, tokens=0, cut=detail.baseline.finish_reason == "length")
            for detail in details
        ]
        scored = details[0].baseline.scores[-1:]
        right = sum(detail.baseline.scores[-1].value == 1 for detail in details if detail.baseline.scores)
        ways = (Way(metrics=("contains",)), Way(metrics=("numeric",)))
        for way in ways if scored and 2 * right < len(details) else ():
            if any(fault for answer in answers for fault in _unfit(way, answer)):
                continue
            other_right = round(sum(way.values(answers)))
            if other_right > right + len(details) // 4:
                yield (
                    f"{name}: the baseline is right on {right} of {counted(len(details), 'case')} by "
                    f"{scored[0].metric}; `{way.label}` would score {other_right} of {len(details)}: write `metrics: "
                    f"[{way.label}]` in the set's YAML"
                )
                break


def _unfit(way: Way, answer: Answer) -> Iterator[str]:
    evalset = Evalset(name="own", version="1", sha256="", metrics=way.metrics)
    for scorer in scorers_of(way.metrics):
        yield from scorer.unscorable(dict(answer.case), evalset)
