"""The gate file of a stored run, read from its stored text: how answers are drawn, and on which devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from qualgate.config.gate_file import GateFile
from qualgate.config.model import Generation, Workers
from qualgate.documents import Document, Written, as_model, parse_yaml, refuse
from qualgate.records import ArmSpec, Policy, SetRef

Section = TypeVar("Section", bound=Written)


def stored_gate_file(
    path: Path, text: str, arms: Sequence[ArmSpec], sets: Sequence[SetRef], policy: Policy, store_url: str
) -> GateFile:
    """Return a stored run's gate file, with the stored arms and policy in place of those of its text.

    Only the sections `generation` and `workers` are read from the text, because paths in other sections may no longer
    exist. One process of this machine answers, without a cluster.

    Args:
        path: where the gate file would be; servers that it starts run in this folder.
        text: the stored text. Raises UsageError for one that this version cannot read.
        arms: the stored arms, the baseline first.
    """
    document = parse_yaml(path, text)
    generation, workers = _section(Generation, document), _section(Workers, document)
    return GateFile(
        path=path,
        text=text,
        baseline=arms[0],
        quantized_baseline=True,  # it was checked before the run
        variants=tuple(arms[1:]),
        evalset_refs=tuple(sets),
        seed=generation.seed,
        policy=policy,
        store_url=store_url,
        workers=1,
        devices=workers.devices,
        job_timeout=workers.job_timeout,
        sampling=generation.sampling,
        repeats=generation.repeats,
        drift=generation.drift,
    )


def _section(model: type[Section], document: Document) -> Section:
    """Return the section of the document that has the model's name. A section that is left out has its defaults."""
    name = model.__name__.lower()
    value = document.value.get(name, {}) if isinstance(document.value, dict) else document.value
    section, faults = as_model(model, replace(document, value=value))
    if section is None or faults:
        refuse(faults)
    return section
