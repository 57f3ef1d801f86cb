"""How a token is chosen of a model's distribution over the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEMPERATURES = 0.01, 100.0  # beyond, an answer is greedy or noise in all but name
NOISE_ID = "gumbel/1"  # how tokens are drawn: engine/sampling.py; a part of what a drawn answer is known by
CUT_ID = "cut/1"  # how top_k, top_p and min_p cut: engine/truncation.py; a part of what an answer so drawn is known by


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Sampling:
    """The likeliest token, or one drawn of softmax(logits / temperature), cut by top-k, then top-p, then min-p.

    temperature: 0 says the likeliest token. top_k: of how many tokens, the likeliest, one is drawn; 0: of all. top_p:
    of as few of the likeliest as hold this share together. min_p: of those that are at least this share as likely as
    the likeliest. `engine/truncation` says it exactly. ValueError out of their ranges, or where nothing is drawn.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if type(self.top_k) is not int or self.top_k < 0:
            raise ValueError(f"top_k: expected a whole number from 1, or 0 for all tokens, got {self.top_k!r:.40}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: expected a number over 0 to 1, got {self.top_p!r:.40}")
        if not 0 <= self.min_p < 1:
            raise ValueError(f"min_p: expected a number from 0 and below 1, got {self.min_p!r:.40}")
        if self.cuts and not self.drawn:
            raise ValueError(f"{', '.join(self.cuts)}: without effect at temperature 0, where nothing is drawn")

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Sampling:
        """From what holds `content`, among other keys or none of it: then the likeliest token is said."""
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    @property
    def drawn(self) -> bool:
        """Whether tokens are drawn at all."""
        return self.temperature > 0

    @property
    def cuts(self) -> dict[str, float]:
        """Those of top_k, top_p and min_p that leave tokens out."""
        whole = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        return {name: value for name in whole if (value := getattr(self, name)) != whole[name]}

    @property
    def content(self) -> dict[str, Any]:
        """What answers said so are known by, to be hashed: equal where equal draws are made, in every version."""
        if not self.drawn:
            return {"temperature": 0}
        cuts = self.cuts
        return {"temperature": self.temperature, "noise": NOISE_ID, **({**cuts, "cut": CUT_ID} if cuts else {})}


GREEDY = Sampling()  # the likeliest token
