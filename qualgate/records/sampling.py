"""How a token is chosen of a model's distribution over the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEMPERATURES = 0.01, 100.0  # beyond, an answer is greedy or noise in all but name
NOISE_ID = "gumbel/1"  # how tokens are drawn: engine/sampling.py; a part of what a drawn answer is known by


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Sampling:
    """temperature: 0 says the likeliest token, else one is drawn of softmax(logits / temperature)."""

    temperature: float = 0.0

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Sampling:
        """From what holds `content`, among other keys or none of it: then the likeliest token is said."""
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    @property
    def drawn(self) -> bool:
        """Whether tokens are drawn at all."""
        return self.temperature > 0

    @property
    def content(self) -> dict[str, Any]:
        """What answers said so are known by, to be hashed: equal where equal draws are made, in every version."""
        return {"temperature": self.temperature, "noise": NOISE_ID} if self.drawn else {"temperature": 0}


GREEDY = Sampling()  # the likeliest token
