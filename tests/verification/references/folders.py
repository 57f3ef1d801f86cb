"""Rows `folders.*`: folders with one fault each, sound ones, and random single edits, through the gate's front door.

The records hold what transformers, vLLM, SGLang and llama.cpp do with each folder. Nothing here reads qualgate's own
table of that: `edited_folders` decodes by the published layouts and computes by transformers.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.shape import told
from tests.verification.goals import FOLDERS
from tests.verification.references.edited_folders import configs, others, weights
from tests.verification.references.edited_folders.door import Answer, Door, baseline, divergence, theirs, truth
from tests.verification.references.edited_folders.edits import Edited
from tests.verification.references.edited_folders.made import ROUNDS_INPUTS, Folder, decoded, sound
from tests.verification.references.edited_folders.mutations import Mutation, drawn, whole
from tests.verification.references.edited_folders.neutral import NEUTRAL, UNUSED, is_neutral

MUTATIONS, FEW, SEED = 5_000, 60, 45
CASES: tuple[Edited, ...] = (*weights.CASES, *configs.CASES, *others.CASES)
LISTED = {  # edits that pass unsaid → why
    "awq: config.json quantization_config.modules_to_not_convert swap []": "transformers 5.23 leaves the head out all "
    "the same (add_default_skips), so nothing differs",
    "ct-fp8: config.json quantization_config.config_groups.group_0.weights.group_size swap -1": "-1 is a whole row, "
    "which `strategy: channel` says as well",
    "gptq_v2: config.json quantization_config.format remove": "checkpoint_format says the same, and is what is read",
    "torchao: config.json quantization_config.quant_type": "open: its values are not held against the header",
    "bnb-nf4: config.json quantization_config.llm_int8_skip_modules swap null": "the head is left out by default",
    "ct-mxfp4: config.json quantization_config.config_groups.group_0.weights.actorder swap": "open: an order of groups "
    "is looked for in integers alone",
}
NEAR = 0.03  # nats of KL: a float tensor in another float dtype
SAME = 1e-8  # nats of KL: the same weights, multiplied in another order


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one folder. right: as its record asks; approved: accepted though it must not be."""

    case: Edited
    answer: str
    message: str
    right: bool
    approved: bool


@dataclass(slots=True)
class Tally:
    found: list[Found] = field(default_factory=list)

    @property
    def approved(self) -> list[Found]:
        return [one for one in self.found if one.approved]

    @property
    def wrong(self) -> list[Found]:
        return [one for one in self.found if not one.right]

    @property
    def share(self) -> float:
        """Of the folders with a fault, those refused, blocked or told with the true cause."""
        faulty = [one for one in self.found if one.case.must != "accepted"]
        return sum(one.right for one in faulty) / len(faulty)

    def as_row(self) -> dict[str, object]:
        kinds = Counter(one.case.kind for one in self.found)
        return {
            "folders": len(self.found), "formats": len({one.case.format for one in self.found}), "kinds": dict(kinds),
            "approved": [one.case.name for one in self.approved], "share": self.share,
            "wrong": [(one.case.name, one.answer, one.message[:200]) for one in self.wrong],
        }  # fmt: skip


def edited(cases: Sequence[Edited] = CASES) -> Tally:
    """Every folder of `cases` through the front door."""
    with tempfile.TemporaryDirectory() as work:
        door = Door(Path(work))
        return Tally([_judged(door, case) for case in cases])


def _judged(door: Door, case: Edited) -> Found:
    variant, base = sound(case.format, case.tied), baseline(case.tied)
    if case.base is not None:
        base = base.copied()
        case.base(base)
    case.edit(variant)
    answer = door.ask(variant, base, case.more)
    outcome, message = answer.outcome, answer.message
    if answer.plan is not None:
        outcome, message = _run(door, case, answer, variant)
    said = message.casefold()
    named = all(any(word.casefold() in said for word in words.split("|")) for words in case.words)
    right = outcome in case.must.split("|") and named
    approved = outcome in ("accepted", "told", "other") and outcome not in case.must.split("|")
    wrongly = approved and not (case.harmless and outcome != "other")
    return Found(case, outcome, message, right, approved=wrongly)


