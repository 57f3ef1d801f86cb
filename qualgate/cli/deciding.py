"""Decide from stored evidence or files of scores, and show stored verdicts: `gate` and `report`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from qualgate.cli.arguments import (
    JsonOption,
    OptionalGateFile,
    RunOption,
    StoreOption,
    WarnOnlyOption,
    arm_files,
    store_url,
    stored_run,
)
from qualgate.cli.judging import FourArmOption, insisted
from qualgate.cli.showing import show_report, shown_report, tell_host
from qualgate.cli.stderr import exit_code, tell
from qualgate.cli.stdout import say
from qualgate.errors import Exit, UsageError

if TYPE_CHECKING:
    from qualgate.config import GateFile
    from qualgate.gate.peers.nel_policy import NelSaid
    from qualgate.gate.peers.said import PeerSaid
    from qualgate.report.summary import Report

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help="terminal, json, markdown, html, junit, comment, github, annotations, gitlab, sarif, otel or every-eval",
    ),
]
LinkOption = Annotated[
    str, typer.Option("--link", help="http or https address of the full report, linked in --format comment")
]
OutOption = Annotated[Path | None, typer.Option("--out", help="write to this file instead of the terminal")]

LONGEST_LINK = 1000  # characters


def gate(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    run_id: RunOption = None,
    four_arm: FourArmOption = False,
    baseline_scores: Annotated[
        Path | None, typer.Option("--baseline-scores", help="score rows of the baseline, as `score` writes them")
    ] = None,
    variant_scores: Annotated[
        Path | None, typer.Option("--variant-scores", help="score rows of the variant; nothing is stored")
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", help="NAME=FILE: score rows of one of several arms (four_arm, gate.against)"),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="also show what other projects' rules would decide")] = False,
    nel_policy: Annotated[
        Path | None,
        typer.Option("--nel-policy", help="decide by this NeMo Evaluator policy (version 1) instead"),
    ] = None,
    looks: Annotated[
        Path | None,
        typer.Option("--looks", help="file that counts how often these growing score files were judged"),
    ] = None,
    format: FormatOption = "terminal",
    out: OutOption = None,
    link: LinkOption = "",
    no_write: Annotated[
        bool, typer.Option("--no-write", help="only read the store; the verdict is not stored")
    ] = False,
    warn_only: WarnOnlyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Decide again from stored evidence, without generating: by the gate file's rules, refusing evidence older than the
    files it names; or (with --store alone) by the run's own rules, about what was stored then. Or decide from
    files of anyone's scores: two, or one for each of several arms."""
    form = _form(format, as_json, out, link, peers=peers)
    if baseline_scores is None and variant_scores is None and not arm:
        if looks is not None:
            raise UsageError("--looks is for score files; a store counts its own looks.")
        decided = _from_store(gate_file, store, run_id, nel_policy, four_arm=four_arm, peers=peers, keep=not no_write)
    elif gate_file is None or baseline_scores is None or bool(variant_scores) == bool(arm):
        raise UsageError(
            "to judge score files, give a gate file, --baseline-scores and --variant-scores. For several arms, give "
            "--arm NAME=FILE for each instead of --variant-scores."
        )
    elif store is not None or run_id is not None:
        raise UsageError("--store and --run are for stored runs, not for score files.")
    elif four_arm and not arm:
        raise UsageError("--four-arm needs --arm NAME=FILE for each of three arms besides --baseline-scores.")
    else:
        files = {"variant": variant_scores} if variant_scores is not None else arm_files(arm or [])
        decided = _from_files(gate_file, baseline_scores, files, nel_policy, looks, four_arm=four_arm, peers=peers)
    report = replace(decided.report, warn_only=warn_only, link=link)
    tell_host(report, annotated=form == "annotations" and out is None)
    show(report, form, out, decided.peers_said, decided.nel)
    if out is not None:  # the log still needs the verdict
        say("\n".join(report.lines()))
    raise typer.Exit(exit_code(decided.exit, warn_only))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """A decision for `gate` to show."""

    report: Report
    exit: Exit
    nel: tuple[NelSaid, ...]
    peers_said: tuple[PeerSaid, ...] | None  # answers of other projects' rules; None: not requested


def _from_files(
    gate_file: Path,
    baseline: Path,
    variants: dict[str, Path],
    nel_policy: Path | None,
    looks: Path | None,
    *,
    four_arm: bool,
    peers: bool,
) -> _Decision:
    """Decide about files of scores; nothing is stored. variants: file by name. looks: counts earlier looks at these
    files."""
    from qualgate import judge
    from qualgate.gate.peers.said import what_peers_say
    from qualgate.report.unstored import report_of_files

    if four_arm and (loaded := _loaded(gate_file)):
        insisted(loaded, four_arm)
    judgement = judge(gate_file, baseline, variants, nel_policy, looks)
    peers_said = _peers(lambda: what_peers_say(judgement.evidence, losses=True)) if peers else None
    return _Decision(report=report_of_files(judgement), exit=judgement.exit, nel=judgement.nel, peers_said=peers_said)


