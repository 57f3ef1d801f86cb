"""In which ways answers are drawn from the engine: through which kernels, how, by which rule, and who drafts."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from qualgate.records import Sampling
from tests.engine.engines import PACKED, Kind

TEXTS, MODEL, CASCADE, SELF, HEAD = "texts", "model", "model < model", "self-draft", "head"  # who drafts

PLAIN = "temperature 1"
CUT = {PLAIN: Sampling(temperature=1.0), "top-k 3 at 0.7": Sampling(temperature=0.7, top_k=3)}
PENALIZED, CONSTRAINED = "penalized", "constrained"
SAMPLINGS = {
    **CUT,
    PENALIZED: Sampling(temperature=1.0, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.6),
    CONSTRAINED: Sampling(temperature=1.0),
}


class Way(NamedTuple):
    """sampling: a key of SAMPLINGS."""

    engine: Kind
    sampling: str
    rule: str
    drafts: str

    @property
    def answers(self) -> int:
        """As many are drawn: enough for each engine that is wrong to be found by any of five seeds. What no rule judges
        costs a quarter."""
        return 1200 if self.rule == "keyed" else 600


RESIDUAL: list[tuple[Kind, str, str]] = [  # engine, sampling, who drafts
    ("packed", PLAIN, TEXTS),
    ("plain", "top-k 3 at 0.7", MODEL),
    ("plain", PLAIN, CASCADE),
]
WAYS = [
    *(Way(kind, sampling, "keyed", TEXTS) for kind, sampling in product(PACKED, CUT)),
    Way("plain", PENALIZED, "keyed", TEXTS),
    Way("plain", CONSTRAINED, "keyed", TEXTS),
    Way("plain", PLAIN, "keyed", CASCADE),
    Way("plain", PLAIN, "keyed", HEAD),
    Way("packed", PENALIZED, "speculative_sampling", MODEL),
    Way("packed", CONSTRAINED, "speculative_sampling", MODEL),
    Way("plain", CONSTRAINED, "block_verification", HEAD),
    Way("plain", PLAIN, "speculative_sampling", SELF),
    Way("plain", "top-k 3 at 0.7", "speculative_sampling", HEAD),
    *(
        Way(kind, sampling, rule, drafts)
        for rule in ("speculative_sampling", "block_verification")
        for kind, sampling, drafts in RESIDUAL
    ),
]
