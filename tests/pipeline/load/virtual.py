"""An event loop whose clock jumps to whatever is due next: what takes minutes takes none, and always the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Of = TypeVar("Of")


class VirtualLoop(asyncio.SelectorEventLoop):
    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(work: Coroutine[Any, Any, Of]) -> Of:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
