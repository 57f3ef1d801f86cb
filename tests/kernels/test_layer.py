"""What lies between the products of a decoder's layer: each step by its definition, and a pass as nothing but them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from qualgate_kernels import cpu
from qualgate_kernels.activations import round_tokens_torch
from tests.kernels.layer_rows import Steps, steps
from tests.kernels.plain_decoders import UNIT

FLOATS = st.floats(-(2**60), 2**60, width=32)
ANY = st.floats(width=32)


@pytest.fixture(scope="module")
def every(tmp_path_factory) -> dict[str, Steps]:
    found = steps(tmp_path_factory.mktemp("layer"))
    if not found or not cpu.paths():
        pytest.skip("no C compiler, or the kernels were not compiled here")
    return found


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Zeros' signs too; a NaN for a NaN."""
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(
        one.nan_to_num(7.0, math.inf, -math.inf).view(torch.int32),
        other.nan_to_num(7.0, math.inf, -math.inf).view(torch.int32),
    )


def rows(elements: st.SearchStrategy[float], sizes: st.SearchStrategy[int]) -> st.SearchStrategy[torch.Tensor]:
    return sizes.flatmap(lambda size: st.lists(elements, min_size=size, max_size=size)).map(torch.tensor)


@given(rows(ANY, st.integers(1, 70)))
@example(torch.zeros(5))
@example(torch.tensor([0.0, -0.0]))
@example(torch.tensor([math.nan, 1.0, math.inf]))
@example(torch.tensor([1.0, math.nan]))
@example(torch.tensor([math.inf, 1.0, -2.0]))
@example(torch.tensor([3e38, 1e38, 1.0]))
@example(torch.tensor([1e-45, 0.0]))  # whose scale is 0, though it is not
@example(torch.tensor([2e-43, 1e-43, -2e-43, 1e-45]))  # whose scale is rounded a lot: more than 127 steps
@example(-torch.arange(256) / 2)  # halves
@example(torch.cat([torch.arange(256) / 2 + 0.25, torch.tensor([127.5, -127.5])]))
def test_codes_are_those_of_the_twin_to_the_bit(every, x):
    codes, scales = round_tokens_torch(x[None], "int8")
    for path, step in every.items():
        found, scale = step.codes(x)
        assert same(scale, scales[0, 0]), path
        if x.isfinite().all():
            assert torch.equal(found, codes[0]), path
        else:  # sums times a scale that is not finite: infinite where codes are not 0, else NaN
            assert torch.equal(found[x.isfinite()], codes[0][x.isfinite()]), path
            assert not (scale * found).isfinite().any()


def test_every_half_between_two_codes_goes_to_the_even_one(every):
    halves = torch.arange(-128, 128) + 0.5
    x = torch.cat([halves, halves - 2**-17, halves + 2**-17]).clamp(-127.5, 127.5)
    for path, step in every.items():
        codes, scale = step.codes(x)
        assert scale == 1, path
        assert codes.tolist() == [max(-128, min(127, round(number))) for number in x.tolist()], path


@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_every_number_goes_to_the_nearest_of_a_dtype_and_halves_to_the_even_one(every, stored):
    """Every number of the dtype, what lies halfway to the next, and the floats beside both; as torch rounds."""
    dtype = getattr(torch, stored)
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    bits = numbers.view(torch.int32)
    half = (bits + (2**15 if stored == "bfloat16" else 2**12)).view(torch.float32)
    beside = [(one.view(torch.int32) + by).view(torch.float32) for one in (numbers, half) for by in (-1, 1)]
    tiny, large = torch.arange(-64, 64) * 2.0**-30, torch.tensor([65504.0, 65519.99, 65520.0, 1e6, 3.4e38])
    x = torch.cat([numbers, half, *beside, tiny, large])
    x = torch.cat([x, x.new_zeros(-len(x) % 16)])
    for path, step in every.items():
        assert same(replace(step, stored=stored).rounded(x), x.to(dtype).float()), path
        assert same(step.rounded(x), x), path


@pytest.mark.parametrize("stored", ["bfloat16", "float16"])
def test_steps_round_what_a_server_stores_and_nothing_else(every, stored):
    """A norm before its weights and with them, a gate before its product; sums with what is added to them."""
    generator, dtype = torch.Generator().manual_seed(7), getattr(torch, stored)

    def held(numbers: torch.Tensor) -> torch.Tensor:
        return numbers.to(dtype).float()

    x, weight, up, added, bias = held(torch.randn(5, 64, generator=generator))
    for path, step in every.items():
        rounds, total = replace(step, stored=stored), held(x + held(added + bias))
        exact = step.norm(total, None, None, torch.ones(64), 1e-5)[1]
        assert torch.equal(rounds.norm(x, added, bias, weight, 1e-5)[0], total), path
        assert torch.equal(rounds.norm(x, added, bias, weight, 1e-5)[1], held(held(exact) * weight)), path
        silu = step.gated(held(x + bias), None, torch.ones(64), None)
        assert torch.equal(rounds.gated(x, bias, up, bias), held(held(silu) * held(up + bias))), path
        angles = (held(weight[:16].cos()), held(weight[:16].sin()))
        turned = step.turn(held(x + bias), None, None, 0.0, *angles)
        assert torch.equal(rounds.turn(x, bias, None, 0.0, *angles), held(turned)), path


