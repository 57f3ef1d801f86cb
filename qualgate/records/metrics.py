"""The closed list of metrics a rule may name, with meaning and unit (shown by `qualgate config metrics`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric that rules may name, and the bounds that fit it."""

    name: str
    kind: Literal[
        "quality", "likelihood", "drift", "latency", "cost", "service", "arm", "stability", "judged", "length"
    ]
    binary: bool  # every value is 0 or 1
    better: Literal["higher", "lower"]
    unit: str
    meaning: str
    bounds: tuple[str, ...]  # the thresholds a rule on it may set
    everywhere: bool = False  # a rule may name it for any evalset; it is scored where a rule or the evalset names it
    references: tuple[str, ...] = ()  # keys of a case's body that it compares answers with

    @property
    def approves(self) -> bool:
        """Whether the metric scores answers, so that a critical rule on it can approve."""
        return self.kind in ("quality", "likelihood")

    @property
    def of_any_two(self) -> bool:
        """Whether any two arms of a run have it; the rest is measured against the baseline alone, or of one arm."""
        return self.approves or self.kind in ("latency", "cost", "service")


JUDGE, PEOPLE = "judge.win", "people.win"  # who compares two answers
DROPS = ("max_drop", "max_relative_drop")  # in points, and of the baseline's own rate


def _quality(
    name: str, meaning: str, references: tuple[str, ...] = (), *, binary: bool = True, everywhere: bool = False
) -> Metric:
    """Define a metric that scores single answers, and that rules bound by a drop."""
    return Metric(
        name=name, kind="quality", binary=binary, better="higher", unit="rate", meaning=meaning, bounds=DROPS,
        everywhere=everywhere, references=references,
    )  # fmt: skip


def _likelihood(name: str, unit: str, meaning: str) -> Metric:
    return Metric(name=f"{LM_EVAL}{name}", kind="likelihood", binary=False, better="lower", unit=unit, meaning=meaning,
                  bounds=("max_ratio",))  # fmt: skip


def _drift(name: str, better: Literal["higher", "lower"], unit: str, meaning: str, bound: str) -> Metric:
    return Metric(name=name, kind="drift", binary=False, better=better, unit=unit, meaning=meaning, bounds=(bound,))


def _latency(name: str, meaning: str) -> Metric:
    """Define a metric of time in seconds that rules bound by `max_ratio`."""
    return Metric(
        name=name,
        kind="latency",
        binary=False,
        better="lower",
        unit="seconds",
        meaning=meaning,
        bounds=("max_ratio",),
    )


def _arm(name: str, better: Literal["higher", "lower"], unit: str, meaning: str, *bounds: str) -> Metric:
    """A number of the variant as a whole, measured while it was made or loaded, independent of the cases."""
    return Metric(name=name, kind="arm", binary=False, better=better, unit=unit, meaning=meaning, bounds=bounds)


# lm-eval's metrics have one name and one value a filter. A set says which filter counts, so these names stay closed.
LM_EVAL = "lm_eval."
_OF_LM_EVAL = {
    "exact_match": "lm-eval's exact_match of what the set's filter extracts",
    "acc": "lm-eval's acc: the most likely choice is the right one, or the continuation is the greedy one",
    "acc_norm": "lm-eval's acc_norm: the most likely choice for its length in characters is the right one",
    "acc_bytes": "lm-eval's acc_bytes: the most likely choice for its length in bytes is the right one",
    "acc_mutual_info": "lm-eval's acc_mutual_info: the choice that the question makes most likely is the right one",
    "f1": "lm-eval's f1 of one sample",
}

HARNESS = "harness."  # a score of another harness: `harness.` and the scorer's own name there


@lru_cache(maxsize=4096)
def _of_harness(name: str) -> Metric:
    meaning = f"the score {name.removeprefix(HARNESS)} of the harness whose results are judged"
    return _quality(name, meaning, binary=False)


class _Metrics(dict[str, Metric]):
    """The closed list, and every `harness.NAME`, which results of other harnesses bring along."""

    def __missing__(self, name: str) -> Metric:
        if not (isinstance(name, str) and name.startswith(HARNESS) and name != HARNESS):
            raise KeyError(name)
        return _of_harness(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and name.startswith(HARNESS) and name != HARNESS)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401


MOST_NATS = 1e12  # of a text: a larger number is no log-likelihood
BITS = f"{LM_EVAL}bits_per_byte"  # no power of e: its ratio is of the log-likelihoods themselves

