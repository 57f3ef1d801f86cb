"""The most memory that was held while something ran."""

from __future__ import annotations

import pytest

from qualgate.engine import peak
from qualgate.engine.peak import Peak, with_peak

MIB = 2**20


def test_what_was_held_for_a_while_is_seen_and_what_came_before_is_not():
    def work() -> int:
        return len(bytes(bytearray(b"x") * (128 * MIB)))

    given, first = with_peak(work, "cpu")
    if not first.resident:
        pytest.skip("this system does not let a process mark its peak")
    assert given == 128 * MIB
    _, second = with_peak(lambda: None, "cpu")
    assert first.resident >= second.resident + 100 * MIB
    assert second.device == 0


@pytest.mark.parametrize("missing", ["STATUS", "MARK"])
def test_where_the_system_does_not_tell_nothing_is_said(missing, tmp_path, monkeypatch):
    monkeypatch.setattr(peak, missing, tmp_path / "nowhere" / "none")
    assert with_peak(lambda: 7, "cpu") == (7, Peak())


def test_a_gpu_that_torch_cannot_use_is_not_asked(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    given, found = with_peak(lambda: 7, "cuda")
    assert (given, found.device) == (7, 0)


def test_what_torch_held_on_a_gpu_is_told(monkeypatch):
    held = {0: 9, 1: 3}
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda gpu: held.update({gpu: 0}))
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda gpu: held[gpu])
    assert with_peak(lambda: held.update({0: held[0] + 5, 1: held[1] + 2}), "cuda")[1].device == 7


def test_a_failure_goes_through():
    with pytest.raises(ZeroDivisionError):
        with_peak(lambda: 1 // 0, "cpu")
