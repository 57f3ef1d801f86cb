"""Both ways between qualgate and the libraries whose formats it shares: same weights, same greedy text.

    pytest -m interop

Needs the environments that `qualgate quantize --setup-backend NAME` makes; those that are missing are skipped.
QUALGATE_BACKENDS names their folder when it is not the default one. QUALGATE_INTEROP_MODEL names a small trained model
to use instead of a random one.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from qualgate.engine.load import load_arm
from qualgate.errors import UsageError
from qualgate.pipeline.quantize.folder import Order, quantize
from qualgate.quant.backends.call import SETTINGS, run_backend
from qualgate.quant.backends.environment import Environment, find
from qualgate.quant.backends.job import backend_job
from qualgate.quant.readers import read_quantized
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, QuantizeRecipe
from qualgate_kernels.dequantize import dequantize_torch
from tests.tiny_models import save_tiny_model
from tests.tiny_sets import CALIBRATION, write_set

pytestmark = pytest.mark.interop
FOLDER = Path(os.environ["QUALGATE_BACKENDS"]) if "QUALGATE_BACKENDS" in os.environ else None
GROUP = 32
NEW_TOKENS = 12
PROMPT = "Question: what is"
LINES = [f"Question {row}: what is {row} plus {row + 3}? Answer: {2 * row + 3}." for row in range(16)]


def environment(name: str) -> Environment:
    try:
        return find(name, FOLDER)
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    if named := os.environ.get("QUALGATE_INTEROP_MODEL"):
        return Path(named)
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), width=128, dtype="float16")


def token_ids(model: Path, text: str) -> list[int]:
    return Tokenizer.from_file(str(model / "tokenizer.json")).encode(text).ids


# By library and environment; importing a library takes longer than reading.
READERS: dict[tuple[str, str], subprocess.Popen[str]] = {}


@pytest.fixture(scope="module", autouse=True)
def readers_end():
    yield
    for reader in READERS.values():
        reader.kill()
        reader.wait()
    READERS.clear()


def reader_of(library: str, name: str) -> subprocess.Popen[str]:
    if (library, name) not in READERS:
        script = Path(__file__).with_name("read_with_library.py")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        READERS[library, name] = subprocess.Popen(
            [str(environment(name).python), "-I", str(script), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**kept, **SETTINGS, "TORCHDYNAMO_DISABLE": "1"},  # compiling takes longer than the rest
        )
    return READERS[library, name]


def theirs(library: str, name: str, folder: Path, out: Path) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Dequantized weights by layer, and greedy tokens, as `library` in environment `name` makes them of `folder`."""
    reader = reader_of(library, name)
    assert reader.stdin is not None
    assert reader.stdout is not None
    order = {"folder": str(folder), "out": str(out), "prompt": token_ids(folder, PROMPT), "new_tokens": NEW_TOKENS}
    reader.stdin.write(json.dumps(order) + "\n")
    reader.stdin.flush()
    answer = json.loads(reader.stdout.readline())
    assert "error" not in answer, answer["error"][-3000:]
    found = load_file(out)
    return found, found.pop("tokens").tolist()


def ours(folder: Path, dtype: str) -> tuple[dict[str, torch.Tensor], list[int]]:
    """The same, by qualgate's own readers and engine."""
    weights = {name: dequantize_torch(layer.weight) for name, layer in read_quantized(folder).layers.items()}
    arm = load_arm(ArmSpec(name="variant", model=str(folder), dtype=dtype), folder, {}, device="cpu")
    ids = torch.tensor([token_ids(folder, PROMPT)])
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            ids = torch.cat([ids, arm.model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return weights, ids[0].tolist()


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], rounding: float) -> None:
    """rounding: of the library's arithmetic, relative to the largest weight: it dequantizes in half precision."""
    assert set(left) == set(right)
    for name in left:
        error = (left[name] - right[name]).abs().max() / right[name].abs().max()
        assert error <= rounding, f"{name}: {error:.2g}"


