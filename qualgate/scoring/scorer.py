"""The type of a scorer, shipped or another package's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import actual

Mode = Literal["strict", "compat", "served"]


def by_body(score: Callable[[Mapping[str, Any], str], dict[str, Score]]) -> Callable[..., dict[str, Score]]:
    """Return the scoring function that calls `score` with the case's body and the answer."""
    return lambda case, evalset, text: score(case.body, text)


def in_dialect_first(score: Callable[[Case, Evalset, Any, str], dict[str, Score]]) -> Any:
    """Return `score` as a function of the dialect, for `Scorer.written_in`."""
    return lambda dialect: lambda case, evalset, text: score(case, evalset, text, dialect)


def _nothing_more(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """One way to judge answers. Its file has it in `SCORERS`; `metrics.SCORER_FILES` names the file.

    A scorer is pure and never raises, whatever the text; scores of different versions are never compared.
    """

    name: str  # what `qualgate score --scorer` takes
    version: str  # stored with each score, e.g. "numeric/3"; raised when a score may come out otherwise
    metrics: tuple[str, ...]  # one score each; the last speaks of the whole answer
    function: Callable[[Case, Evalset, str], dict[str, Score]]  # by metric
    needs: tuple[str, ...] = ()  # keys that a case's body must have
    faults: Callable[[dict[str, Any], Evalset], Iterator[str]] = _nothing_more  # beyond that, what keeps it unscored
    # served: what a server's parser makes of an answer; compat: the reference's verdicts and error words, its surprises
    mode: Mode = "strict"
    decoded: Callable[[Case, Evalset, Any], dict[str, Score]] | None = None  # of calls that are decoded already
    after: Callable[[str], Callable[[Case, Evalset, str], dict[str, Score]]] | None = None  # `function` after a filter
    normalizes: bool = False  # reads the evalset's `normalizers`
    lenient: tuple[str, ...] = ()  # of the evalset's `lenient` modes, those that it reads
    # `function` where a dialect is named for the cases that declare none; None: reads no dialects
    written_in: Callable[[str], Callable[[Case, Evalset, str], dict[str, Score]]] | None = None
    dialect: str = ""  # that `function` was given by `in_dialect`
    transcripts: bool = False  # judges rows with `turns` whole, on calls by turn of the user's
    whole: bool = False  # reads an answer with its thought; every other scorer is given what stands behind that

    def unscorable(self, body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
        """Yield what keeps a case from being scored, one line each."""
        missing = [f"{self.name} needs `{key}`; {actual(body, key)}" for key in self.needs if key not in body]
        yield from missing or self.faults(body, evalset)
