"""How often the evidence of one comparison of two servers would have shown a planted difference.

Let B's law have the likelihood ratio w to A's. Given all answers to a prompt, the chance that a set S of
them is B's is then proportional to the product of w over S. So labels are drawn by such weights over the very answers
at hand, and the share of draws in which a test rejects is its power, given this comparison's own noise. A shift draws
w: at each place where answers part, the logits of the tokens seen there move by normal noise, or all are divided by a
temperature. The shares of the answers stand for the tokens' probabilities, which tokens not seen lack: planted noise
is found less often than the same noise on the logits of a sampler (0.30 for 0.51 in the tests).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from qualgate.stats.endpoints import Drawn, Forest, Tree, between, compare_endpoints, permuted
from qualgate.stats.laws import difference, far_and_sharp

DRAWS = 200  # planted differences
INNER = 79  # permutations of the log-probs' test for each; more for a level below 0.025
STEEPEST = 20.0  # nats of log w beside its prompt's mean: keeps products of weights within floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A planted difference. noise: nats, of each logit; temperature: of B beside A; swapped: B answers other prompts.
    nats: by which B's log-probs differ, root mean square."""

    noise: float = 0.0
    temperature: float = 1.0
    swapped: bool = False
    nats: float = 0.0


def chances(
    prompts: Sequence[Drawn], forest: Forest, alpha: float, shifts: Mapping[str, Shift], seed: int = 0
) -> dict[str, float]:
    """Return how often the tests find each shift. forest: of the comparison of these prompts."""
    generator, level, rates = np.random.default_rng(seed), forest.apart.each, {}
    for name, shift in shifts.items():
        if shift.swapped:
            pairs = zip(prompts, [*prompts[1:], *prompts[:1]], strict=True)
            swapped = [replace(drawn, b=other.b, b_logprobs=other.b_logprobs) for drawn, other in pairs]
            rates[name] = float(compare_endpoints(swapped, alpha, seed).apart.different)
            continue
        hits = _answers_differ(forest, shift, level, generator)
        if forest.apart.p_logprobs is not None:
            hits |= _logprobs_differ(forest, shift, level, generator)
        rates[name] = float(hits.mean())
    return rates


def _planted(tree: Tree, shift: Shift, generator: np.random.Generator) -> NDArray:
    """Labels drawn as if B had the shift: [DRAWS, answers], 1 for A's."""
    log_ratio = np.zeros((DRAWS, tree.given.shape[1]))
    for branches in tree.forks:
        share = np.array([len(those) for those in branches], float)
        share /= share.sum()
        move = shift.noise * generator.standard_normal((DRAWS, len(branches)))
        move += (1 / shift.temperature - 1) * np.log(share)
        move -= np.log(np.exp(move) @ share)[:, None]
        for column, those in enumerate(branches):
            log_ratio[:, those] += move[:, [column]]
    return 1 - _weighted_sets(log_ratio, log_ratio.shape[1] - tree.first, generator)


def _weighted_sets(log_weights: NDArray, size: int, generator: np.random.Generator) -> NDArray:
    """Draw sets of `size` with chances proportional to the product of their weights (conditional Bernoulli sampling).

    log_weights: [draws, items]. Returns 1 for the members, [draws, items].
    """
    draws, items = log_weights.shape
    weights = np.exp(np.clip(log_weights - log_weights.mean(1, keepdims=True), -STEEPEST, STEEPEST))
    sums = np.zeros((items + 1, size + 1, draws))  # elementary symmetric sums of the items from each on
    sums[:, 0] = 1.0
    for item in reversed(range(items)):
        sums[item, 1:] = sums[item + 1, 1:] + weights[:, item] * sums[item + 1, :-1]
    left, rows, members = np.full(draws, size), np.arange(draws), np.zeros((draws, items))
    for item in range(items):
        chance = weights[:, item] * sums[item + 1, np.maximum(left - 1, 0), rows] / sums[item, left, rows]
        members[:, item] = (left > 0) & (generator.random(draws) < chance)
        left -= members[:, item].astype(int)
    return members


def _answers_differ(forest: Forest, shift: Shift, level: float, generator: np.random.Generator) -> NDArray:
    """Whether the test of the answers finds each draw of the shift."""
    far, sharp = np.zeros((2, DRAWS))
    for tree in forest.trees:
        parts, tree_sharp = far_and_sharp(tree.sets, _planted(tree, shift, generator))
        far, sharp = far + parts.sum(1), sharp + tree_sharp
    uniform = len(forest.sums[0])
    values = difference(np.concatenate([forest.sums[0], far]), np.concatenate([forest.sums[1], sharp]), uniform=uniform)
    at_least = (values[:uniform, None] >= values[None, uniform:] - 1e-9).sum(0)
    return (1 + at_least) / (1 + uniform) <= level


def _logprobs_differ(forest: Forest, shift: Shift, level: float, generator: np.random.Generator) -> NDArray:
    """Whether the test of the log-probs finds each draw of the shift, which moves B's log-probs."""
    inner = max(INNER, ceil(2 / level) - 1)
    values = np.zeros((DRAWS, inner + 1))
    for tree in forest.trees:
        noise = _own_noise(tree, forest.apart.noise, generator)
        for draw, own in enumerate(_planted(tree, shift, generator)):
            moves = shift.nats * generator.standard_normal((len(tree.given), 1))
            nats = noise + tree.given * moves * (1 - own)
            values[draw] += between(tree.given, nats, permuted(own, inner, generator))[0]
    return (values >= values[:, :1] * (1 - 1e-9)).mean(1) <= level


def _own_noise(tree: Tree, noise: Sequence[float], generator: np.random.Generator) -> NDArray:
    """Return the log-probs less their own server's mean; where it gave a token once, drawn from its noise elsewhere."""
    total, of_a = np.zeros_like(tree.nats), np.arange(tree.given.shape[1]) < tree.first
    for label, size in zip((of_a, ~of_a), noise, strict=True):
        members = tree.given * label
        count = members.sum(1, keepdims=True)
        mean = (tree.nats * members).sum(1, keepdims=True) / np.maximum(count, 1)
        spread = np.sqrt(count / np.maximum(count - 1, 1))  # a mean takes a part of the noise of few
        alone = size * generator.standard_normal(members.shape)
        total += members * np.where(count > 1, (tree.nats - mean) * spread, alone)
    return total
