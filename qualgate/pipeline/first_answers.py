"""Ask the baseline a few cases before anything is chosen, and take the strictest metric under which it can be judged.

A model that answers in sentences is right on nothing by `exact_match`, and then no variant can lose anything there.
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
from qualgate.formatting import counted
from qualgate.gate.comparisons.quality import LEAST_BASELINE_RATE
from qualgate.metrics import MARGINS_OF_BASELINE
from qualgate.pipeline.trial import as_trial
from qualgate.records import Case, Evalset
from qualgate.scoring import score
from qualgate.scoring.outcome import quote
from qualgate.scoring.registry import scorers_of
from qualgate.stats.intervals import binomial_lower, clustered_share
from qualgate.store.database import Store
from qualgate.store.queries import CaseDetail, case_detail, side_by_side

LENGTH = 256  # tokens of an answer while nobody knows how long the baseline's are
CASES = 12  # asked of each set
CLOSED = 10  # different references at most, each of which some cases share: a list to choose from
FORGIVING = ("strip", "strip_final_period", "casefold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the baseline said to one case."""

    case: Mapping[str, Any]  # its body
    text: str
    tokens: int
    cut: bool  # at max_new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to score a set: its metrics, and what else the set's YAML says."""

    metrics: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """As a line for the user names it."""
        return ", ".join(self.metrics) + "".join(
            f" ({key}: {value if isinstance(value, str) else ', '.join(value)})" for key, value in self.settings.items()
        )

    def values(self, answers: Sequence[Answer]) -> list[float]:
        """The score of each answer, 0..1; by several metrics the least of them. What nobody can judge counts 0."""
        normalizers, lenient = (tuple(self.settings.get(key, ())) for key in ("normalizers", "lenient"))
        evalset = Evalset(
            name="own", version="1", sha256="", metrics=self.metrics, normalizers=normalizers, lenient=lenient
        )
        added = {"pattern": self.settings["pattern"]} if "pattern" in self.settings else {}
        found = []
        for answer in answers:
            case = Case(evalset="own", body={**added, **answer.case})
            scores = score(case, evalset, answer.text, "length" if answer.cut else "eos")
            found.append(min(one.value or 0.0 for one in scores))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found of one set. way: None where the baseline cannot be judged by any. advice: what to change then."""

    way: Way | None
    advice: str = ""
    answers: tuple[Answer, ...]
    tried: tuple[tuple[Way, int], ...]  # the strictest first, with how many answers are right by it


def first_answers(gate: GateFile, progress: Callable[[str], None]) -> dict[str, tuple[Answer, ...]]:
    """Evalset → the baseline's answers to a few of its cases. Raises UsageError as a run of the gate file does."""
    from qualgate.engine.job import run_job
    from qualgate.engine.load import load_arm
    from qualgate.pipeline.plan import make_plan

    plan = make_plan(as_trial(gate, CASES, ()))
    cases = {(item.name, case.id): case.body for item in plan.evalsets for case in item.cases}
    jobs = [job for job in plan.jobs if job.arm.is_baseline]
    progress(f"asking the baseline {sum(len(job.prompts) for job in jobs)} cases")
    arm = load_arm(gate.baseline, Path(plan.artifacts) / "packed", {}, device="cpu")
    found: dict[str, list[Answer]] = {}
    for job in jobs:
        for said in run_job(arm, replace(job, artifact="", timed=False)).completions:
            case = cases[said.key.evalset, said.key.case_id]
            cut = said.finish_reason == "length"
            answer = Answer(case=case, text=said.text, tokens=len(said.token_ids), cut=cut)
            found.setdefault(said.key.evalset, []).append(answer)
    return {name: tuple(answers) for name, answers in found.items()}


def choose(one: OwnSet, answers: Sequence[Answer], margin: float) -> Looked:
    """The strictest way to score the set by which the baseline is right often enough to lose `margin`: if it is right
    on as large a share of all cases as of these, the gate's own bound is above the gate's floor. Of a set without
    references, every metric of which that holds."""
    least = max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin)
    tried, fit = [], []
    for way in ways_of(one):
        if fit and (one.kind not in BY_FORM or way.metrics == fit[-1].metrics):
            continue
        values = np.array(way.values(answers))
        tried.append((way, round(float(values.sum()))))
        if _surely(np.resize(np.sort(values), len(one.cases))) >= least:
            fit.append(way)
    metrics = tuple(metric for way in fit for metric in way.metrics)
    return Looked(
        way=Way(metrics=metrics, settings=fit[-1].settings) if fit else None,
        answers=tuple(answers),
        tried=tuple(tried),
        advice=_advice(one, answers),
    )


