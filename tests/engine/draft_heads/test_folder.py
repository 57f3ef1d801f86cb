"""A head's folder is known by its files, is read strictly, and drafts for a target of its sizes alone."""

from __future__ import annotations

import json

import pytest

from qualgate.engine.draft_heads.folder import check_head, read_head_folder
from qualgate.errors import UsageError
from qualgate.records import DraftSource, Speculation
from tests.engine.draft_heads.heads import save_eagle3
from tests.engine.jobs import INT8, loaded


@pytest.fixture
def head(tmp_path):
    return save_eagle3(tmp_path / "head", reads=[1])


def drafted_by(head) -> Speculation:
    return Speculation(draft=DraftSource(kind="head", head=str(head)), tokens=3)


def test_what_is_no_head_is_refused_with_what_one_is(saved, tmp_path):
    with pytest.raises(UsageError, match="holds a model and no draft head"):
        read_head_folder(saved())
    with pytest.raises(UsageError, match="no-such"):
        read_head_folder(tmp_path / "no-such")
    for config in ({"format": "qualgate draft head 1", "layout": "eagle"}, {}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(UsageError, match=r"that this version reads: .*`speculators` writes it"):
            read_head_folder(tmp_path)


def test_a_head_of_other_sizes_is_refused_by_what_differs(head):
    found = read_head_folder(head)
    check_head("v", found, width=64, vocabulary=260)
    check_head("v", found, width=None, vocabulary=None)
    for how, said in (
        ({"width": 128}, "hidden size of 64, and its target has 128"),
        ({"vocabulary": 300}, "vocabulary of 260, and its target has 300"),
    ):
        with pytest.raises(UsageError, match=said):
            check_head("v", found, **{"width": 64, "vocabulary": 260, **how})


def test_its_numbers_are_counted_and_its_step_is_timed_whatever_its_target_s_weights_are(tiny_arm, head, tmp_path):
    found = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(head))
    facts = found.footprint.facts
    assert found.draft is not None
    assert found.draft.head is not None
    assert facts["memory.weights"] - tiny_arm.footprint.facts["memory.weights"] == 2 * found.draft.head.numbers
    assert facts["speculation.draft_cost.1"] > 0
    assert loaded(tiny_arm.spec.model, tmp_path, "v", INT8, speculation=drafted_by(head)).draft is not None


def test_the_head_is_part_of_what_an_arm_is(tiny_arm, head, tmp_path):
    first = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(head)).identity
    other = save_eagle3(tmp_path / "other", seed=2, reads=[1])
    second = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(other)).identity
    moved = head.rename(tmp_path / "moved")
    third = loaded(tiny_arm.spec.model, tmp_path, "v", speculation=drafted_by(moved)).identity
    assert first.weights == second.weights == tiny_arm.identity.weights
    assert first.speculation != second.speculation
    assert first == third, "the place of a folder is no part of it"
