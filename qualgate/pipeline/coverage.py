"""How far what a variant was calibrated with covers what it is judged on."""

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
    """How far each variant's calibration covers the run's evalsets, stored with its arm, where a rule asks for it.

    Whole texts are counted, and the baseline reads the calibration and a part of the evalsets. Of a folder that was
    made elsewhere the gate file says what it was calibrated with. A variant that learned from no data, or nobody says
    from which, has no such number, and neither has a run whose cases are texts to read instead of to answer.
    """
    asked = {rule.metric for rule in plan.policy.rules if rule.metric.startswith("coverage.")}
    if not asked or any("requests" in case.body for item in plan.evalsets for case in item.cases):
        return
    from qualgate.engine.coverage import coverage

    seen = runs.evidence(store, run_id)
    measured_before = {arm.name: arm.facts.keys() for arm in seen.variants}
    found: dict[str, dict[str, float]] = {}
    for arm in gate.variants:
        told = arm.quantize or arm
        if not told.calibration_sha256 or asked <= measured_before[arm.name]:
            continue
        if told.calibration_sha256 not in found:
            learned = evalsets.read(Path(told.calibration).with_suffix(".yaml"))
            if not isinstance(learned, CalibrationSet) or learned.sha256 != told.calibration_sha256:
                raise UsageError(f"{told.calibration} is no longer the calibration set that {arm.name} was made with.")
            measured = coverage(
                Path(gate.baseline.model),
                learned,
                plan.evalsets,
                dtype=gate.baseline.dtype,
                device=choose_device(gate.devices),
            )
            found[told.calibration_sha256] = measured.facts
        runs.add_facts(store, run_id, arm.name, found[told.calibration_sha256])
