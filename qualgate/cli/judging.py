"""Judge variants: `demo`, `run` and `plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qualgate.cli.arguments import GateFileArgument, JsonOption, WarnOnlyOption, own_name, store_url
from qualgate.cli.showing import show_report, show_signed, shown_report, tell_host
from qualgate.cli.stderr import exit_code, tell, tell_event
from qualgate.cli.stdout import say
from qualgate.errors import UsageError

if TYPE_CHECKING:
    from qualgate.config import GateFile


BlameOption = Annotated[
    bool,
    typer.Option(
        "--blame",
        help="also run each variant without its fused kernels, its drafts and its rounded KV cache, to find the cause "
        "of a loss",
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", help="trial with N cases of each evalset; never approves: exits with 12 at best"
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="VARIANT", help="trial of this variant only; may be repeated"),
]
IntoOption = Annotated[
    str | None, typer.Option("--store", help="store the run here instead of in the gate file's store")
]
FourArmOption = Annotated[
    bool,
    typer.Option(
        "--four-arm",
        help="fail unless the gate file names four arms (baseline, quantization, speculation, both); one that does is "
        "judged so anyway",
    ),
]


def demo(
    out: Annotated[Path, typer.Option("--out", help="folder for the store and the reports")] = Path("qualgate-demo"),
    as_json: JsonOption = False,
) -> None:
    """Judge four quantized variants of the shipped reference model on the shipped evalsets."""
    from importlib.resources import files

    from qualgate.config import load_gate_file
    from qualgate.report.render import write_atomically

    gate_file = out / "gate.yaml"
    write_atomically(gate_file, (files("qualgate.refmodel") / "demo.yaml").read_text(encoding="utf-8"))
    run_and_show(gate_file, load_gate_file(gate_file), as_json)


def run(
    gate_file: GateFileArgument,
    blame: BlameOption = False,
    four_arm: FourArmOption = False,
    limit: LimitOption = None,
    only: OnlyOption = None,
    warn_only: WarnOnlyOption = False,
    store: IntoOption = None,
    as_json: JsonOption = False,
) -> None:
    """Generate with the baseline and every variant, score, store, decide. Interrupted, run it again: it resumes."""
    from qualgate.config import load_gate_file

    gate = load_gate_file(gate_file)  # before the slow imports, so a misspelt key is reported at once
    if limit is not None or only:
        from qualgate.pipeline.few_cases import with_few_cases

        if warn_only:
            raise UsageError("--warn-only concerns verdicts, and a trial has none. Remove one of the two.")
        gate = with_few_cases(gate, limit, only or ())
    if store is not None:
        gate = replace(gate, store_url=store_url(None, store))
    from qualgate.pipeline.first_worker import first_worker

    with first_worker(gate):
        gate = insisted(gate, four_arm)
        run_and_show(gate_file, gate, as_json, blame=blame, warn_only=warn_only)


def insisted(gate: GateFile, four_arm: bool) -> GateFile:
    """Return the gate file. UsageError for `--four-arm` with one that names no four arms."""
    if not four_arm:
        return gate
    from qualgate.pipeline.four_arm import as_four_arms

    return as_four_arms(gate)


def run_and_show(
    gate_file: Path,
    gate: GateFile,
    as_json: bool,
    *,
    blame: bool = False,
    warn_only: bool = False,
) -> None:
    """Run a gate file, show its report, write it in every format beside it, and exit by its verdicts."""
    import gc

    gc.disable()  # while libraries are imported, whose objects stay
    try:
        import qualgate.pipeline.generating
        import qualgate.pipeline.plan  # noqa: F401
        from qualgate import run_gate
        from qualgate.report.formats import write_report
        from qualgate.report.peers import print_peers
        from qualgate.report.progress import shown_progress
        from qualgate.report.screen import fit
    finally:
        gc.freeze()  # else a third of planning time goes to garbage collection over the libraries' objects
        gc.enable()
    with shown_progress() as progress:
        outcome = run_gate(
            gate,
            progress,
            blame=blame,
            warn=lambda line: tell(f"note: {line}"),
            planning=lambda line: progress(line, 0, 0),
            observe=tell_event,
        )
    if outcome.resumed:
        tell(f"resumed run {outcome.run_id}")
    for failure in outcome.failures:
        tell(f"could not run: {failure}")
    report = shown_report(gate.store_url, outcome.run_id, gate, warn_only)
    show_report(report, as_json)
    if gate.policy.trial is not None and gate.policy.trial.limit and not outcome.failures and not as_json:
        from qualgate.cli.looking import show_few_cases

        show_few_cases(gate, outcome.run_id)
    if outcome.nel and not as_json:
        print_peers((), outcome.nel, outcome.verdicts)
    tell_host(report)
    written = write_report(
        report, gate_file.parent / "qualgate-reports"
    )  # after it is shown: a full disk must not hide it
    if not as_json:
        for path in written:
            say(f"report: {path}")
        from shlex import quote

        from qualgate.store.address import near

        show_signed(outcome)

        say(f"open the dashboard: {own_name()} dashboard --store {quote(near(gate.store_url))}\n")
        say(fit("\n".join(report.lines())))
    raise typer.Exit(exit_code(outcome.exit, warn_only))


def plan(
    gate_file: GateFileArgument,
    blame: BlameOption = False,
    four_arm: FourArmOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what `run` would do, for how long and how much, and how likely its policy is to decide. Generates nothing.

    Exits 0 when an identical variant would be approved in 8 of 10 runs, 12 when the policy needs a change that is
    printed, 64 when no change was found.
    """
    from qualgate.config import load_gate_file

    gate = load_gate_file(gate_file)  # before the slow imports below, so a misspelt key is reported at once
    from qualgate.pipeline.foretell import foretell
    from qualgate.report.planning import foretold_as_text
    from qualgate.report.planning_json import foretold_as_json

    forecast = foretell(insisted(gate, four_arm), blame=blame, warn=lambda line: tell(f"note: {line}"))
    say(foretold_as_json(forecast) if as_json else foretold_as_text(forecast))
    raise typer.Exit(forecast.exit)
