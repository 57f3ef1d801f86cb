"""What of a model makes the steps of a draft. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What of which model makes the steps of a draft. holder: whose weights they are, 0 the target's, n those of the
    draft of level n; layers: the first so many, None all; upper: of codes of 8 bits the upper half."""

    holder: int = 0
    layers: int | None = None
    upper: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is all of that model."""
        return self.layers is None and not self.upper


WHOLE = Part()