def _run(door: Door, case: Edited, answer: Answer, variant: Folder) -> tuple[str, str]:
    """Load what was planned: "accepted", "told" where the plan speaks of it, "other" where other logits than the
    truth's come of it, "refused" or "traceback"."""
    assert answer.plan is not None
    logits = door.logits(answer.plan)
    if isinstance(logits, str):
        outcome, _, message = logits.partition(": ")
        return outcome, message
    notes = f"{door.left_out} {answer.message}" + (door.shown() if "told" in case.must.split("|") else "")
    if "blocked" in case.must:
        return door.verdict()
    if case.format not in ROUNDS_INPUTS and not _same(variant, logits):
        return "other", notes
    if case.format in ("plain", "sharded") and not case.more and not _same_as_theirs(door, case.format, logits):
        return "other", notes
    said = notes.casefold()
    told = bool(case.words) and all(any(one.casefold() in said for one in words.split("|")) for words in case.words)
    return ("told" if told else "accepted"), notes


def _same(variant: Folder, logits: torch.Tensor) -> bool:
    try:
        expected = truth(variant)
    except (
        KeyError,
        IndexError,
        RuntimeError,
        ValueError,
    ):  # no weights of that format: none that a server could compute with
        return False
    return divergence(expected, logits) < SAME


@dataclass(slots=True)
class Mutated:
    """What came of random edits. outcomes: how many of each; faults: (outcome, edit, what was said) of each that is
    none of "named", "neutral", "meant", "stands", "told" and "listed"."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.outcomes["silent"] and not self.outcomes["traceback"]

    def as_row(self) -> dict[str, object]:
        return {"edits": self.outcomes.total(), "outcomes": dict(self.outcomes), "faults": self.faults[:30]}


def mutated(count: int, seed: int) -> Mutated:
    """`count` random single edits of sound folders through the front door."""
    found, seen = Mutated(), dict[tuple[str, str], tuple[str, str]]()
    with tempfile.TemporaryDirectory() as work:
        judge = Judge(Door(Path(work)))
        for one in drawn(count, seed):
            known = (one.format, one.key)
            if known not in seen:
                seen[known] = judge.outcome(one)
                if seen[known][0] == "silent" and any(f"{one.format}: {one.key}".startswith(edit) for edit in LISTED):
                    seen[known] = "listed", ""
                if seen[known][0] in ("silent", "traceback", "unnamed", "untold"):
                    found.faults.append((seen[known][0], f"{one.format}: {one.key}", seen[known][1]))
            found.outcomes[seen[known][0]] += 1
    return found


class Judge:
    """Says of an edited folder whether the gate did right by it."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._sound: dict[str, tuple[torch.Tensor, Answer]] = {}

    def outcome(self, one: Mutation) -> tuple[str, str]:
        folder = whole(one.format).copied()
        one.edit(folder)
        answer = self.door.ask(folder)
        if answer.plan is None:
            if answer.outcome == "traceback":
                return "traceback", answer.message
            named = any(name and name in answer.message for name in one.names)
            return ("named" if named else "unnamed"), answer.message
        notes = answer.message
        if is_neutral(one.format, one.key, one.place, value_at(whole(one.format), one.place)):
            return "neutral", notes
        if _spoken(one, notes):
            return "told", notes
        if one.key.startswith("file "):
            self.door.logits(answer.plan)
            if _spoken(one, self.door.left_out):
                return "told", self.door.left_out
        logits = self.door.logits(answer.plan, alone=True)
        if isinstance(logits, str):
            outcome, _, message = logits.partition(": ")
            named = any(name and name in message for name in one.names)
            return ("traceback" if outcome == "traceback" else "named" if named else "unnamed"), message
        before, sound_answer = self.sound(one.format)
        same = torch.equal(before, logits) and answer.judged == sound_answer.judged
        if same and same_meaning(one, folder):
            return "meant", notes
        of_tensors = not one.place and not one.key.startswith("file ")
        if of_tensors and one.values_alone:
            return "stands", notes
        if same and of_tensors and " again in " not in one.key and _decoded(folder) == _decoded(whole(one.format)):
            return "stands", notes
        if same and " prefix " in one.key and _same_as_theirs(self.door, one.format, logits):
            return "stands", notes  # transformers finds it, and no other server goes on
        near = one.format in ROUNDS_INPUTS and (" cast " in one.key and divergence(before, logits) < NEAR)
        near |= one.format in ROUNDS_INPUTS and "norm.weight view" in one.key  # its numbers, as every server takes them
        if near or (
            of_tensors and one.format not in ROUNDS_INPUTS and " again in " not in one.key and _same(folder, logits)
        ):
            return "stands", notes
        shown = self.door.shown()
        if _spoken(one, shown):
            return "told", shown
        if one.key.removeprefix("file ") in UNUSED:
            return "untold", shown
        return "silent", f"{'same' if same else 'other'} answers; {notes}"

    def sound(self, format: str) -> tuple[torch.Tensor, Answer]:
        if format not in self._sound:
            answer = self.door.ask(whole(format))
            assert answer.plan is not None, answer.message
            logits = self.door.logits(answer.plan, alone=True)
            assert isinstance(logits, torch.Tensor), logits
            self._sound[format] = logits, answer
            self.door.gate_file(whole(format))
        return self._sound[format]