# Choices by likelihood: the model writes nothing, so no other metric of ours can judge the same case.
BY_LIKELIHOOD = ("multiple_choice.acc_bytes", "multiple_choice.acc_norm", "multiple_choice.acc")

# Those that need the baseline's answers read by the variant.
OF_DISTRIBUTIONS = ("drift.kl_mean", "drift.kl_p99", "drift.kl_max", "drift.top1_agreement")
THOUGHT = "reasoning.tokens"  # counted during generation: no scorer can count it in a text

TURNS = "turns.correct"
STATE = "turns.state"
BY_TRAJECTORY = (TURNS, STATE)  # scored by turn, compared by trajectory

_TEXTS = ("answer", "references")
_CHOICES = ("answer", "choices")
_TESTS = ("tests", "test", "test_list", "base_input")
_OF_CALLS = ("category", "state", "recorded")
_CALLS = ("expected_calls", *_OF_CALLS)
_INSTRUCTIONS = ("instruction_id_list",)

# The scorers: each file of `qualgate/scoring` that has some, with their metrics. Modes that score under another file's
# metrics have none of their own.
SCORER_FILES: dict[str, tuple[Metric, ...]] = {
    "exact_match": (_quality("exact_match", "the answer equals the reference after the set's normalizers", _TEXTS),),
    "lm_eval_match": (),
    "contains": (
        _quality(
            "contains",
            "the answer contains the reference, whole words and numbers; never if it was cut",
            (*_TEXTS, "contains"),
        ),
        _quality(
            "pattern",
            "the case's regular expression matches the answer, and its group holds the reference",
            (*_TEXTS, "pattern"),
        ),
    ),
    "numeric": (
        _quality("numeric", "the last numbers of the answer equal those of the reference's last line", _TEXTS),
    ),
    "mathematics": (_quality("math", "the final answer is the reference, as mathematics", _TEXTS),),
    "structure": (
        _quality("json.valid", "the answer is one JSON value for the strict reader"),
        _quality("json.schema", "valid, and the case's JSON Schema accepts it", ("schema",)),
    ),
    "tools.strict": (
        _quality("tool_call.parses", "every call in the answer parses; an answer without a call parses"),
        _quality(
            "tool_call.valid",
            "parses, calls when a call is expected, and every call fits an offered tool's schema",
            _CALLS,
        ),
        _quality("tool_call.function", "valid, and exactly the expected functions are called", _CALLS),
        _quality("tool_call.required", "right functions, and no call lacks an argument that is expected of it", _CALLS),
        _quality("tool_call.types", "required, and every argument is of the expected value's type", _CALLS),
        _quality(
            "tool_call.correct",
            "types, and exactly the expected arguments: a right call for every expected one",
            _CALLS,
        ),
    ),
    "tools.served": (
        _quality(
            "tool_call.served", "what a server executes, repairs included, is right as tool_call.correct is", _CALLS
        ),
    ),
    "tools.judge": (_quality("tool_call.compat", "the calls are right as BFCL's checker judges them", _CALLS),),
    "tools.turns": (
        _quality(TURNS, "every turn of a trajectory is right, as tool_call.correct is; counted by trajectory", _CALLS),
    ),
    "tools.state": (
        _quality(
            STATE, "the calls of every turn bring simulated tools to the recorded state; counted by trajectory", _CALLS
        ),
    ),
    "code": (_quality("code.pass", "the answer's program passes the case's unit tests, run in a sandbox", _TESTS),),
    "multiple_choice": (
        _quality("multiple_choice", "the answer names the right choice, by its letter or its text", _CHOICES),
        _quality("multiple_choice.acc", "the choice that the model finds likeliest is the right one", _CHOICES),
        _quality(
            "multiple_choice.acc_norm", "the likeliest choice for its length in characters is the right one", _CHOICES
        ),
        _quality(
            "multiple_choice.acc_bytes", "the likeliest choice for its length in UTF-8 bytes is the right one", _CHOICES
        ),
    ),
    "overlap": (
        _quality("f1", "the tokens that answer and reference share, as SQuAD counts them", _TEXTS, binary=False),
        _quality(
            "f1.drop",
            "the same of one or several spans, with numbers compared, as DROP counts it",
            _TEXTS,
            binary=False,
        ),
    ),
    "refusal": (
        _quality("refusal", "the answer refuses what the case says must be refused, and nothing else", ("refuse",)),
    ),
    "ifeval": (
        _quality(
            "ifeval.prompt_strict", "the answer follows every instruction that a program can verify", _INSTRUCTIONS
        ),
        _quality("ifeval.prompt_loose", "so, or without its asterisks, its first line or its last", _INSTRUCTIONS),
        _quality(
            "ifeval.inst_strict",
            "the share of these instructions that the answer follows",
            _INSTRUCTIONS,
            binary=False,
        ),
        _quality("ifeval.inst_loose", "so, read as loosely as ifeval.prompt_loose", _INSTRUCTIONS, binary=False),
    ),
    "thought": (
        _quality("reasoning.closed", "a thought that was begun ended"),
        _quality("reasoning.no_leak", "the answer holds no marker of a thought that its question does not hold"),
        _quality("reasoning.no_loop", "the thought does not end in a repetition"),
        _quality("reasoning.committed", "something visible is said behind the thought, or without one"),
    ),
}

