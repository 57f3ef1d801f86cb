"""lm-eval's own filters and its exact_match, held against ours on made answers.

Every answer goes through every pipeline that has a name, and one that is written out as task files write them; what a
pipeline finds is compared with the reference by both, under the options of the task it is from and under drawn ones.
lm-eval's side is what is installed: its filter classes, its metric, and gsm8k's filters and options from its task file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from qualgate.scoring import filters
from qualgate.scoring.filters import FilterFault
from qualgate.scoring.lm_eval_match import Options, compared, score_exact_match
from tests.verification.references.agreement import NoReference, Tally, made

RAISES = "raises"
BATCH = 1_000  # answers that lm-eval filters at once, as after a run
CHOICES = (("Paris", "London", "Par"), ("guilty", "Guilty of Romance", "Guilty."), ("a.b", "a+b", "(c)"), ("x",),
           ("yes", "yes", "No"), ("18", "1", ""), ("\u00df", "SS", "\u0130"), (" Paris ", "the cat"),
           tuple(str(number) for number in range(26)))  # fmt: skip
TOO_MANY = tuple(str(number) for number in range(27))  # lm-eval runs out of letters
NOT_THEIRS = ("mmlu_pro", "minerva", "aime")  # registered here, and in lm-eval a function of a task or nothing
_FIRST = {"function": "take_first"}


def _regex(pattern: str, **more: Any) -> filters.Pipeline:
    return ({"function": "regex", "regex_pattern": pattern, **more}, _FIRST)


def _choice(**more: Any) -> filters.Pipeline:
    return ({"function": "multi_choice_regex", **more}, _FIRST)


WRITTEN: tuple[filters.Pipeline, ...] = (
    _regex(r"The answer is (\-?[0-9\.\,]+)."), _regex(r"\b([A-D])\b", group_select=-1), _regex("(x)|(a)", fallback="?"),
    _regex(r"(?<=The answer is )(.*)(?=.)"), _regex(r"answer is \(?([ABCDEFGHIJ])\)?"), _regex("([A-E]).*"),
    _regex(r"(-?[0-9]+([ .,][0-9.,]+)?)"), _regex(r"\s*(\S+)\s*", group_select=1), _regex(r"(\d+)|(\w)",
    group_select=-1), _regex(r"(?i)answer\s*:\s*(.*)$", fallback=""), _regex(r"[^\d]+"), _regex("([0-9])*"),
    _regex(r"\W*"), _regex(r"\\boxed\{([^}]*)"), _regex("(a|an|the) ?", group_select=2), _regex("(?m)^(.*)$",
    group_select=-1), _choice(regex_pattern=r"(\([A-Z]\))", group_select=-1), _choice(ignore_case=True),
    _choice(ignore_punctuation=True), _choice(ignore_case=True, ignore_punctuation=True, regexes_to_ignore=["of",
    r"\s"], fallback="?"), _choice(regex_pattern=r"(x)|([A-Z])\)", regexes_to_ignore=[r"\.$", ",", "(?s).*#### "]),
    ({"function": "remove_whitespace"}, {"function": "lowercase"}, _FIRST),
    ({"function": "map", "mapping_dict": {"18": "eighteen", "": "nothing"}, "default_value": "other"}, _FIRST),
    ({"function": "lowercase"}, {"function": "map", "mapping_dict": {"paris": "Paris", "a": 1}}, _FIRST),
    ({"function": "regex"}, {"function": "majority_vote"}, _FIRST), (_FIRST, {"function": "uppercase"}),
    ({"function": "take_first_k", "k": 2}, {"function": "majority_vote"}, _FIRST), (_FIRST, {"function": "regex"}),
    ({"function": "regex_pos", "fallback": ["none"]},), ({"function": "format_span"}, {"function": "uppercase"},
    _FIRST),
)  # fmt: skip
IGNORED = (",", r"\$", "(?s).*#### ", r"\.$", r"\s+", "[ae]", r"\W", "^the ", r"\d+(?=%)", "a*")

Row = tuple[list[str], dict[str, Any]]  # the responses; the case with `choices` and `answer`


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

    def of_task(self, file: str, name: str) -> filters.Pipeline:
        """The pipeline that a task's file has under `name`, as it is written there."""
        lines = (files("lm_eval") / "tasks" / file).read_text(encoding="utf-8").splitlines()
        written = "\n".join(line for line in lines if "!function" not in line)  # what only lm-eval's reader takes
        (found,) = (one["filter"] for one in self._yaml.safe_load(written)["filter_list"] if one["name"] == name)
        return found

    def found(self, name: str, pipeline: filters.Pipeline, rows: Sequence[Row]) -> list[Any]:
        """What the pipeline ends with for each row; RAISES where it raises."""
        steps: Any = [
            (step["function"], {key: value for key, value in step.items() if key != "function"})
            for step in self._of_gsm8k.get(name, pipeline)
        ]
        try:
            responses: Any = [list(responses) for responses, _ in rows]
            for make in self._build(name, steps).filters:
                responses = make().apply(responses, [case for _, case in rows])
            return list(responses)
        except Exception:  # theirs, so anything; one row stops all of them, so it is looked for
            if len(rows) == 1:
                return [RAISES]
        half = len(rows) // 2
        return [*self.found(name, pipeline, rows[:half]), *self.found(name, pipeline, rows[half:])]

    def same(self, name: str, found: str, answer: str) -> bool | str:
        """The verdict of the task that the filter `name` is from, else of the metric as it is."""
        keys = ("ignore_case", "ignore_punctuation", "regexes_to_ignore") if name in self._of_gsm8k else ()
        return self.same_by({key: self._options[key] for key in keys}, found, answer)

    def same_by(self, options: dict[str, Any], found: str, answer: str) -> bool | str:
        try:
            return bool(self._metric(predictions=[found], references=[answer], **options)["exact_match"])
        except Exception:
            return RAISES


