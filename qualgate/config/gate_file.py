"""Load a gate file: YAML with lines → checked types → frozen records with absolute paths."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from qualgate import evalsets
from qualgate.config.against import against_of, placed_rules
from qualgate.config.arms import AdapterEntry, Variant
from qualgate.config.budget import BudgetEntry, as_budget
from qualgate.config.contradictions import ROLES, contradictions, roles
from qualgate.config.judge import as_judge
from qualgate.config.load import as_load
from qualgate.config.model import JOB_TIMEOUT, GateFileModel, Workers
from qualgate.config.paths import SHIPPED_MODEL, expanded
from qualgate.config.prices import load_prices
from qualgate.config.rules import RuleEntry
from qualgate.config.served import as_served
from qualgate.config.speculation import as_record
from qualgate.documents import Document, as_model, read_yaml, refuse
from qualgate.errors import UsageError
from qualgate.records import (
    GREEDY,
    Adapter,
    ArmSpec,
    Budget,
    Drafted,
    EarlyStop,
    FourArms,
    Load,
    Policy,
    Quarantine,
    Rule,
    Sampling,
    SetRef,
    Slo,
)
from qualgate.records.identity import own_version
from qualgate.refmodel import PATH as SHIPPED_MODEL_FOLDER
from qualgate.store.address import placed


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFile:
    """All settings of a gate file; folders are absolute."""

    path: Path
    text: str
    baseline: ArmSpec
    quantized_baseline: bool  # the user says that it may be a quantized checkpoint
    variants: tuple[ArmSpec, ...]  # in the file's order
    evalset_refs: tuple[SetRef, ...]  # for `plan.load_set(ref, gate.path.parent)`
    seed: int
    policy: Policy
    store_url: str
    workers: int  # on a cluster: of all its nodes, but for `each_device`
    devices: str | tuple[tuple[int, ...], ...]  # "auto", "cpu" or of each process the numbers of its GPUs
    arithmetic_said: bool = True  # else it is that of the device
    job_timeout: float = JOB_TIMEOUT  # s in which a batch is to be answered, with the loading of its arm
    ray: str | None = None  # the address of the cluster whose nodes generate, "" to start one; None: this machine does
    each_device: bool = False  # as many workers as the cluster has GPUs, or nodes
    load: Load = field(default_factory=Load)  # how `qualgate load` asks served arms; no verdict reads it
    feedback: Path | None = None  # what users said of answers
    labels: Path | None = None  # what people prefer, by which `policy.judge` is measured
    served_by: Mapping[str, str] | None = None  # whose tool parser reads texts: `engine` and `python`
    nel_policy: Path | None = None  # a NeMo Evaluator policy that decides in place of `policy.rules`, which is empty
    four_arm: FourArms | None = None  # a run, and what is judged of it, puts it into the policy
    sampling: Sampling = GREEDY  # of evalsets that do not say their own
    repeats: int = 1  # answers to each case
    drift: float = 1.0  # share of each evalset's cases whose drift is measured; the report alone may have fewer
    repeats_stated: bool = False  # not the default: score files must hold as many
    noise_floor: bool = False  # run the baseline a second time, in other batches
    identity: Literal["hash", "ids"] = "hash"  # what pairs the rows of two score files
    error_texts: tuple[str, ...] | None = None  # see `error_reader`
    expected: Path | None = None  # JSON lines with the `id` (and `evalset`) of every case that score files must hold
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # arm → what rows may call it
    subset: str = ""  # why these may be fewer than an evalset beside the gate file has
    budget: Budget = field(default_factory=Budget)  # of requests to servers


def load_gate_file(path: Path, *, files: bool = True) -> GateFile:
    """Load the gate file at `path`. UsageError names every fault with its line; NotInThisVersion if all are planned.

    files=False: model folders and evalset files may be missing, as when a stored run is decided again.
    """
    path = path.absolute()
    document = read_yaml(path)
    _refuse_other_kinds(document)
    _refuse_other_version(document)
    model, faults = as_model(GateFileModel, document, {"folder": path.parent, "files": files})
    if model is not None:
        faults += contradictions(document, model)
    if model is None or faults:
        refuse(faults)
    baseline = _baseline(model, path)
    return GateFile(
        path=path,
        text=document.text,
        baseline=baseline,
        quantized_baseline=model.baseline.quantized,
        variants=tuple(_arm(name, variant, baseline, path, model.budget) for name, variant in model.variants.items()),
        evalset_refs=tuple(model.evalsets),
        seed=model.generation.seed,
        policy=_policy(model, document, path.parent),
        store_url=placed(model.store, path.parent),
        workers=_workers(model.workers),
        devices=model.workers.devices,
        arithmetic_said="arithmetic" in model.model_fields_set,
        job_timeout=model.workers.job_timeout,
        ray=(model.workers.address or "") if model.workers.backend == "ray" else None,
        each_device=model.workers.backend == "ray" and model.workers.count == "auto",
        load=as_load(model.load, path.parent),
        budget=as_budget(model.budget),
        feedback=path.parent / expanded(model.feedback) if model.feedback else None,
        labels=path.parent / expanded(model.judge.labels) if model.judge else None,
        served_by=_served_by(model, path.parent),
        nel_policy=path.parent / expanded(model.gate.nel_policy) if model.gate.nel_policy else None,
        four_arm=_four_arms(model),
        sampling=model.generation.sampling,
        repeats=model.generation.repeats,
        drift=model.generation.drift,
        repeats_stated="repeats" in model.generation.model_fields_set,
        noise_floor=model.noise_floor,
        identity=model.gate.identity,
        error_texts=None if model.gate.error_texts is None else tuple(model.gate.error_texts),
        expected=Path(_folder(model.gate.expected, path)) if model.gate.expected else None,
        subset=model.gate.subset or "",
        models=_models(model),
    )


def _served_by(model: GateFileModel, folder: Path) -> Mapping[str, str] | None:
    if not (entry := model.served_by):
        return None
    return {"engine": entry.engine, "python": str(folder.absolute() / expanded(entry.python))}


def _workers(workers: Workers) -> int:
    if isinstance(workers.devices, tuple):
        return len(workers.devices)
    return usable_cores() if workers.count == "auto" else workers.count


def _policy(model: GateFileModel, document: Document, folder: Path) -> Policy:
    """The policy from the section `gate:` and the sections beside it. folder: the gate file's."""
    return Policy(
        rules=tuple(_gate_rule(entry, document.line(place), against_of(place)) for place, entry in placed_rules(model)),
        alpha=model.gate.alpha,
        review=model.gate.review,
        approvals=model.gate.approvals,
        reviewers=model.gate.reviewers,
        slo=Slo(**model.slo.model_dump()) if model.slo else None,
        prices=load_prices(folder / expanded(model.prices)) if model.prices else None,
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
        uncounted=model.gate.uncounted,
        max_unfinished=model.gate.max_unfinished,
        max_age=model.gate.max_age,  # type: ignore[arg-type]  # seconds, by its validator
        stop=EarlyStop(seed=model.generation.seed) if model.gate.stop == "early" else None,
        judge=as_judge(model.judge, model.budget),
    )


