"""A level of a cascade offers what its own model says, with the rows that it was drawn from."""

from __future__ import annotations

import pytest
import torch

from qualgate.engine.speculation.cascade import drafted
from qualgate.engine.speculation.propose import NO_DRAFT, Draft
from qualgate.engine.speculation.rules import RULES
from qualgate.records.speculation import LOSSY
from tests.verification.lossless.chances import law

OWN = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]], dtype=torch.float64)
BELOW = torch.tensor([[0.2, 0.2, 0.6], [0.3, 0.3, 0.4]], dtype=torch.float64)


@pytest.mark.parametrize("rule", sorted(RULES.keys() - LOSSY))
def test_what_is_offered_has_the_rows_of_the_model_itself(rule: str):
    def offered(chance):
        got = drafted(rule, OWN, Draft((2, 1), "small", drawn_from=BELOW), chance, "middle")
        assert got.kind == "middle"
        assert got.matched == 8
        assert got.drawn_from is not None
        assert got.drawn_from.equal(OWN[: len(got.tokens)])
        return got.tokens

    found = law(offered)
    assert {len(tokens) for tokens in found} >= {1, 3}  # the model's own last token is offered too
    assert all(tokens[: len(tokens) - 1] == (2, 1)[: len(tokens) - 1] for tokens in found)


def test_of_no_draft_one_token_is_drawn():
    found = law(lambda chance: drafted("speculative_sampling", OWN[:1], NO_DRAFT, chance, "middle").tokens)
    assert found == pytest.approx({(0,): 0.5, (1,): 0.3, (2,): 0.2})


@pytest.mark.parametrize("rule", sorted(LOSSY))
def test_a_rule_that_changes_the_distribution_is_refused(rule: str):
    with pytest.raises(ValueError, match=f"{rule}: changes the distribution"):
        law(lambda chance: drafted(rule, OWN[:1], NO_DRAFT, chance, "middle"))