def row(draw: random.Random, repeats: int) -> Row:
    """`repeats` responses, some of them alike, and a case whose answer is often near to what a filter may find."""
    responses = [made(draw) for _ in range(repeats)]
    responses = [draw.choice(responses) for _ in responses]
    near = draw.choice(responses[0].split() or [""])
    answer = draw.choice((near, near, f"x #### {near}", responses[0], responses[0].strip(), responses[0].lower(),
                          responses[0].upper(), near.replace(",", ""), "(A)", "(B)", "[invalid]",
                          made(draw)))  # fmt: skip
    return responses, {"answer": answer, "choices": TOO_MANY if not draw.randrange(10_000) else draw.choice(CHOICES)}


def differential(count: int, seed: int) -> Tally:
    """`count` made answers. By filter, what it finds; by filter and `verdict`, whether that is right; `exact_match`:
    two texts compared under drawn options. NoReference."""
    theirs, tally, draw = Theirs(), Tally(), random.Random(seed)
    names = [name for name in (*filters.PIPELINES, *filters.STEPS) if name not in ("take_first_k", *NOT_THEIRS)]
    for start in range(0, count, BATCH):
        repeats = draw.choice((1, 1, 3))  # the same for every case of a run
        rows = [row(draw, repeats) for _ in range(min(BATCH, count - start))]
        for name in names:
            _compare(tally, theirs, name, name, filters.named(name), rows)
        drawn = [draw.randrange(len(WRITTEN)) for _ in rows]
        for number, pipeline in enumerate(WRITTEN):
            of_it = [one for one, place in zip(rows, drawn, strict=True) if place == number]
            _compare(tally, theirs, f"written out, {number + 1}", pipeline, pipeline, of_it)
        for responses, case in rows:
            _compare_options(tally, theirs, draw, responses[0], case["answer"])
    return tally


def _compare(
    tally: Tally, theirs: Theirs, name: str, ours: str | filters.Pipeline, pipeline: filters.Pipeline, rows: list[Row]
) -> None:
    run = filters.build(ours)
    for (responses, case), expected in zip(rows, theirs.found(name, pipeline, rows), strict=True):
        try:
            found = run(responses, case)
        except FilterFault:
            found = RAISES
        tally.take(name, expected, found, responses, case)
        score = score_exact_match(case, responses, ours)["exact_match"]
        if isinstance(expected, str) and expected is not RAISES:
            verdict = theirs.same(name, expected, case["answer"])
            tally.take(f"{name}: verdict", verdict, score.verdict, responses, case)
        else:
            tally.take(f"{name}: no verdict", None, score.verdict, responses, case)


def _compare_options(tally: Tally, theirs: Theirs, draw: random.Random, one: str, other: str) -> None:
    ignored = draw.sample(IGNORED, draw.choice((0, 0, 1, 2, 3)))
    flags = {key: draw.random() < 0.5 for key in ("ignore_case", "ignore_punctuation", "ignore_numbers")}
    options = Options(regexes_to_ignore=tuple(ignored), **flags)
    verdict = theirs.same_by({"regexes_to_ignore": ignored or None, **flags}, one, other)
    tally.take("exact_match", verdict, compared(one, options) == compared(other, options), one, other, options)
