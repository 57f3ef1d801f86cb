"""A determinism matrix as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.engine.determinism import DeterminismMatrix


def determinism_lines(matrix: DeterminismMatrix) -> list[str]:
    """Return one row per condition. The reference is the logits of each text read alone, in one pass."""
    lines = [f"{'changed':<18} {'trials':>6}  {'same bits':<9} {'max ulp':>10} {'max diff':>10} {'other tokens':>12}"]
    for cell in matrix.cells:
        turned = f"{cell.other_tokens}" + (f" ({counted(cell.near_ties, 'near tie')})" if cell.other_tokens else "")
        lines.append(
            f"{cell.condition:<18} {cell.trials:>6}  {'yes' if cell.equal else 'no':<9} {cell.max_ulp:>10,} "
            f"{cell.max_difference:>10.2g} {turned:>12}"
        )
    shares = ", ".join(
        f"{k} ulp: {'none' if share is None else f'{share:.3%}'}" for k, share in matrix.near_tie_share.items()
    )
    lines.append(f"{counted(matrix.positions, 'position')}; near ties of the best two logits within {shares}")
    if matrix.softmax_sum_error is not None:
        lines.append(f"the probabilities of a position sum to 1 within {matrix.softmax_sum_error:.2g}")
    if not matrix.repeatable:
        lines.append("The same text gave other bits when it was read again: nothing measured with this model repeats.")
    return lines
