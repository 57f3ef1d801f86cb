"""Workers that accept of a draft what the arm would not have said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def accepting(force: Callable[[Any, Any, Any], Any] | None, *, lose_first: bool = False) -> Iterator[None]:
    """A draft is accepted by what `force(would, draft, offered)` makes the arm say, or its first token is lost."""
    from qualgate.engine.transcript import Transcript

    real = Transcript.accept

    def accept(self: Any, rows: Any, would: Any, draft: Any, offered: Any) -> Any:
        open_ = real(self, rows, would if force is None else force(would, draft, offered), draft, offered)
        if lose_first:
            self.tokens[rows] = self.tokens[rows].roll(-1, -1)
        return open_

    with patch.object(Transcript, "accept", accept):
        yield


def one_too_many(would: Any, draft: Any, offered: Any) -> Any:
    """The first token that the arm would not have said is accepted as well."""
    import torch

    place = torch.arange(draft.shape[1])
    tokens = would.tokens.clone()
    agreed = ((tokens == draft) & (place < offered[:, None])).long().cumprod(-1).sum(-1)
    for row, at in enumerate(agreed.tolist()):
        if at < int(offered[row]):
            tokens[row, at] = draft[row, at]
    return would._replace(tokens=tokens)


def all_accepted(would: Any, draft: Any, offered: Any) -> Any:
    return would._replace(tokens=draft.clone())


LEAD = 2.0  # logits


def unless_sure(would: Any, draft: Any, offered: Any) -> Any:
    """A token is accepted unless another one leads by LEAD logits."""
    import torch

    return would._replace(tokens=torch.where(would.margins < LEAD, draft, would.tokens))