FLOAT16, BFLOAT16 = 2**-10, 2**-7


def rewrite_settings(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    for name in ("config.json", "quantize_config.json"):
        settings = json.loads((folder / name).read_text())
        change(settings.get("quantization_config", settings))
        (folder / name).write_text(json.dumps(settings))


def say_that_gptqmodel_made(folder: Path) -> None:
    """gptqmodel loads asymmetric v1 folders only of its own make, as AutoGPTQ damaged theirs. Ours are whole."""
    rewrite_settings(folder, lambda settings: settings.update(meta={"quantizer": ["gptqmodel:7.6.0"]}))


# ------------------------------------------------------------------------------------- ours load in theirs


@pytest.fixture
def calibration(tmp_path: Path) -> str:
    write_set(tmp_path, "calibration", LINES, CALIBRATION)
    return "./calibration.yaml"


OURS = [
    ("gptq", {"method": "gptq", "group_size": GROUP}),
    ("gptq", {"method": "gptq", "group_size": GROUP, "symmetric": False}),
    ("gptq", {"method": "gptq", "group_size": GROUP, "act_order": True}),
    ("gptq", {"method": "gptq", "group_size": GROUP, "act_order": "static"}),
    ("gptq", {"method": "gptq", "group_size": 0}),
    ("gptq", {"method": "gptq", "group_size": GROUP, "bits": 8}),
    ("gptq", {"method": "gptq", "group_size": GROUP, "bits": 3}),
    ("gptq", {"method": "gptq", "group_size": GROUP, "bits": 2}),
    ("gptq_v2", {"method": "gptq", "group_size": GROUP}),
    ("gptq_v2", {"method": "gptq", "group_size": GROUP, "symmetric": False}),
    ("gptq_v2", {"method": "gptq", "group_size": GROUP, "symmetric": False, "bits": 3, "act_order": True}),
    ("gptq_v2", {"method": "gptq", "group_size": GROUP, "symmetric": False, "bits": 8}),
    ("gptq_v2", {"method": "gptq", "group_size": GROUP, "symmetric": False, "bits": 2}),
    ("gptq", {"method": "gptq", "group_size": GROUP, "keep": {"down_proj": "int8", "v_proj": "fp16"}}),
    ("awq", {"method": "awq", "group_size": GROUP}),
    ("awq", {"method": "awq", "group_size": GROUP, "symmetric": True}),
    ("awq", {"method": "awq", "group_size": GROUP, "keep": {"down_proj": "fp16"}}),
    ("compressed-tensors", {"method": "gptq", "group_size": GROUP}),
    ("compressed-tensors", {"method": "gptq", "group_size": GROUP, "symmetric": False}),
    ("compressed-tensors", {"method": "int8"}),
    ("compressed-tensors", {"method": "smoothquant"}),
    ("compressed-tensors", {"method": "fp8"}),
    ("compressed-tensors", {"method": "fp8", "granularity": "block"}),
    ("compressed-tensors", {"method": "nvfp4"}),
    ("compressed-tensors", {"method": "mxfp4"}),
]


@pytest.mark.parametrize(
    ("format", "words"), OURS, ids=[f"{format}-{'-'.join(map(str, words.values()))}" for format, words in OURS]
)
def test_what_qualgate_made_gives_the_same_weights_and_text_in_the_library(format, words, model, calibration, tmp_path):
    name = "llmcompressor" if format == "compressed-tensors" else "gptqmodel"
    environment(name)
    if words["method"] in ("gptq", "awq", "smoothquant"):
        words = {**words, "calibration": calibration}
    made = tmp_path / "made"
    quantize(Order(model=model, recipe=parse_recipe(words), out=made, format=format, relative_to=tmp_path))
    library = "transformers" if format == "compressed-tensors" else "gptqmodel"
    if format == "gptq" and words.get("symmetric") is False:
        say_that_gptqmodel_made(made)
    weights, tokens = theirs(library, name, made, tmp_path / "read.safetensors")
    fours = "fp4" in words["method"]
    own, text = ours(made, "bfloat16" if fours else "float32")
    assert_same(own, weights, BFLOAT16 if fours else FLOAT16)
    assert text == tokens


def test_gptqmodel_still_refuses_asymmetric_v1_of_others(model, calibration, tmp_path):
    """When this fails, the test above needs its detour no longer, and the model card its remark."""
    environment("gptqmodel")
    words = {"method": "gptq", "group_size": GROUP, "symmetric": False, "calibration": calibration}
    quantize(Order(model=model, recipe=parse_recipe(words), out=tmp_path / "made", format="gptq", relative_to=tmp_path))
    with pytest.raises(AssertionError, match="only supported if produced by gptqmodel version"):
        theirs("gptqmodel", "gptqmodel", tmp_path / "made", tmp_path / "read.safetensors")


# ------------------------------------------------------------------------------------- theirs load in ours


@pytest.mark.parametrize(
    ("backend", "recipe"),
    [
        ("gptqmodel", QuantizeRecipe(method="gptq", bits=4, group_size=GROUP)),
        ("gptqmodel", QuantizeRecipe(method="gptq", bits=4, group_size=GROUP, act_order="group", symmetric=False)),
        ("gptqmodel", QuantizeRecipe(method="gptq", bits=4, group_size=GROUP, act_order="static")),
        ("gptqmodel", QuantizeRecipe(method="gptq", bits=8, group_size=GROUP)),
        ("gptqmodel", QuantizeRecipe(method="gptq", bits=2, group_size=GROUP, symmetric=False)),
        ("gptqmodel", QuantizeRecipe(method="awq", bits=4, group_size=GROUP, symmetric=False)),
        ("llmcompressor", QuantizeRecipe(method="gptq", bits=4, group_size=GROUP)),
        ("llmcompressor", QuantizeRecipe(method="gptq", bits=4, group_size=GROUP, symmetric=False)),
        ("llmcompressor", QuantizeRecipe(method="awq", bits=4, group_size=GROUP, symmetric=False)),
        ("llmcompressor", QuantizeRecipe(method="smoothquant", group_size=0, activations="int8")),
        ("llmcompressor", QuantizeRecipe(method="fp8", group_size=0)),
        ("llmcompressor", QuantizeRecipe(method="fp8", group_size=0, activations="fp8")),
        ("llmcompressor", QuantizeRecipe(method="fp8", group_size=0, granularity="block")),
        ("llmcompressor", QuantizeRecipe(method="nvfp4", group_size=16)),
        ("llmcompressor", QuantizeRecipe(method="mxfp4", group_size=32)),
        ("auto-gptq", QuantizeRecipe(method="gptq", bits=4, group_size=GROUP)),
        ("auto-gptq", QuantizeRecipe(method="gptq", bits=4, group_size=GROUP, act_order="group")),
        ("autoawq", QuantizeRecipe(method="awq", bits=4, group_size=GROUP, symmetric=False)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.label.replace(" ", "-"),
)
def test_what_a_library_made_gives_the_same_weights_and_text_here(backend, recipe, model, tmp_path):
    """auto-gptq and autoawq generate on no CPU as they stand; gptqmodel, their successor, reads both formats."""
    texts = [token_ids(model, line) for line in LINES]
    made = run_backend(environment(backend), backend_job(backend, model, recipe, texts, tmp_path / "made")).folder
    fours = recipe.method in ("nvfp4", "mxfp4")
    own, text = ours(made, "bfloat16" if fours else "float32")
    if backend == "auto-gptq":  # gptqmodel refuses a key that only auto-gptq writes
        rewrite_settings(made, lambda settings: settings.pop("is_marlin_format", None))
    library, name = ("transformers", backend) if backend == "llmcompressor" else ("gptqmodel", "gptqmodel")
    weights, tokens = theirs(library, name, made, tmp_path / "read.safetensors")
    assert_same(own, weights, BFLOAT16 if fours else FLOAT16)
    assert text == tokens