METRICS: dict[str, Metric] = _Metrics(
    (metric.name, metric)
    for metric in (
        *(metric for metrics in SCORER_FILES.values() for metric in metrics),
        *(_quality(f"{LM_EVAL}{name}", meaning, binary=name != "f1") for name, meaning in _OF_LM_EVAL.items()),
        _quality(
            f"{LM_EVAL}score", "the per-sample metric of lm-eval's that the evalset's `metric` names", binary=False
        ),
        _quality("format.finished", "the answer ended by itself, not at max_new_tokens", everywhere=True),
        _quality("format.nonempty", "the answer says something visible", everywhere=True),
        _quality("format.no_loop", "the answer does not end in a repetition", everywhere=True),
        _quality(
            "format.no_refusal", "the answer does not begin with a refusal, unless its case's does", everywhere=True
        ),
        _quality("format.same_language", "the answer is in the language and the scripts of its case", everywhere=True),
        _likelihood("word_perplexity", "perplexity", "e to −Σ log-likelihood / Σ words, of whole texts"),
        _likelihood("byte_perplexity", "perplexity", "e to −Σ log-likelihood / Σ bytes, of whole texts"),
        _likelihood("bits_per_byte", "bits", "−Σ log-likelihood / Σ bytes, of whole texts, by the logarithm to base 2"),
        _likelihood("perplexity", "perplexity", "e to the mean of −log-likelihood, of a continuation a case"),
        _drift("drift.kl_mean", "lower", "nats", "mean KL(baseline || variant) over the baseline's tokens", "max"),
        _drift("drift.kl_p99", "lower", "nats", "99th percentile of the same KL", "max"),
        _drift("drift.kl_max", "lower", "nats", "largest single KL", "max"),
        _drift("drift.top1_agreement", "higher", "rate", "share of positions with the same most likely token", "min"),
        _drift("drift.length_ratio", "lower", "ratio", "variant tokens / baseline tokens, sums", "max"),
        _drift(
            "parity.tokens",
            "higher",
            "rate",
            "share of answers that are the baseline's token for token: what exact speculation keeps at 1",
            "min",
        ),
        _drift(
            "parity.scores",
            "higher",
            "rate",
            "share of answers that every metric of their set scores as it scores the baseline's, right or wrong",
            "min",
        ),
        _drift(
            "parity.prefix",
            "higher",
            "rate",
            "tokens that both say before the first that differs / the baseline's tokens, sums",
            "min",
        ),
        Metric(
            name=THOUGHT,
            kind="length",
            binary=False,
            better="lower",
            unit="ratio",
            meaning="tokens of the variant's thoughts / of the baseline's, sums over cases with `reasoning`",
            bounds=("max",),
        ),
        _latency("latency.ttft", "time to the first token"),
        _latency("latency.tpot", "time per output token after the first"),
        _latency("latency.e2e", "time of the whole answer"),
        _latency("latency.max_gap", "longest wait between two tokens of an answer; those of one pass come at once"),
        Metric(
            name="cost_per_accepted_answer",
            kind="cost",
            binary=False,
            better="lower",
            unit="currency of `prices`",
            meaning="cost of every attempt / answers that finished, are right, within `slo` and not known as corrected",
            bounds=("max_ratio",),
        ),
        Metric(
            name="goodput",
            kind="service",
            binary=True,
            better="higher",
            unit="rate",
            meaning="share of answers within every limit of `slo`; one of a single token has no time per further token",
            bounds=("min", "max_drop"),
        ),
        _arm(
            "memory.weights",
            "lower",
            "bytes",
            "weights as they are stored, those of its draft models too: packed ones as packed, all others in the arm's "
            "dtype (the engine computes in float32, whatever that is)",
            "max_ratio",
            "max",
        ),
        _arm(
            "memory.peak",
            "lower",
            "bytes",
            "memory.weights and, in the same dtype, the keys and values of the longest prompt with its answer, one at "
            "a time; the workspace of a forward pass is not counted",
            "max_ratio",
            "max",
        ),
        _arm("coverage.range", "higher", "rate", "share of the traffic's activations that stay within what the "
             "calibration showed, at the worst layer", "min"),
        _arm("coverage.outliers", "higher", "rate", "share of the outlier channels, by their excess, that the "
             "calibration reaches, at the worst layer", "min"),
        _arm("coverage.clipped_energy", "lower", "share", "energy of the traffic's activations beyond what the "
             "calibration showed / all of it, at the worst layer", "max"),
        _arm("coverage.unigrams", "higher", "rate", "share of the traffic's tokens that occur in the calibration",
             "min"),
        _arm("coverage.strata", "higher", "ratio", "smallest ratio of a stratum's share in the calibration to that in "
             "the traffic (task, language, length, tool schema)", "min"),
        _arm("stability.steady", "higher", "rate", "share of the quantized layers without NaN, infinities, clamped "
             "exponents, zero scales or saturation, and with their noise above the format's floor", "min"),
        _arm("stability.saturated", "lower", "share", "quantized weights beyond the ends of their format / all", "max"),
        _arm("stability.sqnr", "higher", "dB", "signal to quantization noise of the weights, at the worst layer",
             "min"),
        Metric(
            name="stability.rerun",
            kind="stability",
            binary=True,
            better="higher",
            unit="rate",
            meaning="share of answers that the baseline gives again, token for token, in other batches (`noise_floor`)",
            bounds=("min",),
        ),
        Metric(
            name="stability.repeats",
            kind="stability",
            binary=True,
            better="higher",
            unit="rate",
            meaning="share of cases whose repeats the variant's answers score alike",
            bounds=("min",),
        ),
        Metric(
            name=JUDGE,
            kind="judged",
            binary=False,
            better="higher",
            unit="rate",
            meaning="share of pairs that the judge (`judge`) gives to the variant, a tie as half; equal arms have 0.5",
            bounds=("max_drop",),
        ),
        Metric(
            name=PEOPLE,
            kind="judged",
            binary=False,
            better="higher",
            unit="rate",
            meaning="share of pairs that people who compare them blind give to the variant, a tie as half; equal arms "
            "have 0.5",
            bounds=("max_drop",),
        ),
    )
)  # fmt: skip

