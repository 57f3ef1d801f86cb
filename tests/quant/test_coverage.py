"""The coverage numbers of calibration sets, each against an independent numpy implementation."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from qualgate.errors import UsageError
from qualgate.quant.activation_coverage import activation_coverage
from qualgate.quant.coverage import LEAST_CASES, NOT_APPLICABLE, measure_coverage, sample
from qualgate.quant.text_coverage import Reading, leakage, ngram_coverage, strata_coverage, words_of


class Toy(nn.Module):
    """Two linear layers over embedded tokens, called as a language model is."""

    def __init__(self, width: int = 6, vocabulary: int = 11) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(vocabulary, width)
        self.first, self.second = nn.Linear(width, 4), nn.Linear(4, 3)

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> torch.Tensor:
        return self.second(torch.tanh(self.first(self.embedding(input_ids))))

    def inputs(self, texts: list[list[int]]) -> dict[str, np.ndarray]:
        """What enters each layer, by site, [tokens, in_features]."""
        with torch.no_grad():
            x = self.embedding(torch.tensor([token for text in texts for token in text]))
            return {"first": x.double().numpy(), "second": torch.tanh(self.first(x)).double().numpy()}


def reading(token_ids: list[int], *, words: str = "", task: str = "t", name: str = "", **more) -> Reading:
    return Reading(
        id=name or str(token_ids), task=task, token_ids=tuple(token_ids), words=words_of([words]),
        content=str((token_ids, words)), **more,
    )  # fmt: skip


def texts(seed: int, count: int, tokens: range = range(11)) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.choice(list(tokens), size=int(rng.integers(1, 9))).tolist() for _ in range(count)]


# ------------------------------------------------------------------------------------------ activations


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_range_outliers_energy_and_centroid_are_what_numpy_makes_of_the_activations(seed):
    model = Toy()
    k, t = texts(seed, 5, range(7)), texts(seed + 10, 9)
    found = activation_coverage(model, ["first", "second"], k, t)
    everywhere = []
    for site in found.sites:
        a, b = model.inputs(k)[site.site], model.inputs(t)[site.site]
        m = np.abs(a).max(0)
        within = np.abs(b) <= m * (1 + 1e-5)  # the same token, read in another batch, is not outside
        everywhere.append(within.mean(0))
        assert site.range == pytest.approx(within.mean())
        assert site.range_p1 == pytest.approx(np.percentile(within.mean(0), 1))
        excess = np.maximum(0, np.abs(b) - m)
        assert site.clipped_energy == pytest.approx((excess**2).sum() / (b**2).sum(), abs=1e-9)
        peak = np.abs(b).max(0)
        w = np.maximum(0, peak - np.median(peak))
        assert site.outliers == pytest.approx(w[m >= 0.9 * peak].sum() / w.sum())
        spread = np.sqrt(((b - b.mean(0)) ** 2).sum(1).mean())
        assert site.centroid_distance == pytest.approx(np.linalg.norm(a.mean(0) - b.mean(0)) / spread, rel=1e-5)
        assert (site.calibration_tokens, site.traffic_tokens) == (len(a), len(b))
    assert found.range_p1 == pytest.approx(np.percentile(np.concatenate(everywhere), 1))


def test_traffic_that_calibration_holds_whole_is_covered_whole():
    found = activation_coverage(Toy(), ["first"], texts(1, 6), texts(1, 6)).sites[0]
    assert (found.range, found.range_p1, found.clipped_energy, found.outliers) == (1, 1, 0, 1)
    assert found.centroid_distance == 0


def test_a_channel_that_calibration_never_drove_is_found():
    model = Toy()
    with torch.no_grad():
        model.embedding.weight[10, 2] = 50.0  # a token that calibration does not hold
    site = activation_coverage(model, ["first"], texts(1, 20, range(10)), [[1, 2, 10], [3]]).sites[0]
    assert site.outliers < 0.1
    assert site.range < 1
    assert site.clipped_energy > 0.5
    assert site.centroid_distance > 0.3


def test_one_token_and_a_constant_channel_give_numbers_or_none_never_nan():
    model = Toy()
    with torch.no_grad():
        model.embedding.weight[:, 0] = 3.0
    site = activation_coverage(model, ["first"], [[1]], [[1]]).sites[0]
    assert (site.range, site.clipped_energy, site.centroid_distance) == (1, 0, 0)
    with torch.no_grad():
        model.embedding.weight[:] = 2.0  # every channel alike: none stands out, and nothing spreads
    site = activation_coverage(model, ["first"], [[1]], [[2, 3]]).sites[0]
    assert (site.range, site.outliers, site.centroid_distance) == (1, None, 0)
    with torch.no_grad():
        model.embedding.weight[:] = 0.0
    assert activation_coverage(model, ["first"], [[1]], [[2]]).sites[0].clipped_energy is None


def test_empty_sides_have_no_numbers_and_unreached_sites_are_not_covered():
    none = activation_coverage(Toy(), ["first"], [[1]], [])
    assert (none.range_p1, none.sites[0].range, none.sites[0].traffic_tokens) == (None, None, 0)
    unseen = activation_coverage(Toy(), ["first"], [[]], [[1, 2]]).sites[0]
    assert (unseen.calibration_tokens, unseen.range, unseen.outliers, unseen.centroid_distance) == (0, 0, 0, None)
    assert unseen.clipped_energy == 1


def test_an_activation_that_is_no_number_is_named():
    model = Toy()
    with torch.no_grad():
        model.first.weight[0, 0] = float("nan")
    with pytest.raises(UsageError, match="The input of second is NaN or infinite"):
        activation_coverage(model, ["first", "second"], [[1]], [[1]])
    assert not model.first._forward_pre_hooks  # the model is left as it was


# ------------------------------------------------------------------------------------------------ texts


@pytest.mark.parametrize("seed", [1, 2])
def test_ngram_shares_count_repeats_and_never_cross_two_cases(seed):
    k, t = texts(seed, 6, range(5)), texts(seed + 5, 8, range(7))
    found = ngram_coverage([reading(text) for text in k], [reading(text) for text in t])
    for n in (1, 2, 3):
        known = [" ".join(map(str, text[i : i + n])) for text in k for i in range(len(text) - n + 1)]
        met = [" ".join(map(str, text[i : i + n])) for text in t for i in range(len(text) - n + 1)]
        assert found.share[n - 1] == pytest.approx(np.isin(met, known).mean())
        _, counts = np.unique(known, return_counts=True)
        assert found.unseen[n - 1] == pytest.approx((counts == 1).sum() / counts.sum())


def test_texts_too_short_for_an_ngram_have_no_share():
    found = ngram_coverage([reading([1])], [reading([1])])
    assert found.share == (1.0, None, None)
    assert found.unseen == (1.0, None, None)
    assert ngram_coverage([], []).share == (None, None, None)


def test_strata_compare_shares_of_task_language_length_and_tools():
    k = [reading([1] * 4, task="a")] * 30 + [reading([1] * 4, task="b")] * 10
    t = [reading([1] * 4, task="a")] * 50 + [reading([1] * 4, task="b")] * 50
    found = strata_coverage(k, t)
    assert found.strata == 2
    assert found.min_ratio == pytest.approx((10 / 40) / (50 / 100))
    assert found.least_covered == "b / - / <=4 / -"
    p, q = np.array([30, 10]) / 40, np.array([50, 50]) / 100
    middle = (p + q) / 2
    expected = (p * np.log(p / middle)).sum() / 2 + (q * np.log(q / middle)).sum() / 2
    assert found.divergence == pytest.approx(expected)
    assert found.tools is None


@pytest.mark.parametrize(
    "other",
    [{"task": "b"}, {"language": "de"}, {"tools": ("book(n)",)}, {"token_ids": (1,) * 40}],
    ids=["task", "language", "tools", "length"],
)
def test_a_stratum_that_calibration_lacks_has_ratio_0_whatever_sets_it_apart(other):
    plain = reading([1] * 4, task="a")
    apart = replace(plain, **other)
    found = strata_coverage([plain] * 20, [plain] * 10 + [apart] * 10)
    assert found.min_ratio == 0
    assert found.divergence > 0.2
    disjoint = strata_coverage([plain] * 20, [apart] * 10)
    assert disjoint.divergence == pytest.approx(math.log(2))


def test_rare_strata_are_pooled_by_task_and_then_all_together():
    common = [reading([1] * 4, task="a")] * 80
    odd = [reading([1] * 4, task="b", tools=(f"tool{index}",)) for index in range(18)]  # one task, each its own tools
    strays = [reading([1] * 4, task=task) for task in ("c", "d")]
    k = [reading([1] * 4, task="a")] * 32 + [reading([1] * 4, task="b", tools=("tool99",))] * 8
    found = strata_coverage(k, common + odd + strays)
    assert found.strata == 3  # a; b with whatever tools; the rest, which K lacks
    assert found.least_covered == "(rarer)"
    found = strata_coverage(k, common + odd)
    assert found.min_ratio == pytest.approx(0.8 / (80 / 98))
    assert found.tools == 0  # no schema that traffic offers was in K


def test_leakage_is_13_words_in_a_row_or_the_same_case():
    text = [f"w{index}" for index in range(30)]
    k = [reading([1], words=" ".join(text[:20]))]
    assert leakage(k, [reading([2], words=" ".join(text[8:20]) + " x")]).grams == 0  # 12 in a row
    found = leakage(k, [reading([2], words="x " + " ".join(text[7:20]).upper() + "!", name="bad"), reading([3])])
    assert (found.grams, found.cases, found.same) == (1, ("bad",), 0)  # neither signs nor letter case hide it
    assert leakage(k, [reading([2], words=" ".join(text[2:20]))]).grams == 6
    short = reading([5], words="two and two")
    assert leakage([short], [short]).same == 1
    assert leakage([short], [reading([6], words="two and two?", name="n")]).cases == ("n",)
    assert leakage([short], [reading([6], words="so two and two?")]).grams == 0
    assert leakage([reading([1])], [reading([2])]).grams == 0  # nothing said on either side


def test_scripts_without_spaces_are_counted_by_sign():
    assert words_of(["量子 Gate-2, 量"]) == ("量", "子", "gate", "2", "量")


# --------------------------------------------------------------------------------------------- together


def test_a_whole_measurement_is_json_with_a_flag_for_every_suggested_bound():
    k = [reading(text, words=f"k{index}") for index, text in enumerate(texts(1, 50))]
    t = [reading(text, words=f"t{index}") for index, text in enumerate(texts(2, 40))]
    found = measure_coverage(
        Toy(), ["first", "second"], k, [t], activation_tokens=20, about_calibration={"name": "c"}, about_traffic={}
    )
    plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert plain["status"] == "measured"
    for name, cases in (("calibration", k), ("traffic", t)):
        chosen, side = sample(cases, 20), plain[name]
        assert (side["cases"], side["tokens"]) == (len(cases), sum(len(case.token_ids) for case in cases))
        assert side["activation_cases"] == len(chosen) < len(cases)
        assert side["activation_tokens"] == sum(len(case.token_ids) for case in chosen) >= 20
        key = "calibration_tokens" if name == "calibration" else "traffic_tokens"
        assert {site[key] for site in plain["sites"]} == {side["activation_tokens"]}
    flags = {flag["name"]: flag for flag in plain["flags"]}
    assert set(flags) == {
        "range", "clipped_energy", "outlier_channels", "unigrams", "smallest_stratum_ratio",
        "fewest_calibration_tokens_at_a_site", "leaked_13_grams",
    }  # fmt: skip
    assert flags["unigrams"]["met"] is (plain["ngrams"]["1"]["share"] >= 0.99)
    assert flags["leaked_13_grams"] == {"name": "leaked_13_grams", "value": 0, "bound": "<= 0", "met": True}
    assert plain["range"]["min"] == min(site["range"] for site in plain["sites"])
    assert plain["centroid_distance"]["max"] == max(site["centroid_distance"] for site in plain["sites"])
    empty = measure_coverage(Toy(), ["first"], [], [[]], activation_tokens=5, about_calibration={}, about_traffic={})
    assert {flag.met for flag in empty.flags if flag.value is None} == {None}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", ["range", "outliers", "clipped_energy"])
def test_a_site_whose_number_is_none_is_not_passed_over_for_the_others(name, place):
    k, t = ([reading(text) for text in texts(seed, 10)] for seed in (1, 2))
    found = measure_coverage(
        Toy(), ["first", "second"], k, [t], activation_tokens=20, about_calibration={}, about_traffic={}
    )
    sites = list(found.sites)
    sites[place] = replace(sites[place], **{name: math.nan})
    odd = replace(found, sites=tuple(sites))
    assert found.facts.keys() - odd.facts.keys() == {f"coverage.{name}"}


def test_a_direct_cast_has_no_coverage_and_does_not_pass_for_it():
    assert NOT_APPLICABLE["status"] == "not_applicable"
    assert "flags" not in NOT_APPLICABLE


def test_the_cases_run_through_the_model_are_spread_and_hold_the_tokens_asked_for():
    cases = [reading([index] * 3) for index in range(100)]
    assert [case.token_ids[0] for case in sample(cases, 10)] == [
        index * 100 // LEAST_CASES for index in range(LEAST_CASES)
    ]
    assert len(sample(cases, 3 * 40)) == 40
    assert sample(cases, 300) == sample(cases, 999) == cases
    assert sample([], 3) == []
    uneven = [reading([0] * 300), *(reading([index]) for index in range(1, 400))]
    assert sum(len(case.token_ids) for case in sample(uneven, 350)) >= 350
    assert len(sample(uneven, 300)) >= LEAST_CASES, "one long case is no sample"


def test_of_each_evalset_cases_are_run():
    k = [reading(text) for text in texts(1, 50)]
    long = [reading([1] * 40) for _ in range(60)]
    found = measure_coverage(
        Toy(), ["first"], k, [long, k[:5]], activation_tokens=20, about_calibration={}, about_traffic={}
    )
    assert found.traffic["activation_cases"] == LEAST_CASES + 5


def test_the_output_head_is_not_run():
    class Headed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_model = Toy()

        def forward(self, **_: torch.Tensor) -> torch.Tensor:
            raise AssertionError("the head was run")

    sites = activation_coverage(Headed(), ["base_model.first"], [[1]], [[2, 3]]).sites
    assert [(site.calibration_tokens, site.traffic_tokens) for site in sites] == [(1, 2)]
