"""A model's own layer for further tokens drafts for it: what it drafts, and that its target says its own."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from qualgate.engine.choice import open_engine
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.job import run_job
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.speculation.propose import DraftRequest
from qualgate.records import CACHE_TOKEN, DRAFT_WEIGHTS, DraftSource, Sampling, Speculation
from tests.depth import with_proofs
from tests.engine.draft_heads.heads import states_of
from tests.engine.draft_heads.models_ahead import KINDS, NAMES, WEIGHTS, ModelAhead, put, save_model_ahead
from tests.engine.jobs import INT8, job, loaded, the_same_whoever_drafts


def own(tokens: int = 3, **more: Any) -> Speculation:
    return Speculation(draft=DraftSource(kind="head", head="own"), tokens=tokens, **more)


@pytest.fixture(scope="module", params=with_proofs(KINDS, {"qwen3_moe"}))
def model(request, tmp_path_factory):
    return save_model_ahead(tmp_path_factory.mktemp("ahead") / "model", request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_model_ahead(tmp_path_factory.mktemp("llama") / "model")


def drafts_of(arm: LoadedArm, text: list[int], count: int) -> list[tuple[int, ...]]:
    """What its layer drafts behind each part of a text of two tokens or more, by one proposer that reads on."""
    assert arm.draft is not None
    assert arm.draft.head is not None
    prompt, found = tuple(text[:2]), []
    with open_engine(arm.model, arm.choice) as engine:
        states = states_of(engine, text)
        embed = arm.model.get_input_embeddings()
        proposer = arm.draft.head.proposer("own", engine.head, embed, blocks=64, threads=1, stop_ids=frozenset())
        assert isinstance(proposer, DraftHead)
        proposer.read(0, prompt, 0, states[:1])
        for length in range(2, len(text) + 1):
            (draft,) = proposer.propose([DraftRequest(0, prompt, text[2:length], count)])
            found.append(draft.tokens)
            proposer.read(0, prompt, length - 1, states[length - 1 : length])
    return found


def text_of(count: int = 40) -> list[int]:
    draw = random.Random(3)
    return [draw.randrange(256) for _ in range(count)]


def expected(model: ModelAhead, text: list[int], count: int) -> list[tuple[int, ...]]:
    return [tuple(model.draft(text[:length], count)) for length in range(2, len(text) + 1)]


@pytest.mark.parametrize("count", with_proofs([1, 2, 3], {1, 2}))
def test_its_drafts_are_those_of_its_modules_over_the_whole_text_at_every_position(model, tmp_path, count):
    arm = loaded(model.folder, tmp_path, "v", dtype="float32", speculation=own(count))
    assert arm.choice.kind == ("packed" if "moe" in arm.model.config.model_type else "plain")
    assert drafts_of(arm, text_of(30), count) == expected(model, text_of(30), count)


@pytest.mark.proof
def test_transformers_own_reading_of_the_layout_says_the_same_tokens(tmp_path):
    model, text = save_model_ahead(tmp_path / "model", "glm4_moe"), text_of(20)
    target = AutoModelForCausalLM.from_pretrained(model.folder, dtype=torch.float32, attn_implementation="eager").eval()
    target._keys_to_ignore_on_load_unexpected = {r"model\.layers\.2.*"}  # as of a published size
    theirs, found = MtpModel.from_pretrained(target).eval(), []
    with torch.no_grad():
        states = target(torch.tensor([text]), output_hidden_states=True).hidden_states[-1]
        for length in range(2, len(text) + 1):
            said, *_ = theirs(
                torch.tensor([text[1:length]]), states[:, : length - 1], None, torch.arange(1, length)[None],
                MtpCache(config=target.config.get_mtp_config()),
            )  # fmt: skip
            found.append(tuple(said[0].tolist()))
    assert found == expected(model, text, 1)


@pytest.mark.parametrize("copies", ["its model's", "others"])
def test_copies_of_embedding_and_head_are_held_only_where_they_are_others(llama, tmp_path, copies):
    model = save_model_ahead(tmp_path / "model", "llama", copies=copies)
    arm, bare = (loaded(one.folder, tmp_path, "v", dtype="float32", speculation=own()) for one in (model, llama))
    assert drafts_of(arm, text_of(20), 3) == expected(model, text_of(20), 3)
    numbers = arm.draft.head.numbers - bare.draft.head.numbers
    assert numbers == (2 * 260 * 64 if copies == "others" else 0)


@pytest.mark.proof
@pytest.mark.parametrize("recipe", [None, INT8], ids=["alone", "of a quantized target"])
def test_no_bit_of_an_answer_depends_on_it(model, tmp_path, recipe):
    if recipe is not None and "moe" in model.whole.config.model_type:
        pytest.skip("experts are not quantized in this version")
    plain, drafted = (loaded(model.folder, tmp_path, "v", recipe, speculation=one) for one in (None, own()))
    the_same_whoever_drafts(plain, drafted, Sampling(), Sampling(temperature=0.8, top_p=0.95))


def test_what_it_drafts_as_its_target_says_it_is_accepted_to_the_last_token(tmp_path):
    folder = save_model_ahead(tmp_path / "model").folder
    held, at = load_file(folder / WEIGHTS), NAMES["DeepSeek-V3"][0]
    silent = {name: torch.zeros_like(one) for name, one in held.items() if "o_proj" in name or "down_proj" in name}
    alike = {f"{at}{name}.weight": torch.ones(64) for name in ("enorm", "hnorm")}
    alike[f"{at}shared_head.norm.weight"] = held["model.norm.weight"]
    put(folder, {**silent, **alike, f"{at}eh_proj.weight": torch.eye(64, 128)})  # both go by the last token alone
    arm = loaded(folder, tmp_path, "v", dtype="float32", speculation=own())
    steps = run_job(arm, job(arm, "")).draft_steps
    assert [one.accepted for one in steps] == [one.proposed for one in steps]
    assert sum(one.proposed for one in steps) > 50


def test_its_numbers_are_counted_and_nothing_of_the_folder_is_left_out(model, tmp_path):
    plain, drafted = (loaded(model.folder, tmp_path, "v", **more) for more in ({}, {"speculation": own()}))
    held = load_file(model.folder / WEIGHTS)
    numbers = sum(one.numel() for name, one in held.items() if name.startswith(model.names[0]))
    sizes, before = drafted.footprint, plain.footprint
    assert sizes.facts[DRAFT_WEIGHTS] == 2 * numbers
    assert sizes.facts["memory.weights"] == before.facts["memory.weights"] + 2 * numbers
    assert sizes.facts[CACHE_TOKEN] == before.facts[CACHE_TOKEN] * 3 / 2
    assert (sum(before.left_out.values()) > 0, sizes.left_out) == (True, {})


def test_its_tensors_may_lie_in_several_files(llama, tmp_path):
    held, folder = load_file(llama.folder / WEIGHTS), Path(shutil.copytree(llama.folder, tmp_path / "model"))
    files = {name: f"model-0000{1 + at % 2}-of-00002.safetensors" for at, name in enumerate(held)}
    for file in set(files.values()):
        save_file({name: one for name, one in held.items() if files[name] == file}, folder / file, {"format": "pt"})
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (folder / WEIGHTS).unlink()
    arm = loaded(folder, tmp_path, "v", dtype="float32", speculation=own())
    assert drafts_of(arm, text_of(20), 3) == expected(llama, text_of(20), 3)
