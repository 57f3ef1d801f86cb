"""Plain layers of a quantized folder, and quantized ones that its config leaves out, by the rules of each library."""

from __future__ import annotations

import json

import pytest

from qualgate.errors import UsageError
from tests.command_line import qualgate
from tests.gated_model import GATE_FILE, write_evalset
from tests.quant.agreement.folders import KINDS, LAYER, check, edit, sound, with_plain_layer

LIST = {
    "gptq": "dynamic", "gptq_v2": "dynamic", "awq": "modules_to_not_convert", "compressed-tensors": "ignore",
    "fp8": "modules_to_not_convert", "modelopt": "ignore", "bitsandbytes": "llm_int8_skip_modules",
}  # fmt: skip
REFUSED, ACCEPTED = f"{LAYER} holds a plain weight", ""


def listing(key: str, name: str):
    def change(quantization: dict) -> None:
        if key == "dynamic":
            quantization[key] = {f"-:{name}": {}}
        else:
            quantization[key] = [*(quantization.get(key) or ["lm_head"]), name]

    return change


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_layer_is_refused_unless_it_is_listed_and_a_quantized_one_if_it_is(tmp_path, kind):
    folder = sound(kind, tmp_path / "f")
    check(folder)
    listed = edit(sound(kind, tmp_path / "listed"), quantization=listing(LIST[kind], LAYER))
    with pytest.raises(UsageError, match=f"leaves {LAYER} out of quantization"):
        check(listed)
    with pytest.raises(UsageError, match=f"{REFUSED}.*name it there in full"):
        check(with_plain_layer(folder))
    check(edit(folder, quantization=listing(LIST[kind], LAYER)))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("compressed-tensors", "model.language_model.layers.1.mlp.down_proj", REFUSED),
        ("compressed-tensors", "down_proj", "leaves model.layers.0.mlp.down_proj out"),  # a name's end is SGLang's
        ("compressed-tensors", "re:.*layers\\.1\\.mlp\\.down_proj$", ACCEPTED),
        ("fp8", "model.language_model.layers.1.mlp.down_proj", REFUSED),
        (
            "fp8",
            "layers.1.mlp.down_proj",
            f"{REFUSED}.*vLLM rounds its weights to fp8",
        ),  # the end is transformers' alone
        ("awq", "layers.1.mlp.down_proj", ACCEPTED),
        ("awq", "model.layers.1.mlp.dow", REFUSED),  # a part of the name is vLLM's alone
        ("modelopt", "model.layers.1.mlp.down_*", ACCEPTED),
        ("modelopt", "model.layers.0.*", f"leaves {'model.layers.0.mlp.down_proj'} out"),
        ("gptq", ".*layers\\.1\\.mlp\\.down.*", ACCEPTED),
        ("gptq", "layers\\.1\\.", REFUSED),  # from the start of the name
        ("bitsandbytes", "layers.1.mlp.down_proj", f"{REFUSED}.*vLLM quantizes it anew"),  # the end is transformers'
        ("bitsandbytes", "model.layers.1.mlp", "leaves model.layers.1.mlp.gate_proj out"),
        ("bitsandbytes", "mlp", "leaves model.layers.0.mlp.down_proj out"),  # any whole part is vLLM's alone
    ],
)
def test_a_list_is_read_by_the_rules_of_its_own_library(tmp_path, kind, name, message):
    folder = with_plain_layer(sound(kind, tmp_path / "f"))
    edit(folder, quantization=listing(LIST[kind], name))
    if not message:
        return check(folder)
    with pytest.raises(UsageError, match=message):
        check(folder)


@pytest.mark.parametrize(("kind", "read_as", "name"), [("gptq", "vllm", ""), ("awq", "vllm", ""),
                                                       ("fp8", "transformers", "layers.1.mlp.down_proj"),
                                                       ("bitsandbytes", "transformers", "layers.1.mlp.down_proj"),
                                                       ])  # fmt: skip
def test_the_server_that_an_arm_names_decides(tmp_path, kind, read_as, name):
    folder = with_plain_layer(sound(kind, tmp_path / "f"))
    if kind == "awq":
        edit(folder, quantization=lambda q: q.update(modules_to_not_convert=None))
    if name:
        edit(folder, quantization=listing(LIST[kind], name))
    check(folder, read_as)
    with pytest.raises(UsageError, match=REFUSED):
        check(folder, "sglang")


def test_targets_that_do_not_reach_a_layer_leave_it_plain(tmp_path):
    folder = with_plain_layer(sound("compressed-tensors", tmp_path / "f"))
    every_other = "re:model\\.layers\\.(0\\..*|1\\.self_attn\\..*|1\\.mlp\\.(gate|up)_proj)"
    check(edit(folder, quantization=lambda q: q["config_groups"]["group_0"].update(targets=[every_other])))


def test_plan_and_inspect_refuse_alike(tmp_path):
    sound("plain", tmp_path / "model")
    with_plain_layer(sound("compressed-tensors", tmp_path / "faulty"))
    write_evalset(tmp_path, [{"id": "a", "prompt": "a", "answer": "b", "max_new_tokens": 1}])
    (tmp_path / "gate.yaml").write_text(GATE_FILE.replace("same: {model: ./model", "same: {model: ./faulty"))
    planned = qualgate("plan", "gate.yaml", cwd=tmp_path)
    assert (planned.returncode, REFUSED in planned.stderr) == (64, True), planned.stderr
    shown = json.loads(qualgate("inspect", "faulty", "--json", cwd=tmp_path).stdout)
    assert REFUSED in shown["refused"]
