"""Measure how far a variant's calibration set covers the run's evalsets."""

from __future__ import annotations

from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.device import choose_device
from qualgate.errors import UsageError
from qualgate.records import CalibrationSet, Plan
from qualgate.store import runs
from qualgate.store.database import Store


def measure_coverage(plan: Plan, run_id: str, store: Store, gate: GateFile) -> None:
    """Store the coverage of each variant's calibration with its arm, if a rule asks for it.

    Whole texts are counted; the baseline reads the calibration set and a part of the evalsets. For a folder quantized
    elsewhere the gate file names the calibration set. Skipped for variants without known calibration data, and for
    runs whose cases are only read.
    """
    coverage_metrics = {rule.metric for rule in plan.policy.rules if rule.metric.startswith("coverage.")}
    if not coverage_metrics or any("requests" in case.body for item in plan.evalsets for case in item.cases):
        return
    from qualgate.engine.coverage import coverage

    evidence = runs.evidence(store, run_id)
    measured_before = {arm.name: arm.facts.keys() for arm in evidence.variants}
    facts_of: dict[str, dict[str, float]] = {}
    for arm in gate.variants:
        spec = arm.quantize or arm
        if not spec.calibration_sha256 or coverage_metrics <= measured_before[arm.name]:
            continue
        if spec.calibration_sha256 not in facts_of:
            calibration_set = evalsets.read(Path(spec.calibration).with_suffix(".yaml"))
            if not isinstance(calibration_set, CalibrationSet) or calibration_set.sha256 != spec.calibration_sha256:
                raise UsageError(f"{spec.calibration} is no longer the calibration set that {arm.name} was made with.")
            measured = coverage(
                Path(gate.baseline.model),
                calibration_set,
                plan.evalsets,
                dtype=gate.baseline.dtype,
                device=choose_device(gate.devices),
            )
            facts_of[spec.calibration_sha256] = measured.facts
        runs.add_facts(store, run_id, arm.name, facts_of[spec.calibration_sha256])
