"""`qualgate drift`: show how far each variant of a stored run is from its baseline."""

from __future__ import annotations

import json

from qualgate.cli.arguments import JsonOption, OptionalGateFile, RunOption, StoreOption, stored_run
from qualgate.cli.stdout import say


def drift(
    gate_file: OptionalGateFile = None, store: StoreOption = None, run_id: RunOption = None, as_json: JsonOption = False
) -> None:
    """Show each variant's KL from its baseline, and where in the answers it drifts."""
    from qualgate.pipeline.run_drift import drift_report
    from qualgate.report.drift import drift_json, drift_lines

    report = drift_report(*stored_run(gate_file, store, run_id))
    say(json.dumps(drift_json(report), indent=2, allow_nan=False) if as_json else "\n".join(drift_lines(report)))
