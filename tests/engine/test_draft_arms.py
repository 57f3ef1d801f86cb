"""The models that draft for an arm: which they are, what the arm is known by with them, and how they are loaded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from qualgate.engine import choice
from qualgate.engine.determinism import read_batch
from qualgate.engine.draft_arms import draft_arms, draft_models
from qualgate.engine.drafting import MOST
from qualgate.engine.identity import identify
from qualgate.engine.loaded import LoadedArm
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import (
    CACHE_TOKEN,
    DRAFT_WEIGHTS,
    DRAFT_WORKSPACE,
    ArmIdentity,
    ArmSpec,
    DraftSource,
    QuantizeRecipe,
    Speculation,
)
from tests.engine.jobs import INT4, INT8, MXFP4, NGRAM, loaded


def self_draft(recipe: QuantizeRecipe = MXFP4, under: Speculation | None = None, **more) -> Speculation:
    return Speculation(draft=DraftSource(kind="quantize", quantize=recipe, under=under), **more)


def of_model(folder: Path | str, recipe: QuantizeRecipe | None = None, under: Speculation | None = None) -> Speculation:
    return Speculation(draft=DraftSource(kind="model", model=str(folder), quantize=recipe, under=under))


@pytest.fixture(scope="module")
def small(saved) -> Path:
    return saved(layers=1, width=32, seed=1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """Where weights are packed once."""
    return tmp_path_factory.mktemp("packed")


def test_who_drafts_is_an_arm_a_level_and_a_self_draft_is_made_of_its_verifiers_folder():
    arm = ArmSpec(name="v", model="/target", dtype="float16", quantize=INT8, calibration="c", calibration_sha256="d")
    assert draft_arms(arm) == ()
    assert draft_arms(replace(arm, speculation=NGRAM)) == (None,)
    cascade = self_draft(under=of_model("/small", INT4, under=self_draft(INT8, under=NGRAM)))
    first, second, third, fourth = draft_arms(replace(arm, speculation=cascade))
    assert first == ArmSpec(name="v (draft)", model="/target", dtype="float16", quantize=MXFP4)
    assert second == ArmSpec(name="v (draft 2)", model="/small", dtype="float16", quantize=INT4)
    assert third == ArmSpec(name="v (draft 3)", model="/small", dtype="float16", quantize=INT8)
    assert fourth is None
    assert draft_models(replace(arm, speculation=cascade)) == (first, second, third)


def known(spec: ArmSpec) -> ArmIdentity:
    """As a plan knows it, which has read every folder."""
    folders = {one.model: read_model_folder(Path(one.model)) for one in draft_models(spec)}
    return identify(spec, read_model_folder(Path(spec.model)), {"seed": 0}, "engine", folders)


def test_an_arm_that_speculates_is_its_target_and_what_drafts_for_it(model, small):
    """So that baseline and speculation have equal weights, and nothing but the draft tells them apart."""
    for target in (ArmSpec(name="v", model=str(model)), ArmSpec(name="v", model=str(model), quantize=INT4)):
        plain = known(target)
        assert plain.speculation == ""
        assert plain.content["speculation"] == ""
        drafting = known(replace(target, speculation=of_model(small)))
        assert len(drafting.speculation) == 64
        assert replace(drafting, speculation="") == plain
        assert drafting.content == plain.content | {"speculation": drafting.speculation}


def test_each_part_of_a_draft_is_another_identity_and_its_place_is_none(model, small, tmp_path):
    arm, moved = ArmSpec(name="v", model=str(model)), Path(shutil.copytree(small, tmp_path / "moved"))
    base = of_model(moved, INT8, under=self_draft(INT4))
    others = [
        replace(base, tokens=5),
        replace(base, rule="typical"),
        replace(base, draft=replace(base.draft, quantize=None)),
        replace(base, draft=replace(base.draft, under=self_draft(MXFP4))),
        replace(base, draft=replace(base.draft, under=self_draft(INT4, tokens=2))),
        replace(base, draft=replace(base.draft, under=NGRAM)),
        replace(base, draft=replace(base.draft, under=None)),
        of_model(model, INT8, under=self_draft(INT4)),
        self_draft(INT8, under=self_draft(INT4)),
        NGRAM,
        replace(NGRAM, draft=DraftSource(kind="suffix")),
    ]
    found = [known(replace(arm, speculation=one)).speculation for one in (base, *others)]
    assert len(set(found)) == len(found)
    assert known(replace(arm, speculation=of_model(small, INT8, under=self_draft(INT4)))).speculation == found[0]
    for file, edit in (
        ("model.safetensors", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
        ("config.json", lambda raw: json.dumps(json.loads(raw) | {"rms_norm_eps": 1e-5}).encode()),
        ("tokenizer_config.json", lambda raw: json.dumps(json.loads(raw) | {"add_bos_token": True}).encode()),
    ):
        whole = (moved / file).read_bytes()
        (moved / file).write_bytes(edit(whole))
        assert known(replace(arm, speculation=base)).speculation != found[0], file
        (moved / file).write_bytes(whole)


def logits(arm) -> torch.Tensor:
    (found,) = read_batch(arm.model, arm.choice, [range(40)])
    return found


def test_a_self_draft_is_the_variant_of_its_recipe_and_is_packed_once(model, tiny_arm, tmp_path):
    variant = loaded(model, tmp_path, "mxfp4", MXFP4)
    (packed,) = tmp_path.iterdir()
    made = packed.stat().st_mtime_ns
    arm = loaded(model, tmp_path, "s", speculation=self_draft(under=NGRAM, tokens=4))
    assert [one.stat().st_mtime_ns for one in tmp_path.iterdir()] == [made]
    assert tiny_arm.draft is None
    assert arm.draft is not None
    assert arm.draft.spec == arm.spec.speculation
    draft, ngram = arm.draft.arms
    assert draft is not None
    assert (ngram, draft.draft, draft.spec) == (None, None, draft_arms(arm.spec)[0])
    assert draft.identity == variant.identity
    assert torch.equal(logits(draft), logits(variant))
    assert torch.equal(logits(arm), logits(tiny_arm))
    assert not torch.equal(logits(arm), logits(draft))
    assert arm.identity == identify(arm.spec, read_model_folder(model), {"temperature": 0}, arm.identity.engine)


def sizes(arm: LoadedArm) -> dict[str, float]:
    """All but what passes cost, which is timed, and what drafts hold meanwhile."""
    facts = arm.footprint.facts
    return {name: facts[name] for name in facts if not name.startswith("speculation.") and name != DRAFT_WORKSPACE}


def test_the_memory_of_drafts_is_counted_and_said(model, small, cache):
    alone = [loaded(*of).footprint for of in ((model, cache, "a", INT8), (model, cache, "a", INT4), (small, cache))]
    arm = loaded(model, cache, "v", INT8, speculation=self_draft(INT4, under=of_model(small)))
    weights = [one.facts["memory.weights"] for one in alone]
    counted = {
        DRAFT_WEIGHTS: weights[1] + weights[2],
        "memory.weights": sum(weights),
        CACHE_TOKEN: sum(one.facts[CACHE_TOKEN] for one in alone),
    }
    assert sizes(arm) == alone[0].facts | counted
    assert replace(arm.footprint, facts={}) == replace(alone[0], facts={})
    no_model = loaded(model, cache, "v", INT8, speculation=NGRAM)
    assert sizes(no_model) == alone[0].facts | {DRAFT_WEIGHTS: 0}
    held = [one.footprint.facts[DRAFT_WORKSPACE] for one in (no_model, arm)]
    assert 0 < held[0] <= held[1] <= (MOST + 1) * 4 * arm.model.config.vocab_size


def test_padded_batches_neither_draft_nor_verify(model, saved, tmp_path, monkeypatch):
    """Whatever the reason is: it is said, with who it is."""
    tried = choice._packed
    refused: list[int] = []

    def refuse(model):
        return "it keeps a MambaLayer" if model.config.num_hidden_layers in refused else tried(model)

    monkeypatch.setattr(choice, "_packed", refuse)
    other = saved(layers=3)
    for layers, who, folder, by in (
        (2, "v: ", model, of_model(other)), (3, r"v \(draft\): ", other, of_model(other)), (2, "v: ", model, NGRAM),
    ):  # fmt: skip
        refused[:] = [layers]
        with pytest.raises(NotInThisVersion, match=f"^{who}{folder} runs in padded batches.*it keeps a MambaLayer"):
            loaded(model, tmp_path, "v", speculation=by)


def test_a_draft_that_is_not_there_is_named_before_anything_is_loaded(model, tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        loaded(model, tmp_path / "cache", "v", speculation=self_draft(under=of_model(tmp_path / "nowhere")))
    assert not (tmp_path / "cache").exists()
