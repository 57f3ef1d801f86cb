"""A head is trained on a model's own answers, saved, and tried on prompts that it did not learn on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.engine.draft_heads.folder import CONFIG, LAYOUTS, TENSORS, read_head_folder
from qualgate.engine.draft_heads.making import HeadOrder, TrainedHead, train_head
from qualgate.engine.draft_heads.training import Lessons
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.identity import question_hash
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Case, DraftSource, Speculation
from tests.depth import with_proofs
from tests.engine.draft_heads.heads import cases
from tests.engine.jobs import loaded, the_same_whoever_drafts

STEPS = 30
LESSONS = Lessons(tokens=3, steps=STEPS)


def order(model: Path, out: Path, **more) -> HeadOrder:
    target = more.pop("target", ArmSpec(name="target", model=str(model)))
    return HeadOrder(**{"target": target, "cases": cases(40), "out": out, "lessons": LESSONS, **more})


def trained(model: Path, folder: Path, **more) -> TrainedHead:
    return train_head(order(model, folder / "head", **more), folder, lambda *_: None)


@pytest.mark.parametrize("layout", with_proofs(LAYOUTS, {"medusa", "parallel"}))
def test_a_head_learns_and_drafts_for_the_weights_that_it_learned_on(model, tmp_path, tiny_arm, layout):
    told = list[tuple[str, int, int]]()
    made = train_head(
        order(model, tmp_path / "head", lessons=replace(LESSONS, layout=layout)),
        tmp_path,
        lambda *said: told.append(said),
    )
    found = made.held_out
    assert (made.layout, made.learned_on, found.prompts, found.same) == (layout, 36, 4, True)
    assert found.acceptance is not None
    assert found.accepted <= found.proposed <= 3 * found.passes
    assert found.tokens_per_pass == 1 + sum(found.positions)
    assert set(found.by_task) <= {"one", "two"}
    assert made.draft_cost > 0
    assert told[-1][1:] == (STEPS, STEPS)
    assert {said for said, _, total in told if not total}
    assert json.loads(json.dumps(made.as_json()))["held_out"]["acceptance"] == found.acceptance
    spec = Speculation(draft=DraftSource(kind="head", head=str(made.folder)))
    the_same_whoever_drafts(tiny_arm, loaded(model, tmp_path, "v", speculation=spec))


def test_the_same_order_makes_the_same_head_and_another_seed_another(model, tmp_path):
    lessons = replace(LESSONS, steps=2)
    first, again, other = (
        trained(model, tmp_path / name, lessons=replace(lessons, seed=seed))
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert first.sha256 == again.sha256 != other.sha256
    assert (first.folder / TENSORS).read_bytes() == (again.folder / TENSORS).read_bytes()
    said = json.loads((first.folder / CONFIG).read_text())["trained"]
    assert (said["evalsets"], said["steps"], said["seed"]) == (["set"], 2, 0)
    known = read_head_folder(first.folder).questions
    assert len(known) == first.learned_on == 36
    assert known < {question_hash(case.body) for case in cases(40)}, "the held-out ones are none of them"
    assert known != read_head_folder(other.folder).questions


@pytest.mark.parametrize("recipe", ["int4", pytest.param("fp8", marks=pytest.mark.proof)])
def test_a_quantized_target_s_head_learns_on_it_and_drafts_for_it_alone(model, tmp_path, recipe):
    target = ArmSpec(name="target", model=str(model), quantize=parse_recipe({"method": recipe}))
    made = trained(model, tmp_path, target=target, lessons=replace(LESSONS, steps=4))
    assert made.held_out.same
    learned_on = read_head_folder(made.folder).target
    assert learned_on is not None
    assert recipe in learned_on.name
    spec = Speculation(draft=DraftSource(kind="head", head=str(made.folder)), tokens=3)
    assert loaded(model, tmp_path, "v", target.quantize, speculation=spec).draft is not None
    with pytest.raises(UsageError, match="weights are others"):
        loaded(model, tmp_path, "v", speculation=spec)


READ = [Case(evalset="set", body={"id": f"c{at}", "requests": [["a"]], "prompt": "a"}) for at in range(9)]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cases": cases(5)}, "learns on 8 cases or more, some of them held out, and here are 5"),
        ({"most": 4}, "and here are 4"),
        ({"lessons": replace(LESSONS, layout="parallel", tokens=1)}, "give --tokens 2 or more"),
        ({"share": 1.0}, "--held-out is a share"),
        ({"lessons": replace(LESSONS, tokens=0)}, "--tokens is a whole number from 1 to 32, not 0"),
        ({"lessons": replace(LESSONS, steps=0)}, "--steps is a whole number"),
        ({"cases": READ}, "set/c. is only read, never answered"),
        ({"cases": cases(9, most=1)}, "No answer has two tokens"),
        ({"cases": [Case(evalset="set", body={"id": f"c{at}", "prompt": "x" * 600}) for at in range(9)]}, "no room"),
    ],
)
def test_what_nothing_can_be_learned_of_is_refused_and_leaves_no_folder(model, tmp_path, more, said):
    short = [replace(one, body={**one.body, "max_new_tokens": 1}) for one in more.get("cases", ())]
    more = {**more, "cases": short} if said.startswith("No answer") else more
    with pytest.raises(UsageError, match=said):
        trained(model, tmp_path, **more)
    assert not (tmp_path / "head").exists()


def test_a_folder_that_is_there_is_not_written_over_and_padded_batches_have_no_head(model, tmp_path, monkeypatch):
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        trained(model, tmp_path)
    assert [file.name for file in (tmp_path / "head").iterdir()] == ["mine"]
    monkeypatch.setattr("qualgate.engine.choice._packed", lambda model: "padded for this test")
    with pytest.raises(NotInThisVersion, match="runs in padded batches here"):
        trained(model, tmp_path / "other")


def test_no_more_is_learned_of_than_fits_into_memory(tmp_path, model, monkeypatch):
    monkeypatch.setattr("qualgate.engine.draft_heads.making.STATES", 40000)
    made = trained(model, tmp_path, lessons=replace(LESSONS, steps=2))
    assert made.left_out > 0 < made.learned_on
    assert made.learned_on + made.left_out == 36
