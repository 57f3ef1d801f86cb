"""Loads a gate file: YAML with lines → checked types → frozen records with absolute paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qualgate import evalsets
from qualgate.config.model import BOUNDS, SHIPPED_MODEL, GateFileModel, RuleEntry, Variant, expanded
from qualgate.config.prices import load_prices
from qualgate.documents import Document, Fault, as_model, nearest, quote, read_yaml, refuse
from qualgate.metrics import METRICS
from qualgate.records import ArmSpec, EarlyStop, FourArms, LmEvalTask, Policy, Quarantine, Rule, Slo
from qualgate.refmodel import PATH as SHIPPED_MODEL_FOLDER
from qualgate.version import own_version

ROLES = ("quantization", "speculation", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFile:
    """Everything a gate file asks for; folders are absolute."""

    path: Path
    text: str
    baseline: ArmSpec
    quantized_baseline: bool  # the user says that it may be a quantized checkpoint
    variants: tuple[ArmSpec, ...]  # in the file's order
    evalset_refs: tuple[str | LmEvalTask, ...]  # for `plan.load_set(ref, gate.path.parent)`
    seed: int
    policy: Policy
    store_url: str
    workers: int
    devices: str  # "auto" or "cpu"
    feedback: Path | None = None  # what users said of answers
    nel_policy: Path | None = None  # a NeMo Evaluator policy that decides in place of `policy.rules`, which is empty
    four_arm: FourArms | None = None  # a run, and what is judged of it, puts it into the policy
    temperature: float = 0.0  # of evalsets that do not say their own; 0: the likeliest token
    repeats: int = 1  # answers to each case
    noise_floor: bool = False  # run the baseline a second time, in other batches
    identity: Literal["hash", "ids"] = "hash"  # what pairs the rows of two score files
    expected: Path | None = None  # JSON lines with the `id` (and `evalset`) of every case that score files must hold


def load_gate_file(path: Path, *, files: bool = True) -> GateFile:
    """The gate file at `path`. UsageError names every fault with its line, NotInThisVersion when all are of the future.

    files=False: model folders and evalset files need not be there, as when a stored run is decided again.
    """
    path = path.absolute()
    document = read_yaml(path)
    _refuse_other_version(document)
    model, faults = as_model(GateFileModel, document, {"folder": path.parent, "files": files})
    if model is not None:
        faults += _contradictions(document, model)
    if model is None or faults:
        refuse(faults)
    baseline = ArmSpec(name="baseline", model=_folder(model.baseline.model, path), dtype=model.baseline.dtype)
    return GateFile(
        path=path,
        text=document.text,
        baseline=baseline,
        quantized_baseline=model.baseline.quantized,
        variants=tuple(_arm(name, variant, baseline, path) for name, variant in model.variants.items()),
        evalset_refs=tuple(model.evalsets),
        seed=model.generation.seed,
        policy=Policy(
            rules=tuple(
                _rule(entry, document.line(("gate", "rules", index)))
                for index, entry in enumerate(model.gate.rules or ())
            ),
            alpha=model.gate.alpha,
            review=model.gate.review,
            slo=Slo(**model.slo.model_dump()) if model.slo else None,
            prices=load_prices(path.parent / expanded(model.prices)) if model.prices else None,
            quarantine=tuple(
                Quarantine(
                    case=entry.case,
                    owner=entry.owner,
                    expires=entry.expires,
                    reason=entry.reason,
                    evalset=entry.evalset,
                )
                for entry in model.gate.quarantine
            ),
            max_age=model.gate.max_age,  # type: ignore[arg-type]  # seconds, by its validator
            stop=EarlyStop(seed=model.generation.seed) if model.gate.stop == "early" else None,
        ),
        store_url=_absolute_store(model.store, path),
        workers=_usable_cores() if model.workers.count == "auto" else model.workers.count,
        devices=model.workers.devices,
        feedback=path.parent / expanded(model.feedback) if model.feedback else None,
        nel_policy=path.parent / expanded(model.gate.nel_policy) if model.gate.nel_policy else None,
        four_arm=_four_arms(model),
        temperature=model.generation.temperature,
        repeats=model.generation.repeats,
        noise_floor=model.gate.noise_floor,
        identity=model.gate.identity,
        expected=Path(_folder(model.gate.expected, path)) if model.gate.expected else None,
    )


def _roles(model: GateFileModel) -> dict[str, list[str]]:
    """Role → variants that say by `arm:` that they have it."""
    found: dict[str, list[str]] = {}
    for name, variant in model.variants.items():
        if variant.arm is not None:
            found.setdefault(variant.arm, []).append(name)
    return found


def _four_arms(model: GateFileModel) -> FourArms | None:
    """By the section or by what the variants say; None where not all three are named."""
    section, said = model.four_arm, _roles(model)
    names = {role: getattr(section, role, None) or next(iter(said.get(role, ())), None) for role in ROLES}
    if None in names.values():
        return None
    options = section.model_dump(exclude=set(ROLES)) if section else {}
    return FourArms(**names, **options)  # type: ignore[arg-type]


def _refuse_other_version(document: Document) -> None:
    """Before anything else: every further message would rest on the wrong version's rules."""
    found = document.value.get("version") if isinstance(document.value, dict) else None
    if type(found) is int and found > 1:
        message = (
            f"a gate file of version {found} needs a newer qualgate than this one ({own_version()}), which reads "
            "version 1"
        )
        refuse([document.fault(("version",), message, planned=True)])


