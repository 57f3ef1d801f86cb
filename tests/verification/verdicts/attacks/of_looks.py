"""Attacks in several steps over files of looks: what was judged before is to be forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from tests.verification.verdicts.attacks.scene import Ask, Change, Code, Scene, external, gated, setting

LOOKS = "looks"
Step = Callable[[Scene, Path], object]


def first(count: int) -> Scene:
    """The first cases of the sound files, which are too few to decide."""
    scene = external()
    scene.rows = {name: rows[:count] for name, rows in scene.rows.items()}
    scene.options["looks"] = LOOKS
    return scene


def kept(scene: Scene, folder: Path) -> Code:
    """Judged with the looks file that lies there."""
    before = (folder / LOOKS).read_bytes() if (folder / LOOKS).is_file() else None
    if before is not None:
        scene.raw[LOOKS] = before
    return gated(scene, folder)


def grown(*between: Step, change: Change = lambda scene: None, early: bool = False) -> Ask:
    """A first look at 30 cases, something done to the looks file, and all 160 cases then."""

    def ask(folder: Path) -> Code:
        scene = first(30)
        if early:
            setting(stop="early")(scene)
        gated(scene, folder)
        for step in between:
            step(scene, folder)
        scene = first(160)
        change(scene)
        return kept(scene, folder)

    return ask


def edited(change: Callable[[bytes], bytes]) -> Step:
    return lambda scene, folder: (folder / LOOKS).write_bytes(change((folder / LOOKS).read_bytes()))


def sealed(change: Callable[[dict], object]) -> Step:
    """Its JSON changed, and sealed again."""

    def made(content: bytes) -> bytes:
        body = json.loads(content[32:])
        change(body)
        text = json.dumps(body).encode()
        return sha256(text).digest() + text

    return edited(made)


def _other(scene: Scene, folder: Path) -> None:
    """Another list's looks file in place of this one's."""
    other = first(40)
    for rows in other.rows.values():
        for row in rows:
            row |= {"id": f"other-{row['id']}"}
    (folder / LOOKS).unlink()
    gated(other, folder)


def in_place_of(name: str) -> Ask:
    """The looks are to be kept in a file that is something else."""

    def ask(folder: Path) -> Code:
        scene = first(160)
        scene.options["looks"] = name
        before = scene.content(name) if name in (*scene.rows, "gate.yaml") else None
        code = gated(scene, folder)
        changed = before is not None and (folder / name).read_bytes() != before
        return 0 if changed else code

    return ask


def ten_times(folder: Path) -> Code:
    """Asked at every 16 cases, by the fixed test, until it approves after its first look."""
    gated(first(16), folder)
    codes = [kept(first(count), folder) for count in range(32, 161, 16)]
    return 0 if 0 in codes else codes[-1]


def asked(*tests: tuple[int, str, int]) -> Ask:
    """One look after another, each at so many cases, with this `stop` and this seed; the last is what counts."""

    def ask(folder: Path) -> Code:
        code: Code = 0
        for count, stop, seed in tests:
            scene = first(count)
            setting(stop=stop)(scene)
            scene.gate["generation"] = {"seed": seed}
            code = kept(scene, folder)
        return code

    return ask


def worse(scene: Scene) -> None:
    """An answer that was judged is another now."""
    scene.variant[3] |= {"value": 1 - scene.variant[3]["value"], "verdict": not scene.variant[3]["verdict"]}


def into_a_cluster(scene: Scene) -> None:
    """What was added belongs to clusters that were looked at."""
    for rows in scene.rows.values():
        for number, row in enumerate(rows):
            row["cluster"] = f"p{number % 30}"


def _looks_of_a_folder(folder: Path) -> Code:
    scene = first(160)
    scene.raw["looks/file"] = b""
    return gated(scene, folder)


GROUPS = {
    "looks": {
        "all cases after a first look": grown(),
        "asked ten times as it grows": ten_times,
        "stop: early first, the fixed test then": asked((40, "early", 0), (160, "end", 0)),
        "stop: early and the fixed test at the same cases": asked((160, "early", 0), (160, "end", 0)),
        "the fixed test first, stop: early then": asked((40, "end", 0), (160, "early", 0)),
        "the fixed test and stop: early at the same cases": asked((160, "end", 0), (160, "early", 0)),
        "stop: early in another order": asked((40, "early", 0), (160, "early", 1)),
        "the first test after another was refused": asked((40, "end", 0), (160, "early", 0), (160, "end", 0)),
        "looks with a flipped bit": grown(edited(lambda c: c[:60] + bytes([c[60] ^ 1]) + c[61:])),
        "looks of another list": grown(_other),
        "looks of another version, sealed": grown(sealed(lambda body: body.update(version=2))),
        "looks of other answers, sealed": grown(sealed(lambda body: body["looks"][0].update(answers="0" * 64))),
        "looks of cases that are not there, sealed": grown(sealed(
            lambda body: body["looks"][0]["questions"].append(["set", "gone", 0]))),
        "an answer changed after the first look": grown(change=worse),
        "cases that were looked at are gone": grown(change=lambda s: [rows.pop(0) for rows in s.rows.values()]),
        "cases renamed after the first look": grown(change=lambda s: [
            row.update(id="n" + row["id"]) for rows in s.rows.values() for row in rows]),
        "hashes changed after the first look": grown(change=lambda s: [
            row.update(case_hash="n") for rows in s.rows.values() for row in rows[:1]]),
        "rows that gained a time after the first look": grown(change=lambda s: [
            row.update(e2e=1.0) for rows in s.rows.values() for row in rows]),
        "early, and clusters that grew": grown(early=True, change=lambda s: (
            setting(stop="early")(s), into_a_cluster(s))),
        "the baseline's file for looks": in_place_of("a.jsonl"),
        "the gate file for looks": in_place_of("gate.yaml"),
        "a folder for looks": _looks_of_a_folder,
    },
}  # fmt: skip
