"""`qualgate evalset`: list the shipped sets, check your own, measure a calibration set's coverage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from qualgate.cli.arguments import JsonOption
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say
from qualgate.errors import UsageError

if TYPE_CHECKING:
    from qualgate.records import CalibrationSet, Evalset

evalset_app = typer.Typer(help="Evalsets: list the shipped ones, check your own.", no_args_is_help=True)


@evalset_app.command("list")
def evalset_list(as_json: JsonOption = False) -> None:
    """List the shipped evalsets and calibration sets."""
    from qualgate import evalsets
    from qualgate.report.screen import fit

    sets = [evalsets.load(name, Path.cwd()) for name in evalsets.shipped()]
    calibration = [evalsets.load_calibration(name, Path.cwd()) for name in evalsets.shipped("calibration")]
    if as_json:
        rows = [
            {"name": s.name, "version": s.version, "cases": len(s.cases), "metrics": s.metrics, "sha256": s.sha256}
            for s in sets
        ]
        rows += [
            {"name": s.name, "version": s.version, "cases": len(s.cases), "kind": "calibration", "sha256": s.sha256}
            for s in calibration
        ]
        say(json.dumps(rows, indent=2))
        return
    for item in sets:
        say(fit(f"{_head(item)}   {', '.join(item.metrics)}"))
    for item in calibration:
        say(fit(f"{_head(item)}   for quantizers, scores nothing"))


def _head(item: Evalset | CalibrationSet) -> str:
    from qualgate.text.numbers import counted

    return f"{item.name:<14} v{item.version:<5} {counted(len(item.cases), 'case'):>11}"


@evalset_app.command("check")
def evalset_check(ref: Annotated[str, typer.Argument(metavar="NAME.yaml")]) -> None:
    """Name every fault of an evalset or calibration set with file and line; exit 64 when there is one."""
    from qualgate import evalsets
    from qualgate.records import CalibrationSet
    from qualgate.report.screen import fit
    from qualgate.text.escaping import visible_line
    from qualgate.text.numbers import counted

    path = evalsets.locate(ref, Path.cwd())
    faults = evalsets.check(path)
    for fault in faults:
        tell(str(fault))
    if faults:
        raise UsageError(f"{path}: {counted(len(faults), 'fault')}.")
    evalset = evalsets.read(path)
    if not isinstance(evalset, CalibrationSet) and (repeated := evalsets.asked_again([evalset])):
        examples = "; ".join(" = ".join(case.id for case in cases[:3]) for cases in repeated[:3])
        more = "; …" if len(repeated) > 3 else ""
        duplicates = f"{counted(len(repeated), 'question is', 'questions are')} asked more than once ({examples}{more})"
        tell(visible_line(f"note: {duplicates}: each is one observation, and counts as one cluster"))
    if not isinstance(evalset, CalibrationSet):
        for line in evalsets.notes(evalset):
            tell(visible_line(f"note: {line}"))
    say(fit(f"{path}: fine. {counted(len(evalset.cases), 'case')}, sha256 {evalset.sha256}"))


@evalset_app.command("coverage")
def evalset_coverage(
    calibration: Annotated[str, typer.Argument(help="a calibration set: shipped name or NAME.yaml")],
    evalset: Annotated[list[str], typer.Argument(help="the evalsets that will judge the variant")],
    model: Annotated[str, typer.Option("--model", help="the baseline's folder")] = "reference",
    dtype: Annotated[str, typer.Option("--dtype", help="dtype of the baseline's weights")] = "bfloat16",
    tokens: Annotated[
        int, typer.Option("--tokens", min=1, help="least number of tokens of each side to run through the model")
    ] = 10_000,
    as_json: JsonOption = False,
) -> None:
    """Measure how far a calibration set covers evalsets; exit 64 when they share what they must not."""
    from typing import Any

    from qualgate import evalsets, refmodel
    from qualgate.engine.coverage import coverage
    from qualgate.engine.device import choose_device
    from qualgate.evalsets.calibration_sets import refuse_leaks
    from qualgate.report.coverage import coverage_lines
    from qualgate.report.screen import fit

    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(f"--dtype {dtype}: not one of bfloat16, float16, float32.")
    here = Path.cwd()
    report = coverage(
        refmodel.PATH if model == "reference" else Path(model),
        evalsets.load_calibration(calibration, here),
        [evalsets.load(name, here) for name in evalset],
        dtype=cast("Any", dtype),
        device=choose_device("auto"),
        activation_tokens=tokens,
    )
    if as_json:
        say(json.dumps(report.as_json(), indent=2, allow_nan=False))
    else:
        say(fit("\n".join(coverage_lines(report.as_json()))))
    refuse_leaks(report.leakage.cases)
