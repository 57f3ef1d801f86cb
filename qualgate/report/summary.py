"""A stored run as a report: read from the store, rendered elsewhere. No statistic is computed here.

Nothing of the host or the clock is in it, so the same stored evidence gives the same bytes on every machine.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qualgate.records import Verdict
from qualgate.report.render import report_as_markdown, write_atomically
from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.visible import visible_line

SCHEMA = 1  # of the JSON report
FLIPS_SHOWN = 5  # right → wrong answers quoted for each variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    run: queries.RunSummary
    flips: dict[str, tuple[queries.Flip, ...]]  # variant → the first answers that were right and are wrong

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(stored.verdict for stored in self.run.verdicts)

    def lines(self) -> list[str]:
        """One plain line a variant: name, verdict, reason."""
        names = [visible_line(verdict.variant) for verdict in self.verdicts]
        width = max(map(len, names), default=0)
        return [
            f"{name:<{width}}  {v.word.upper():<9}  {visible_line(v.reasons[0])}"
            for name, v in zip(names, self.verdicts, strict=True)
        ]

    def as_json(self) -> str:
        return json.dumps(self._plain(), indent=2, ensure_ascii=True, allow_nan=False)

    def as_markdown(self) -> str:
        return report_as_markdown(self)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write RUN_ID.json and RUN_ID.md into `folder`, each whole or not at all."""
        paths = (folder / f"{self.run.run_id}.json", folder / f"{self.run.run_id}.md")
        write_atomically(paths[0], self.as_json())
        write_atomically(paths[1], self.as_markdown())
        return paths

    def _plain(self) -> dict[str, Any]:
        run = self.run
        return {
            "schema": SCHEMA,
            "run": run.run_id,
            "status": run.status,
            "policy": asdict(run.verdicts[0].policy if run.verdicts else run.policy),
            "evalsets": [asdict(item) for item in run.evalsets],
            "arms": [
                {
                    "name": arm.name,
                    "weights": arm.weights,
                    "identity": asdict(arm.identity) if arm.identity else None,
                    "footprint": asdict(arm.footprint) if arm.footprint else None,
                    "expected": arm.expected,
                    "done": arm.done,
                    "errors": arm.errors,
                    "kernels": list(arm.kernels),
                }
                for arm in run.arms
            ],
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "flips": {variant: [asdict(flip) for flip in found] for variant, found in self.flips.items()},
            "failures": list(run.failures),
        }


def load_report(url: str, run_id: str | None = None) -> Report:
    """The report of a run, by default the newest. Raises UsageError when there is no such run."""
    with open_store(url, create=False) as store:
        found = run_id or queries.latest_run(store)
        run = queries.run_summary(store, found)
        flips = {
            stored.verdict.variant: queries.flips(
                store, found, stored.verdict.variant, direction="lost", limit=FLIPS_SHOWN
            )
            for stored in run.verdicts
        }
    return Report(run=run, flips=flips)
