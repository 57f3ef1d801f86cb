"""`arithmetic: served`: rounded where a server stores, near what servers say, and each answer's bits its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from qualgate.engine.arithmetic import check_arithmetic
from qualgate.engine.choice import Choice, open_decoder, threads_of_kernels
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.row_check import apart, read, same_bits, whole
from qualgate.errors import InfrastructureError, NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec, DraftSource, QuantizeRecipe, Speculation
from tests.engine.draft_heads.heads import save_eagle3
from tests.engine.jobs import (
    INT4,
    NGRAM,
    SELF_DRAFT,
    job,
    loaded,
    said,
    the_same_however_asked,
    the_same_whoever_drafts,
    under,
)
from tests.engine.test_overflow import scaled
from tests.tiny_models import START, VOCABULARY

STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # from a number of the dtype to the next, relative
HALVES = list(STEP)
W8A8 = QuantizeRecipe(method="int8", group_size=0, activations="int8")
OTHERS = {"self-draft": replace(SELF_DRAFT, tokens=4), "n-grams": NGRAM}
TEXTS = [
    torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(1)).tolist() for length in (40, 23)
]


def logits_of(arm, what=TEXTS, cuts: Any = None, threads: int = 1) -> list[torch.Tensor]:
    with threads_of_kernels(), open_decoder(arm.model, arm.choice, arm.stored) as (decoder, head):
        return read(decoder, head, what, whole(what) if cuts is None else cuts, threads=threads)


def served_llama(folder: Path, text: list[int], dtype: torch.dtype, *, eager: bool = False) -> torch.Tensor:
    """Logits of a Llama or Qwen2 in tensors of `dtype`, from their definition: sums are
    float32, and whatever a server writes is rounded. eager: as do operations that write what kernels of servers hold:
    halves of heads before they are added, scores and weights of an attention."""
    config = json.loads((folder / "config.json").read_text())
    weights = {
        name.removeprefix("model."): one.to(dtype) for name, one in load_file(folder / "model.safetensors").items()
    }
    heads, kv_heads, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    dim, rows = config["hidden_size"] // heads, len(text)
    base = config["rope_parameters"]["rope_theta"]
    angles = torch.arange(rows)[:, None] * base ** -(torch.arange(dim // 2) * 2 / dim)
    cosine, sine = (table.to(dtype).float()[:, None] for table in (angles.cos(), angles.sin()))

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        product = x.double() @ weights[f"{name}.weight"].double().T
        bias = weights.get(f"{name}.bias")
        return (product if bias is None else product + bias.double()).to(dtype)

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        wide = x.double()
        scaled = (wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt()).to(dtype)
        return scaled * weights[f"{name}.weight"]

    def written(numbers: torch.Tensor) -> torch.Tensor:
        return numbers.to(dtype).to(numbers.dtype) if eager else numbers

    def turned(x: torch.Tensor) -> torch.Tensor:
        left, right = x.float().chunk(2, -1)
        return torch.cat(
            [
                written(left * cosine) - written(right * sine),
                written(right * cosine) + written(left * sine),
            ],
            -1,
        ).to(dtype)

    x = weights["embed_tokens.weight"][text]
    for at in range(config["num_hidden_layers"]):
        entering = norm(f"layers.{at}.input_layernorm", x)
        query, key, value = (
            linear(f"layers.{at}.self_attn.{name}_proj", entering).view(rows, -1, dim) for name in "qkv"
        )
        query, key = turned(query).double(), turned(key).double().repeat_interleave(heads // kv_heads, 1)
        value = value.double().repeat_interleave(heads // kv_heads, 1)
        scores = written(written(torch.einsum("qhd,khd->hqk", query, key)) * dim**-0.5)
        scores = scores.masked_fill(torch.ones(rows, rows, dtype=torch.bool).triu(1), -torch.inf)
        attended = torch.einsum("hqk,khd->qhd", written(scores.softmax(-1)), value).flatten(1).to(dtype)
        x = x + linear(f"layers.{at}.self_attn.o_proj", attended)
        entering = norm(f"layers.{at}.post_attention_layernorm", x)
        gate = linear(f"layers.{at}.mlp.gate_proj", entering).double()
        gated = (gate / (1 + (-gate).exp())).to(dtype) * linear(f"layers.{at}.mlp.up_proj", entering)
        x = x + linear(f"layers.{at}.mlp.down_proj", gated)
    states = norm("norm", x)
    return (states.double() @ weights["lm_head.weight"].double().T).to(dtype).float()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_it_is_what_the_definition_gives(saved, tmp_path, arch, dtype):
    model, form = saved(arch=arch, dtype=dtype), getattr(torch, dtype)
    expected = [served_llama(model, text, form) for text in TEXTS]
    for kind in ("plain", "packed"):
        arm = under(kind, loaded(model, tmp_path, dtype=dtype, arithmetic="served"))
        exact = under(kind, loaded(model, tmp_path, dtype=dtype))
        for wanted, found, unrounded in zip(expected, logits_of(arm), logits_of(exact), strict=True):
            assert torch.equal(found, found.to(form).float())
            # Sums in another order may end on the other side of a half: of float16, whose steps are small, more do.
            assert apart(found, wanted) < (0.5 if dtype == "bfloat16" else 0.8) * apart(unrounded, wanted)
            top = wanted.topk(2).values
            told = top[:, 0] - top[:, 1] > 2 * STEP[dtype] * top[:, 0].abs()
            assert told.float().mean() > 0.7
            assert torch.equal(found.argmax(-1)[told], wanted.argmax(-1)[told])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_the_definition_is_transformers_own_but_for_what_its_eager_attention_stores(saved, arch, dtype):
    from transformers import AutoModelForCausalLM

    model, form = saved(arch=arch, dtype=dtype), getattr(torch, dtype)
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=form, attn_implementation="eager").eval()
    for text in TEXTS:
        with torch.inference_mode():
            expected = theirs(torch.tensor([text])).logits[0].float()
        found = served_llama(model, text, form, eager=True)
        assert apart(found, expected) < 1e-3
        assert dtype == "float16" or (found == expected).float().mean() > 0.95


@pytest.mark.parametrize("recipe", [None, INT4, W8A8], ids=["full precision", "int4", "W8A8"])
def test_an_answer_has_the_same_bits_drafted_from_the_baselines_and_plainly_and_alone(arms, recipe, tmp_path):
    base, arm = arms(arithmetic="served"), arms("variant", recipe, arithmetic="served")
    told = the_same_however_asked(base, arm, tmp_path / "job-0.safetensors")
    assert recipe is not None or {kl for one in told.drifts for kl in one.kl} == {0.0}


@pytest.mark.parametrize("cuts", [[[17, 5], [1, 1], [1, 9], [20, 1], [1, 7]], [[1, 1]] * 23 + [[1, 0]] * 17])
def test_a_row_has_the_same_bits_however_texts_are_cut(arms, cuts):
    arm = arms(arithmetic="served")
    assert all(map(same_bits, logits_of(arm, cuts=cuts, threads=2), logits_of(arm)))


@pytest.mark.parametrize("way", OTHERS)
def test_no_bit_of_an_answer_depends_on_who_drafts(arms_of, way):
    arm = arms_of("plain")
    drafted = arm("variant", arithmetic="served", speculation=OTHERS[way])
    the_same_whoever_drafts(arm("variant", arithmetic="served"), drafted)


def test_no_bit_depends_on_a_head_that_reads_states_between_layers(saved, tmp_path):
    head = Speculation(draft=DraftSource(kind="head", head=str(save_eagle3(tmp_path / "head"))), tokens=4)
    plain, drafted = (
        loaded(saved(layers=6), tmp_path, "v", arithmetic="served", speculation=one) for one in (None, head)
    )
    assert the_same_whoever_drafts(plain, drafted).generation.passes > 0


def test_keys_and_values_take_half_of_the_memory_and_keep_their_bits(arms):
    arm = arms(arithmetic="served")
    assert arm.choice.cache_form == "bfloat16"
    wide = replace(arm, choice=replace(arm.choice, cache_form="float32"))
    assert said(run_job(arm, job(arm, "", count=8))) == said(run_job(wide, job(wide, "", count=8)))
    assert arms("v", arithmetic="served", kv_cache="int8").choice.cache_form == "int8"


def test_a_run_that_computes_so_is_another_engines_and_one_in_float32_is_what_it_was(arms):
    plain, arm = arms("variant"), arms("variant", arithmetic="served")
    assert plain.identity.engine.endswith(" cpu float32")
    assert arm.identity.engine == plain.identity.engine.removesuffix("float32") + "served"
    assert replace(arm.identity, engine="") == replace(plain.identity, engine="")
    assert arm.spec.weights_label == "bfloat16, served"
    assert arms("v", INT4, arithmetic="served", kv_cache="int8").spec.weights_label == "int4 g32, KV int8, served"
    assert said(run_job(arm, job(arm, "", count=8))) != said(run_job(plain, job(plain, "", count=8)))


def test_a_model_is_afterwards_what_it_was(arms):
    arm = arms(arithmetic="served")
    before = {name: one.clone() for name, one in arm.model.named_parameters()}
    run_job(arm, job(arm, "", count=2))
    after = dict(arm.model.named_parameters())
    assert all(one.dtype == torch.float32 and torch.equal(one, before[name]) for name, one in after.items())
    assert not any(module._forward_hooks for module in arm.model.modules())


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_what_float16_does_not_hold_breaks_the_answer_and_is_named(saved, tmp_path, kind):
    folder = scaled(Path(shutil.copytree(saved(dtype="float32"), tmp_path / "m")), 2.0**15)
    arm = under(kind, loaded(folder, tmp_path, dtype="float16", arithmetic="served"))
    asked = job(arm, "", count=1)
    weighed = replace(asked, prompts=(replace(asked.prompts[0], requests=((((START, 65), (66, 67)),),)),))
    for work in (job(arm, "", count=6), weighed):
        with pytest.raises(InfrastructureError, match=r"float16, in which a server.*model\.layers\.0\.self_attn\.o_pr"):
            run_job(arm, work)
    quiet = under(kind, loaded(saved(dtype="float16"), tmp_path, dtype="float16", arithmetic="served"))
    told = run_job(quiet, job(quiet, "", count=6))
    assert (told.overflow, len(told.completions)) == ((), 6)


def declared(model: Path, folder: Path, dtype: str | None) -> Path:
    shutil.copytree(model, folder)
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("dtype", None)
    (folder / "config.json").write_text(json.dumps(settings | ({"dtype": dtype} if dtype else {})))
    return folder


REFUSED = [
    ("float32", False, "bfloat16", r"baseline: .*is float32, in which nothing is rounded.*as in `dtype: bfloat16`"),
    ("bfloat16", True, "float32", "in which nothing is rounded"),
    ("float16", False, "bfloat16", r"computes in float16.*rounded to bfloat16; no server does both.*`dtype: float16`"),
    ("bfloat16", False, "bfloat16", ""),
    ("float32", True, "float16", ""),
    (None, False, "bfloat16", ""),
]


@pytest.mark.parametrize(("folders", "said", "dtype", "message"), REFUSED)
def test_a_dtype_in_which_nothing_is_rounded_or_that_is_not_the_weights_is_refused(
    saved, tmp_path, folders, said, dtype, message
):
    folder = read_model_folder(declared(saved(), tmp_path / "m", folders))
    spec = ArmSpec(name="baseline", model=str(folder.path), dtype=dtype, dtype_said=said, arithmetic="served")
    check_arithmetic(replace(spec, arithmetic="float32"), folder)
    if message:
        with pytest.raises(UsageError, match=message):
            load_arm(spec, tmp_path, {}, device="cpu")
    else:
        check_arithmetic(spec, folder)


def test_padded_batches_and_rows_that_depend_on_each_other_when_rounded_are_refused(saved, tmp_path, monkeypatch):
    variant = iter(["", "other bits"])
    with monkeypatch.context() as patch:
        patch.setattr("qualgate.engine.choice.row_variant", lambda *asked: next(variant))
        with pytest.raises(NotInThisVersion, match=r"\(other bits\)"):
            loaded(saved(arch="gemma2"), tmp_path, arithmetic="served")
    monkeypatch.setattr("qualgate.engine.choice.choose_engine", lambda model: Choice(kind="padded", because="so it is"))
    with pytest.raises(NotInThisVersion, match=r"baseline: .*\(so it is\).*Write `arithmetic: float32`"):
        loaded(saved(), tmp_path, arithmetic="served")
