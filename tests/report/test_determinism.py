"""The determinism matrix as lines for a reader."""

from __future__ import annotations

from qualgate.engine.determinism import Cell, DeterminismMatrix
from qualgate.report.determinism import determinism_lines


def cell(condition: str, **more) -> Cell:
    values = {"trials": 5, "equal": True, "max_ulp": 0, "max_difference": 0.0, "other_tokens": 0, "near_ties": 0}
    return Cell(condition=condition, **{**values, **more})


def test_each_condition_has_a_row_and_a_model_that_never_repeats_is_called_so():
    batch = cell("batch", equal=False, max_ulp=1200, max_difference=1e-5, other_tokens=2, near_ties=1)
    fine = DeterminismMatrix(
        cells=(cell("repeat"), batch), positions=1000, near_tie_share={"1": 0.001, "4": None}, softmax_sum_error=2.98e-8
    )
    lines = determinism_lines(fine)
    assert lines[1].split() == ["repeat", "5", "yes", "0", "0", "0"]
    assert lines[2].split() == ["batch", "5", "no", "1,200", "1e-05", "2", "(1", "near", "tie)"]
    assert lines[3] == "1,000 positions; near ties of the best two logits within 1 ulp: 0.100%, 4 ulp: none"
    assert lines[4:] == ["the probabilities of a position sum to 1 within 3e-08"]
    broken = DeterminismMatrix(
        cells=(cell("repeat", equal=False),), positions=0, near_tie_share={}, softmax_sum_error=None
    )
    assert "nothing measured with this model repeats" in determinism_lines(broken)[-1]
