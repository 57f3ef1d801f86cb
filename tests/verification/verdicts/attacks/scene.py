"""What an attack works on: a gate file, an evalset beside it and score files, sound or of a variant that lost a third.

What is changed of one scene is changed of no other. Nothing of the package is used to write the files.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

from qualgate.records.identity import case_hash
from tests.verification.verdicts.attempts import Ask, Code, exit_code

CASES, LOST = 160, 54  # the variant that lost a third is wrong on the first LOST
Row = dict[str, Any]


@dataclass
class Scene:
    """Files as values; `raw` is laid over them last, byte for byte. None for `cases`: no evalset lies there."""

    gate: dict[str, Any]
    cases: list[Row] | None
    header: dict[str, Any]
    rows: dict[str, list[Row]]  # by file name
    raw: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # name → where it leads, in place of a file
    options: dict[str, Any] = field(default_factory=dict)  # of the command beside its files

    def content(self, name: str) -> bytes:
        """What would be written under this name."""
        if name in self.raw:
            return self.raw[name]
        if name == "gate.yaml":
            return yaml.safe_dump(self.gate, allow_unicode=True, sort_keys=False).encode()
        if name == "set.yaml":
            return yaml.safe_dump(self.header, allow_unicode=True, sort_keys=False).encode()
        return lines(self.cases or [] if name == "set.jsonl" else self.rows[name])

    def written(self, folder: Path) -> None:
        """Every file into the folder, which holds nothing else then."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        names = {"gate.yaml", *self.rows, *self.raw, *(("set.yaml", "set.jsonl") if self.cases is not None else ())}
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self.content(name))
        for name, target in self.links.items():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target)

    @property
    def variant(self) -> list[Row]:
        return self.rows["b.jsonl"]

    @property
    def rule(self) -> dict[str, Any]:
        return self.gate["gate"]["rules"][0]


Change = Callable[[Scene], object]


def lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "surrogatepass")


def _case(number: int) -> Row:
    return {"id": f"é-c{number}", "prompt": f"How many are {number}?", "max_new_tokens": 8, "answer": str(number),
            "tags": ["hard"] if number % 2 else []}  # fmt: skip


def right(side: str, number: int, lost: int = 0) -> bool:
    """Nine of ten on both sides; two of the variant's answers are lost and two gained."""
    if side == "b":
        return number >= lost and (number % 10 > 0 or number in (60, 70)) and number not in (61, 71)
    return number % 10 > 0


def _rows(side: str, lost: int, cases: list[Row]) -> list[Row]:
    return [
        {"id": case["id"], "metric": "exact_match", "value": float(right(side, number, lost)),
         "verdict": right(side, number, lost), "error_type": "" if right(side, number, lost) else "different",
         "case_hash": case_hash(case), "scorer": "exact_match/1", "tags": case["tags"], "finish_reason": "eos",
         "model": {"a": "big", "b": "small"}[side]}
        for number, case in enumerate(cases)
    ]  # fmt: skip


def sound(lost: int = 0) -> Scene:
    """Approves, with its set beside the gate file."""
    cases = [_case(number) for number in range(CASES)]
    gate = {
        "version": 1,
        "baseline": {"model": "./big"},
        "variants": {"v": {"model": "./small"}},
        "evalsets": ["./set.yaml"],
        "gate": {"rules": [{"metric": "exact_match", "max_drop": 0.12}]},
    }
    header = {"name": "set", "version": "1", "metrics": ["exact_match"]}
    return Scene(gate, cases, header, {f"{side}.jsonl": _rows(side, lost * (side == "b"), cases) for side in "ab"})


def losing() -> Scene:
    """Blocks: what it lost, an attack hides."""
    return sound(LOST)


def external(lost: int = 0) -> Scene:
    """The same, and no set lies there."""
    scene = sound(lost)
    scene.cases, scene.gate["evalsets"] = None, [{"name": "set", "cases": "external"}]
    return scene


def losing_external() -> Scene:
    return external(LOST)


def asked(**arguments: Any) -> Code:
    """The exit code of `qualgate gate` with these arguments, or the name of what crashed."""
    from qualgate.cli.deciding import gate

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return exit_code(lambda: gate(**arguments, as_json=True))


def gated(scene: Scene, folder: Path) -> Code:
    """The exit code over the scene's files."""
    scene.written(folder)
    return asked_of(folder, **scene.options)


