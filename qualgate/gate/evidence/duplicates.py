"""Join clusters that share a question into one cluster, whatever their ids and evalsets.

Copied cases add no evidence: a model gives one answer to one question, so two copies are one observation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

L = TypeVar("L", bound=Hashable)


def join(questions: Iterable[tuple[L, str]]) -> Callable[[L], L]:
    """Return a function from a cluster to the first (in the order given) of those joined with it.

    questions: (cluster, hash of a question of one of its cases); the hash "" is unknown and joins nothing.
    """
    joined: dict[L, L] = {}
    by_question: dict[str, L] = {}

    def first(label: L) -> L:
        while (above := joined.get(label)) is not None:
            joined[label] = joined.get(above, above)  # shorter the next time
            label = above
        return label

    for label, question in questions:
        other = by_question.setdefault(question, label) if question else label
        if other != label and (root := first(other)) != (merged := first(label)):
            joined[merged] = root
    return first
