"""The closed list of metrics a rule may name, with meaning and unit (shown by `qualgate config metrics`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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

    @property
    def approves(self) -> bool:
        """Whether the metric scores answers, so that a critical rule on it can approve."""
        return self.kind in ("quality", "likelihood")


DROPS = ("max_drop", "max_relative_drop")  # in points, and of the baseline's own rate


def _quality(name: str, meaning: str, *, binary: bool = True, everywhere: bool = False) -> Metric:
    return Metric(
        name=name, kind="quality", binary=binary, better="higher", unit="rate", meaning=meaning, bounds=DROPS,
        everywhere=everywhere,
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

MOST_NATS = 1e12  # of a text: a larger number is no log-likelihood
BITS = f"{LM_EVAL}bits_per_byte"  # no power of e: its ratio is of the log-likelihoods themselves

# Choices by likelihood: the model writes nothing, so no other metric of ours can judge the same case.
BY_LIKELIHOOD = ("multiple_choice.acc_bytes", "multiple_choice.acc_norm", "multiple_choice.acc")

THOUGHT = "reasoning.tokens"  # counted during generation: no scorer can count it in a text

TURNS = "turns.correct"
STATE = "turns.state"
BY_TRAJECTORY = (TURNS, STATE)  # scored by turn, compared by trajectory

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _quality("exact_match", "the answer equals the reference after the set's normalizers"),
        _quality("contains", "the answer contains the reference, whole words and numbers; never if it was cut"),
        _quality("pattern", "the case's regular expression matches the answer, and its group holds the reference"),
        _quality("numeric", "the last numbers of the answer equal those of the reference's last line"),
        _quality("math", "the final answer is the reference, as mathematics"),
        _quality("json.valid", "the answer is one JSON value for the strict reader"),
        _quality("json.schema", "valid, and the case's JSON Schema accepts it"),
        _quality("tool_call.parses", "every call in the answer parses; an answer without a call parses"),
        _quality(
            "tool_call.valid", "parses, calls when a call is expected, and every call fits an offered tool's schema"
        ),
        _quality("tool_call.function", "valid, and exactly the expected functions are called"),
        _quality("tool_call.required", "right functions, and no call lacks an argument that is expected of it"),
        _quality("tool_call.types", "required, and every argument is of the expected value's type"),
        _quality("tool_call.correct", "types, and exactly the expected arguments: a right call for every expected one"),
        _quality("tool_call.served", "what a server executes, repairs included, is right as tool_call.correct is"),
        _quality("tool_call.compat", "the calls are right as BFCL's checker judges them"),
        _quality(TURNS, "every turn of a trajectory is right, as tool_call.correct is; counted by trajectory"),
        _quality(STATE, "the calls of every turn bring simulated tools to the recorded state; counted by trajectory"),
        _quality("code.pass", "the answer's program passes the case's unit tests, run in a sandbox"),
        _quality("multiple_choice", "the answer names the right choice, by its letter or its text"),
        _quality("multiple_choice.acc", "the choice that the model finds likeliest is the right one"),
        _quality("multiple_choice.acc_norm", "the likeliest choice for its length in characters is the right one"),
        _quality("multiple_choice.acc_bytes", "the likeliest choice for its length in UTF-8 bytes is the right one"),
        _quality("f1", "the tokens that answer and reference share, as SQuAD counts them", binary=False),
        _quality("f1.drop", "the same of one or several spans, with numbers compared, as DROP counts it", binary=False),
        _quality("ifeval.prompt_strict", "the answer follows every instruction that a program can verify"),
        _quality("ifeval.prompt_loose", "so, or without its asterisks, its first line or its last"),
        _quality("ifeval.inst_strict", "the share of these instructions that the answer follows", binary=False),
        _quality("ifeval.inst_loose", "so, read as loosely as ifeval.prompt_loose", binary=False),
        _quality("refusal", "the answer refuses what the case says must be refused, and nothing else"),
        _quality("reasoning.closed", "a thought that was begun ended"),
        _quality("reasoning.no_leak", "the answer holds no marker of a thought that its question does not hold"),
        _quality("reasoning.no_loop", "the thought does not end in a repetition"),
        _quality("reasoning.committed", "something visible is said behind the thought, or without one"),
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
            name="judge.win",
            kind="judged",
            binary=False,
            better="higher",
            unit="rate",
            meaning="share of pairs that the judge (`judge`) gives to the variant, a tie as half; equal arms have 0.5",
            bounds=("max_drop",),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A number in the report on an arm that speculates. name: as in its JSON, see `records.Speculated`."""

    name: str
    formula: str
    meaning: str


