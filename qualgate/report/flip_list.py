"""Print flipped answers on a terminal: the prompt, the reference, and where the two answers diverge."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from qualgate.report import screen
from qualgate.report.diff import parted, parts_in
from qualgate.report.screen import indented
from qualgate.store.queries import Direction, Flip
from qualgate.text.escaping import visible, visible_line
from qualgate.text.numbers import counted

MOST = 700  # characters shown of a text
BEFORE = 200  # characters shown of the answers' common beginning
MARK = "»"  # marks the divergence, for terminals without colours and for files
WAYS: dict[Direction, str] = {"lost": "right before, wrong now", "gained": "wrong before, right now"}


def print_flips(
    variant: str,
    shown: Sequence[Flip],
    total: int,
    pairs: int,
    direction: Direction,
    labels: Sequence[Sequence[str]] = (),
) -> None:
    """Print the flips `shown` out of `total`, among `pairs` of scores from both arms. labels: lines about each; (): no
    label is shown."""
    console = screen.console()
    head = f"{visible_line(variant)}: {total:,} of {counted(pairs, 'score')}: {WAYS[direction]}"
    console.print(Text(head, style="bold"))
    for flip, lines in zip(shown, labels or [()] * len(shown), strict=True):
        _print_flip(console, flip, lines)
    if total > len(shown):
        console.print(Text(f"\n{total - len(shown):,} more: --limit {total} shows all", style="dim"))


def _print_flip(console: Console, flip: Flip, labels: Sequence[str]) -> None:
    """Print a flip: why its score changed, its labels, the prompt, the reference, and both answers, the right one green
    from where they part."""
    note = "  (changes in the A/A arm too)" if flip.noisy else ""
    note = f"  parts in the {where}{note}" if (where := parts_in(flip)) else note
    console.print(Text.assemble("\n", (visible_line(flip.name), "bold"), f"  {visible_line(flip.metric)}{note}"))
    console.print(indented(Text(visible_line(flip.reason), style="yellow")))
    for line in labels:
        console.print(indented(Text(visible_line(line), style="cyan")))
    common, before, after = parted(flip.baseline, flip.variant)
    baseline_style, variant_style = ("green", "red") if flip.direction == "lost" else ("red", "green")
    for name, text in (
        ("prompt", Text(_cut(visible(flip.prompt)))),
        ("reference", Text(_cut(visible(flip.reference)))),
        ("baseline", _marked(common, before, baseline_style)),
        ("variant", _marked(common, after, variant_style)),
    ):
        console.print(indented(Text(name, style="dim")))
        console.print(indented(text, 4))


def _marked(common: str, differing: str, style: str) -> Text:
    """Return an answer with a mark where it parts from the other one: the end of what they share, then the differing
    rest."""
    context = common if len(common) <= BEFORE else f"… {common[-BEFORE:]}"
    return Text.assemble(context, (MARK, "bold"), (_cut(differing), style) if differing else ("(ends here)", "dim"))


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[:MOST]} … ({len(text) - MOST:,} characters more: --json)"
