"""How scorers state a result."""

from __future__ import annotations

from qualgate.scoring.outcome import all_right, right


def test_scores_made_together_are_those_made_one_by_one():
    metrics, said = ("a", "b.c"), "x" * 5000 + "\ud800"
    together = all_right(metrics, "s/1", said)
    assert together == {metric: right(metric, "s/1", said) for metric in metrics}
    assert [repr(score) for score in together.values()] == [repr(right(metric, "s/1", said)) for metric in metrics]
    assert all_right(metrics, "s/1", None)["a"] == right("a", "s/1")
