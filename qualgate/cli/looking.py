"""Commands that show a store on the terminal: `runs`, `flips` of one variant, `diff` of two runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from qualgate.cli.arguments import JsonOption, OptionalGateFile, StoreOption, store_url, store_url_of
from qualgate.cli.stdout import say
from qualgate.errors import UsageError, close_names

if TYPE_CHECKING:
    from qualgate.config import GateFile
    from qualgate.store.queries import Compared, Flip

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="a run's id; `qualgate runs` lists them")]


def runs(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="how many runs to list, newest first")] = 10,
    of_loads: Annotated[
        bool, typer.Option("--loads", help="list the loads that `qualgate load` judged instead of runs")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the runs of a store, newest first, with each variant's verdict."""
    from qualgate.report.run_list import load_as_body, print_loads, print_runs
    from qualgate.store import loads, queries
    from qualgate.store.database import open_store
    from qualgate.text.numbers import counted

    with open_store(store_url_of(gate_file, store), create=False) as opened:
        stored_loads, measured = loads.newest(opened, limit) if of_loads else (), loads.count(opened)
        lines, total = queries.list_runs(opened, limit), queries.count_runs(opened)
    if of_loads:
        if as_json:
            _say_json([load_as_body(stored) for stored in stored_loads])
        elif not stored_loads:
            say("this store holds no load that `load.rules` judged: qualgate load GATE.yaml")
        else:
            print_loads(stored_loads, measured)
    elif as_json:
        _say_json([asdict(line) for line in lines])
    elif not lines:
        say("this store holds no run yet: qualgate run GATE.yaml")
    else:
        print_runs(lines, total)
    if measured and not of_loads and not as_json:
        say(f"and {counted(measured, 'load')} of `qualgate load`: qualgate runs --loads")


