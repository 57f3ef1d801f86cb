"""The numbers in the report on an arm that speculates, for `docs/reference/metrics.md`."""

from __future__ import annotations

from dataclasses import dataclass


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
