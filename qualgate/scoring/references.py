"""Cases with several `references`: an answer that equals one of them is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import actual, quote

Function = Callable[[Case, Evalset, str], dict[str, Score]]
Faults = Callable[[dict[str, Any], Evalset], Iterator[str]]


def references_of(body: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the case's `references`, else its `answer`, which may be one or a list."""
    answers = body.get("references", body.get("answer"))
    return tuple(answers) if isinstance(answers, list) else (answers,)


def any_of(score: Function) -> Function:
    """Apply `score`, which reads one `answer`, to each reference; return the first right score, else the first."""

    def best(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
        if "references" not in case.body:
            return score(case, evalset, text)
        scores = (score(Case(evalset=case.evalset, body=body), evalset, text) for body in _each(case.body))
        return _first_right(scores)

    return best


def faults_of_any(faults: Faults) -> Faults:
    """Apply `faults`, which reads one `answer`, to each reference."""

    def every(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
        """Yield what is wrong with `references`, or with a single `answer`."""
        if "references" not in body:
            yield from faults(body, evalset)
            return
        references = body["references"]
        if not isinstance(references, list) or not references:
            yield f"`references` is a list of right answers, one or more; {actual(body, 'references')}"
        elif "answer" in body and body["answer"] not in references:
            yield f"`answer` {quote(body['answer'])} is none of the `references`; write all right answers there"
        else:
            for number, single in enumerate(_each(body)):
                yield from (f"references[{number}]: {message}" for message in faults(single, evalset))

    return every


def _each(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the case once for each reference, as its only `answer`."""
    rest = {key: value for key, value in body.items() if key != "references"}
    return ({**rest, "answer": reference} for reference in body["references"])


def _first_right(scores: Iterable[dict[str, Score]]) -> dict[str, Score]:
    """Return the first scores that are all right, else the first undecided ones, else the first.

    An undecided reference comes before a wrong one: it was not compared, and may have been right.
    """
    not_right = []
    for scored in scores:
        if all(score.verdict for score in scored.values()):
            return scored
        not_right.append(scored)
    undecided = (scored for scored in not_right if any(score.verdict is None for score in scored.values()))
    return next(undecided, not_right[0])
