"""Every format: what its config and its tensors contradict, and damage, is refused by name. The seeds are whole."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.readers import read_quantized
from tests.quant.readers.made import MODULE, folder_of
from tests.quant.readers.seeds import SEEDS

Tensors = dict[str, torch.Tensor]
Change = Callable[[Tensors, dict], object]
NAN, INF = float("nan"), float("inf")


def config(**over: object) -> Change:
    return lambda tensors, quantization: quantization.update(over)


def of_group(part: str, **over: object) -> Change:
    """compressed-tensors: of its one group's weights or inputs."""
    return lambda tensors, quantization: quantization["config_groups"]["g"][part].update(over)


def put(**tensors: torch.Tensor) -> Change:
    """Tensors of the layer in place of its own, or beside them."""
    return lambda found, _: found.update({f"{MODULE}.{name}": tensor for name, tensor in tensors.items()})


def taken(name: str) -> Change:
    return lambda tensors, _: tensors.pop(f"{MODULE}.{name}")


def at(name: str, place: int | tuple[int, int], value: float) -> Change:
    return lambda tensors, _: tensors[f"{MODULE}.{name}"].__setitem__(place, value)


def full(name: str, value: float) -> Change:
    """Every number of a tensor, whatever its type is."""
    return lambda tensors, _: tensors[f"{MODULE}.{name}"].copy_(torch.tensor(value))


def both(*changes: Change) -> Change:
    return lambda tensors, quantization: [change(tensors, quantization) for change in changes]


def state(**over: object) -> Change:
    """bitsandbytes: of the JSON that it keeps as bytes."""

    def change(tensors: Tensors, _: dict) -> None:
        name = f"{MODULE}.weight.quant_state.bitsandbytes__nf4"
        value = json.loads(bytes(tensors[name].tolist())) | over
        tensors[name] = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)

    return change


def as_float8(tensors: Tensors, _: dict) -> None:
    tensors[f"{MODULE}.weight"] = tensors[f"{MODULE}.weight"].view(torch.float8_e5m2)


def nan_code(tensors: Tensors, _: dict) -> None:
    tensors[f"{MODULE}.weight"].view(torch.uint8)[1, 3] = 0x7F


