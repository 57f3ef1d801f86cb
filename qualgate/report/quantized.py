"""The report of `qualgate quantize`, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qualgate.formatting import counted

if TYPE_CHECKING:
    from qualgate.quantize.folder import Quantized, Sensitivity
    from qualgate.quantize.with_library import Outsourced

MIB = 2**20


def quantized_lines(made: Quantized) -> list[str]:
    """Where it is and what it weighs, as measured."""
    scales = made.packed_bytes - made.code_bytes
    lines = [
        f"{made.folder}: {made.recipe}, {made.format} format, {counted(made.layers, 'layer')} in {made.seconds:.0f} s",
        f"  quantized layers  {made.source_bytes / MIB:,.2f} MiB before, {made.packed_bytes / MIB:,.2f} MiB now: codes "
        f"{made.code_bytes / MIB:,.2f}, scales and the like {scales / MIB:,.2f}",
        f"  effective bits    {made.effective_bits:.3f} a weight over {made.weights:,} weights",
        f"  whole folder      {made.written_bytes / MIB:,.2f} MiB",
        f"  peak memory       {made.peak_bytes / MIB:,.0f} MiB while making it",
    ]
    if made.errors:
        worst = max(made.errors, key=lambda name: made.errors[name])
        mean = sum(made.errors.values()) / len(made.errors)
        lines.append(
            f"  output error      {mean:.2e} of the output's square on the calibration, mean over layers; largest "
            f"{made.errors[worst]:.2e} ({worst})"
        )
    return [*lines, "Whether it may replace its baseline: name the folder as a variant's `model` and `qualgate run`."]


def sensitivity_lines(ranked: Sequence[Sensitivity]) -> list[str]:
    """A table, the most harmful layer first."""
    width = max((len(one.layer) for one in ranked), default=5)
    lines = [f"{'layer':<{width}}  {'KL, nats':>10}  {'loss, nats':>10}  {'same token':>10}  {'saves':>10}"]
    lines += [
        f"{one.layer:<{width}}  {one.kl:>10.6f}  {one.loss_increase:>+10.6f}  {one.top1_agreement:>10.2%}  "
        f"{one.saved_bytes / MIB:>6.2f} MiB"
        for one in ranked
    ]
    return lines


def outsourced_lines(made: Outsourced) -> list[str]:
    """What a library made, and what had to be changed in it."""
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    lines = [f"{made.folder}: {made.recipe}, made by {made.backend} ({versions}) in {made.seconds:.0f} s"]
    held = ", ".join(f"{count} {name}" for name, count in made.layers.items())
    lines.append(f"  layers, read back here: {held}; {made.format} format, {made.written_bytes / MIB:,.2f} MiB")
    return [*lines, *(f"  changed for it to run here: {patch}" for patch in made.patches)]
