"""Layers held for our own kernel: the same numbers back, a row's bits its own, a bfloat16 weight in two bytes."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from qualgate.engine import dense
from qualgate.engine.dense import DenseEmbedding, DenseLinear, head_of, lay_out, take_back
from qualgate.engine.dense_experts import DenseWeight
from qualgate.engine.row_check import apart, eager
from qualgate.records import QuantizeRecipe
from qualgate_kernels import cpu
from qualgate_kernels.dense import PreparedDense, prepare_dense
from tests.engine.tiny_architectures import VOCABULARY, another, quantized, tiny

pytestmark = pytest.mark.skipif(not cpu.path(), reason=cpu.available())
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "tie_word_embeddings": True}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear layers": ("qwen2", {}),
    "a tied head": ("llama", {"tie_word_embeddings": True}),
    "Conv1D": ("gpt2", GPT2),
    "experts": ("mixtral", EXPERTS),
    "experts turned, with biases": ("gpt_oss", {"head_dim": 16, **EXPERTS}),
}
TEXT = [[7, 77, 177, 7, 33]]


def bits(model: nn.Module) -> dict[str, Any]:
    """Every parameter, tied ones by each of their names, to the bit."""
    return {
        name: (parameter.dtype, tuple(parameter.shape), parameter.detach().view(torch.int32).tolist())
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }


def kinds(model: nn.Module) -> dict[str, type]:
    return {name: type(module) for name, module in model.named_modules()}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_laid_out_gives_the_same_logits_and_comes_back_to_the_bit(name):
    arch, more = MODELS[name]
    model = tiny(arch, **more)
    if name == "linear layers":  # numbers that float16 holds
        model = model.half().float()
    before, were, expected = bits(model), kinds(model), eager(another(model), TEXT)
    assert lay_out(model) == ""
    assert not {kind for kind in kinds(model).values() if issubclass(kind, nn.Linear | nn.Embedding | Conv1D)}
    assert not any(parameter.dim() > 1 for name, parameter in model.named_parameters() if "bias" not in name)
    assert apart(eager(model, TEXT)[0], expected[0]) < 1e-5
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = name in ("a tied head", "Conv1D")
    assert (getattr(embedding, "head", None) is head) is tied, "a tied weight is held once"
    assert torch.equal(embedding(torch.tensor([[3, 0], [259, 3]])), embedding.weight[[3, 0, 259, 3]].view(2, 2, -1))
    take_back(model)
    assert kinds(model) == were
    assert bits(model) == before
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) is tied
    assert not [name for name, _ in model.named_buffers() if name.endswith(("values", "rows", "_0"))]
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_bfloat16_weight_takes_two_bytes_a_number_and_comes_back_to_the_bit(name):
    arch, more = MODELS[name]
    whole = {"vocab_size": 256, "intermediate_size": 128, "num_key_value_heads": 4}  # blocks of 64 are full
    model = tiny(arch, **(more | whole)).bfloat16().float()
    before = bits(model)
    matrices = {name: one for name, one in model.named_parameters() if one.dim() > 1 and "bias" not in name}
    others = {name: one for name, one in model.named_parameters() if name not in matrices} | dict(model.named_buffers())
    assert lay_out(model) == ""
    held = {one.data_ptr(): one.nbytes for one in (*model.parameters(), *model.buffers())}
    routers = 2 * 2 * 64 * 64  # whose four rows take a block of 64
    numbers, small = sum(one.numel() for one in matrices.values()), sum(one.nbytes for one in others.values())
    assert sum(held.values()) <= 2 * numbers + small + (routers if "experts" in name else 0)
    take_back(model)
    assert bits(model) == before


def test_layers_are_laid_out_one_at_a_time(monkeypatch):
    """Or a model would be held twice meanwhile."""
    model, alive = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6))), []
    weights = [weakref.ref(layer.weight) for layer in model]

    def counted(weight: torch.Tensor) -> PreparedDense | str:
        alive.append(sum(one() is not None for one in weights))
        return prepare_dense(weight)

    monkeypatch.setattr(dense, "prepare_dense", counted)
    assert lay_out(model) == ""
    assert alive == [6, 5, 4, 3, 2, 1]


def test_a_layer_in_two_places_and_a_weight_of_two_layers_are_held_once():
    one, other = nn.Linear(16, 16), nn.Linear(16, 16)
    other.weight = one.weight
    model: Any = nn.Sequential(one, other, one)
    x = torch.randn(3, 16)
    expected = [layer(x) for layer in model]
    assert lay_out(model) == ""
    assert all(isinstance(layer, DenseLinear) for layer in model)
    assert len({layer.prepared.values.data_ptr() for layer in model}) == 1
    for layer, y in zip(model, expected, strict=True):
        torch.testing.assert_close(layer(x), y.detach())


def test_what_cannot_be_laid_out_is_named_and_all_of_it_taken_back():
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double())
    weight = model[0].weight.detach().clone()
    assert lay_out(model) == "1: the CPU kernels have no float64 weights"
    take_back(model)
    assert type(model[0]) is nn.Linear
    assert torch.equal(model[0].weight, weight)


def test_what_a_model_has_in_its_own_dtype_comes_back_in_float32_but_packed_scales_do_not():
    model = quantized(tiny("llama", attention_bias=True), QuantizeRecipe(method="int8", group_size=0))
    scales = model.model.layers[0].self_attn.q_proj.packed.scales
    for module in (model.lm_head, model.model.norm, model.model.rotary_emb):
        module.bfloat16()
    assert lay_out(model) == ""
    take_back(model)
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    assert scales.dtype == model.model.layers[0].self_attn.q_proj.packed.scales.dtype == torch.bfloat16


def linear(rows: int, columns: int, *, bias: bool) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(rows)
        return nn.Linear(columns, rows, bias=bias).requires_grad_(False)


def ours(layer: nn.Linear) -> DenseLinear:
    prepared = prepare_dense(layer.weight)
    assert isinstance(prepared, PreparedDense)
    return DenseLinear(prepared, layer.bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(33,), (1, 33), (7, 33), (2, 3, 33), (0, 33), (2, 0, 33)])
def test_a_linear_layer_multiplies_any_rows_and_none(shape, bias):
    layer = linear(70, 33, bias=bias)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = ours(layer)(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), layer.double()(x.double()), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        ours(linear(70, 33, bias=bias))(x.bfloat16()), ours(linear(70, 33, bias=bias))(x.bfloat16().float()).bfloat16()
    )


def test_a_rows_product_is_its_own_and_a_laid_out_layer_says_what_it_is():
    layer, x = linear(70, 33, bias=True), torch.randn(40, 33)
    found = ours(layer)
    assert torch.equal(found(x), torch.cat([found(row[None]) for row in x]))
    assert torch.equal(found(x.T.contiguous().T), found(x))
    assert torch.equal(found.weight, layer.weight)
    assert (found.out_features, found.in_features) == (70, 33)
    assert repr(found) == "DenseLinear(33, 70, torch.float32)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_embedding_gives_the_rows_it_holds_narrowly(dtype):
    weight = torch.randn(50, 24).to(dtype)
    weight[0, 0] = 1 + 2**-7 if dtype == torch.bfloat16 else 1 + 2**-10 if dtype == torch.float16 else 1 + 2**-20
    found = DenseEmbedding(weight.float())
    assert found.get_buffer("rows").dtype == dtype
    assert torch.equal(DenseEmbedding(weight).get_buffer("rows"), weight)
    ids = torch.tensor([[3, 3, 49], [0, 1, 2]])
    assert torch.equal(found(ids), weight.float()[ids])
    assert torch.equal(found.weight, weight.float())
    assert found(torch.zeros(1, 0, dtype=torch.long)).shape == (1, 0, 24)


@pytest.mark.parametrize("bias", [False, True])
def test_a_head_is_made_of_its_tensors(bias):
    layer, x = linear(VOCABULARY, 64, bias=bias), torch.randn(3, 64)
    tensors = {"weight": layer.weight, **({"bias": layer.bias} if bias else {})}
    assert torch.equal(head_of(tensors)(x), ours(layer)(x))
    wide = head_of({name: tensor.double() for name, tensor in tensors.items()})
    assert torch.equal(wide(x.double()), layer.double()(x.double()))


def experts(*, turned: bool) -> tuple[torch.Tensor, DenseWeight]:
    whole = torch.randn(3, 20, 30, generator=torch.Generator().manual_seed(2))
    prepared = [prepare_dense(one.T if turned else one) for one in whole]
    assert all(isinstance(one, PreparedDense) for one in prepared)
    return whole, DenseWeight(prepared, whole.shape, turned)


def test_an_experts_weight_is_multiplied_where_torch_would():
    x = torch.randn(5, 30)
    whole, weight = experts(turned=False)
    for expert in (0, 2, torch.tensor(1)):
        expected = x @ whole[expert].T
        torch.testing.assert_close(nn.functional.linear(x, weight[expert]), expected)
        torch.testing.assert_close(nn.functional.linear(x, weight[expert].float(), torch.ones(20)), expected + 1)
        torch.testing.assert_close(nn.functional.linear(x, weight[expert], bias=torch.ones(20)), expected + 1)
        assert nn.functional.linear(x[:0], weight[expert]).shape == (0, 20)
    whole, weight = experts(turned=True)
    torch.testing.assert_close(x[:, :20] @ weight[1], x[:, :20] @ whole[1])
    torch.testing.assert_close(torch.matmul(x[:, :20], weight[1]), x[:, :20] @ whole[1])
    assert torch.equal(weight.numbers(), whole)
    assert (weight.shape, weight[0].shape) == ((3, 20, 30), (20, 30))


@pytest.mark.parametrize(
    "use",
    [
        lambda x, weight: nn.functional.linear(x, weight),  # of all experts at once
        lambda x, weight: x @ weight[0],  # which is not turned
        lambda x, weight: torch.bmm(x[None], weight),
        lambda x, weight: weight[0][0],
        lambda x, weight: weight.type(torch.bfloat16),
        lambda x, weight: x + weight[0],
    ],
)
def test_what_is_no_product_with_an_expert_is_refused(use):
    with pytest.raises(TypeError):
        use(torch.randn(5, 30), experts(turned=False)[1])
