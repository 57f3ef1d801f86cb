"""Which quantized format a folder holds, told from its configs and headers, without torch."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.formats import _NOT_READ, METHODS, recognise
from qualgate.quant.shards import read_shards


@pytest.fixture
def folder(tmp_path):
    save_file({"x": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    return tmp_path


def config(folder, key="quantization_config", **settings):
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", key: settings}))


def test_a_folder_without_any_word_of_it_is_full_precision(folder):
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert recognise(folder) is None


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "torchao"}, "torchao"),
        ({"load_in_4bit": True}, "bitsandbytes"),
    ],
)
def test_the_config_says_the_method_or_is_known_by_its_keys(folder, settings, method):
    config(folder, **settings)
    found = recognise(folder)
    assert found is not None
    assert (found.method, found.where, found.settings) == (method, folder / "config.json", settings)


def test_older_compressed_tensors_configs_have_another_key(folder):
    config(folder, key="compression_config", config_groups={}, format="dense")
    found = recognise(folder)
    assert found is not None
    assert found.method == "compressed-tensors"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"quant_method": "nonesuch"}, UsageError, "unknown quant_method 'nonesuch'. Formats that are read: gptq, awq"),
        ({"quant_method": "gguf"}, UsageError, "unknown quant_method 'gguf'"),
        ({"quant_method": ["gptq"]}, UsageError, "unknown quant_method"),
        ({"quant_method": "nvfp4", "quant_algo": "X"}, NotInThisVersion, r"'nvfp4' \(X\) \(NVFP4 of transformers\)"),
        ({"something": 1}, UsageError, "without quant_method"),
        ({"bits": 4, "group_size": 128}, UsageError, 'Add `"quant_method": "gptq"`'),
        ({"config_groups": {}, "format": "dense"}, UsageError, 'Add `"quant_method": "compressed-tensors"`'),
    ],
)
def test_other_methods_are_named(folder, settings, error, message):
    config(folder, **settings)
    with pytest.raises(error, match=message):
        recognise(folder)


@pytest.mark.parametrize("method", sorted(_NOT_READ))
def test_a_known_format_that_is_not_read_is_named_with_the_conversion_that_would_do(folder, method):
    config(folder, quant_method=method)
    with pytest.raises(NotInThisVersion) as refused:
        recognise(folder)
    text, (name, conversion) = str(refused.value), _NOT_READ[method]
    assert f"quant_method {method!r} ({name}) is not read" in text
    assert f"{conversion}, or give the full-precision folder" in text
    assert "damaged" not in text


def test_every_method_of_transformers_is_read_or_named():
    from transformers.utils.quantization_config import QuantizationMethod

    assert {known.value for known in QuantizationMethod} <= {*METHODS, *_NOT_READ}


def test_two_files_and_no_word_which_is_the_model_are_refused(tmp_path):
    for name in ("gptq_model-4bit-128g.safetensors", "gptq_model-8bit-128g.safetensors"):
        save_file({"x": torch.ones(2)}, tmp_path / name)
    with pytest.raises(UsageError, match=r"2 safetensors files .* nothing says which is the model"):
        read_shards(tmp_path)


def test_shards_under_autogptqs_names_are_found_through_their_index(tmp_path):
    for number in (1, 2):
        save_file({f"x{number}": torch.ones(2)}, tmp_path / f"gptq_model-4bit-128g-0000{number}-of-00002.safetensors")
    weight_map = {f"x{number}": f"gptq_model-4bit-128g-0000{number}-of-00002.safetensors" for number in (1, 2)}
    index = tmp_path / "gptq_model-4bit-128g.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert [file.name for file in read_shards(tmp_path).files] == sorted(weight_map.values())
    index.write_text(json.dumps({"weight_map": weight_map | {"y": "gptq_model-4bit-128g-00003-of-00003.safetensors"}}))
    with pytest.raises(UsageError, match="which is missing"):
        read_shards(tmp_path)
