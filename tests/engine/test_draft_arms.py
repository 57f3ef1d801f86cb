"""The models that draft for an arm: which they are, what the arm is known by with them, and how they are loaded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from qualgate.engine import choice
from qualgate.engine.choice import open_decoder
from qualgate.engine.determinism import read_batch
from qualgate.engine.draft_arms import draft_arms, draft_models, in_halves, parts
from qualgate.engine.draft_part import Part
from qualgate.engine.drafting import MOST
from qualgate.engine.high_bits import check_high_bits
from qualgate.engine.identity import identify
from qualgate.engine.load import load_arm
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.linear import QuantizedLinear
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
from tests.engine.jobs import INT4, INT8
from tests.quant.readers.models import gptq_folder
from tests.tiny_models import save_tiny_model

MXFP4 = QuantizeRecipe(method="mxfp4", group_size=32)
NGRAM = Speculation(draft=DraftSource(kind="ngram"))


def self_draft(recipe: QuantizeRecipe = MXFP4, under: Speculation | None = None, **more) -> Speculation:
    return Speculation(draft=DraftSource(kind="quantize", quantize=recipe, under=under), **more)


def of_model(folder: Path | str, recipe: QuantizeRecipe | None = None, under: Speculation | None = None) -> Speculation:
    return Speculation(draft=DraftSource(kind="model", model=str(folder), quantize=recipe, under=under))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("target") / "model")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("small") / "model", layers=1, width=32, seed=1)


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


def test_an_arm_that_speculates_is_its_target_and_what_drafts_for_it(shipped, small):
    """So that baseline and speculation have equal weights, and nothing but the draft tells them apart."""
    for target in (ArmSpec(name="v", model=str(shipped)), ArmSpec(name="v", model=str(shipped), quantize=INT4)):
        plain = known(target)
        assert plain.speculation == ""
        assert plain.content.keys() == {"weights", "config", "tokenizer", "template", "sampling", "engine"}
        drafting = known(replace(target, speculation=of_model(small)))
        assert len(drafting.speculation) == 64
        assert replace(drafting, speculation="") == plain
        assert drafting.content == plain.content | {"speculation": drafting.speculation}


def test_each_part_of_a_draft_is_another_identity_and_its_place_is_none(shipped, small, tmp_path):
    arm, moved = ArmSpec(name="v", model=str(shipped)), Path(shutil.copytree(small, tmp_path / "moved"))
    base = of_model(moved, INT8, under=self_draft(INT4))
    others = [
        replace(base, tokens=5),
        replace(base, rule="typical"),
        replace(base, draft=replace(base.draft, quantize=None)),
        replace(base, draft=replace(base.draft, under=self_draft(MXFP4))),
        replace(base, draft=replace(base.draft, under=self_draft(INT4, tokens=2))),
        replace(base, draft=replace(base.draft, under=NGRAM)),
        replace(base, draft=replace(base.draft, under=None)),
        of_model(shipped, INT8, under=self_draft(INT4)),
        self_draft(INT8, under=self_draft(INT4)),
        NGRAM,
        replace(NGRAM, draft=DraftSource(kind="suffix")),
        replace(NGRAM, draft=DraftSource(kind="early_exit", layers=1)),
        replace(NGRAM, draft=DraftSource(kind="high_bits", bits=4)),
    ]
    found = [known(replace(arm, speculation=one)).speculation for one in (base, *others)]
    assert len(set(found)) == len(found)
    assert known(replace(arm, speculation=of_model(small, INT8, under=self_draft(INT4)))).speculation == found[0]
    for file, edit in (
        ("model.safetensors", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1])),
        ("config.json", lambda raw: json.dumps(json.loads(raw) | {"rope_theta": 5.0}).encode()),
        ("tokenizer_config.json", lambda raw: json.dumps(json.loads(raw) | {"add_bos_token": True}).encode()),
    ):
        whole = (moved / file).read_bytes()
        (moved / file).write_bytes(edit(whole))
        assert known(replace(arm, speculation=base)).speculation != found[0], file
        (moved / file).write_bytes(whole)


def logits(arm) -> torch.Tensor:
    (found,) = read_batch(arm.model, arm.choice, [range(40)])
    return found


def test_a_self_draft_is_the_variant_of_its_recipe_and_is_packed_once(shipped, tmp_path):
    plain = load_arm(ArmSpec(name="plain", model=str(shipped)), tmp_path, {}, device="cpu")
    variant = load_arm(ArmSpec(name="mxfp4", model=str(shipped), quantize=MXFP4), tmp_path, {}, device="cpu")
    (packed,) = tmp_path.iterdir()
    made = packed.stat().st_mtime_ns
    spec = ArmSpec(name="s", model=str(shipped), speculation=self_draft(under=NGRAM, tokens=4))
    arm = load_arm(spec, tmp_path, {}, device="cpu")
    assert [one.stat().st_mtime_ns for one in tmp_path.iterdir()] == [made]
    assert plain.draft is None
    assert arm.draft is not None
    assert arm.draft.spec == spec.speculation
    draft, ngram = arm.draft.arms
    assert draft is not None
    assert (ngram, draft.draft, draft.spec) == (None, None, draft_arms(spec)[0])
    assert draft.identity == variant.identity
    assert torch.equal(logits(draft), logits(variant))
    assert torch.equal(logits(arm), logits(plain))
    assert not torch.equal(logits(arm), logits(draft))
    assert arm.identity == identify(spec, read_model_folder(shipped), {}, arm.identity.engine)


def sizes(facts: dict[str, float]) -> dict[str, float]:
    """All but what passes cost, which is timed, and what drafts hold meanwhile."""
    return {
        name: value for name, value in facts.items() if not name.startswith("speculation.") and name != DRAFT_WORKSPACE
    }


def test_the_memory_of_drafts_is_counted_and_said(shipped, small, tmp_path):
    alone = [
        load_arm(ArmSpec(name="a", model=str(model), quantize=recipe), tmp_path, {}, device="cpu").footprint
        for model, recipe in ((shipped, INT8), (shipped, INT4), (small, None))
    ]
    spec = ArmSpec(name="v", model=str(shipped), quantize=INT8, speculation=self_draft(INT4, under=of_model(small)))
    arm = load_arm(spec, tmp_path, {}, device="cpu")
    weights = [one.facts["memory.weights"] for one in alone]
    assert arm.footprint.facts[DRAFT_WEIGHTS] == weights[1] + weights[2]
    assert arm.footprint.facts["memory.weights"] == sum(weights)
    assert arm.footprint.facts[CACHE_TOKEN] == sum(one.facts[CACHE_TOKEN] for one in alone)
    rest = {DRAFT_WEIGHTS, "memory.weights", CACHE_TOKEN}
    assert {name: value for name, value in sizes(arm.footprint.facts).items() if name not in rest} == {
        name: value for name, value in alone[0].facts.items() if name not in rest
    }
    assert replace(arm.footprint, facts={}) == replace(alone[0], facts={})
    no_model = load_arm(replace(spec, speculation=NGRAM), tmp_path, {}, device="cpu").footprint.facts
    assert sizes(no_model) == alone[0].facts | {DRAFT_WEIGHTS: 0}
    verified = (MOST + 1) * 4 * arm.model.config.vocab_size
    assert 0 < no_model[DRAFT_WORKSPACE] <= arm.footprint.facts[DRAFT_WORKSPACE] <= verified


def test_padded_batches_neither_draft_nor_verify(shipped, tmp_path, monkeypatch):
    """Whatever the reason is: it is said, with who it is."""
    tried = choice._packed
    refused: list[int] = []

    def refuse(model):
        return "it keeps a MambaLayer" if model.config.num_hidden_layers in refused else tried(model)

    monkeypatch.setattr(choice, "_packed", refuse)
    other = save_tiny_model(tmp_path / "other", layers=3)
    spec = ArmSpec(name="v", model=str(shipped), speculation=of_model(other))
    assert load_arm(spec, tmp_path, {}, device="cpu").draft is not None
    for layers, who, folder in ((2, "v: ", shipped), (3, r"v \(draft\): ", other)):
        refused[:] = [layers]
        with pytest.raises(NotInThisVersion, match=f"^{who}{folder} runs in padded batches.*it keeps a MambaLayer"):
            load_arm(spec, tmp_path, {}, device="cpu")
    refused[:] = [2]
    with pytest.raises(NotInThisVersion, match=f"^v: {shipped} runs in padded batches"):
        load_arm(replace(spec, speculation=NGRAM), tmp_path, {}, device="cpu")


def test_a_draft_that_is_not_there_is_named_before_anything_is_loaded(shipped, tmp_path):
    spec = ArmSpec(name="v", model=str(shipped), speculation=self_draft(under=of_model(tmp_path / "nowhere")))
    with pytest.raises(UsageError, match="nowhere"):
        load_arm(spec, tmp_path / "cache", {}, device="cpu")
    assert not (tmp_path / "cache").exists()


HIGH = Speculation(draft=DraftSource(kind="high_bits", bits=4))


def test_of_high_bits_the_codes_are_the_targets_own_and_the_memory_of_scales_is_said(shipped, tmp_path):
    spec = ArmSpec(name="v", model=str(shipped), quantize=INT8)
    alone = load_arm(spec, tmp_path, {}, device="cpu")
    arm = load_arm(replace(spec, speculation=HIGH), tmp_path, {}, device="cpu")
    assert arm.draft is not None
    assert arm.draft.arms == (None,)
    assert arm.identity == replace(alone.identity, speculation=arm.identity.speculation)
    assert torch.equal(logits(arm), logits(alone))
    whole = {layer.layout.codes.data_ptr(): layer.layout.codes for layer in packed_layers(arm)}
    rows = 0
    for part, kept in ((Part(upper=True), 2), (Part(upper=True, layers=1), 1)):
        with open_decoder(arm.model, arm.choice, part=part) as (decoder, _):
            layers = decoder._plain.layers
        assert len(layers) == kept
        products = [one for layer in layers for one in (layer.heads, layer.out, layer.gates, layer.down)]
        halves = [weight for one in products for weight in one.weights]
        assert all(half.codes.untyped_storage().data_ptr() in whole for half in halves)
        assert all(2 * half.codes.nbytes == whole[half.codes.data_ptr()].nbytes for half in halves)
        rows = rows or sum(half.scales.numel() for half in halves)
    facts = sizes(arm.footprint.facts)
    own = facts[DRAFT_WEIGHTS]
    assert 6 * rows <= own <= 8 * rows, "a scale and an offset for each of the target's scales"
    assert facts == alone.footprint.facts | {
        DRAFT_WEIGHTS: own,
        "memory.weights": alone.footprint.facts["memory.weights"] + own,
        CACHE_TOKEN: 2 * alone.footprint.facts[CACHE_TOKEN],
    }
    assert arm.footprint.bytes_in_memory == alone.footprint.bytes_in_memory


def packed_layers(arm) -> list:
    return [layer for layer in arm.model.modules() if isinstance(layer, QuantizedLinear)]


def test_layers_of_other_precision_draft_as_they_are(shipped, tmp_path):
    recipe = replace(INT8, keep=(("layers.0.*", "bf16"), ("mlp", "int4")))
    arm = load_arm(ArmSpec(name="v", model=str(shipped), quantize=recipe, speculation=HIGH), tmp_path, {}, device="cpu")
    with open_decoder(arm.model, arm.choice, part=Part(upper=True)) as (decoder, _):
        first, second = decoder._plain.layers
    assert {type(weight).__name__ for weight in first.heads.weights} == {"PreparedDense"}
    assert {weight.rest.bits for weight in (*second.heads.weights, *second.gates.weights)} == {4}
    assert second.down.weights[0].offsets is None, "its own 4 bits"
    assert second.out.weights[0].offsets is not None


def test_high_bits_of_weights_without_any_are_refused_with_what_to_do(shipped, tmp_path):
    w8a8 = replace(INT8, activations="int8")
    for recipe in (None, INT4, w8a8):
        spec = ArmSpec(name="v", model=str(shipped), quantize=recipe, speculation=HIGH)
        with pytest.raises(UsageError, match=r"v: `high_bits: 4` drafts by .* Give it `quantize: int8`"):
            load_arm(spec, tmp_path, {}, device="cpu")
    gemma = save_tiny_model(tmp_path / "gemma2", arch="gemma2")
    with pytest.raises(NotInThisVersion, match=f"v: passes of a model's .* upper bits .*{gemma} does not pass"):
        load_arm(ArmSpec(name="v", model=str(gemma), quantize=INT8, speculation=HIGH), tmp_path, {}, device="cpu")


def test_a_quantized_folder_says_by_its_layers_whether_it_has_high_bits(shipped, tmp_path):
    for bits, works in ((8, True), (4, False)):
        folder = gptq_folder(shipped, tmp_path / f"int{bits}", bits=bits)
        spec = ArmSpec(name="v", model=str(folder), speculation=HIGH)
        if works:
            check_high_bits("v", spec, read_model_folder(folder))
            assert load_arm(spec, tmp_path, {}, device="cpu").footprint.facts[DRAFT_WEIGHTS] > 0
            continue
        with pytest.raises(UsageError, match="holds others"):
            check_high_bits("v", spec, read_model_folder(folder))
        with pytest.raises(UsageError, match="no layer of it was laid out so"):
            load_arm(spec, tmp_path, {}, device="cpu")


def test_whose_weights_are_laid_out_in_halves_follows_from_who_verifies():
    early = Speculation(draft=DraftSource(kind="early_exit", layers=1, under=HIGH))
    assert parts(early) == (Part(layers=1), Part(layers=1, upper=True))
    assert (in_halves(None), in_halves(NGRAM), in_halves(early)) == (frozenset(), frozenset(), {0})
    cascade = self_draft(INT8, under=replace(HIGH, draft=replace(HIGH.draft, under=NGRAM)))
    assert parts(cascade) == (Part(holder=1), Part(holder=1, upper=True), None)
    assert in_halves(cascade) == {1}


def test_first_layers_draft_where_the_model_passes_through_c_and_hold_keys_and_values_of_their_own(shipped, tmp_path):
    early = Speculation(draft=DraftSource(kind="early_exit", layers=1))
    spec = ArmSpec(name="v", model=str(shipped))
    alone = load_arm(spec, tmp_path, {}, device="cpu").footprint.facts
    arm = load_arm(replace(spec, speculation=early), tmp_path, {}, device="cpu")
    assert arm.draft is not None
    assert arm.draft.arms == (None,)
    assert sizes(arm.footprint.facts) == alone | {
        DRAFT_WEIGHTS: 0,
        CACHE_TOKEN: alone[CACHE_TOKEN] * 1.5,
    }  # 1 of 2 layers
    under = load_arm(replace(spec, speculation=self_draft(INT8, under=early)), tmp_path, {}, device="cpu").footprint
    assert under.facts[CACHE_TOKEN] == alone[CACHE_TOKEN] * 2.5
    gemma = save_tiny_model(tmp_path / "gemma2", arch="gemma2")
    for speculation in (early, of_model(gemma, under=early)):
        model = gemma if speculation is early else shipped
        with pytest.raises(NotInThisVersion, match=f"v: passes of a model's first layers .*{gemma} does not pass"):
            load_arm(replace(spec, model=str(model), speculation=speculation), tmp_path, {}, device="cpu")