@given(rows(FLOATS, st.integers(1, 12).map(lambda count: 16 * count)), st.integers(0, 2**20), st.booleans())
def test_a_norm_errs_by_its_roundings_and_adds_as_float32_does(every, x, seed, biased):
    generator = torch.Generator().manual_seed(seed)
    added, bias, weight = (torch.randn(len(x), generator=generator) for _ in range(3))
    total = x + (added + bias if biased else added)
    exact = total.double() / (total.double().square().mean() + 1e-5).sqrt() * weight.double()
    for path, step in every.items():
        found, normed = step.norm(x, added, bias if biased else None, weight, 1e-5)
        assert same(found, total), path
        # Up to len(x) / 16 sums of each lane and 16 of lanes, squares, mean, eps: half, by the root; then 4 more.
        steps = (len(x) / 16 + 16 + 4) / 2 + 5
        assert bool(((normed.double() - exact).abs() <= steps * UNIT * exact.abs() + 1e-44).all()), path
        again, once_more = step.norm(total, None, None, weight, 1e-5)
        assert same(again, total)
        assert same(once_more, normed)


@given(
    st.sampled_from([16, 32, 48, 128]).flatmap(lambda dim: st.tuples(st.just(dim), st.integers(0, dim // 2))),
    st.integers(0, 2**20),
    st.booleans(),
    st.booleans(),
)
def test_a_head_is_turned_pair_by_pair(every, sizes, seed, biased, normed):
    (dim, half), generator = sizes, torch.Generator().manual_seed(seed)
    head, bias, weight = (torch.randn(dim, generator=generator) for _ in range(3))
    angles = 100 * torch.rand(half, generator=generator)
    cosine, sine = angles.cos(), angles.sin()
    for path, step in every.items():
        start = head + bias if biased else head
        if normed:
            start = step.norm(start, None, None, weight, 0.1)[1]
        left, right = start[:half].double(), start[half : 2 * half].double()
        turned = torch.complex(left, right) * torch.complex(cosine.double(), sine.double())
        exact = torch.cat([turned.real, turned.imag])
        found = step.turn(head, bias if biased else None, weight if normed else None, 0.1, cosine, sine)
        assert same(found[2 * half :], start[2 * half :]), path
        size = (left.abs() + right.abs()).repeat(2)
        assert bool(((found[: 2 * half].double() - exact).abs() <= 2 * UNIT * size + 1e-44).all()), path


@given(rows(st.floats(-200, 200, width=32) | FLOATS, st.sampled_from([16, 48])), st.integers(0, 2**20))
@example(torch.tensor([-87.0, -87.1, -86.9, -103, -1e30, -3e38, 1e30, 3e38] * 2), 0)
def test_a_gate_errs_by_four_ulp_however_far_it_is_from_zero(every, gate, seed):
    """e**-x within two, and four roundings of half a one; below -87, where the gate is 1e-38 of itself, it is 0."""
    generator = torch.Generator().manual_seed(seed)
    bias, up_bias = (torch.randn(len(gate), generator=generator) for _ in range(2))
    up = torch.rand(len(gate), generator=generator)
    for biases in ((None, None), (bias, up_bias)):
        g, u = (gate, up) if biases[0] is None else (gate + bias, up + up_bias)
        exact = g.double() / (1 + (-g.double()).exp()) * u.double()
        allowed = 8 * UNIT * exact.abs() + 2e-38 * (g * u).double().abs() + 1e-44
        for path, step in every.items():
            found = step.gated(gate, biases[0], up, biases[1])
            assert bool(((found.double() - exact).abs() <= allowed).all()), path


def test_gates_that_are_not_finite_stay_so_and_spoil_no_other(every):
    gate, up = torch.linspace(-3, 3, 32), torch.ones(32)
    for step in every.values():
        clean = step.gated(gate, None, up, None)
        for number in (math.nan, math.inf, -math.inf):
            spoilt = gate.clone()
            spoilt[5] = number
            found = step.gated(spoilt, None, up, None)
            assert not found[5].isfinite()
            assert same(torch.cat([found[:5], found[6:]]), torch.cat([clean[:5], clean[6:]]))
