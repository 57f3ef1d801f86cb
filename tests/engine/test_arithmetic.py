"""`arithmetic: served`: rounded where a server stores, near what servers say, and each answer's bits its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.arithmetic import check_arithmetic
from qualgate.engine.choice import Choice, open_decoder, threads_of_kernels
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.row_check import apart, read, same_bits, whole
from qualgate.errors import InfrastructureError, NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec, DraftSource, QuantizeRecipe, Speculation
from tests.engine.draft_heads.heads import save_eagle3
from tests.engine.jobs import INT4, arms_under, job, loaded, under
from tests.tiny_models import START, VOCABULARY, save_tiny_model

STEP = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # from a number of the dtype to the next, relative
HALVES = list(STEP)
W8A8 = QuantizeRecipe(method="int8", group_size=0, activations="int8")
SELF_DRAFT = Speculation(draft=DraftSource(kind="quantize", quantize=INT4), tokens=4)
OTHERS = {
    "self-draft": SELF_DRAFT,
    "early exit": Speculation(draft=DraftSource(kind="early_exit", layers=1), tokens=3),
    "n-grams": Speculation(draft=DraftSource(kind="ngram"), tokens=3),
}
TEXTS = [
    torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(1)).tolist() for length in (40, 23)
]


@pytest.fixture(scope="module", params=["plain", "packed"])
def arms(request, tmp_path_factory):
    return arms_under(request.param, tmp_path_factory.mktemp("model"))


def said(told):
    return [(one.token_ids, one.logprobs, one.margins, one.finish_reason) for one in told.completions]


def logits_of(arm, what=TEXTS, cuts: Any = None, threads: int = 1) -> list[torch.Tensor]:
    with threads_of_kernels(), open_decoder(arm.model, arm.choice, arm.stored) as (decoder, head):
        return read(decoder, head, what, whole(what) if cuts is None else cuts, threads=threads)


def served_llama(
    folder: Path, text: list[int], dtype: torch.dtype, *, eager: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """What enters the head, and logits, of a Llama or Qwen2 in tensors of `dtype`, from their definition: sums are
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
    return states, (states.double() @ weights["lm_head.weight"].double().T).to(dtype).float()