def length_for(answers: Sequence[Answer]) -> int:
    """Tokens that hardly any answer of the baseline reaches: four times the longest of these, as a power of two."""
    return max(32, 1 << (4 * max(answer.tokens for answer in answers) - 1).bit_length())


def _surely(values: np.ndarray, alpha: float = 0.05) -> float:
    """The lower bound of the baseline's rate, as the gate takes it."""
    if np.isin(values, (0, 1)).all():
        return binomial_lower(int(values.sum()), len(values), alpha)
    return clustered_share(values, np.ones(len(values)), np.arange(len(values)), 0.0, alpha).lower


def way_of(looked: Looked) -> Way:
    """How the set is scored."""
    assert looked.way is not None, "refuse_unjudgeable"
    return looked.way


def why_chosen(looked: Looked) -> str:
    """Why the set is scored so, with the cases that were looked at: a comment in its YAML."""
    asked = len(looked.answers)
    found = "; ".join(f"by {way.label} it is right on {right} of {asked}" for way, right in looked.tried)
    ids = ", ".join(str(answer.case["id"]) for answer in looked.answers)
    said = f"The baseline was asked {counted(asked, 'case')} ({ids}): {found}."
    taken = way_of(looked).metrics
    if len(taken) > 1 and (left := [way.label for way, _ in looked.tried if not {*way.metrics} & {*taken}]):
        said += f" Left out, as it is right too rarely to lose any: {', '.join(left)}."
    return said


def looked_as_lines(name: str, looked: Looked) -> list[str]:
    """Each case that was asked, with the answer and the reference; then what was chosen."""
    lines = [f"{name}: {_beside(answer)}" for answer in looked.answers]
    return [*lines, f"{name}: {why_chosen(looked)}"] if looked.way else lines


def refuse_unjudgeable(looked: Mapping[str, Looked]) -> None:
    """Raise UsageError for a set on which the baseline is right too rarely to lose anything, however it is scored."""
    for name, one in looked.items():
        if one.way is not None:
            continue
        asked = len(one.answers)
        tried = "; ".join(f"{right} of {asked} by {way.label}" for way, right in one.tried)
        way = max(one.tried, key=lambda tried: tried[1])[0]
        wrong = [answer for answer, value in zip(one.answers, way.values(one.answers), strict=True) if value < 1]
        shown = "\n".join(f"  {_beside(answer)}" for answer in wrong[:3])
        raise UsageError(
            f"{name}: the baseline is right on too few cases to lose any: {tried}. {one.advice}; `--no-look` writes "
            f"the files all the same.\n{shown}"
        )


_ASK_FOR = {  # kind → what to write into the prompts
    "choices": "the choice alone (`Answer with the letter alone.`)",
    "json": "the JSON object alone, and name the schema's keys",
    "json-answers": "the JSON object alone, and name the schema's keys",
    "code": "the function alone, in a code block",
    "tools": "a call: see that the chat template shows the model its tools, or show them and a call in the messages",
    "calls": "a call: see that the chat template shows the model its tools, or show them and a call in the messages",
}


def _advice(one: OwnSet, answers: Sequence[Answer]) -> str:
    """What to change where the baseline is right too rarely."""
    if 2 * sum(answer.cut for answer in answers) > len(answers):
        return f"Most answers were cut at {one.length:,} tokens: give --max-new-tokens more"
    if one.kind in _ASK_FOR:
        return f"Ask in the prompt for {_ASK_FOR[one.kind]}, or bring cases that this model can answer"
    return (
        f"{_too_short(one)}Ask for the form of the reference in the prompt (`Answer with the name alone.`), list every "
        "right answer as `references`, or bring cases that this model can answer"
    )


def _beside(answer: Answer) -> str:
    wanted = answer.case.get("references", answer.case.get("answer", answer.case.get("contains", "")))
    cut = ", cut" if answer.cut else ""
    reference = f"; reference {quote(wanted, 40)}" if wanted != "" else ""
    return f"{quote(question_of(answer.case), 60)} -> {quote(answer.text, 80)}{cut}{reference}"


