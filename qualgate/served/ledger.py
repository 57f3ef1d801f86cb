"""Ledger of a run's requests to servers: a file of JSON lines that all of its processes append to.

A request is claimed before it is sent, with the most that it can take, and settled by what it took. The claim of a
killed process stays open: the request may have been answered, and charged.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.errors import InfrastructureError
from qualgate.records import Budget, Price, Spent
from qualgate.served.faults import BudgetSpent
from qualgate.text.numbers import money_text


class Ledger:
    """One process's view of the file at `path`, which is created if missing. Reads only what others have added."""

    def __init__(self, path: Path, budget: Budget) -> None:
        self._path, self._budget = path, budget
        self._offset, self._number, self._process = 0, 0, secrets.token_hex(4)
        self._settled: dict[str, Spent] = {}
        self._open: dict[str, tuple[str, Spent]] = {}

    def claim(self, arm: str, price: Price | None, prompt: int, answer: int) -> str:
        """Claim a request of at most so many tokens; return its name, for `settle`. BudgetSpent if it does not fit."""
        with self._locked() as file:
            self._check(price, prompt, answer, f"the next request to {arm}")
            self._number += 1
            name = f"{self._process}-{self._number}"
            self._add(file, {"arm": arm, "claim": name, **_amounts(price, prompt, answer, prompt + answer)})
        return name

    def settle(self, name: str, arm: str, price: Price | None, prompt: int, answer: int, estimated: int) -> None:
        """Settle a request by what it took. estimated: tokens among these that its server did not count."""
        with self._locked() as file:
            self._add(file, {"arm": arm, "settled": name, **_amounts(price, prompt, answer, estimated)})

    def check_room(self, arm: str, price: Price | None, prompt: int, answer: int) -> None:
        """Raise BudgetSpent if a batch of at most so many tokens does not fit beside the open claims."""
        with self._locked():
            self._check(price, prompt, answer, f"the next batch of {arm}")

    def spent(self) -> dict[str, Spent]:
        """Return the spending by arm, open claims included."""
        with self._locked():
            return {arm: replace(spent, currency=self._budget.currency) for arm, spent in self._by_arm().items()}

    def begin(self, run: str, known: Mapping[str, Spent]) -> None:
        """Count for this run from here on. known: the store's record of spending, in case the file was lost."""
        with self._locked() as file:
            first = self._path.open(encoding="utf-8", errors="replace").readline()
            if _read(first).get("run") == run:
                return
            os.ftruncate(file, 0)
            self._offset, self._settled, self._open = 0, {}, {}
            self._add(file, {"run": run})
            for arm, spent in known.items():
                body = {"requests": spent.requests, "prompt": spent.prompt, "answer": spent.answer}
                cost = {} if spent.cost is None else {"cost": spent.cost}
                self._add(file, {"arm": arm, "settled": "", **body, "estimated": spent.estimated, **cost})

    def _check(self, price: Price | None, prompt: int, answer: int, what: str) -> None:
        """Raise BudgetSpent if a request of so many tokens does not fit the budget any more.

        what: the request, for the message.
        """
        budget, total = self._budget, sum(self._by_arm().values(), Spent())
        advice = "Raise it in the gate file and run the same command again: it goes on, what was answered is kept"
        if budget.max_tokens is not None and total.tokens + prompt + answer > budget.max_tokens:
            raise BudgetSpent(
                f"the budget is spent: {total.tokens:,} of `max_tokens_total: {budget.max_tokens}` tokens, and {what} "
                f"may take {prompt + answer:,}. {advice}."
            )
        cost, request_cost = total.cost or 0.0, price.of(prompt, answer) if price else 0.0
        if budget.max_cost is not None and cost + request_cost > budget.max_cost:
            raise BudgetSpent(
                f"the budget is spent: {money_text(cost)} of `max_cost: {budget.max_cost:g}` {budget.currency}".rstrip()
                + f", and {what} may cost {money_text(request_cost)}. {advice}."
            )

    def _by_arm(self) -> dict[str, Spent]:
        totals = dict(self._settled)
        for arm, claimed in self._open.values():
            totals[arm] = totals.get(arm, Spent()) + claimed
        return totals

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the file, read what others have added, and yield its descriptor.

        InfrastructureError if it cannot be used.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(file)
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise InfrastructureError(
                f"{self._path}: what requests come to cannot be kept ({error.strerror}), so none is sent. Make room, "
                "or run where you may write; then run again."
            ) from None

    def _catch_up(self, file: int) -> None:
        """Read the lines that were added since the last time, by any process."""
        size = os.fstat(file).st_size
        if size < self._offset:  # begun anew for another run
            self._offset, self._settled, self._open = 0, {}, {}
        while self._offset < size:
            text = os.pread(file, min(size - self._offset, 2**20), self._offset)
            end = text.rfind(b"\n") + 1
            if not end:  # a line that a killed process did not end: closed, and read as nothing
                os.write(file, b"\n")
                self._offset = os.fstat(file).st_size
                return
            for line in text[:end].decode("utf-8", "replace").splitlines():
                self._take(_read(line))
            self._offset += end

    def _take(self, entry: Mapping[str, Any]) -> None:
        """Count one line: a claim stays open until a settlement of its name replaces it.

        Lines without spending count nothing.
        """
        spent = _as_spent(entry)
        if spent is None:
            return
        arm = str(entry["arm"])
        if "claim" in entry:
            self._open[str(entry["claim"])] = arm, spent
        else:
            self._open.pop(str(entry.get("settled")), None)
            self._settled[arm] = self._settled.get(arm, Spent()) + spent

    def _add(self, file: int, entry: Mapping[str, Any]) -> None:
        os.write(file, (json.dumps(entry) + "\n").encode())
        self._offset = os.fstat(file).st_size
        self._take(entry)


def _amounts(price: Price | None, prompt: int, answer: int, estimated: int) -> dict[str, Any]:
    cost = {} if price is None else {"cost": price.of(prompt, answer)}
    return {"prompt": prompt, "answer": answer, "estimated": estimated, **cost}


def _read(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _as_spent(entry: Mapping[str, Any]) -> Spent | None:
    """Return an entry's spending; None for a line without any, or with numbers that cannot be."""
    numbers: list[Any] = [entry.get("requests", 1), entry.get("prompt"), entry.get("answer"), entry.get("estimated", 0)]
    cost = entry.get("cost")
    if "arm" not in entry or any(type(count) is not int or count < 0 for count in numbers):
        return None
    if cost is not None and not (isinstance(cost, int | float) and cost >= 0):
        return None
    requests, prompt, answer, estimated = numbers
    return Spent(requests=requests, prompt=prompt, answer=answer, estimated=estimated, cost=cost)
