"""The text report of `qualgate quantize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.pipeline.quantize.folder import Quantized, Sensitivity
    from qualgate.pipeline.quantize.with_library import Outsourced

MIB = 2**20


def quantized_lines(result: Quantized) -> list[str]:
    """Return the folder, its measured sizes, and the output error if it was calibrated."""
    scales = result.packed_bytes - result.code_bytes
    lines = [
        f"{result.folder}: {result.recipe}, {result.format} format, {counted(result.layers, 'layer')} in "
        f"{result.seconds:.0f} s",
        f"  quantized layers  {result.source_bytes / MIB:,.2f} MiB before, {result.packed_bytes / MIB:,.2f} MiB now: "
        f"codes {result.code_bytes / MIB:,.2f}, scales and the like {scales / MIB:,.2f}",
        f"  effective bits    {result.effective_bits:.3f} a weight over {result.weights:,} weights",
        f"  whole folder      {result.written_bytes / MIB:,.2f} MiB",
        f"  peak memory       {result.peak_bytes / MIB:,.0f} MiB while making it",
    ]
    if result.errors:
        worst = max(result.errors, key=lambda name: result.errors[name])
        mean = sum(result.errors.values()) / len(result.errors)
        lines.append(
            f"  output error      {mean:.2e} of the output's square on the calibration, mean over layers; largest "
            f"{result.errors[worst]:.2e} ({worst})"
        )
    return [*lines, "Whether it may replace its baseline: name the folder as a variant's `model` and `qualgate run`."]


def sensitivity_lines(ranked: Sequence[Sensitivity]) -> list[str]:
    """Return a table of the layers, the most harmful first."""
    width = max((len(layer.layer) for layer in ranked), default=5)
    lines = [f"{'layer':<{width}}  {'KL, nats':>10}  {'loss, nats':>10}  {'same token':>10}  {'saves':>10}"]
    lines += [
        f"{layer.layer:<{width}}  {layer.kl:>10.6f}  {layer.loss_increase:>+10.6f}  {layer.top1_agreement:>10.2%}  "
        f"{layer.saved_bytes / MIB:>6.2f} MiB"
        for layer in ranked
    ]
    return lines


def outsourced_lines(result: Outsourced) -> list[str]:
    """Return the model folder made by a library, and the patches that it needed."""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    lines = [f"{result.folder}: {result.recipe}, made by {result.backend} ({versions}) in {result.seconds:.0f} s"]
    formats = ", ".join(f"{count} {name}" for name, count in result.layers.items())
    lines.append(f"  layers, read back here: {formats}; {result.format} format, {result.written_bytes / MIB:,.2f} MiB")
    return [*lines, *(f"  changed for it to run here: {patch}" for patch in result.patches)]
