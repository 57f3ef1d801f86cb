"""A case that was answered again, on a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from qualgate.pipeline.again import Again, AnswerAgain
from qualgate.pipeline.parting import Parting, Piece
from qualgate.report import screen
from qualgate.report.screen import indented
from qualgate.text.escaping import visible, visible_line
from qualgate.text.numbers import counted, score_text

HASH = 12  # characters shown of a hash
MOST = 60  # characters shown of a piece, and of anything else that an identity holds


def again_json(again: Again) -> dict[str, Any]:
    """Return everything as plain JSON, with the exit code."""
    body = asdict(again)
    for shown, answer in zip(body["answers"], again.answers, strict=True):
        shown["same"] = answer.parting.same
    return {**body, "same": all(answer.parting.same for answer in again.answers) if again.answers else None,
            "exit": int(again.exit)}  # fmt: skip


def print_again(again: Again) -> None:
    """Print what changed, or else each arm's new answer beside its stored one, and where the two arms part."""
    console = screen.console()
    name = f"{again.evalset}/{again.case_id}" + (f"#{again.repeat}" if again.repeat else "")
    head = f"run {again.run_id}, baseline and {again.variant}"
    console.print(Text.assemble((visible_line(name), "bold"), f"  {visible_line(head)}"))
    for metric, (before, after) in again.scores.items():
        reason = f"  {again.reasons[metric]}" if again.reasons.get(metric) else ""
        scores = f"stored score: {metric} {score_text(before)} → {score_text(after)}{reason}"
        console.print(indented(Text(visible_line(scores))))
    for change in again.changes:
        was, now = (_short(value) for value in (change.stored, change.now))
        line = f"{change.arm}: {change.what} changed since the run ({was} → {now}): {change.where}"
        console.print(Text(visible_line(line), style="red"))
    if again.changes:
        console.print(
            Text("Nothing was generated: the answers would be another model's. Put back what the run was made with.")
        )
    for answer in again.answers:
        console.print(Text(_compared_line(answer), style="" if answer.parting.same else "red"))
        for doubt in answer.doubts:
            console.print(indented(Text(visible_line(f"may differ: {doubt}"), style="dim")))
    if again.parting is not None:
        console.print(Text(f"\n{visible_line(_parting_line(again.variant, again.parting))}", style="bold"))
        if again.parting.rows:
            console.print(_table(again.variant, again.parting))


def _compared_line(answer: AnswerAgain) -> str:
    """Say whether an arm's new answer is the stored one, and if not, from where on it is another."""
    parting, arm = answer.parting, visible_line(answer.arm)
    if parting.same:
        each = "token for token" if parting.unit == "token" else "word for word"
        return f"{arm}: the same as stored, {each} ({counted(parting.sizes[1], parting.unit)})"
    unexplained = "" if answer.doubts else ". No known reason: another CPU, GPU or library could be one"
    if parting.position is None:
        return f"{arm}: the same text, ended by {' and now by '.join(parting.ended)}{unexplained}"
    before, after = (_piece(piece) or "nothing more" for piece in parting.rows[0])
    sizes = f"{parting.sizes[0]:,} stored, {parting.sizes[1]:,} now"
    return (
        f"{arm}: differs from {parting.unit} {parting.position} on: stored {before}, now {after} "
        f"({parting.unit}s: {sizes}){unexplained}"
    )


def _parting_line(variant: str, parting: Parting) -> str:
    if parting.position is not None:
        return f"baseline and {variant} differ from {parting.unit} {parting.position} on (counted from 0)"
    ended = "" if parting.same else f", ended by {' and '.join(parting.ended)}"
    return f"baseline and {variant} give the same answer{ended}"


def _table(variant: str, parting: Parting) -> Table:
    """Return the pieces of both answers from the first different one on, and how many follow."""
    table = Table(box=None, pad_edge=False)
    for head in (parting.unit, "baseline", visible_line(variant)):
        table.add_column(head, justify="right" if head == parting.unit else "left", overflow="fold")
    assert parting.position is not None, "there are rows"
    for number, (before, after) in enumerate(parting.rows, start=parting.position):
        style = "" if before == after else "red"
        table.add_row(str(number), Text(_piece(before)), Text(_piece(after), style=style))
    if any(parting.following):
        table.add_row("", *(Text(f"… {count:,} more" if count else "", style="dim") for count in parting.following))
    return table


def _piece(piece: Piece | None) -> str:
    """Return a token's id and its text in quotes, with line ends and invisible characters escaped; "" for no piece."""
    if piece is None:
        return ""
    text = piece.text[:MOST].replace("\n", "\\n").replace("\t", "\\t")
    text = f'"{visible(text)}"' + ("…" if len(piece.text) > MOST else "")
    return text if piece.id is None else f"{piece.id} {text}"


def _short(value: str) -> str:
    """Shorten a hash; what else an identity holds, such as a server's own words, keeps more."""
    is_hash = len(value) == 64 and set(value) <= set("0123456789abcdef")
    return value[:HASH] if is_hash else value[:MOST] or "none"
