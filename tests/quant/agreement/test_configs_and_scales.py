"""Two quantization configs of one folder, keys that nobody knows, and scales that no quantizer writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import UsageError
from qualgate.pipeline.folder_notes import folder_notes
from qualgate.quant.adapter_folder import read_adapter_folder
from qualgate.quant.model_folder import read_model_folder
from qualgate.quant.readers import read_quantized
from tests.adapter_folders import TWO, save_adapter
from tests.quant.agreement.folders import LAYER, Tensors, check, edit, sound


def beside(folder: Path, name: str, **settings) -> None:
    own = json.loads((folder / "config.json").read_text())["quantization_config"]
    (folder / name).write_text(json.dumps({**own, **settings}))


def nested(folder: Path, **more) -> None:
    edit(folder, config=lambda config: config.update(
        text_config={"quantization_config": config.pop("quantization_config")}
    ))  # fmt: skip


CONFIGS = {
    "another layout": ("gptq", "quantize_config.json", {"checkpoint_format": "gptq_v2"}, "format 'gptq', and"),
    "another sym": ("gptq", "quantize_config.json", {"sym": False}, "says sym True, and .*says sym False"),
    "another size by its old name": ("awq", "quant_config.json", {"group_size": None, "q_group_size": 64}, "64"),
    "another layout by its second name": ("gptq", "quantize_config.json", {"format": "x"}, "says format 'gptq', and"),
    "other words": ("gptq", "quantize_config.json", {"pack_dtype": "int64"}, "says pack_dtype 'int32', and .*'int64'"),
    "another type": ("gptq", "quantize_config.json", {"bits": "4"}, "says bits 4, and .*says bits '4'"),
    "sym by default": ("gptq", "quantize_config.json", {"sym": None}, ""),
    "desc_act against its default": (
        "gptq", "quantize_config.json", {"desc_act": True}, "says desc_act False, and .*says desc_act True",
    ),
    "the same": ("gptq", "quantize_config.json", {"damp_percent": 0.1}, ""),
    "the same, in capitals": ("awq", "quant_config.json", {"version": "GEMM"}, ""),
    "ModelOpt's": (
        "modelopt", "hf_quant_config.json", {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, "",
    ),
    "ModelOpt's, with another list": (
        "modelopt", "hf_quant_config.json",
        {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head", LAYER]}}, "says ignore",
    ),
    "ModelOpt's, with another cache": (
        "modelopt", "hf_quant_config.json",
        {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"}},
        "says kv_cache_quant_algo 'none', and .*says kv_cache_quant_algo 'fp8'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFIGS)
def test_two_configs_say_the_same(tmp_path, case):
    kind, name, settings, message = CONFIGS[case]
    folder = sound(kind, tmp_path / "f")
    beside(folder, name, **settings)
    if kind == "modelopt":
        (folder / name).write_text(json.dumps(settings))
    if not message:
        return check(folder)
    with pytest.raises(UsageError, match=message):
        check(folder)


MODELOPT = {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}


@pytest.mark.parametrize(
    ("own", "other", "message"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, {}, "says kv_cache_scheme 'fp8', and .*'none'"),
        (
            {"config_groups": {"a": {"weights": {"group_size": 16}}}}, {"group_size": 32},
            "says group_size 16, and .*says group_size 32",
        ),
    ],
)  # fmt: skip
def test_modelopts_two_files_are_compared_though_they_spell_things_otherwise(tmp_path, own, other, message):
    folder = edit(sound("modelopt", tmp_path / "f"), quantization=lambda found: found.update(own))
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": MODELOPT | other}))
    with pytest.raises(UsageError, match=message):
        check(folder)


@pytest.mark.parametrize(("kind", "settings"), [("compressed-tensors", {"ignore": ["re:("]}),
                                                ("gptq", {"dynamic": {"-:(": {}}})])  # fmt: skip
def test_what_is_no_regular_expression_is_refused_with_its_file(tmp_path, kind, settings):
    folder = edit(sound(kind, tmp_path / "f"), quantization=lambda found: found.update(settings))
    with pytest.raises(UsageError, match=r"config\.json: the quantization config holds '\(', which is no regular"):
        check(folder)


def test_a_name_that_is_no_regular_expression_is_taken_as_a_name_in_silence(tmp_path, capfd):
    settings = {"modules_to_not_convert": ["lm_head", "("]}
    check(edit(sound("awq", tmp_path / "f"), quantization=lambda found: found.update(settings)))
    assert capfd.readouterr().err == ""


def test_two_configs_in_one_file_say_the_same(tmp_path):
    folder = sound("compressed-tensors", tmp_path / "f")
    edit(folder, config=lambda found: found.update(compression_config=found["quantization_config"]))
    check(folder)
    edit(folder, config=lambda found: found["compression_config"].update(ignore=[]))
    with pytest.raises(UsageError, match="quantization_config and compression_config, and they differ"):
        check(folder)


def test_what_some_servers_do_not_find_or_do_not_read_is_told(tmp_path):
    frozen = edit(sound("compressed-tensors", tmp_path / "f"), quantization=lambda q: q.update(quantization_status="x"))
    with pytest.raises(UsageError, match="says quantization_status 'x'"):
        check(frozen)
    check(frozen, read_as="vllm")
    alone = edit(sound("gptq", tmp_path / "g"), config=lambda found: found.pop("quantization_config"))
    (line,) = folder_notes([("v", read_model_folder(alone, hashed=False))])
    assert "quantize_config.json alone says" in line
    names = [f"model.layers.{layer}.self_attn.{side}_scale" for layer in range(2) for side in "kv"]
    scaled = edit(
        sound("compressed-tensors", tmp_path / "s"),
        tensors=lambda found: found.update({name: torch.tensor(0.5) for name in names}),
    )
    (line,) = folder_notes([("v", read_model_folder(scaled, hashed=False))])
    assert "scales of keys and values (2 layers), and its config names no kv_cache_scheme" in line


def test_a_config_under_text_config_is_said_to_be_there(tmp_path):
    folder = sound("compressed-tensors", tmp_path / "f")
    nested(folder)
    with pytest.raises(UsageError, match=r"under text_config: transformers looks for it at the top.*Move it"):
        check(folder)


@pytest.mark.parametrize("kind", ["gptq", "awq", "compressed-tensors", "fp8", "modelopt"])
def test_keys_that_nobody_knows_are_refused_by_name_unless_they_are_allowed(tmp_path, kind):
    folder = sound(kind, tmp_path / "f")
    check(edit(folder, quantization=lambda found: found.update(damp_percent=0.1, quantizer="x", unheard_of=None)))
    edit(folder, quantization=lambda found: found.update(rotate_first=True))
    with pytest.raises(UsageError, match=r"the key 'rotate_first'.*allow_config: \[rotate_first\]"):
        check(folder)
    check(folder, allow_config=("rotate_first",))


VALUES = {
    "sym": ("gptq", {"sym": "true"}, "sym is true, expected True or False"),
    "two layouts": ("gptq", {"format": "gptq_v2"}, "checkpoint_format is gptq, but format is gptq_v2"),
    "words of 64 bits": ("gptq", {"pack_dtype": "int64"}, "pack_dtype is int64, expected 'int32'"),
    "a list of rules": ("awq", {"dynamic": []}, "dynamic is"),
    "zero points": ("awq", {"zero_point": "no"}, "zero_point is no"),
    "a list in place of a name": ("fp8", {"modules_to_not_convert": "lm_head"}, "expected a list of names"),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_that_servers_would_take_for_others_are_refused(tmp_path, case):
    kind, settings, message = VALUES[case]
    folder = edit(sound(kind, tmp_path / "f"), quantization=lambda found: found.update(settings))
    with pytest.raises(UsageError, match=message):
        check(folder)


GROUP = {  # format, keys of the whole config, of its group, of the group's weights, what is said
    "the whole's format is another": ("compressed-tensors", {}, {"format": "int-quantized"}, {}, "format is 'int-qu"),
    "the whole has no format": ("compressed-tensors", {"format": None}, {"format": "pack-quantized"}, {}, "is None"),
    "of several formats": ("compressed-tensors", {"format": "mixed-precision"}, {"format": "pack-quantized"}, {}, ""),
    "scales as they come": ("compressed-tensors", {}, {}, {"dynamic": True}, "weights.dynamic is True"),
    "an order without groups": (
        "compressed-tensors", {}, {}, {"actorder": "group", "strategy": "channel"}, "actorder is .*no groups",
    ),
    "groups of a whole row": ("compressed-tensors", {}, {}, {"strategy": "channel"}, "group_size is .*no groups"),
    "another method": ("gptq", {"method": "awq"}, {}, {}, "says method awq and quant_method gptq"),
    "inputs without a word": ("compressed-tensors", {}, {"input_activations": {}}, {}, "input_activations is {}"),
    "targets of another class": ("compressed-tensors", {}, {"targets": ["Conv2d"]}, {}, "does not name it"),
    "its class in the ignored": ("compressed-tensors", {"ignore": ["Linear"]}, {}, {}, "leaves it out"),
    "its name's end in the ignored": ("compressed-tensors", {"ignore": ["mlp.down_proj"]}, {}, {}, "out of quantizat"),
    "integers called mxfp4": (
        "compressed-tensors", {"format": "mxfp4-pack-quantized"}, {"format": None}, {"group_size": 32},
        "weights.type says 'int'",
    ),
    "fp4 in blocks of another size": (
        "compressed-tensors", {"format": "mxfp4-pack-quantized"}, {"format": None},
        {"type": "float", "group_size": 64}, "_size says",
    ),
    "fp4 with zero points": (
        "compressed-tensors", {"format": "mxfp4-pack-quantized"}, {"format": None},
        {"type": "float", "group_size": 32, "symmetric": False}, "no zero points",
    ),
    "no quant_method": ("gptq", {"quant_method": None}, {}, {}, 'Add `"quant_method": "gptq"`'),
    "one of two layouts": ("gptq_v2", {"checkpoint_format": None, "format": "gptq_v2"}, {}, {}, "is missing"),
    "a misspelt key that is false": ("gptq", {"desc_atc": False}, {}, {}, "Did you mean desc_act"),
}  # fmt: skip


@pytest.mark.parametrize("case", GROUP)
def test_keys_that_contradict_each_other_are_refused(tmp_path, case):
    kind, whole, group, weights, message = GROUP[case]

    def change(found: dict) -> None:
        found.update(whole)
        if group or weights:
            found["config_groups"]["group_0"].update(group)
            found["config_groups"]["group_0"]["weights"].update(weights)

    folder = edit(sound(kind, tmp_path / "f"), quantization=change)
    if not message:
        return check(folder)
    with pytest.raises(UsageError, match=message):
        check(folder)


def test_keys_of_a_group_are_known_as_well(tmp_path):
    folder = sound("compressed-tensors", tmp_path / "f")
    edit(folder, quantization=lambda found: found["config_groups"]["group_0"]["weights"].update(simetric=True))
    with pytest.raises(UsageError, match=r"'simetric'.*Did you mean symmetric"):
        check(folder)


SCALES = {
    "fp8 the wrong way round": ("fp8", lambda s: 1 / s, "inverted"),
    "lost": ("compressed-tensors", torch.ones_like, "every scale of .* is 1"),
    "NaN": ("fp8", lambda s: s * float("nan"), "NaN or infinite scales"),
}


@pytest.mark.parametrize("fault", SCALES)
def test_scales_that_no_quantizer_writes_are_refused(tmp_path, fault):
    kind, change, message = SCALES[fault]

    def spoil(tensors: Tensors) -> None:
        name = f"{LAYER}.weight_scale"
        tensors[name] = change(tensors[name]).to(tensors[name].dtype)

    folder = edit(sound(kind, tmp_path / "f"), tensors=spoil)
    with pytest.raises(UsageError, match=message):
        check(folder)


def test_scales_of_4_bits_the_wrong_way_round_are_told(tmp_path):
    folder = sound("compressed-tensors", tmp_path / "f")
    edit(folder, tensors=lambda found: found[f"{LAYER}.weight_scale"].fill_(200))
    check(folder)
    assert any("scales give that were inverted" in oddity for oddity in read_quantized(folder).oddities)


def test_weights_that_were_cast_and_not_scaled_are_told(tmp_path):
    def cast(tensors: Tensors) -> None:
        tensors[f"{LAYER}.weight"] = (torch.randn(64, 128) / 10).to(torch.float8_e4m3fn)
        tensors[f"{LAYER}.weight_scale"] = torch.tensor(1.0)

    folder = edit(sound("fp8", tmp_path / "f"), tensors=cast)
    check(folder)
    assert any("cast and not scaled" in oddity for oddity in read_quantized(folder).oddities)


def test_an_adapter_that_changes_nothing_is_refused(tmp_path):
    folder = save_adapter(tmp_path / "lora", parts=TWO)
    read_adapter_folder(folder)
    file = folder / "adapter_model.safetensors"
    tensors = {name: -0.0 * tensor if "lora_B" in name else tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file)
    with pytest.raises(UsageError, match="every lora_B is 0, so this adapter changes nothing"):
        read_adapter_folder(folder)
