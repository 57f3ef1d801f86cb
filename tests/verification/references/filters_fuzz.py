"""lm-eval's own filters and its exact_match, held against ours on made answers.

Every answer goes through every filter; what it finds is compared with the reference by both, under the options of the
task that the filter is from, and any two texts under gsm8k's options and under none. lm-eval's side is what is
installed: its filter classes, its metric, and gsm8k's filters and options from its task file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from qualgate.scoring.filters import FILTERS, STRICT
from qualgate.scoring.lm_eval_match import OF_GSM8K, compared, score_exact_match
from tests.verification.references.agreement import NoReference, Tally, made

RAISES = "raises"
BATCH = 1_000  # answers that lm-eval filters at once, as after a run
CHOICES = (("Paris", "London", "Par"), ("guilty", "Guilty of Romance", "Guilty."), ("a.b", "a+b", "(c)"), ("x",),
           ("yes", "yes", "No"), ("18", "1", ""), ("\u00df", "SS", "\u0130"), (" Paris ", "the cat"),
           tuple(str(number) for number in range(26)))  # fmt: skip
NOT_THEIRS = ("mmlu_pro", "minerva", "aime")  # registered here, and in lm-eval a function of a task or nothing

Pipeline = Sequence[dict[str, Any]]  # as a task file writes it: each step's `function` with its parameters
_FIRST = {"function": "take_first"}
PIPELINES: dict[str, Pipeline] = {
    **{name: ({"function": name}, _FIRST) for name in FILTERS if name not in NOT_THEIRS},
    "none": (_FIRST,),
    "take_first": (_FIRST,),
    "strict-match": ({"function": "regex", "regex_pattern": STRICT}, _FIRST),
    "flexible-extract": (
        {"function": "regex", "regex_pattern": r"(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1},
        _FIRST,
    ),
    "custom-extract": ({"function": "regex", "regex_pattern": r"answer is \(?([ABCDEFGHIJ])\)?"}, _FIRST),
    "choice-extract": (
        {
            "function": "multi_choice_regex",
            "regex_pattern": r"(\([A-Z]\))",
            "group_select": -1,
            "ignore_case": True,
            "ignore_punctuation": True,
        },
        _FIRST,
    ),
}

Row = tuple[str, dict[str, Any]]  # the answer; the case with `choices` and `answer`


class Theirs:
    """lm-eval's filters and exact_match. NoReference where it is not installed."""

    def __init__(self) -> None:
        try:
            import yaml
            from lm_eval.api.metrics import exact_match_hf_evaluate
            from lm_eval.filters import build_filter_ensemble
        except ImportError as error:
            raise NoReference(f"lm-eval cannot be imported: {error}") from None
        self._yaml = yaml
        self._build, self._metric = build_filter_ensemble, exact_match_hf_evaluate
        gsm8k = yaml.safe_load((files("lm_eval") / "tasks/gsm8k/gsm8k.yaml").read_text(encoding="utf-8"))
        self._of_gsm8k = {one["name"]: one["filter"] for one in gsm8k["filter_list"]}
        (self._options,) = gsm8k["metric_list"]

    def of_task(self, file: str, name: str) -> Pipeline:
        """The pipeline that a task's file has under `name`, as it is written there."""
        lines = (files("lm_eval") / "tasks" / file).read_text(encoding="utf-8").splitlines()
        written = "\n".join(line for line in lines if "!function" not in line)  # what only lm-eval's reader takes
        (found,) = (one["filter"] for one in self._yaml.safe_load(written)["filter_list"] if one["name"] == name)
        return found

    def found(self, name: str, pipeline: Pipeline, rows: Sequence[Row]) -> list[Any]:
        """What the pipeline ends with for each row; RAISES where it raises."""
        steps: Any = [
            (step["function"], {key: value for key, value in step.items() if key != "function"})
            for step in self._of_gsm8k.get(name, pipeline)
        ]
        try:
            responses: Any = [[answer] for answer, _ in rows]
            for make in self._build(name, steps).filters:
                responses = make().apply(responses, [case for _, case in rows])
            return list(responses)
        except Exception:  # theirs, so anything; one row stops all of them, so it is looked for
            if len(rows) == 1:
                return [RAISES]
        half = len(rows) // 2
        return [*self.found(name, pipeline, rows[:half]), *self.found(name, pipeline, rows[half:])]

    def same(self, found: str, answer: str, *, gsm8k: bool) -> bool:
        """The verdict of the metric, under gsm8k's options or its own."""
        keys = ("ignore_case", "ignore_punctuation", "regexes_to_ignore") if gsm8k else ()
        options = {key: self._options[key] for key in keys}
        return bool(self._metric(predictions=[found], references=[answer], **options)["exact_match"])


def row(draw: random.Random) -> Row:
    """An answer, and a case whose reference is often near to what a filter may find."""
    answer = made(draw)
    near = draw.choice(answer.split() or [""])
    reference = draw.choice((near, near, f"x #### {near}", answer, answer.strip(), answer.lower(), answer.upper(),
                             near.replace(",", ""), "(A)", "(B)", "[invalid]", made(draw)))  # fmt: skip
    return answer, {"answer": reference, "choices": draw.choice(CHOICES)}


def differential(count: int, seed: int) -> Tally:
    """`count` made answers. By filter, what it finds; by filter and `verdict`, whether that is right; `exact_match`:
    two texts compared with gsm8k's options or none. NoReference."""
    theirs, tally, draw = Theirs(), Tally(), random.Random(seed)
    for start in range(0, count, BATCH):
        rows = [row(draw) for _ in range(min(BATCH, count - start))]
        for name, pipeline in PIPELINES.items():
            _compare(tally, theirs, name, pipeline, rows)
        for answer, case in rows:
            gsm8k = draw.random() < 0.5
            ours = compared(answer, gsm8k=gsm8k) == compared(case["answer"], gsm8k=gsm8k)
            tally.take("exact_match", theirs.same(answer, case["answer"], gsm8k=gsm8k), ours, answer, case, gsm8k)
    return tally


def _compare(tally: Tally, theirs: Theirs, name: str, pipeline: Pipeline, rows: list[Row]) -> None:
    for (answer, case), expected in zip(rows, theirs.found(name, pipeline, rows), strict=True):
        found, gsm8k = FILTERS[name](answer, case), name in OF_GSM8K
        tally.take(name, expected, found, answer, case)
        score = score_exact_match(case, found, gsm8k=gsm8k)["exact_match"]
        verdict = theirs.same(expected, case["answer"], gsm8k=gsm8k)
        tally.take(f"{name}: verdict", verdict, score.verdict, answer, case)