# Key of a case's body that is a reference → metrics that read it.
READERS: dict[str, tuple[str, ...]] = {
    key: tuple(metric.name for metric in METRICS.values() if key in metric.references)
    for metric in METRICS.values()
    for key in metric.references
}


def reference_keys(case: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of `READERS` in a case's body; () for one without references."""
    elsewhere = _OF_CALLS if "tools" not in case else ()  # without tools these keys are the user's own
    return tuple(key for key in READERS if case.get(key) is not None and key not in elsewhere)


# Times between two tokens, which an answer of one token does not have.
BETWEEN_TOKENS = ("latency.tpot", "latency.max_gap")

# A baseline that is right on little cannot show a loss: it must be right, with confidence, on so many times `max_drop`.
MARGINS_OF_BASELINE = 5
DROP_BELOW = 1 / MARGINS_OF_BASELINE  # at this `max_drop` and beyond it would have to be right on everything
DROP_TOO_LARGE = (
    f"could never be proven: the baseline must surely be right on {MARGINS_OF_BASELINE} times as much, and nothing is "
    f"right on more than all; it must be below {DROP_BELOW:g} (below 0.16 for a baseline right on 80 %)"
)


def out_of_range(name: str, value: float) -> str:
    """Say what a case's `value` of this metric should be, "" if it is: scores within 0..1, times, counts and
    divergences finite and not negative, unknown metrics finite."""
    if name not in METRICS:
        return "" if isfinite(value) else "a finite number"
    if METRICS[name].kind == "quality":
        range_text = "0 or 1" if METRICS[name].binary else "a number from 0 to 1"
        return "" if 0 <= value <= 1 else range_text
    if METRICS[name].kind == "likelihood":
        return "" if 0 <= value <= MOST_NATS else f"nats from 0 to {MOST_NATS:g}"
    return "" if 0 <= value < inf else "a finite number from 0"


# Planned metrics: a rule on one is refused as "not in this version".
PLANNED = ("acceptance_rate",)


def unit_of(metric: str) -> str:
    """Return the unit of a metric's values; "" if there is none, or the metric is one of a later version."""
    return METRICS[metric].unit if metric in METRICS else ""
