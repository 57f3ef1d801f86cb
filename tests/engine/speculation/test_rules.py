"""Each rule on its own: what it says of a draft, with which probability, against the arithmetic done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import exp, log, prod
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.speculation import rules
from qualgate.engine.speculation.accept import Accepted
from qualgate.engine.speculation.rules import RULES
from qualgate.records.speculation import LOSSY
from qualgate.records.speculation import Rule as RuleName
from tests.verification.lossless.chances import law, total_variation

LOSSLESS = sorted(RULES.keys() - LOSSY)
weights = st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5, 7.0]), min_size=3, max_size=3).filter(any)


def rows(*some: Sequence[float]) -> torch.Tensor:
    """Probabilities in proportion to these."""
    numbers = torch.tensor(some, dtype=torch.float64)
    return numbers / numbers.sum(-1, keepdim=True)


P, Q = rows([0.5, 0.3, 0.2]), rows([0.2, 0.2, 0.6])
AFTER = rows([0.1, 0.2, 0.7])


def said(rule: str, target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None):
    """{(count, tokens): probability}"""
    return law(lambda chance: rest(RULES[rule](target, draft, drawn_from, chance)))


def rest(got: Accepted) -> tuple[int, tuple[int, ...]]:
    assert not got.ended
    return got.count, got.tokens


def test_every_rule_of_a_gate_file_is_here():
    assert set(RULES) == set(get_args(RuleName))
    assert set(RULES) >= LOSSY


@pytest.mark.parametrize("rule", RULES)
def test_without_a_draft_one_token_is_drawn_of_the_target(rule: str):
    found = said(rule, P, (), None)
    assert found == pytest.approx({(0, (token,)): p for token, p in enumerate(P[0].tolist())})


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("soft", [False, True])
def test_at_temperature_0_every_rule_says_the_likeliest_tokens(rule: str, soft: bool):
    target = rows([0, 1, 0], [0, 0, 1], [1, 0, 0])
    for draft in product(range(3), repeat=2):
        drawn_from = rows([1, 2, 3], [3, 1, 1]) if soft else None
        agreed = 2 if draft == (1, 2) else 1 if draft[0] == 1 else 0
        assert said(rule, target, draft, drawn_from) == {(agreed, (1, 2, 0)[: agreed + 1]): 1.0}


def test_speculative_sampling_by_hand():
    target = torch.cat([P, AFTER])
    kept = 0.2 / 0.6  # of token 2; what is left of p is .3 of token 0 and .1 of token 1
    found = said("speculative_sampling", target, (2,), Q)
    assert found == pytest.approx({
        (0, (0,)): (1 - kept) * 0.75, (0, (1,)): (1 - kept) * 0.25,
        (1, (2, 0)): kept * 0.1, (1, (2, 1)): kept * 0.2, (1, (2, 2)): kept * 0.7,
    })  # fmt: skip
    assert said("speculative_sampling", target, (0,), Q) == pytest.approx({
        (1, (0, 0)): 0.1, (1, (0, 1)): 0.2, (1, (0, 2)): 0.7,
    })  # fmt: skip
    assert said("speculative_sampling", target, (2,), None) == pytest.approx({
        (0, (0,)): 0.5, (0, (1,)): 0.3, (1, (2, 0)): 0.02, (1, (2, 1)): 0.04, (1, (2, 2)): 0.14,
    })  # fmt: skip


def test_where_target_and_draft_are_one_but_for_rounding_the_target_is_drawn_from():
    """A sum of parts may lie an ulp above the row that the ratio was made of; the residual is 0 then."""

    class Refuses:
        def accepts(self, probability: float) -> bool:
            return False

        def token(self, weights: torch.Tensor) -> int:
            assert weights.equal(P[0])
            return 1

    assert RULES["speculative_sampling"](torch.cat([P, AFTER]), (2,), P, Refuses()).tokens == (1,)
    assert RULES["block_verification"](torch.cat([P, AFTER]), (2,), P, Refuses()).tokens == (1,)


def block_by_the_paper(target: torch.Tensor, draft: Sequence[int], q: torch.Tensor):
    """{(count, tokens): probability} of algorithm 2 of 2403.10444, forwards, every prefix judged by a number of its
    own and the longest of those that pass kept."""
    drafted, vocabulary = len(draft), target.shape[1]
    share, passes, residuals = [1.0], [1.0], []
    for i in range(drafted + 1):
        if i:
            share.append(min(share[-1] * float(target[i - 1, draft[i - 1]] / q[i - 1, draft[i - 1]]), 1.0))
        if i == drafted:
            residuals.append(target[i].tolist())
            passes.append(share[i])
            break
        left = [max(share[i] * float(target[i, x]) - float(q[i, x]), 0.0) for x in range(vocabulary)]
        residuals.append([x / sum(left) for x in left] if sum(left) else target[i].tolist())
        if i:
            passes.append(sum(left) / (sum(left) + 1 - share[i]) if sum(left) + 1 - share[i] else 1.0)
    found: dict[tuple[int, tuple[int, ...]], float] = {}
    for outcome in product((True, False), repeat=drafted):
        chance = prod(p if passed else 1 - p for passed, p in zip(outcome, passes[1:], strict=True))
        count = max((i + 1 for i, passed in enumerate(outcome) if passed), default=0)
        for token, p in enumerate(residuals[count]):
            key = count, (*draft[:count], token)
            found[key] = found.get(key, 0.0) + chance * p
    return found


@given(st.lists(weights, min_size=3, max_size=3), st.lists(weights, min_size=2, max_size=2), st.data())
def test_block_verification_is_the_papers(target, drawn, data):
    q = rows(*drawn)
    draft = [data.draw(st.sampled_from([x for x in range(3) if row[x] > 0])) for row in q]
    found = said("block_verification", rows(*target), draft, q)
    assert total_variation(found, block_by_the_paper(rows(*target), draft, q)) < 1e-14


@given(st.lists(weights, min_size=3, max_size=3), st.lists(weights, min_size=2, max_size=2), st.booleans())
def test_what_lossless_rules_say_and_the_target_goes_on_with_is_the_targets(target, drawn, one_hot):
    """Rows that do not depend on what stands before them: three tokens, the rest drawn of the target."""
    p, q = rows(*target), rows(*drawn)
    whole = {
        tokens: prod(float(row[x]) for row, x in zip(p, tokens, strict=True)) for tokens in product(range(3), repeat=3)
    }
    drafts = {(2, 0): 1.0} if one_hot else {
        draft: float(q[0, draft[0]] * q[1, draft[1]]) for draft in product(range(3), repeat=2)
    }  # fmt: skip
    for rule in LOSSLESS:
        found: dict[tuple[int, ...], float] = {}
        for draft, chance in drafts.items():
            if not chance:
                continue
            for (_, tokens), probability in said(rule, p, draft, None if one_hot else q).items():
                for more in product(range(3), repeat=3 - len(tokens)):
                    behind = prod(float(p[len(tokens) + i, x]) for i, x in enumerate(more))
                    key = (*tokens, *more)
                    found[key] = found.get(key, 0.0) + chance * probability * behind
        assert total_variation(found, whole) < 1e-14, rule


def test_typical_acceptance_by_hand():
    entropy = -sum(p * log(p) for p in (0.5, 0.3, 0.2))
    assert min(0.09, 0.3 * exp(-entropy)) < 0.2
    assert said("typical", torch.cat([P, AFTER]), (2,), Q) == pytest.approx({
        (1, (2, 0)): 0.1, (1, (2, 1)): 0.2, (1, (2, 2)): 0.7,
    })  # fmt: skip
    rare = rows([0.97, 0.02, 0.01])
    assert said("typical", torch.cat([rare, AFTER]), (1,), Q) == pytest.approx({
        (0, (0,)): 0.97, (0, (1,)): 0.02, (0, (2,)): 0.01,
    })  # fmt: skip


@given(weights, weights)
def test_lenience_makes_no_token_more_than_a_quarter_likelier_and_some_likelier(target, drawn):
    p, q = rows(target), rows(drawn)
    found = [0.0] * 3
    for draft, chance in enumerate(q[0].tolist()):
        if chance:
            for (_, tokens), probability in said("lenient", torch.cat([p, AFTER]), (draft,), q).items():
                found[tokens[0]] += chance * probability
    for token, allowed in enumerate((p[0] / rules.LENIENCE).tolist()):
        assert found[token] <= allowed + 1e-15


TWO = torch.cat([P, AFTER])
WRONG = [
    (P, None, r"target: expected float64 \[2, vocabulary\], got torch.float64 \[1, 3\]"),
    (TWO.float(), None, "target: expected float64"),
    (TWO, Q.float(), r"drawn_from: expected float64 \[1, 3\], got torch.float32"),
    (TWO, Q[:, :2], r"drawn_from: expected float64 \[1, 3\], got torch.float64 \[1, 2\]"),
]


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_cannot_be_asked_is_refused(rule: str):
    for target, drawn_from, message in WRONG:
        with pytest.raises(ValueError, match=message):
            said(rule, target, (2,), drawn_from)
    if rule in ("speculative_sampling", "block_verification", "lenient"):  # who look at what was drawn from
        with pytest.raises(ValueError, match=r"token 2 at place 0 has probability 0\.0"):
            said(rule, TWO, (2,), rows([1, 1, 0]))
        with pytest.raises(ValueError, match="has probability nan"):
            said(rule, TWO, (2,), rows([1, 1, float("nan")]))