@pytest.mark.parametrize("kind", ["plain", "packed"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_it_is_what_the_definition_gives(tmp_path, arch, dtype, kind):
    model = save_tiny_model(tmp_path / "model", arch=arch, dtype=dtype)
    arm = under(kind, loaded(model, tmp_path, dtype=dtype, arithmetic="served"))
    exact = under(kind, loaded(model, tmp_path, dtype=dtype))
    for text, found, unrounded in zip(TEXTS, logits_of(arm), logits_of(exact), strict=True):
        _, expected = served_llama(model, text, getattr(torch, dtype))
        assert torch.equal(found, found.to(getattr(torch, dtype)).float())
        # Sums in another order may end on the other side of a half: of float16, whose steps are small, more of them do.
        assert apart(found, expected) < (0.5 if dtype == "bfloat16" else 0.8) * apart(unrounded, expected)
        top = expected.topk(2).values
        told = top[:, 0] - top[:, 1] > 2 * STEP[dtype] * top[:, 0].abs()
        assert told.float().mean() > 0.7
        assert torch.equal(found.argmax(-1)[told], expected.argmax(-1)[told])


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_on_the_way_are_the_definitions_but_for_those_halfway_between_two(tmp_path, dtype, monkeypatch):
    model = save_tiny_model(tmp_path / "model", layers=1, dtype=dtype)
    arm = loaded(model, tmp_path, dtype=dtype, arithmetic="served")
    with threads_of_kernels(), open_decoder(arm.model, arm.choice) as (decoder, head):
        states, logits = list[torch.Tensor](), head.logits
        monkeypatch.setattr(head, "logits", lambda entering: states.append(entering) or logits(entering))
        read(decoder, head, TEXTS, whole(TEXTS))
    expected = torch.cat([served_llama(model, text, getattr(torch, dtype))[0].float() for text in TEXTS])
    found = torch.cat(states)
    assert (found == expected).float().mean() > 0.9
    assert float((found - expected).abs().max()) <= 4 * STEP[dtype] * float(expected.abs().max())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_the_definition_is_transformers_own_but_for_what_its_eager_attention_stores(tmp_path, arch, dtype):
    from transformers import AutoModelForCausalLM

    model, form = save_tiny_model(tmp_path / "model", arch=arch, dtype=dtype), getattr(torch, dtype)
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=form, attn_implementation="eager").eval()
    for text in TEXTS:
        with torch.inference_mode():
            expected = theirs(torch.tensor([text])).logits[0].float()
        found = served_llama(model, text, form, eager=True)[1]
        assert apart(found, expected) < 1e-3
        assert dtype == "float16" or (found == expected).float().mean() > 0.95


@pytest.mark.parametrize("recipe", [None, INT4, W8A8], ids=["full precision", "int4", "W8A8"])
def test_an_answer_has_the_same_bits_drafted_from_the_baselines_and_plainly_and_alone(arms, recipe, tmp_path):
    artifact = tmp_path / "job-0.safetensors"
    base, arm = arms(arithmetic="served"), arms("variant", recipe, arithmetic="served")
    run_job(base, job(base, artifact))
    drafted, plain = (run_job(arm, job(arm, artifact, drafted=drafted)) for drafted in (True, False))
    assert said(drafted) == said(plain)
    assert drafted.drifts == plain.drifts
    if recipe is None:
        assert {kl for one in plain.drifts for kl in one.kl} == {0.0}
    alone = [one for at in range(16) for one in said(run_job(arm, only(job(arm, ""), at)))]
    assert alone == said(plain)


def only(work, at):
    return replace(work, prompts=work.prompts[at : at + 1])


@pytest.mark.parametrize("cuts", [[[17, 5], [1, 1], [1, 9], [20, 1], [1, 7]], [[1, 1]] * 23 + [[1, 0]] * 17])
def test_a_row_has_the_same_bits_however_texts_are_cut(arms, cuts):
    arm = arms(arithmetic="served")
    assert all(map(same_bits, logits_of(arm, cuts=cuts, threads=2), logits_of(arm)))


@pytest.mark.parametrize("way", OTHERS)
def test_no_bit_of_an_answer_depends_on_who_drafts(tmp_path, way):
    arm = arms_under("plain", tmp_path)
    plain, drafted = arm("v", arithmetic="served"), arm("v", arithmetic="served", speculation=OTHERS[way])
    assert said(run_job(drafted, job(drafted, ""))) == said(run_job(plain, job(plain, "")))


def test_no_bit_depends_on_a_head_that_reads_states_between_layers(tmp_path):
    model = save_tiny_model(tmp_path / "model", layers=6)
    head = Speculation(draft=DraftSource(kind="head", head=str(save_eagle3(tmp_path / "head"))), tokens=4)
    plain, drafted = (loaded(model, tmp_path, "v", arithmetic="served", speculation=one) for one in (None, head))
    told = run_job(drafted, job(drafted, ""))
    assert told.generation.passes > 0
    assert said(told) == said(run_job(plain, job(plain, "")))


def test_keys_and_values_take_half_of_the_memory_and_keep_their_bits(arms):
    arm = arms(arithmetic="served")
    assert arm.choice.kept == "bfloat16"
    wide = replace(arm, choice=replace(arm.choice, kept="float32"))
    assert said(run_job(arm, job(arm, ""))) == said(run_job(wide, job(wide, "")))
    assert arms("v", arithmetic="served", kv_cache="int8").choice.kept == "int8"


def test_a_run_that_computes_so_is_another_engines_and_one_in_float32_is_what_it_was(arms):
    plain, arm = arms("variant"), arms("variant", arithmetic="served")
    assert plain.identity.engine.endswith(" cpu float32")
    assert arm.identity.engine == plain.identity.engine.removesuffix("float32") + "served"
    assert replace(arm.identity, engine="") == replace(plain.identity, engine="")
    assert arm.spec.weights_label == "bfloat16, served"
    assert arms("v", INT4, arithmetic="served", kv_cache="int8").spec.weights_label == "int4 g32, KV int8, served"
    assert said(run_job(arm, job(arm, ""))) != said(run_job(plain, job(plain, "")))


def test_a_model_is_afterwards_what_it_was(arms):
    arm = arms(arithmetic="served")
    before = {name: one.clone() for name, one in arm.model.named_parameters()}
    run_job(arm, job(arm, "", count=2))
    after = dict(arm.model.named_parameters())
    assert all(one.dtype == torch.float32 and torch.equal(one, before[name]) for name, one in after.items())
    assert not any(module._forward_hooks for module in arm.model.modules())


def louder(folder: Path, factor: float) -> Path:
    """What is added to the residual stream, times a power of two: norms take it out again, in float32."""
    tensors = load_file(folder / "model.safetensors")
    names = ("embed_tokens.weight", "o_proj.weight", "down_proj.weight")
    tensors = {name: one * factor if name.endswith(names) else one for name, one in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_what_float16_does_not_hold_breaks_the_answer_and_is_named(tmp_path, kind):
    folder = louder(save_tiny_model(tmp_path / "m", dtype="float32"), 2.0**15)
    arm = under(kind, loaded(folder, tmp_path, dtype="float16", arithmetic="served"))
    counted = run_job(loaded(folder, tmp_path, dtype="float16"), job(arm, "", count=6)).overflow
    assert counted[0][1] == "model.layers.0.self_attn.o_proj"
    with pytest.raises(InfrastructureError, match=r"float16, in which a server.*model\.layers\.0\.self_attn\.o_proj"):
        run_job(arm, job(arm, "", count=6))
    asked = job(arm, "", count=1)
    weighed = replace(asked, prompts=(replace(asked.prompts[0], requests=((((START, 65), (66, 67)),),)),))
    with pytest.raises(InfrastructureError, match=r"float16, in which a server.*model\.layers\.0\.self_attn\.o_proj"):
        run_job(arm, weighed)


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_what_float16_holds_is_answered_and_nothing_is_counted(tmp_path, kind):
    arm = under(
        kind, loaded(save_tiny_model(tmp_path / "m", dtype="float16"), tmp_path, dtype="float16", arithmetic="served")
    )
    told = run_job(arm, job(arm, "", count=6))
    assert told.overflow == ()
    assert len(told.completions) == 6


def declared(folder: Path, dtype: str | None) -> Path:
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("dtype", None)
    (folder / "config.json").write_text(json.dumps(settings | ({"dtype": dtype} if dtype else {})))
    return folder


@pytest.mark.parametrize(
    ("folders", "said", "dtype", "message"),
    [
        ("float32", False, "bfloat16", r"baseline: .*is float32, in which nothing is rounded.*as in `dtype: bfloat16`"),
        ("bfloat16", True, "float32", "in which nothing is rounded"),
        (
            "float16",
            False,
            "bfloat16",
            r"computes in float16.*rounded to bfloat16; no server does both.*`dtype: float16`",
        ),
        ("bfloat16", False, "bfloat16", ""),
        ("float32", True, "float16", ""),
        (None, False, "bfloat16", ""),
    ],
)
def test_a_dtype_in_which_nothing_is_rounded_or_that_is_not_the_weights_is_refused(
    tmp_path, folders, said, dtype, message
):
    folder = read_model_folder(declared(save_tiny_model(tmp_path / "m"), folders))
    spec = ArmSpec(name="baseline", model=str(folder.path), dtype=dtype, dtype_said=said, arithmetic="served")
    check_arithmetic(replace(spec, arithmetic="float32"), folder)
    if message:
        with pytest.raises(UsageError, match=message):
            load_arm(spec, tmp_path, {}, device="cpu")
    else:
        check_arithmetic(spec, folder)


def test_padded_batches_do_not_round(tmp_path, monkeypatch):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    monkeypatch.setattr("qualgate.engine.choice.choose_engine", lambda model: Choice(kind="padded", because="so it is"))
    with pytest.raises(NotInThisVersion, match=r"baseline: .*\(so it is\).*Write `arithmetic: float32`"):
        loaded(model, tmp_path, arithmetic="served")


def test_a_model_whose_rows_depend_on_each_other_when_rounded_is_refused(tmp_path, monkeypatch):
    model, variant = save_tiny_model(tmp_path / "model", arch="gemma2"), iter(["", "other bits"])
    monkeypatch.setattr("qualgate.engine.choice.row_variant", lambda *asked: next(variant))
    with pytest.raises(NotInThisVersion, match=r"\(other bits\)"):
        loaded(model, tmp_path, arithmetic="served")
