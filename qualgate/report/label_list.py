"""Show and export people's labels: on a terminal, as JSON lines or CSV, and what they propose for the next run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date, timedelta
from typing import Any

from rich.text import Text

from qualgate.report import screen
from qualgate.report.screen import indented
from qualgate.store.labels import COMMENT, Label
from qualgate.text.escaping import visible, visible_line
from qualgate.text.numbers import counted

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a cell that begins with one of these
QUARANTINE = timedelta(days=30)  # proposed length of an entry


def print_labels(labels: Sequence[Label]) -> None:
    """Print each label's answer, and below it who set which label when, with the note."""
    console = screen.console()
    for label in labels:
        place = f"run {label.run_id}, {label.variant}"
        console.print(Text.assemble((visible_line(label.unit.question), "bold"), f"  {visible_line(place)}"))
        console.print(indented(visible_line(label.text + label.ending)))


def labels_jsonl(labels: Sequence[Label]) -> str:
    """Return one JSON object a line."""
    return "".join(json.dumps(asdict(label)) + "\n" for label in labels)


def records_csv(kind: type, records: Sequence[Any]) -> str:
    """Return records of one kind as CSV with a line of heads. Invisible characters are escaped, and cells that a
    spreadsheet would run begin with a single quote."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads := [field.name for field in fields(kind)])
    for record in records:
        writer.writerow([_cell(str(getattr(record, head))) for head in heads])
    return out.getvalue()


def _cell(text: str) -> str:
    return f"'{visible(text)}" if text.startswith(FORMULA) else visible(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A proposed entry of `gate.quarantine`."""

    case: str
    evalset: str
    owner: str
    expires: str  # YYYY-MM-DD
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """Changes that labels propose for the next run."""

    references: dict[str, tuple[str, ...]]  # evalset → ids of cases whose reference is wrong
    quarantine: tuple[Entry, ...]


def proposals(labels: Sequence[Label], today: date) -> Proposals:
    """Return what the newest label of each case proposes. labels: in the order in which they were set."""
    newest = {(label.evalset, label.case_id): label for label in labels if label.label != COMMENT}
    references: dict[str, tuple[str, ...]] = {}
    quarantine = []
    for (evalset, case_id), label in sorted(newest.items()):
        if label.label == "wrong reference":
            references[evalset] = (*references.get(evalset, ()), case_id)
        elif label.label == "flaky":
            reason = f"flaky{label.ending}"
            expires = (today + QUARANTINE).isoformat()
            entry = Entry(case=case_id, evalset=evalset, owner=label.name, expires=expires, reason=reason)
            quarantine.append(entry)
    return Proposals(references=references, quarantine=tuple(quarantine))


def proposals_yaml(proposed: Proposals) -> str:
    """Return the proposals as YAML to paste into a gate file; what belongs elsewhere is a comment."""
    lines = []
    if proposed.references:
        lines += ["# Wrong reference: correct these cases in their evalset's file. `qualgate rescore RUN GATE.yaml`",
                  "# then decides anew without generating."]  # fmt: skip
        lines += [
            f"#   {visible_line(evalset)} ({visible_line(evalset)}.jsonl): {visible_line(', '.join(case_ids))}"
            for evalset, case_ids in proposed.references.items()
        ]
    if proposed.quarantine:
        lines += [f"# Flaky: add {counted(len(proposed.quarantine), 'entry', 'entries')} to `gate` of the gate file. "
                  "Check owners and days first; at most 2 % of all",
                  "# cases may be in quarantine.",
                  "quarantine:"]  # fmt: skip
        lines += [f"  - {{{_flow(entry)}}}" for entry in proposed.quarantine]
    return "".join(f"{line}\n" for line in lines or ["# No label proposes a change."])


def _flow(entry: Entry) -> str:
    """Return the entry's keys as YAML in flow style, texts in double quotes, where YAML knows our escapes."""
    values = {key: visible(json.dumps(value, ensure_ascii=False)) for key, value in asdict(entry).items()}
    values["expires"] = entry.expires
    return ", ".join(f"{key}: {value}" for key, value in values.items())
