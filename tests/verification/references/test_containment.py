"""The row `contains`: ours beside lm-eval's and inspect's, and every difference listed."""

from __future__ import annotations

from tests.verification.references.containment import DIFFERENT, PAIRS, compared, pairs


def test_answers_that_contain_a_reference_are_judged_as_lm_eval_and_inspect_do_or_parted_as_listed():
    result = compared()
    assert result.unlisted == []
    assert (result.pairs, result.same + result.listed) == (PAIRS, PAIRS)
    assert {kind for kind, _ in pairs()} > DIFFERENT.keys()
