"""Sampling: how a token is chosen from a model's distribution over the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEMPERATURES = 0.01, 100.0  # beyond, sampling is practically greedy or noise
NOISE_ID = "gumbel/1"  # version of the draws (engine/sampling.py), in the identity of sampled answers
MOST_REPETITION, MOST_PENALTY = 100.0, 2.0  # limit of a repetition penalty; of the others, as in OpenAI and vLLM
CUT_ID = "cut/1"  # version of top_k, top_p and min_p (engine/truncation.py), likewise
PENALTY_ID = "penalty/1"  # version of the penalties (engine/penalties.py), likewise
_NO_PENALTY = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Sampling:
    """Take the likeliest token, or draw from softmax(logits / temperature), cut by top-k, then top-p, then min-p.

    temperature: 0 takes the likeliest token. top_k: number of likeliest tokens to draw from; 0: all. top_p: draw from
    the fewest likeliest tokens with this share together. min_p: draw from tokens at least this share as likely as the
    likeliest. `engine/truncation` has the exact definitions. First, at temperature 0 too, earlier tokens are penalized:
    repetition_penalty divides (1: none), presence_penalty and frequency_penalty subtract (0: none), see
    `engine/penalties`. ValueError out of range, or for a cut without a draw.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a setting out of its range, and for a cut without a draw."""
        if type(self.top_k) is not int or self.top_k < 0:
            raise ValueError(f"top_k: expected a whole number from 1, or 0 for all tokens, got {self.top_k!r:.40}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: expected a number over 0 to 1, got {self.top_p!r:.40}")
        if not 0 <= self.min_p < 1:
            raise ValueError(f"min_p: expected a number from 0 and below 1, got {self.min_p!r:.40}")
        if not 0 < self.repetition_penalty <= MOST_REPETITION:
            given = f"{self.repetition_penalty!r:.40}"
            raise ValueError(f"repetition_penalty: expected a number over 0 to {MOST_REPETITION:g}, got {given}")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -MOST_PENALTY <= (value := getattr(self, name)) <= MOST_PENALTY:
                raise ValueError(
                    f"{name}: expected a number from -{MOST_PENALTY:g} to {MOST_PENALTY:g}, got {value!r:.40}"
                )
        if self.cuts and not self.drawn:
            raise ValueError(f"{', '.join(self.cuts)}: without effect at temperature 0, where nothing is drawn")

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Sampling:
        """Build from a mapping with the keys of `content`, others ignored; missing keys have their defaults."""
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    @property
    def drawn(self) -> bool:
        """Whether tokens are drawn at all."""
        return self.temperature > 0

    @property
    def cuts(self) -> dict[str, float]:
        """Those of top_k, top_p and min_p that exclude tokens."""
        neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        return {name: value for name in neutral if (value := getattr(self, name)) != neutral[name]}

    @property
    def penalties(self) -> dict[str, float]:
        """Those of the three penalties that change a logit."""
        return {name: value for name, neutral in _NO_PENALTY.items() if (value := getattr(self, name)) != neutral}

    @property
    def content(self) -> dict[str, Any]:
        """Identity of the sampling, to be hashed: equal for equal draws, in every version."""
        penalties = {**self.penalties, "penalty": PENALTY_ID} if self.penalties else {}
        if not self.drawn:
            return {"temperature": 0, **penalties}
        cuts = {**self.cuts, "cut": CUT_ID} if self.cuts else {}
        return {"temperature": self.temperature, "noise": NOISE_ID, **cuts, **penalties}


GREEDY = Sampling()  # the likeliest token
