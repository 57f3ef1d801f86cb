"""What a LoRA folder says, and what is refused of one by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.adapter_folder import Targets, read_adapter_folder
from tests.adapter_folders import TWO, save_adapter, write_config

Q = "model.layers.0.self_attn.q_proj"
Q_TENSOR = f"base_model.model.{Q}.lora_A.weight"


def scales(folder: Path) -> dict[str, float]:
    return {layer.module.partition(".layers.")[2]: layer.scale for layer in read_adapter_folder(folder).layers}


def test_each_layers_rank_and_scale_are_told(tmp_path):
    found = read_adapter_folder(save_adapter(tmp_path, parts=TWO))
    assert [layer.module for layer in found.layers] == [
        f"model.layers.{layer}.self_attn.{part}" for layer in (0, 1) for part in ("q_proj", "v_proj")
    ]
    assert {(layer.rank, layer.scale) for layer in found.layers} == {(4, 2.0)}
    assert found.numbers == 2 * (4 * 64 + 64 * 4 + 4 * 64 + 32 * 4)


def test_rank_stabilized_scales_are_by_the_root_of_the_rank(tmp_path):
    save_adapter(
        tmp_path, parts=TWO, ranks={"self_attn.v_proj": 9}, config={"use_rslora": True, "rank_pattern": {"v_proj": 9}}
    )
    assert set(scales(tmp_path).values()) == {8 / 2, 8 / 3}


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        ("q_proj", {"0.self_attn.q_proj", "1.self_attn.q_proj"}),
        (Q, {"0.self_attn.q_proj"}),
        (f"^{Q}", {"0.self_attn.q_proj"}),
        (r"layers\.1\..*", {"1.self_attn.q_proj", "1.self_attn.v_proj"}),
        ("proj", set()),
    ],
)
def test_patterns_of_alpha_match_the_end_of_a_name(tmp_path, pattern, changed):
    save_adapter(tmp_path, parts=TWO, config={"alpha_pattern": {pattern: 20, "proj": 99}})
    assert {name for name, scale in scales(tmp_path).items() if scale == 5.0} == changed
    assert set(scales(tmp_path).values()) <= {2.0, 5.0}


def test_any_change_of_either_file_is_another_adapter(tmp_path):
    one = read_adapter_folder(save_adapter(tmp_path / "a", parts=TWO))
    assert read_adapter_folder(save_adapter(tmp_path / "b", parts=TWO)).sha256 == one.sha256
    others = [
        save_adapter(tmp_path / "c", parts=TWO, seed=1),
        save_adapter(tmp_path / "d", parts=TWO, config={"lora_alpha": 16}),
    ]
    assert len({one.sha256, *(read_adapter_folder(other).sha256 for other in others)}) == 3


SECOND = "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"
TARGETS = [
    ({"target_modules": ["q_proj"]}, {Q, SECOND[0]}),
    ({"target_modules": [Q]}, {Q}),
    ({"target_modules": ["proj"]}, set()),
    ({"target_modules": r".*layers\.1\.(self_attn|mlp)\.(q|up)_proj"}, set(SECOND)),
    ({"target_modules": "all-linear", "exclude_modules": ["up_proj"]}, {Q, SECOND[0]}),
    ({"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1]}, set(SECOND)),
    ({"target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}, {Q}),
    ({"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": ["h"]}, set()),
]


@pytest.mark.parametrize(("config", "chosen"), TARGETS, ids=[json.dumps(config) for config, _ in TARGETS])
def test_a_config_chooses_layers_as_peft_does(config, chosen):
    names = [f"model.layers.{layer}.{part}" for layer in (0, 1) for part in ("self_attn.q_proj", "mlp.up_proj")]
    targets = Targets(Path("adapter_config.json"), config)
    assert {name for name in names if name in targets} == chosen


REFUSED = [
    ({"r": 0}, UsageError, "rank of .* is 0, expected a whole number from 1"),
    ({"r": 8}, UsageError, r"rank 8, but its tensors are \[4, 64\] and \[64, 4\]"),
    ({"r": True}, UsageError, "rank of"),
    ({"rank_pattern": {"q_proj": 0}}, UsageError, "rank of .* is 0"),
    ({"rank_pattern": ["q_proj"]}, UsageError, "`rank_pattern` must be a mapping"),
    ({"alpha_pattern": {"(?=a)": 3}}, UsageError, "the pattern .* cannot be read"),
    ({"lora_alpha": math.nan}, UsageError, "lora_alpha of .* is nan"),
    ({"lora_alpha": math.inf}, UsageError, "lora_alpha of .* is inf"),
    ({"lora_alpha": 10**400}, UsageError, "lora_alpha of"),
    ({"lora_alpha": 0}, UsageError, "lora_alpha of .* is 0"),
    ({"lora_alpha": "8"}, UsageError, "lora_alpha of .* is '8'"),
    ({"alpha_pattern": {"q_proj": None}}, UsageError, "lora_alpha of .* is None"),
    ({"use_rslora": "yes"}, UsageError, "`use_rslora` is true or false"),
    ({"peft_type": "IA3"}, NotInThisVersion, "the adapter kind 'IA3'"),
    ({"peft_type": None}, NotInThisVersion, "the adapter kind None"),
    ({"task_type": "SEQ_CLS"}, UsageError, "for 'SEQ_CLS', not for writing text"),
    ({"use_dora": True}, NotInThisVersion, "DoRA"),
    ({"modules_to_save": ["lm_head"]}, NotInThisVersion, "modules_to_save"),
    ({"bias": "lora_only"}, NotInThisVersion, "biases that were trained"),
    ({"lora_bias": True}, NotInThisVersion, "a bias of the adapter"),
    ({"layer_replication": [[0, 2]]}, NotInThisVersion, "layer_replication"),
    ({"trainable_token_indices": [3]}, NotInThisVersion, "trainable_token_indices"),
    ({"alora_invocation_tokens": [1, 2]}, NotInThisVersion, "from some tokens on"),
    ({"init_lora_weights": "pissa_niter_4"}, NotInThisVersion, "changes the base's weights too"),
    ({"some_new_thing": {"deep": 2}}, NotInThisVersion, "does not know what `some_new_thing` means"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "error", "said"), REFUSED, ids=[str(list(one[0].items()))[:60] for one in REFUSED])
def test_what_cannot_be_or_is_not_computed_is_refused_by_name(tmp_path, config, error, said):
    save_adapter(tmp_path, parts=TWO, config=config)
    with pytest.raises(error, match=said) as refused:
        read_adapter_folder(tmp_path)
    assert type(refused.value) is error
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("targets", [None, [], "", 3, ["q_proj", 3], {"q_proj": 1}])
def test_targets_that_name_nothing_are_refused(tmp_path, targets):
    save_adapter(tmp_path, parts=TWO, config={"target_modules": targets})
    with pytest.raises(UsageError, match="`target_modules` must be a list of module names or a pattern"):
        _ = read_adapter_folder(tmp_path).targets


CHANGES = {
    "one of two matrices": (lambda found: found.pop(Q_TENSOR), UsageError, "lacks base_model.model.*q_proj.lora_A"),
    "an embedding": (
        lambda found: found.update({"base_model.model.model.embed_tokens.lora_embedding_A": torch.zeros(4, 260)}),
        NotInThisVersion,
        "adapts an embedding",
    ),
    "a tensor of no LoRA": (
        lambda found: found.update({"base_model.model.lm_head.weight": torch.zeros(2, 2)}),
        UsageError,
        "lm_head.weight does not belong to a LoRA",
    ),
    "whole numbers": (
        lambda found: found.update({Q_TENSOR: torch.zeros(4, 64, dtype=torch.int8)}),
        UsageError,
        "expected a matrix of floats",
    ),
    "a vector": (lambda found: found.update({Q_TENSOR: torch.zeros(4)}), UsageError, "expected a matrix of floats"),
    "nothing": (lambda found: found.clear(), UsageError, "holds no tensor"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_are_missing_or_too_many_are_refused_by_name(tmp_path, change):
    apply, error, said = CHANGES[change]
    file = save_adapter(tmp_path, parts=TWO) / "adapter_model.safetensors"
    tensors = load_file(file)
    apply(tensors)
    save_file(tensors, file)
    with pytest.raises(error, match=said):
        read_adapter_folder(tmp_path)


def test_a_folder_without_its_files_says_which(tmp_path):
    with pytest.raises(UsageError, match=r"holds no LoRA adapter: expected adapter_config\.json"):
        read_adapter_folder(tmp_path)
    write_config(tmp_path, {"target_modules": ["q_proj"]})
    with pytest.raises(UsageError, match=r"has no adapter_model\.safetensors"):
        read_adapter_folder(tmp_path)
    (tmp_path / "adapter_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(UsageError, match="Loading a pickle can run any code"):
        read_adapter_folder(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"cut")
    with pytest.raises(UsageError, match="not a whole safetensors file"):
        read_adapter_folder(tmp_path)
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(UsageError, match="expected a JSON object"):
        read_adapter_folder(tmp_path)