ONES = torch.ones(2)
REFUSED: dict[str, list[tuple[Change, type[UsageError], str]]] = {
    "gptq": [
        (config(is_marlin_format=True), NotInThisVersion, "is_marlin_format is true"),
        (config(checkpoint_format="marlin"), NotInThisVersion, "'marlin' is not read"),
        (config(bits=5), UsageError, "bits is 5, expected one of 2, 3, 4, 8"),
        (config(bits="4"), UsageError, "bits is '4', expected int"),
        (config(bits=8), UsageError, r"qweight \[4, 16\] holds 128 bits a column, but the config says 8 bits for 32"),
        (config(group_size=8), UsageError,
         r"scales is float16 \[2, 16\], expected .* \[4, 16\] \(32 in_features at 4 bits, in groups"),
        (config(group_size=12), UsageError, "32 in_features, not a multiple of the group size 12"),
        (config(group_size=0), UsageError, "group_size is 0"),
        (at("g_idx", 7, 3), UsageError, "g_idx: expected groups 0 to 1, got 0 to 3"),
        (at("g_idx", 7, -1), UsageError, "g_idx: expected groups 0 to 1, got -1"),
        (at("scales", (0, 0), NAN), UsageError, "NaN or infinite scales"),
        (at("scales", (0, 0), -0.1), UsageError, "negative scales"),
        (at("scales", (0, 0), 0.0), UsageError, "a scale of 0 for weights that are not 0"),
        (taken("scales"), UsageError, rf"no tensor {MODULE}\.scales"),
        (taken("qzeros"), UsageError, rf"no tensor {MODULE}\.qzeros"),
        (put(scales=torch.ones(16, 2).half()), UsageError, "scales is float16"),
        (put(qzeros=torch.zeros(1, 2).int()), UsageError, "qzeros is int32"),
        (put(qweight=torch.zeros(3, 16).int()), UsageError, "holds 96 bits a column"),
        (lambda t, _: t.update({"x.weight_packed": torch.zeros(1, 1)}), UsageError,
         r"x\.weight_packed belongs to another quantized"),
        (lambda t, _: t.update({"x.weight": torch.zeros(2, 2, dtype=torch.int8)}), UsageError,
         r"x\.weight is int8 \[2, 2\]"),
    ],
    "awq": [
        (config(version="gemv"), NotInThisVersion, "'gemv' lays its weights out for other kernels"),
        (config(version="gemv_fast"), NotInThisVersion, "'gemv_fast'"),
        (config(zero_point=False), UsageError, "are not all 8"),
        (config(bits=8), UsageError, "bits is 8"),
        (config(group_size=64), UsageError, "32 in_features, not a multiple of the group size 64"),
        (config(group_size=8), UsageError, r"scales is float16 \[2, 16\]"),
    ],
    "pack_quantized": [
        (of_group("weights", num_bits=8), UsageError, r"weight_packed \[16, 3\] does not hold 16 x 32 weights of 8"),
        (of_group("weights", group_size=48), UsageError, "32 in_features, not a multiple of the group size 48"),
        (of_group("weights", group_size=8), UsageError, r"weight_scale is float32 \[16, 2\], expected .* \[16, 4\]"),
        (of_group("weights", strategy="nonesuch"), UsageError, "strategy 'nonesuch'"),
        (config(ignore=[MODULE]), UsageError, r"out of quantization \(`ignore`\), but its weights"),
        (config(ignore=["re:.*("]), UsageError, "no regular expression"),
        (config(format="marlin-24"), NotInThisVersion, "'marlin-24' is not read"),
        (config(transform_config={"config_groups": {"R1": 1}}), NotInThisVersion, "rotations at run time"),
        (config(sparsity_config={"format": "sparse-bitmask"}), NotInThisVersion, "format 'sparse-bitmask' is not read"),
        (config(config_groups={}), UsageError, "no target of"),
        (config(config_groups={"g": {}}), UsageError, "has no `weights`"),
        (config(config_groups={"g": {"weights": {}, "targets": 7}}), UsageError, "targets is 7"),
        (config(config_groups=None), UsageError, "does not say config_groups"),
        (taken("weight_zero_point"), UsageError, "weight_zero_point"),
        (at("weight_g_idx", 3, 5), UsageError, "g_idx: expected groups 0 to 1, got 0 to 5"),
        *((config(format=kind), UsageError, ", but weights.num_bits says")
          for kind in ("mxfp4-pack-quantized", "nvfp4-pack-quantized", "mxfp8-quantized", "float-quantized")),
    ],
    "nvfp4": [
        (full("weight_global_scale", 0.0), UsageError, "tensor scale of 0"),
        (full("weight_global_scale", NAN), UsageError, "tensor scale of nan"),
        (full("weight_global_scale", -2.0), UsageError, "tensor scale of -2"),
        (full("input_global_scale", INF), UsageError, "input_global_scale is inf, expected"),
        (both(config(format="mxfp4-pack-quantized"), of_group("weights", strategy="group", group_size=32),
              put(weight_scale=torch.full((8, 1), 255, dtype=torch.uint8))), UsageError, "NaN scales"),
    ],
    "sparse": [
        (config(config_groups={}), NotInThisVersion, "'sparse-24-bitmask' of weights that are not quantized"),
        (at("bitmask", (0, 0), 7), UsageError, f"{MODULE}.bitmask does not mark two of every four"),
        (put(shape=torch.tensor([16, 60])), UsageError, r"do not make the \[16, 60\]"),
        (put(shape=torch.ones(2, 2)), UsageError, r"do not make the \[1.0, 1.0, 1.0, 1.0\]"),
        (taken("compressed"), UsageError, rf"no tensor {MODULE}\.compressed"),
        (put(weight=torch.ones(16, 64)), UsageError, f"{MODULE}.weight is stored twice"),
    ],
    "int8_inputs": [
        (taken("input_scale"), UsageError, r"has no tensor \S+\.input_scale"),
        (full("input_scale", -1.0), UsageError, "input_scale is -1, expected"),
        (put(input_scale=torch.ones(4, 1)), UsageError, r"\[4, 1\], expected .* \[1, 1\]"),
        (of_group("input_activations", symmetric=True), UsageError, r"input_zero_point is not 0, but config\.json"),
        (taken("input_zero_point"), UsageError, r"no tensor \S+\.input_zero_point"),
        (put(weight_zero_point=torch.ones(8, 1, dtype=torch.int8)), UsageError,
         r"weight_zero_point is not 0, but config\.json says"),
    ],
    "fp8": [
        (taken("input_scale"), UsageError, r"has no tensor \S+down_proj\.input_scale, which fp8 needs"),
        (full("input_scale", 0.0), UsageError, "input_scale is 0, expected a positive number"),
        (full("input_scale", NAN), UsageError, "input_scale is nan, expected a positive number"),
        (put(input_scale=ONES), UsageError,
         r"input_scale is float32 \[2\], expected .* \[1\] \(one scale for all inputs\)"),
        (put(input_scale=torch.ones(1).int()), UsageError, r"input_scale is int32 \[1\], expected float16"),
        (put(activation_scale=torch.ones(1)), UsageError, "scale the same inputs"),
        (config(weight_block_size=[4, 8]), UsageError,
         r"weight_scale_inv is float32 \[3, 2\], expected .* \[5, 4\]"),
        (config(weight_block_size=[0, 128]), UsageError, "weight_block_size is"),
        (config(weight_block_size="x"), UsageError, "weight_block_size is 'x'"),
        (full("weight_scale_inv", INF), UsageError, "NaN or infinite scales"),
        (full("weight_scale_inv", 0.0), UsageError, "a scale of 0"),
        (put(weight=torch.ones(20, 30)), UsageError, r"weight is float32 .*, expected float8_e4m3fn"),
        (nan_code, UsageError, rf"{MODULE}\.weight holds codes that are not numbers"),
        (taken("weight_scale_inv"), UsageError, "no tensor of that format"),
    ],
    "modelopt": [
        (config(quant_algo="W4A8_AWQ"), NotInThisVersion, "quant_algo 'W4A8_AWQ' of ModelOpt is not read"),
        (config(quant_algo="FP8_PB_WO"), NotInThisVersion, "FP8_PB_WO"),
        (config(quant_algo="FP8"), UsageError, "8-bit float weights"),
        *((config(quant_algo=said), UsageError, r"quant_algo is .*, expected a name") for said in (8, ["FP8"])),
        (taken("input_scale"), UsageError, "no tensor .*input_scale"),
        (full("input_scale", 0.0), UsageError, "input_scale is 0, expected a positive"),
        (taken("weight_scale_2"), UsageError, "no tensor .*weight_scale_2"),
        (full("weight_scale_2", NAN), UsageError, "weight_scale_2 is nan"),
        (put(weight=torch.zeros(8, 12, dtype=torch.uint8)), UsageError, "not a multiple of"),
        (put(weight_scale=torch.ones(8, 1).to(torch.float8_e4m3fn)), UsageError, "weight_scale"),
    ],
    "modelopt_fp8": [
        (full("weight_scale", NAN), UsageError, "NaN or infinite scales"),
        (full("weight_scale", -1.0), UsageError, "negative scales"),
        (put(weight_scale=torch.ones(6)), UsageError, "one scale a tensor"),
        (taken("weight_scale"), UsageError, "no tensor of that format"),
    ],
    "modelopt_mixed": [
        (config(quantized_layers={MODULE: {"quant_algo": "W4A8_AWQ"}}), NotInThisVersion,
         rf"'W4A8_AWQ' of {MODULE} of ModelOpt is not read"),
        (config(quantized_layers={}), UsageError, rf"quant_algo of {MODULE} is None"),
        (config(quantized_layers={MODULE: 7}), UsageError, rf"quant_algo of {MODULE} is None"),
        (config(quantized_layers=[]), UsageError, r"quantized_layers is \[\], expected dict"),
        (config(quantized_layers={MODULE: {"quant_algo": "NVFP4", "group_size": 32}}), NotInThisVersion,
         "group_size is 32, but NVFP4"),
        (config(quantized_layers={MODULE: {"quant_algo": "FP8"}}), UsageError, "8-bit float weights"),
    ],
    "fbgemm_fp8": [
        (config(activation_scale_ub=0), UsageError, "activation_scale_ub is 0, expected more than 0"),
        (config(activation_scale_ub="x"), UsageError, "activation_scale_ub is x"),
        (config(modules_to_not_convert=[MODULE]), UsageError, f"leaves {MODULE} out"),
        (put(weight_scale=torch.ones(3, 1)), UsageError, "one scale a row"),
    ],
    "nf4": [
        (state(shape=[8, 34]), UsageError, "its state says 8 x 34"),
        (state(shape="x"), UsageError, "has shape 'x'"),
        (config(bnb_4bit_quant_type="fp4"), UsageError, "says bnb_4bit_quant_type 'fp4'.* stored as 'nf4'"),
        (config(load_in_4bit=True, load_in_8bit=True), UsageError, "load_in_4bit and load_in_8bit"),
        (as_float8, UsageError, "is float8_e5m2 .*bnb_4bit_quant_storage"),
        (state(blocksize=0), UsageError, "has blocksize 0"),
        (state(blocksize=32), UsageError, r"absmax is uint8 \[4\], expected uint8 \[8\]"),
        (state(nested_blocksize=4), UsageError, r"nested_absmax is float32 \[2\]"),
        (full("weight.quant_map", 0.5), NotInThisVersion, "quant_map is not NF4's"),
        (full("weight.nested_absmax", NAN), UsageError, "NaN or infinite scales"),
        (put(**{"weight.quant_state.bitsandbytes__nf4": torch.zeros(3, dtype=torch.uint8)}), UsageError, "is not JSON"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("format", "place"), [(format, place) for format, cases in REFUSED.items() for place in range(len(cases))]
)
def test_what_cannot_be_is_refused_by_name(tmp_path, format, place):
    torch.manual_seed(0)
    tensors, quantization, metadata = SEEDS[format]()
    change, error, message = REFUSED[format][place]
    change(tensors, quantization)
    folder = folder_of(tmp_path, tensors, quantization, metadata=metadata)
    with pytest.raises(error, match=message) as refused:
        read_quantized(folder)
    assert type(refused.value) is error
    assert str(folder) in str(refused.value) or "regular expression" in message