def _models(model: GateFileModel) -> dict[str, tuple[str, ...]]:
    """Arm → names that rows of score files may give it, where listed."""
    arms = {"baseline": model.baseline, **model.variants}
    return {name: tuple(arm.models) for name, arm in arms.items() if arm.models is not None}


def _four_arms(model: GateFileModel) -> FourArms | None:
    """Collect the four arms from the section `four_arm` or the variants' `arm:`; None unless all three are named."""
    section, by_role = model.four_arm, roles(model)
    names = {role: getattr(section, role, None) or next(iter(by_role.get(role, ())), None) for role in ROLES}
    if None in names.values():
        return None
    options = section.model_dump(exclude={*ROLES, "drafting"}) if section else {}
    if options.get("parity") == "sampled" and model.generation.temperature:  # of score files it need not be said
        options["temperature"] = model.generation.temperature
    drafting = (section.drafting if section else None) or {}
    declared = tuple(
        Drafted(arm=name, proposed=entry.proposed, accepted=entry.accepted) for name, entry in drafting.items()
    )
    return FourArms(**names, **options, drafting=declared)  # type: ignore[arg-type]


def _refuse_other_kinds(document: Document) -> None:
    """Refuse other kinds of files by name instead of key by key."""
    path, keys = document.path, document.value.keys() if isinstance(document.value, dict) else set()
    if path.suffix in (".jsonl", ".json"):
        raise UsageError(
            f"{path}: this is JSON, but a gate file is YAML. For cases, name the YAML file of their set under "
            "`evalsets`; to judge score rows: qualgate gate GATE.yaml --baseline-scores A.jsonl --variant-scores "
            "B.jsonl"
        )
    if {"name", "version"} <= keys and keys & {"metrics", "kind"} and "baseline" not in keys:
        if evalsets.kind_of(document) == "calibration":
            what, named = "a calibration set", "as `calibration` of a recipe"
        else:
            what, named = "an evalset", f"as evalsets: [./{path.name}]"
        raise UsageError(
            f"{path}: this is {what}, not a gate file; a gate file names it {named}. To check it: qualgate evalset "
            f"check {path}"
        )