def _from_store(
    gate_file: Path | None,
    store: str | None,
    run_id: str | None,
    nel_policy: Path | None,
    *,
    four_arm: bool,
    peers: bool,
    keep: bool,
) -> _Decision:
    """Decide again about a stored run, the newest by default. keep: store the verdict. nel_policy: replaces the run's
    rules."""
    from qualgate.intake.nel_policy import read_nel_policy
    from qualgate.pipeline.stored import decide_again

    loaded = _loaded(gate_file)
    url = store_url(loaded.store_url if loaded else None, store)
    policy = read_nel_policy(nel_policy) if nel_policy is not None else None
    outcome = decide_again(url, run_id, loaded, policy, four_arm=four_arm, keep=keep)
    peers_said = _peers(lambda: _peers_of(url, outcome.run_id)) if peers else None
    report = shown_report(url, outcome.run_id, loaded, outcome=None if keep else outcome)
    return _Decision(report=report, exit=outcome.exit, nel=outcome.nel, peers_said=peers_said)


def _peers_of(url: str, run_id: str) -> tuple[PeerSaid, ...]:
    """Return the results of other tools' rules on a stored run; they decide nothing."""
    from qualgate.gate.peers.said import what_peers_say
    from qualgate.store import runs
    from qualgate.store.database import open_store

    with open_store(url, create=False) as store:
        return what_peers_say(runs.evidence(store, run_id), losses=True)


def show(
    report: Report,
    form: str,
    out: Path | None,
    peers_said: tuple[PeerSaid, ...] | None = None,
    nel: tuple[NelSaid, ...] = (),
) -> None:
    """Print or write the report, with the results of peers and of an nel policy if the format has a place for them."""
    from qualgate.report.formats import rendered
    from qualgate.report.peers import print_peers, with_peers
    from qualgate.report.render import write_atomically
    from qualgate.report.screen import fit

    if form == "terminal":
        show_report(report, as_json=False)
        print_peers(peers_said or (), nel, report.verdicts)
        say(fit("\n".join(report.lines())))
        return
    text = rendered(report, form)
    if form == "json" and (peers_said is not None or nel):
        text = with_peers(text, peers_said, nel) + "\n"
    if out is not None:
        write_atomically(out, text)
    elif form == "annotations":  # our own commands for the runner; `rendered` removed any other
        typer.echo(text, nl=False)
    else:
        say(text, nl=False)


def _form(format: str, as_json: bool, out: Path | None, link: str, *, peers: bool = False) -> str:
    """Return the requested format; Markdown for a file by default. UsageError for an unknown one, for a link that is no
    web address, and for a link or peers that the format does not show."""
    from qualgate.report.formats import FORMATS

    if format not in ("terminal", *FORMATS):
        raise UsageError(f"--format {format}: not one of terminal, {', '.join(FORMATS)}.")
    form = "json" if as_json else "markdown" if format == "terminal" and out is not None else format
    if peers and form not in ("terminal", "json"):
        raise UsageError(f"--peers works with --format terminal and json, not with {form}.")
    if link and form != "comment":
        raise UsageError(f"--link works with --format comment, not with {form}.")
    if link and not _is_web_address(link):
        raise UsageError(
            f"--link takes an http or https address of at most {LONGEST_LINK:,} characters, without blanks, quotes, "
            "brackets < > and passwords."
        )
    return form


def _is_web_address(link: str) -> bool:
    """Whether this is an http(s) address that can stand in Markdown as it is."""
    if len(link) > LONGEST_LINK or not re.fullmatch(r"https?://[!#-;=?-\[\]_a-z{|}~^]+", link, re.IGNORECASE):
        return False
    try:
        parts = urlsplit(link)
        return bool(parts.hostname) and parts.username is None and (parts.port or 1) > 0
    except ValueError:
        return False


def _peers(ask: Callable[[], tuple[PeerSaid, ...]]) -> tuple[PeerSaid, ...]:
    """Ask the peers' rules. A broken plug-in is reported, and changes neither verdict nor exit code."""
    try:
        return ask()
    except UsageError as error:
        tell(f"qualgate: peers cannot be shown: {error}")
        return ()


def report(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    run_id: RunOption = None,
    format: FormatOption = "terminal",
    out: OutOption = None,
    link: LinkOption = "",
    as_json: JsonOption = False,
    schema: Annotated[bool, typer.Option("--schema", help="print the JSON Schema of the JSON report and exit")] = False,
) -> None:
    """Show a stored run's verdicts with their numbers. The same stored evidence gives the same bytes;
    evidence that is not what was recorded ends with 14."""
    if not schema:
        form = _form(format, as_json, out, link)
        url, run_id = stored_run(gate_file, store, run_id)
        stored = shown_report(url, run_id, _loaded(gate_file))
        show(replace(stored, link=link), form, out)
        raise typer.Exit(Exit.INTEGRITY if stored.exit is Exit.INTEGRITY else Exit.APPROVE)
    from qualgate.report.formats.body import report_schema
    from qualgate.report.render import write_atomically

    text = json.dumps(report_schema(), indent=2) + "\n"
    if out is not None:
        write_atomically(out, text)
    else:
        say(text, nl=False)


def _loaded(gate_file: Path | None) -> GateFile | None:
    from qualgate.config import load_gate_file

    return None if gate_file is None else load_gate_file(gate_file, files=False)