def _folder(model: str, gate_file: Path) -> str:
    if model == SHIPPED_MODEL:
        return str(SHIPPED_MODEL_FOLDER)
    return os.path.normpath(gate_file.parent / expanded(model))


def _arm(name: str, variant: Variant, baseline: ArmSpec, gate_file: Path) -> ArmSpec:
    if variant.quantize is not None:
        return ArmSpec(name=name, model=baseline.model, dtype=baseline.dtype, quantize=variant.quantize)
    calibration, digest = variant.calibration or ("", "")
    return ArmSpec(
        name=name,
        model=_folder(variant.model, gate_file),
        dtype=variant.dtype or baseline.dtype,
        calibration=calibration,
        calibration_sha256=digest,
    )


def _rule(entry: RuleEntry, line: int) -> Rule:
    return Rule(
        metric=entry.metric,
        scope=entry.per or ("evalset" if entry.evalset else "pooled"),
        evalset=entry.evalset,
        tier=entry.tier,
        max_drop=entry.max_drop,
        max_relative_drop=entry.max_relative_drop,
        max=entry.max,
        min=entry.min,
        max_ratio=entry.max_ratio,
        percentile=entry.percentile,
        where=entry.label,
        repeats=entry.repeats,
        line=line,
    )


def _absolute_store(url: str, gate_file: Path) -> str:
    return f"sqlite:///{os.path.normpath(gate_file.parent / expanded(url.removeprefix('sqlite:///')))}"


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _said(ref: str | LmEvalTask) -> str:
    return f"lm_eval: {ref.task}" if isinstance(ref, LmEvalTask) else ref


def _contradictions(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """What is wrong only when the parts, each right by itself, are put side by side."""
    names: dict[str, str | LmEvalTask] = {}
    for index, ref in enumerate(model.evalsets):
        name = evalsets.name_of(ref)
        if name in names:
            yield document.fault(
                ("evalsets", index), f"the evalset {quote(name)} twice ({_said(names[name])} and {_said(ref)})"
            )
        names.setdefault(name, ref)
    first: dict[tuple[object, ...], tuple[int, float]] = {}
    for index, rule in enumerate(model.gate.rules or ()):
        place = ("gate", "rules", index)
        groups = any(isinstance(ref, LmEvalTask) for ref in model.evalsets)  # what they hold the plan will know
        if rule.evalset is not None and rule.evalset not in names and not groups:
            yield document.fault(
                (*place, "evalset"), f"evalset {quote(rule.evalset)} is not one this file runs: {', '.join(names)}"
            )
        # A second tier may hold the same metric to a second bound; within one tier that says nothing or two things.
        limit = next(name for name in BOUNDS if getattr(rule, name) is not None)
        key = (rule.metric, rule.per, rule.evalset, rule.percentile, rule.tier, rule.label, rule.repeats, limit)
        if key in first:
            line, bound = first[key]
            word = "repeats" if bound == rule.bound else "contradicts"
            yield document.fault(place, f"this rule on {rule.metric} {word} the one on line {line}")
        first.setdefault(key, (document.line(place), rule.bound))
        if METRICS[rule.metric].kind == "cost" and model.prices is None:
            yield document.fault(place, f"a rule on {rule.metric} needs a price table; add `prices: FILE`")
        if rule.metric == "goodput" and model.slo is None:
            yield document.fault(place, "a rule on goodput needs limits; add for example `slo: {ttft: 0.5, e2e: 10}`")
        if rule.metric == "stability.rerun" and not model.gate.noise_floor:
            yield document.fault(place, "a rule on stability.rerun needs a second run of the baseline; add "
                                 "`noise_floor: true` under `gate`")  # fmt: skip
    if model.gate.stop == "early" and model.gate.noise_floor:
        yield document.fault(
            ("gate", "stop"), "`stop: early` ends at other cases for each arm, and a noise floor needs them all"
        )
    yield from _contradictory_arms(document, model)
    critical = any(
        rule.tier == "critical" and METRICS[rule.metric].kind == "quality" for rule in model.gate.rules or ()
    )
    if not critical and model.gate.nel_policy is None:
        yield document.fault(
            ("gate", "rules"),
            "no critical rule on quality, so nothing could be approved; add one such as "
            "{metric: exact_match, max_drop: 0.02}",
        )


def _contradictory_arms(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Each role is one variant's, and the section and the variants say the same."""
    said, named = _roles(model), {role: getattr(model.four_arm, role, None) for role in ROLES}
    for role, variants in said.items():
        if len(variants) > 1:
            yield document.fault(("variants", variants[1], "arm"), f"two variants are {role}: {', '.join(variants)}")
        elif named[role] not in (None, variants[0]):
            message = f"{variants[0]} says that it is {role}, and four_arm names {quote(named[role])}"
            yield document.fault(("variants", variants[0], "arm"), message)
    taken: dict[str, str] = {}
    for role, name in named.items():
        if name is None:
            if model.four_arm is not None and role not in said:
                yield document.fault(("four_arm",), f"`four_arm.{role}` is missing: which variant is it?")
            continue
        if name not in model.variants:
            yield document.fault(("four_arm", role), f"no variant {quote(name)}{nearest(name, model.variants)}")
        elif name in taken:
            yield document.fault(("four_arm", role), f"{quote(name)} is {taken[name]} already; the arms are three")
        taken.setdefault(name, role)