def _refuse_other_version(document: Document) -> None:
    """Refuse newer versions first: any further message would follow the wrong version's rules."""
    version = document.value.get("version") if isinstance(document.value, dict) else None
    if type(version) is int and version > 1:
        message = (
            f"a gate file of version {version} needs a newer qualgate than this one ({own_version()}), which reads "
            "version 1"
        )
        refuse([document.fault(("version",), message, planned=True)])


def _folder(model: str, gate_file: Path) -> str:
    if model == SHIPPED_MODEL:
        return str(SHIPPED_MODEL_FOLDER)
    return os.path.normpath(gate_file.parent / expanded(model))


def _baseline(model: GateFileModel, path: Path) -> ArmSpec:
    return ArmSpec(
        name="baseline",
        model=model.baseline.model if model.baseline.is_served else _folder(model.baseline.model, path),
        dtype=model.baseline.dtype,
        dtype_said="dtype" in model.baseline.model_fields_set,
        kv_cache=model.baseline.kv_cache,
        kv_said="kv_cache" in model.baseline.model_fields_set,
        adapter=_adapter(model.baseline.adapter, path),
        arithmetic=model.arithmetic,
        served=as_served(model.baseline, path.parent, model.budget),
        read_as=model.baseline.read_as,
        allow_config=tuple(model.baseline.allow_config or ()),
    )


def _arm(name: str, variant: Variant, baseline: ArmSpec, gate_file: Path, budget: BudgetEntry | None) -> ArmSpec:
    """Resolve one variant against the baseline: served, made from the baseline's weights, or from a folder of its own.

    gate_file: paths are relative to its folder. budget: gives a price to served arms.
    """
    if variant.is_served:
        return ArmSpec(name=name, model=variant.model, served=as_served(variant, gate_file.parent, budget))
    speculation = None
    if variant.speculation is not None:
        speculation = as_record(variant.speculation, lambda model: _folder(model, gate_file))
    adapter = _adapter(variant.adapter, gate_file)
    if variant.model is None:
        adapter = adapter or baseline.adapter
        return replace(
            baseline,
            name=name,
            quantize=variant.quantize,
            speculation=speculation,
            kv_cache=variant.kv_cache or baseline.kv_cache,
            kv_said=variant.kv_cache is not None or baseline.kv_said,
            adapter=replace(adapter, merged=False) if adapter and variant.quantize else adapter,
        )
    calibration, digest = variant.calibration or ("", "")
    return ArmSpec(
        name=name,
        model=_folder(variant.model, gate_file),
        dtype=variant.dtype or baseline.dtype,
        dtype_said=variant.dtype is not None or baseline.dtype_said,
        calibration=calibration,
        calibration_sha256=digest,
        speculation=speculation,
        kv_cache=variant.kv_cache or baseline.kv_cache,
        kv_said=variant.kv_cache is not None or baseline.kv_said,
        adapter=adapter,
        arithmetic=baseline.arithmetic,
        read_as=variant.read_as or baseline.read_as,
        allow_config=tuple(variant.allow_config or ()),
        another_model=bool(variant.another_model),
    )


def _adapter(entry: AdapterEntry | None, gate_file: Path) -> Adapter | None:
    return None if entry is None else Adapter(path=_folder(entry.path, gate_file), merged=entry.merge)


def _gate_rule(entry: RuleEntry, line: int, against: str) -> Rule:
    """Convert a rule of the gate file to the gate's record. line: of the rule in the file. against: see `Rule`."""
    return Rule(
        metric=entry.metric,
        scope=entry.scope,
        skip=(entry.per and entry.per.skip) or "",
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
        against=against,
        line=line,
    )


def usable_cores() -> int:
    """Cores that this process may use; where the system cannot say (macOS), all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
