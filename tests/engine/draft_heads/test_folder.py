"""A head's folder is read strictly, and drafts for the weights that it learned on alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qualgate.engine.draft_heads.folder import CONFIG, TENSORS, check_head, check_tokens, read_head_folder
from qualgate.engine.draft_heads.loading import load_head
from qualgate.errors import UsageError
from qualgate.records import DraftSource, Speculation
from tests.engine.draft_heads.heads import of, save_random_head
from tests.engine.jobs import INT4, INT8, loaded


@pytest.fixture
def head(tiny_arm, tmp_path):
    return save_random_head(tmp_path / "head", tiny_arm)


def edit(head, **changes):
    file = head / CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_head_is_known_by_both_of_its_files(tiny_arm, head, tmp_path):
    found = read_head_folder(head)
    assert (found.layout, found.tokens, found.shape.width, found.target) == ("eagle", 4, 64, of(tiny_arm))
    other = read_head_folder(save_random_head(tmp_path / "other", tiny_arm, seed=1))
    edit(head, tokens=5)
    assert len({found.sha256, other.sha256, read_head_folder(head).sha256}) == 3
    assert load_head(found, 2).numbers == sum(
        64 * 128 + 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 128 * 64 + 3 * 64 for _ in range(1)
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layout": "tree"}, "a draft head of the layout 'tree', and this version has eagle, medusa, parallel"),
        ({"tokens": 0}, "does not say what a draft head is .*from 1, found 0"),
        ({"shape": {"width": 64}}, "does not say what a draft head is"),
        ({"target": {}}, "does not say what a draft head is"),
        ({"format": "another"}, "holds no draft head"),
    ],
)
def test_what_is_no_head_is_refused_with_how_to_make_one(head, changes, said):
    edit(head, **changes)
    with pytest.raises(UsageError, match=said) as refused:
        read_head_folder(head)
    assert "qualgate draft train" in str(refused.value)


def test_a_model_s_folder_and_damaged_tensors_are_told_from_heads(tiny_arm, head, saved, tmp_path):
    check_tokens("v", read_head_folder(head), 32)  # any length may be asked of one that reads its own outputs
    with pytest.raises(UsageError, match="holds a model and no draft head"):
        read_head_folder(saved())
    with pytest.raises(UsageError, match="no-such"):
        read_head_folder(tmp_path / "no-such")
    file = head / TENSORS
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(UsageError, match="is damaged"):
        load_head(read_head_folder(head), 2)
    edit(head, shape={**json.loads((head / CONFIG).read_text())["shape"], "inner": 64})
    file.unlink()
    with pytest.raises(UsageError, match="holds no draft head"):
        read_head_folder(head)


def test_another_target_s_head_is_refused_by_what_differs(tiny_arm, head):
    found, target = read_head_folder(head), of(tiny_arm)
    check_head("v", found, target, width=64, vocabulary=260)
    check_head("v", found, target, width=None, vocabulary=None)
    for how, said in (
        ({"width": 128}, "hidden size of 64, and its target has 128"),
        ({"vocabulary": 300}, "vocabulary of 260, and its target has 300"),
    ):
        with pytest.raises(UsageError, match=said):
            check_head("v", found, target, **{"width": 64, "vocabulary": 260, **how})
    for change, said in (("tokenizer", "would propose other tokens"), ("weights", "this target's weights are others")):
        with pytest.raises(UsageError, match=said):
            check_head("v", found, replace(target, **{change: "x"}), width=64, vocabulary=260)


def drafted_by(head, **more) -> Speculation:
    return Speculation(draft=DraftSource(kind="head", head=str(head)), **more)


def test_a_variant_of_other_weights_does_not_load_with_a_head(tiny_arm, head, tmp_path):
    with pytest.raises(UsageError, match="weights are others"):
        loaded(tiny_arm.spec.model, tmp_path, "v", INT8, speculation=drafted_by(head))
    found = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(head, tokens=3))
    facts = found.footprint.facts
    assert found.draft is not None
    assert found.draft.head is not None
    assert facts["memory.weights"] - tiny_arm.footprint.facts["memory.weights"] == 2 * found.draft.head.numbers
    assert facts["speculation.draft_cost.1"] > 0
    quantized = loaded(tiny_arm.spec.model, tmp_path, "v", INT4)
    theirs = save_random_head(tmp_path / "theirs", quantized)
    assert loaded(tiny_arm.spec.model, tmp_path, "v", INT4, speculation=drafted_by(theirs)).draft is not None


def test_the_head_is_part_of_what_an_arm_is(tiny_arm, head, tmp_path):
    first = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(head, tokens=3)).identity
    other = save_random_head(tmp_path / "other", tiny_arm, seed=2)
    second = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(other, tokens=3)).identity
    moved = head.rename(tmp_path / "moved")
    third = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(moved, tokens=3)).identity
    assert first.weights == second.weights == tiny_arm.identity.weights
    assert first.speculation != second.speculation
    assert first == third, "the place of a folder is no part of it"