# Σ over an arm's answers, by level; each with bounds from 2,000 draws of whole prompts, with the seed beside them. With
# a denominator of 0 the value is null and has a reason. No rule can name these in this version.
SPECULATION = (
    Formula(
        name="proposed",
        formula="accepted + rejected + discarded",
        meaning="tokens that were offered for verification; what was drafted and never offered is `unverified`",
    ),
    Formula(
        name="rejected", formula="Σ rejected", meaning="tested, and not what the verifier says: one a draft at most"
    ),
    Formula(
        name="discarded", formula="Σ discarded", meaning="behind a rejected one, never tested; peers call it rejected"
    ),
    Formula(name="acceptance_rate", formula="accepted / proposed", meaning="of all tokens offered"),
    Formula(
        name="accepted_of_tested",
        formula="accepted / (accepted + rejected)",
        meaning="where a rule accepts by probabilities; null with the default rule, by which a draw agrees or does not",
    ),
    Formula(
        name="overlap",
        formula="Σ min(p, q) / (accepted + rejected)",
        meaning="of the same tokens: what speculative sampling accepts of them in the mean. Where it accepts more or "
        "fewer than chance allows, an alert says so; block verification may accept more",
    ),
    Formula(
        name="broken_drafts",
        formula="drafts that ended with logits that are no numbers",
        meaning="NaN or infinite; the target went on alone there",
    ),
    Formula(
        name="accepted_per_verification",
        formula="accepted / verifications",
        meaning="the target's own token (bonus or correction) left out; passes without a draft are no verifications",
    ),
    Formula(
        name="tokens_per_verification_with_bonus",
        formula="1 + accepted / verifications",
        meaning="τ, the acceptance length of vLLM",
    ),
    Formula(
        name="positions.unconditional",
        formula="accepted at the place / verifications",
        meaning="by place in the draft; what vLLM shows per position",
    ),
    Formula(
        name="positions.conditional",
        formula="accepted at the place / tested there",
        meaning="of drafts whose tokens before it were all accepted",
    ),
    Formula(
        name="rejection",
        formula="rejected / (accepted + rejected)",
        meaning="by task; below 200 tested tokens it is `insufficient`",
    ),
    Formula(
        name="passes_saved",
        formula="1 − passes / (tokens − 1)",
        meaning="of each answer by itself; the pass that read the prompt and its token count on neither side",
    ),
    Formula(
        name="rested",
        formula="passes in which nothing was drafted, as it was not expected to pay / passes that might draft",
        meaning="of the target, where the length is chosen; `because` says why, as it was found last",
    ),
    Formula(
        name="gain.measured",
        formula="seconds a token of the target / of the arm",
        meaning="after the first token; against the arm with the same weights that does not speculate",
    ),
    Formula(
        name="gaps",
        formula="p95 of `latency.max_gap` of the arm / of the target",
        meaning="the longest wait of each answer between two tokens: drafts make them come in bursts; against the same "
        "arm as the gain",
    ),
    Formula(
        name="gain.predicted",
        formula="τ / (v(γ + 1) + γ c)",
        meaning="from acceptance, c (a drafted token, of whoever drafted it) and v (a pass over so many rows), in "
        "plain steps of the target; for one sequence at a time, so a batch, which shares its passes, gains less",
    ),
)

# Key of a case's body that is a reference → metrics that read it.
_CALLS = (
    "tool_call.valid", "tool_call.function", "tool_call.required", "tool_call.types", "tool_call.correct",
    "tool_call.served", "tool_call.compat", *BY_TRAJECTORY,
)  # fmt: skip
_TEXTS = ("exact_match", "contains", "pattern", "numeric", "math", "f1", "f1.drop")
_CHOICES = ("multiple_choice", *BY_LIKELIHOOD)
_OF_CALLS = ("category", "state", "recorded")
READERS: dict[str, tuple[str, ...]] = {
    "answer": (*_TEXTS, *_CHOICES),
    "references": _TEXTS,
    "contains": ("contains",),
    "pattern": ("pattern",),
    "choices": _CHOICES,
    "schema": ("json.schema",),
    **dict.fromkeys(("tests", "test", "test_list", "base_input"), ("code.pass",)),
    **dict.fromkeys(("expected_calls", *_OF_CALLS), _CALLS),
    "refuse": ("refusal",),
    "instruction_id_list": tuple(name for name in METRICS if name.startswith("ifeval.")),
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