def flips(
    run: RunArgument,
    variant: Annotated[str, typer.Argument(metavar="VARIANT", help="name of a variant in the gate file")],
    store: StoreOption = None,
    metric: Annotated[str | None, typer.Option("--metric", help="only changes of this metric")] = None,
    evalset: Annotated[str | None, typer.Option("--evalset", help="only changes in this evalset")] = None,
    gained: Annotated[bool, typer.Option("--gained", help="show answers that became right instead of wrong")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="how many to show")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show a variant's answers that were right and are wrong: prompt, reference, both answers and where they part."""
    from qualgate.report.diff import hashes_of, parts_in
    from qualgate.report.flip_list import print_flips
    from qualgate.store import queries
    from qualgate.store.database import open_store
    from qualgate.store.evidence import check_evidence
    from qualgate.store.labels import UNLABELLED, labels_of_cases

    with open_store(store_url(None, store), create=False) as opened:
        names = [arm.name for arm in queries.run_summary(opened, run).arms if not arm.spec.is_baseline]
        if variant not in names:
            raise UsageError(f"run {run} has no variant {variant!r:.80}. It has: {', '.join(names)}.")
        check_evidence(opened, run)
        way: queries.Direction = "gained" if gained else "lost"
        flipped = queries.flips(opened, run, variant, metric=metric, evalset=evalset, direction=way, limit=limit)
        counts = queries.flip_counts(opened, run, variant)
        labelled = labels_of_cases(opened, run, variant, [flip.case for flip in flipped])
    labels = [labelled.get(flip.case, UNLABELLED) for flip in flipped]
    if as_json:
        _say_json([
            {**asdict(flip), "parts_in": parts_in(flip), "sha256": hashes_of(flip), "labels": asdict(label)}
            for flip, label in zip(flipped, labels, strict=True)
        ])  # fmt: skip
        return
    matching = [count for count in counts if metric in (None, count.metric) and evalset in (None, count.evalset)]
    if not matching:
        available = ", ".join(f"{count.metric} of {count.evalset}" for count in counts) or "none"
        raise UsageError(f"run {run} has no such scores of {variant}. It has: {available}.")
    total = sum(count.gained if gained else count.lost for count in matching)
    notes = [label.lines(flip.variant) for flip, label in zip(flipped, labels, strict=True)]
    print_flips(variant, flipped, total, sum(count.pairs for count in matching), way, notes)
    _name_again(run, variant, flipped, store)


def answers(
    run: RunArgument,
    arm: Annotated[str | None, typer.Option("--arm", help="name of a variant; by default the first one")] = None,
    evalset: Annotated[str | None, typer.Option("--set", help="only cases of this evalset")] = None,
    show: Annotated[
        str | None, typer.Option("--show", help="only these cases: lost, gained, both-wrong, same, cut or empty")
    ] = None,
    search: Annotated[str, typer.Option("--search", help="text to find in answers and cases")] = "",
    case: Annotated[str | None, typer.Option("--case", metavar="ID", help="one case")] = None,
    scoring: Annotated[
        int | None,
        typer.Option("--scoring", help="scores to use: 0 as recorded, 1 the first rescore, …; the newest by default"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="how many to show")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show cases side by side: prompt, reference, both answers, scores and why; also those that are wrong in both."""
    from qualgate.report.answer_list import print_answers
    from qualgate.store import queries
    from qualgate.store.database import open_store
    from qualgate.store.evidence import check_evidence

    if show is not None and show not in queries.SHOWS:
        raise UsageError(f"--show {show!r:.40}{_meant(show, queries.SHOWS)}; it is one of {', '.join(queries.SHOWS)}")
    with open_store(store_url(None, store), create=False) as opened:
        summary = queries.run_summary(opened, run)
        names = [arm.name for arm in summary.arms if not arm.spec.is_baseline]
        if arm is not None and arm not in names:
            raise UsageError(f"run {run} has no variant {arm!r:.80}{_meant(arm, names)}. It has: {', '.join(names)}.")
        newest = len(summary.scorings)
        if scoring is not None and not 0 <= scoring <= newest:
            raise UsageError(f"--scoring {scoring}: run {run} has scorings 0 (as recorded) to {newest}.")
        check_evidence(opened, run, scoring)
        variant, scoring_number = arm or names[0], newest if scoring is None else scoring
        case_filter = queries.CaseFilter(evalset=evalset, show=show, search=search, case_id=case, scoring=scoring)
        cases, total = queries.side_by_side(opened, run, variant, case_filter, limit=limit)
    if as_json:
        _say_json([asdict(compared) for compared in cases])
    else:
        recorded = "by the scores that the run recorded; it was scored again since" if newest else ""
        print_answers(variant, cases, total, summary.scorings[scoring_number - 1].text if scoring_number else recorded)
        _name_again(run, variant, cases, store)


def _name_again(run: str, variant: str, shown: Sequence[Flip | Compared], store: str | None) -> None:
    """Name the command that answers the first of the shown cases again."""
    from qualgate.report.screen import fit
    from qualgate.text.commands import again_command
    from qualgate.text.escaping import visible_line

    for case in shown[:1]:
        command = again_command(run, variant, case.evalset, case.case_id, case.repeat, store or "")
        say(fit(f"\nAnswer a case again and compare: {visible_line(command)}"))


def show_few_cases(gate: GateFile, run_id: str) -> None:
    """Show every case of a run of few with its answers, and whether another metric would read them better."""
    from qualgate.pipeline.first_answers import CASES, read_otherwise
    from qualgate.report.answer_list import print_answers
    from qualgate.report.screen import fit
    from qualgate.store.database import open_store
    from qualgate.store.queries import side_by_side

    with open_store(gate.store_url, create=False) as store:
        for arm in gate.variants:
            print_answers(arm.name, *side_by_side(store, run_id, arm.name, limit=CASES))
        for line in read_otherwise(store, run_id, gate.variants[0].name):
            say(fit(f"\n{line}"))
    say("")


def diff(
    before: RunArgument,
    after: RunArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what changed between two runs: what was judged, verdicts, rules' numbers, and answers."""
    from qualgate.report.run_changes import print_run_changes, run_changes

    changes = run_changes(store_url(None, store), before, after)
    if as_json:
        pairs = [{"arm": arm, "metric": metric, "scores": count} for (arm, metric), count in changes.pairs.items()]
        _say_json({**asdict(changes), "pairs": pairs})
    else:
        print_run_changes(changes)


def _meant(name: str, names: Sequence[str]) -> str:
    return f"; did you mean {close[0]!r}?" if (close := close_names(name, names)) else ""


def _say_json(value: object) -> None:
    say(json.dumps(value, indent=2, allow_nan=False))
