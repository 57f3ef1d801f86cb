"""The model card: what was done to which model with which data, for whoever finds the folder later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualgate.quant.checkpoint import PackedModel
from qualgate.text.numbers import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a card cannot read from the weights."""

    model: str  # the baseline's name, not its path
    source_sha256: str
    dtype: str  # the weights were rounded to before anything else
    versions: Mapping[str, str]
    date: str = ""  # as the caller gives it; a card without one says nothing about when
    calibration: str = ""  # name and version of the set
    calibration_cases: int = 0
    calibration_tokens: int = 0


def model_card(packed: PackedModel, provenance: Provenance, format: str, more_rows: Sequence[str] = ()) -> str:
    """README.md of a quantized folder."""
    recipe = packed.recipe
    numbers = sum(weight.shape[0] * weight.shape[1] for weight in packed.weights.values())
    codes = sum(weight.codes.nbytes for weight in packed.weights.values())
    total = sum(weight.nbytes for weight in packed.weights.values())
    formats: dict[str, int] = {}
    for weight in packed.weights.values():
        formats[weight.format] = formats.get(weight.format, 0) + 1
    lines = [
        f"# {provenance.model}, {recipe.label}",
        "",
        f"Made by qualgate from `{provenance.model}`"
        + (f" on {provenance.date}" if provenance.date else "")
        + f", written in the {format} format.",
        "",
        "| | |",
        "|---|---|",
        f"| source weights, sha256 | `{provenance.source_sha256}` |",
        f"| rounded first to | {provenance.dtype} |",
        *(f"| {key} | {_shown(value)} |" for key, value in recipe.content.items()),
        *(f"| layers in {name} | {count} |" for name, count in formats.items()),
        f"| quantized weights | {numbers:,} |",
        f"| bytes of codes / with scales | {codes:,} / {total:,} |",
        f"| effective bits a weight | {8 * total / numbers:.3f} |",
    ]
    if provenance.calibration:
        lines.append(
            f"| calibration | {provenance.calibration}: {counted(provenance.calibration_cases, 'case')}, "
            f"{counted(provenance.calibration_tokens, 'token')} |"
        )
    if packed.errors:
        worst = max(packed.errors, key=lambda name: packed.errors[name])
        mean = sum(packed.errors.values()) / len(packed.errors)
        lines.append(f"| output error on the calibration, mean over layers | {mean:.2e} of the output's square |")
        lines.append(f"| the largest | {packed.errors[worst]:.2e}, {worst} |")
    if format == "gptq" and any(weight.zero_points is not None for weight in packed.weights.values()):
        lines.append("| GPT-QModel | loads asymmetric weights of others' making only as gptq_v2 |")
    lines += more_rows
    lines += [f"| {name} | {version} |" for name, version in sorted(provenance.versions.items())]
    lines += [
        "",
        "Embeddings, norms and the output head are not quantized."
        + (" Some norms carry scales that calibration folded into them." if packed.folded else ""),
        "",
        "Whether it may replace its baseline is not known from this card: that is what `qualgate run` decides.",
        "",
    ]
    return "\n".join(lines)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"`{pattern}` {precision}" for pattern, precision in value)
    return f"`{value}`" if isinstance(value, str) else str(value).lower()
