"""Write a first gate file and evalset as text, each key with a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qualgate.text.numbers import counted

COLUMN = 44  # where comments begin
_PLAIN = re.compile(r"[A-Za-z0-9_.~/][A-Za-z0-9_./+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterSet:
    """An evalset that the gate file names."""

    name: str
    metrics: tuple[str, ...]
    cases: int
    settings: Mapping[str, Any] = field(default_factory=dict)  # further keys of its YAML
    why: str = ""  # these metrics, where the baseline's answers were looked at
    by_form: bool = False  # nothing says what a right answer is


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Contents of a first gate file."""

    model: str  # as it is written in the file
    dtype: str
    variants: Mapping[str, tuple[str, str]]  # name → ("model", folder) or ("quantize", method)
    sets: Sequence[StarterSet]
    margin: float  # of every quality rule
    why: str  # the margin, in a few words
    judge: str = ""  # the keys of its `judge` block, as YAML


FORM_ALONE = (
    "Without references this gate sees answers that are empty, cut, repeated, refused, in another language or broken "
    "as JSON or calls. It does not see wrong ones."
)
_WHERE = {"reference": "the small model that ships with qualgate"}


def gate_file_text(starter: Starter) -> str:
    """Text of `gate.yaml`, which lies beside its evalsets."""
    lines = [
        "# May these variants replace the baseline? Written by `qualgate init`; change what you like.",
        "# Every key: docs/reference/gate-file.md. Afterwards: qualgate config check gate.yaml",
        _line("version: 1", "of this file's form"),
        _line("baseline:", "what every variant is held against"),
        _line(f"  model: {_scalar(starter.model)}", _WHERE.get(starter.model, "its folder, relative to this file")),
        _line(f"  dtype: {starter.dtype}", "what its weights are held in: bfloat16, float16 or float32"),
        _line("variants:", "who asks to replace it, each under a name of yours"),
    ]
    for name, (key, value) in starter.variants.items():
        comment = "made from the baseline on the spot" if key == "quantize" else "as it lies there"
        lines.append(_line(f"  {_scalar(name)}: {{{key}: {_scalar(value)}}}", comment))
    lines.append(_line("evalsets:", "the cases that baseline and variants answer"))
    for item in starter.sets:
        comment = f"{counted(item.cases, 'case')}, scored by {', '.join(item.metrics)}"
        lines.append(_line(f"  - {_scalar(f'./{item.name}.yaml')}", comment))
    lines += [
        _line("generation:", "how answers are drawn"),
        _line("  temperature: 0", "0 takes the likeliest token, so answers can be repeated"),
        _line("gate:", "what has to be shown before a variant is approved"),
        _line("  alpha: 0.05", "how often a variant that loses the margin may pass: 1 in 20"),
        _line("  rules:", "each proven, broken or undecided; every critical one must be proven"),
    ]
    for item in starter.sets:
        for metric in item.metrics:
            lines.append(_line(f"    - metric: {metric}", f"may fall by less than {100 * starter.margin:g} points"))
            lines.append(_line(f"      evalset: {_scalar(item.name)}", "of this set alone"))
            lines.append(_line(f"      max_drop: {starter.margin:g}", starter.why))
    if any(item.by_form for item in starter.sets):
        lines += [
            f"    # {FORM_ALONE}",
            _line("    - metric: drift.length_ratio", "tokens of the variant's answers to the baseline's"),
            _line("      max: 1.3", "longer answers cost more, and may be a loop"),
            _line("      tier: supporting", "a person is asked where it is broken"),
            _line("    - metric: parity.prefix", "how far both say the same, token for token"),
            _line("      min: 0.5", "less than that is told"),
            _line("      tier: advisory", "told, and decides nothing"),
        ]
    for item in (each for each in starter.sets if starter.judge):
        lines.append(
            _line("    - metric: judge.win", "share of answers that the judge prefers; 0.5 where none is better")
        )
        lines.append(_line(f"      evalset: {_scalar(item.name)}", "of this set alone"))
        lines.append(_line("      max_drop: 0.05", "surely more than 0.45 is asked for"))
    lines += [
        _line("    - metric: drift.kl_mean", "how far the variant's probabilities moved, in nats"),
        _line("      max: 0.05", "more than that is told"),
        _line("      tier: advisory", "told, and decides nothing; critical and supporting rules decide"),
        *(
            [_line("  noise_floor: true", "runs the baseline twice: what it changes by itself says little")]
            if any(item.by_form for item in starter.sets)
            else []
        ),
        *(["judge:", *(f"  {line}".rstrip() for line in starter.judge.splitlines())] if starter.judge else []),
        _line("store: sqlite:///qualgate.db", "every answer, score, verdict and decision is kept here"),
    ]
    return "\n".join(lines) + "\n"


def evalset_text(starter_set: StarterSet, source: str) -> str:
    """Text of `NAME.yaml`. source: where its cases came from, for people."""
    lines = [
        f"# What the cases in {starter_set.name}.jsonl are scored by. "
        f"Afterwards: qualgate evalset check {starter_set.name}.yaml",
        _line(f"name: {_scalar(starter_set.name)}", "the file's own"),
        _line('version: "1"', "raise it whenever a case changes"),
        _line(f"description: {_scalar(source)}", "for people"),
        *([f"# {starter_set.why}"] if starter_set.why else []),
        _line(f"metrics: [{', '.join(starter_set.metrics)}]", "`qualgate config metrics` lists them all"),
        *(_line(f"{key}: {_value(value)}", _SETTINGS[key]) for key, value in starter_set.settings.items()),
    ]
    return "\n".join(lines) + "\n"


_SETTINGS = {
    "normalizers": "what is taken off an answer and its reference before they are compared",
    "lenient": "what may stand around the answer",
    "pattern": "the last match's group must equal `answer`",
}


def _value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else f"[{', '.join(value)}]"


def _line(text: str, comment: str) -> str:
    return f"{text:<{COLUMN}} # {comment}"


def _scalar(text: str) -> str:
    """The text as a YAML scalar: in quotes unless it is plainly a name or a path."""
    plain = _PLAIN.fullmatch(text) and re.search("[A-Za-z]", text) and text.lower() not in _WORDS
    return text if plain and not re.fullmatch(r"[\d.eE+-]+", text) else json.dumps(text)


_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