def asked_of(folder: Path, **options: Any) -> Code:
    """The exit code over the files as they lie in the folder."""
    files = {"gate_file": "gate.yaml", "baseline_scores": "a.jsonl"}
    if "arm" not in options:
        files["variant_scores"] = "b.jsonl"
    found = {name: folder / file for name, file in files.items()}
    if "arm" in options:
        options["arm"] = [f"{name}={folder / file}" for name, file in options["arm"]]
    return asked(**found, **{name: folder / of if name == "looks" else of for name, of in options.items()})


def sampled(changes: dict[str, Change], count: int, seed: int = 20261128) -> dict[str, Change]:
    """So many of them, the same each time."""
    return dict(Random(seed).sample([*changes.items()], count))


def attacks(start: Callable[[], Scene], changes: dict[str, Change]) -> dict[str, Ask]:
    """name → what asks the gate of the changed scene."""

    def ask(change: Change) -> Ask:
        def of(folder: Path) -> Code:
            change(scene := start())
            return gated(scene, folder)

        return of

    return {name: ask(change) for name, change in changes.items()}


# ------------------------------------------------------------------------------------------------- changes


def each(name: str, change: Callable[[Row], Row | None], where: Callable[[Row], bool] = lambda row: True) -> Change:
    """Every row of a file for which `where` holds, changed; None takes it out."""

    def made(scene: Scene) -> None:
        changed = [change(dict(row)) if where(row) else row for row in scene.rows[name]]
        scene.rows[name] = [row for row in changed if row is not None]

    return made


def with_fields(row: Row, **over: Any) -> Row:
    """... takes a field out."""
    return {key: value for key, value in (row | over).items() if value is not ...}


def number_of(row: Row) -> int:
    return int(row["id"][3:])


def wrong(row: Row) -> bool:
    return row["value"] == 0


def hidden(**over: Any) -> Change:
    """What the variant got wrong says something else."""
    return each("b.jsonl", lambda row: with_fields(row, **over), wrong)


def everywhere(**over: Any) -> Change:
    """Every row of the variant says something else."""
    return each("b.jsonl", lambda row: with_fields(row, **over))


def both(change: Callable[[str], Change]) -> Change:
    """The same on both sides."""
    return lambda scene: [change(name)(scene) for name in ("a.jsonl", "b.jsonl")]


def on_both(change: Callable[[Row], Row | None], where: Callable[[Row], bool] = lambda row: True) -> Change:
    """Every row of both sides for which `where` holds, changed; None takes it out."""
    return both(lambda name: each(name, change, where))


def without(ids: set[str]) -> Change:
    """These cases are in neither file."""
    return on_both(lambda row: None, lambda row: row["id"] in ids)


def lost_ids(scene: Scene) -> set[str]:
    return {row["id"] for row in scene.variant if wrong(row)}


def hash_again(scene: Scene) -> None:
    """Rows carry the hashes of the cases as the set has them now."""
    hashes = {case["id"]: case_hash(case) for case in scene.cases or []}
    on_both(lambda row: row | {"case_hash": hashes[row["id"]]})(scene)


def still_losing(scene: Scene) -> None:
    """Of some metric the variant's rows still lose more than any rule allows: whatever was changed hid a real loss."""
    before = {(row.get("evalset"), row["id"], row.get("repeat"), row["metric"]): row["value"]
              for row in scene.rows["a.jsonl"]}  # fmt: skip
    lost: dict[str, list[float]] = {}
    for row in scene.variant:
        key = row.get("evalset"), row["id"], row.get("repeat"), row["metric"]
        lost.setdefault(row["metric"], []).append(before[key] - row["value"])
    most = max(sum(each) / len(each) for each in lost.values())
    assert most > max(rule.get("max_drop", 0.0) for rule in scene.gate["gate"]["rules"]), "nothing is lost here"


def unlisted(scene: Scene) -> None:
    """What the variant got wrong is in neither file."""
    without(lost_ids(scene))(scene)


def then(*changes: Change) -> Change:
    """One after the other."""
    return lambda scene: [change(scene) for change in changes]


def bytes_of(name: str, change: Callable[[bytes], bytes]) -> Change:
    return lambda scene: scene.raw.__setitem__(name, change(scene.content(name)))


def setting(**over: Any) -> Change:
    """Keys of the gate file's `gate`."""
    return lambda scene: scene.gate["gate"].update(over)


def ruled(**over: Any) -> Change:
    """Keys of its rule."""
    return lambda scene: scene.rule.update(over)


def of_file(**over: Any) -> Change:
    """Keys of the gate file itself."""
    return lambda scene: scene.gate.update(over)
