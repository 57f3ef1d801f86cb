"""Clusters that ask one question are one cluster, whatever ids and evalsets it is asked under.

Who copies his cases has no more of them: a model gives one answer to one question, so two copies are one observation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

L = TypeVar("L", bound=Hashable)


def join(asked: Iterable[tuple[L, str]]) -> Callable[[L], L]:
    """asked: clusters, each with the hash of a question that one of its cases asks; "" = not known, and joins nothing.

    Returns what names the first (in the order given) of those that a cluster belongs together with.
    """
    joined: dict[L, L] = {}
    by_question: dict[str, L] = {}

    def first(label: L) -> L:
        while (above := joined.get(label)) is not None:
            joined[label] = joined.get(above, above)  # shorter the next time
            label = above
        return label

    for label, question in asked:
        other = by_question.setdefault(question, label) if question else label
        if other != label and (one := first(other)) != (two := first(label)):
            joined[two] = one
    return first