def value_at(folder: Folder, place: tuple[str, ...]) -> Any:
    """What a JSON file says at a place: its file and keys."""
    if not place:
        return None
    file, *path = place
    value = folder.json[file]
    for key in path:
        value = value.get(key)  # of one that is added, there is none
    return value


def _spoken(one: Mutation, notes: str) -> bool:
    """Whether the notes name the key, tensor or file that was edited."""
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w])", notes) for name in one.names[:1])


def _same_as_theirs(door: Door, format: str, logits: torch.Tensor) -> bool:
    run = theirs(door.path / "variant") if format in ("plain", "sharded") else None
    return run is not None and divergence(run, logits) < SAME


def _decoded(folder: Folder) -> dict[str, bytes] | str:
    """The bits of the weights that a folder means, or why it means none."""
    try:
        return {name: one.contiguous().numpy().tobytes() for name, one in decoded(folder).items()}
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        return repr(error)


def same_meaning(one: Mutation, folder: Folder) -> bool:
    """Whether transformers' own classes, which vLLM and SGLang read configs by, make the same of it."""
    from transformers import AutoConfig, GenerationConfig

    file, *path = one.place or ("",)
    before = whole(one.format)
    if " rename " in one.key:  # what nobody knows is not read
        folder = folder.copied()
        value_at(folder, one.place[:-1]).pop(one.names[-1], None)
    try:
        if file == "config.json" and path[0] != "quantization_config":
            made = [AutoConfig.for_model(**one.config).to_dict() for one in (before, folder)]
        elif file == "generation_config.json":
            made = [GenerationConfig(**one.json[file]).to_dict() for one in (before, folder)]
        else:
            return False
    except Exception:
        return False
    for said in made:
        if type(said.get("eos_token_id")) is int:
            said["eos_token_id"] = [said["eos_token_id"]]
        for key in [key for key, value in said.items() if key in NEUTRAL[file] or not value]:
            del said[key]  # what is off or not said is the same
    return made[0] == made[1]


Part = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # rounds, goal rows


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part's rows, or of those that measure a row of `only`. quick: slices, which meet no goal."""
    rounds: list[dict[str, Any]] = []
    rows = {id: FOLDERS.not_run(id, "not asked for") for id in FOLDERS.goals if only}
    parts = [(part, ids) for part, ids in PARTS if not only or set(only) & set(ids)]
    for part, _ in told("folders", parts, lambda part: ", ".join(part[1])):
        taken, found = part(quick)
        rounds += taken
        rows |= {row["id"]: row for row in found}
    return FOLDERS.result(rounds=rounds, rows=[rows[id] for id in FOLDERS.goals])


def _edited(quick: bool) -> Part:
    tally = edited(random.Random(SEED).sample(CASES, FEW) if quick else CASES)
    row = tally.as_row()
    met = not tally.approved and tally.share >= 0.95
    said = {name: row[name] for name in ("folders", "formats", "share", "approved")}
    few = f"{FEW} folders" if quick else None
    return [{"edited": row}], [FOLDERS.row("folders.edited", said, met=met, few=few)]


def _sound(quick: bool) -> Part:
    try:
        from tests.verification.references.folders_sound import sound as asked_and_refused
    except ImportError as why:
        return [], [FOLDERS.not_run("folders.sound", str(why))]
    asked, refused = asked_and_refused(8 if quick else 1)
    few = f"{asked} folders" if quick else None
    said = {"asked": asked, "refused": refused[:10]}
    return [], [FOLDERS.row("folders.sound", said, met=not refused, few=few)]


def _mutate(quick: bool) -> Part:
    found = mutated(MUTATIONS // 16 if quick else MUTATIONS, SEED)
    few = f"{found.outcomes.total()} edits" if quick else None
    said = dict(found.outcomes) | {
        "faults": [edit for what, edit, _ in found.faults if what in ("silent", "traceback")][:10]
    }
    return [{"mutate": found.as_row()}], [FOLDERS.row("folders.mutate", said, met=found.holds, few=few)]


PARTS: tuple[tuple[Callable[[bool], Part], tuple[str, ...]], ...] = (
    (_edited, ("folders.edited",)),
    (_sound, ("folders.sound",)),
    (_mutate, ("folders.mutate",)),
)
