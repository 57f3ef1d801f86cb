"""A row holds the states that are its text's, whatever of a draft was read and not accepted."""

from __future__ import annotations

import torch

from qualgate.engine.blocks import BlockPool
from qualgate.engine.draft_heads.rows import Row, adopt, begun, pairs_of
from qualgate_kernels.slots import SLOTS


def numbered(first: int, last: int) -> torch.Tensor:
    return torch.arange(first, last, dtype=torch.float32)[:, None]


def test_states_with_a_gap_before_them_are_not_taken():
    row = Row(0, (1, 2, 3))
    row.add(0, numbered(0, 3))
    assert not row.add(5, numbered(5, 6))
    assert row.end == 3


def test_a_row_begins_behind_the_blocks_that_hold_its_prompt_s_beginning():
    pool, prompt = BlockPool(8), tuple(range(3 * SLOTS))
    first = begun(0, prompt, 0, pool)
    first.blocks = [pool.take() for _ in range(3)]
    pool.know(first.blocks, pairs_of(prompt))
    second = begun(1, prompt, SLOTS + 5, pool)
    assert (second.next, second.cached, second.blocks, second.whole) == (2 * SLOTS, 2 * SLOTS, first.blocks[:2], True)
    assert second.add(SLOTS + 5, numbered(SLOTS + 5, 3 * SLOTS))
    assert second.states[0][0] == 2 * SLOTS
    other = begun(2, (7, *prompt[1:]), SLOTS, pool)
    assert (other.next, other.cached, other.blocks, other.whole) == (SLOTS, 0, [], False)


def test_pairs_between_known_blocks_and_the_first_state_are_left_out():
    pool, prompt = BlockPool(8), tuple(range(4 * SLOTS))
    late = begun(1, prompt, 2 * SLOTS + 3, pool)
    late.add(2 * SLOTS + 3, numbered(2 * SLOTS + 3, 4 * SLOTS))
    assert (late.next, late.cached) == (2 * SLOTS + 3, 0)
    pool.know([pool.take()], pairs_of(prompt)[:SLOTS])
    adopt(late, pool)
    assert (late.next, late.cached, late.whole) == (2 * SLOTS + 3, SLOTS, False)
    late.text = list(prompt)
    assert late.pending == 2 * SLOTS - 4
    assert late.take(2)[:, 0].tolist() == [2 * SLOTS + 3, 2 * SLOTS + 4]
    assert (late.next, late.cached) == (2 * SLOTS + 5, SLOTS + 2)


def test_a_pair_is_told_from_every_other():
    assert pairs_of((1, 2, 3)) == [(1 << 32) + 2, (2 << 32) + 3]
    assert len(set(pairs_of((1, 2, 1, 3, 2, 3)))) == 5