def ways_of(one: OwnSet) -> tuple[Way, ...]:
    """The ways in which the set's rows can be scored, the strictest first."""
    plain = Way(metrics=one.metrics, settings=SETTINGS.get(one.kind, {}))
    match one.kind:
        case "answers":
            forgiving = Way(metrics=one.metrics, settings={"normalizers": FORGIVING})
            return plain, forgiving, *_in_sentences(one)
        case "numbers":
            return plain, *_in_sentences(one)
        case "choices":
            return plain, Way(metrics=one.metrics, settings={"lenient": ("trailing_text",)})
        case "json-answers":
            fenced = replace(plain, settings={**plain.settings, "lenient": ("code_fence",)})
            return (
                plain,
                fenced,
                Way(metrics=("json.schema",)),
                Way(metrics=("json.schema",), settings={"lenient": ("code_fence",)}),
            )
        case "json":
            fenced = Way(metrics=one.metrics, settings={"lenient": ("code_fence",)})
            return plain, fenced, Way(metrics=one.metrics, settings={"lenient": ("code_fence", "trailing_text")})
        case "code":
            return plain, Way(metrics=one.metrics, settings={"lenient": ("code_fence",)})
        case kind if kind in BY_FORM:
            fenced = Way(metrics=("json.valid",), settings={"lenient": ("code_fence",)})
            alone = tuple(Way(metrics=(metric,)) for metric in one.metrics)
            return (*alone, fenced) if kind == "json-prompts" else alone
    return (plain,)


def _in_sentences(one: OwnSet) -> tuple[Way, ...]:
    """By what a sentence holds: `pattern` for a closed list, else `contains`, for which a reference has two characters
    at least."""
    references = [each for case in one.cases for each in references_in(case)]
    different = dict.fromkeys(text.strip().casefold() for text in references)
    shared = len(different) <= min(CLOSED, len(references) // 2)
    if shared or different.keys() <= {"yes", "no", "true", "false", "maybe", "unknown"}:
        if not all(text.isascii() and text.replace(" ", "").isalnum() for text in different):
            return ()
        labels = "|".join(sorted(different, key=len, reverse=True))
        return (Way(metrics=("pattern",), settings={"pattern": f"(?i)\\b({labels})\\b"}),)
    return () if _too_short(one) else (Way(metrics=("contains",)),)


def _too_short(one: OwnSet) -> str:
    """Why `contains` is not proposed: a single character is in many an answer by chance."""
    short = [case["id"] for case in one.cases if any(len(text.strip()) < 2 for text in references_in(case))]
    if one.kind not in ("answers", "numbers") or not short:
        return ""
    return (
        f"`contains` was not tried, as references of one character are in many an answer by chance "
        f"({counted(len(short), 'case')}: {', '.join(short[:3])}{', …' if len(short) > 3 else ''}): write them out, or "
        "move these cases into a file of their own. "
    )


def read_otherwise(store: Store, run_id: str, variant: str) -> Iterator[str]:
    """A line for each set of a trial whose baseline is right on few answers that another metric would find right."""
    by_set: dict[str, list[CaseDetail]] = {}
    for one in side_by_side(store, run_id, variant, limit=CASES)[0]:
        detail = case_detail(store, run_id, variant, one.evalset, one.case_id, one.repeat)
        by_set.setdefault(one.evalset, []).append(detail)
    for name, found in by_set.items():
        answers = [
            Answer(case=one.body, text=one.baseline.text, tokens=0, cut=one.baseline.finish_reason == "length")
            for one in found
        ]
        scored = found[0].baseline.scores[-1:]
        right = sum(detail.baseline.scores[-1].value == 1 for detail in found if detail.baseline.scores)
        for way in (Way(metrics=("contains",)), Way(metrics=("numeric",))) if scored and 2 * right < len(found) else ():
            if any(fault for answer in answers for fault in _unfit(way, answer)):
                continue
            would = round(sum(way.values(answers)))
            if would > right + len(found) // 4:
                yield (
                    f"{name}: the baseline is right on {right} of {counted(len(found), 'case')} by {scored[0].metric}; "
                    f"`{way.label}` would score {would} of {len(found)}: write `metrics: [{way.label}]` in the set's "
                    "YAML"
                )
                break


def _unfit(way: Way, answer: Answer) -> Iterator[str]:
    evalset = Evalset(name="own", version="1", sha256="", metrics=way.metrics)
    for scorer in scorers_of(way.metrics):
        yield from scorer.unscorable(dict(answer.case), evalset)
