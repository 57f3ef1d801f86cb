"""Blocks of keys and values: whose they are, which are found again, and which go first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.blocks import BlockPool
from qualgate_kernels.slots import SLOTS

# Texts of a few whole blocks of one letter each and a rest, so that many begin alike.
TEXTS = st.tuples(st.lists(st.integers(0, 2), max_size=4), st.integers(0, SLOTS - 1)).map(
    lambda made: tuple(letter for letter in made[0] for _ in range(SLOTS)) + (9,) * made[1]
)


@given(tokens=TEXTS, most=st.integers(0, 5))
def test_all_of_a_beginning_is_found_that_is_known_and_asked_for(tokens, most):
    pool = BlockPool(8)
    blocks = [pool.take() for _ in range(-(-len(tokens) // SLOTS))]
    pool.know(blocks, tokens)
    whole = len(tokens) // SLOTS
    assert pool.shared((*tokens, 7, 8), most) == blocks[: min(whole, most)]
    assert pool.shared((5, *tokens), 5) == []  # the same tokens behind others are others


@given(steps=st.lists(st.tuples(st.integers(0, 9), TEXTS), max_size=30), count=st.integers(1, 12))
def test_blocks_are_counted_and_none_is_lent_twice(steps, count):
    """What lies in them, `test_schedule` looks at."""
    pool, chains = BlockPool(count), list[list[int]]()
    for which, tokens in steps:
        if which > 6 and chains:
            pool.release(chains.pop(which % len(chains)))
            continue
        blocks = pool.shared(tokens, 5)
        while pool.free and len(blocks) < -(-len(tokens) // SLOTS):
            blocks.append(pool.take())
        pool.know(blocks, tokens[: len(blocks) * SLOTS])
        chains.append(blocks)
        inside = {block for chain in chains for block in chain}
        assert (pool.used, pool.free) == (len(inside), count - len(inside))
    for chain in chains:
        pool.release(chain)
    assert sorted(pool.take() for _ in range(count)) == list(range(count))


def known(pool: BlockPool, *letters: int) -> list[int]:
    """A chain of a block a letter, given back."""
    tokens = [letter for letter in letters for _ in range(SLOTS)]
    blocks = pool.shared(tokens, len(letters))
    blocks += [pool.take() for _ in range(len(letters) - len(blocks))]
    pool.know(blocks, tokens)
    pool.release(blocks)
    return blocks


def test_empty_blocks_are_taken_first_then_the_longest_unused_the_end_of_a_chain_before_its_beginning():
    pool = BlockPool(6)
    first, second = known(pool, 1, 2), known(pool, 3, 4)
    assert known(pool, 1) == first[:1]  # used again
    assert {pool.take(), pool.take()} == {0, 1, 2, 3, 4, 5} - {*first, *second}
    assert [pool.take() for _ in range(4)] == [first[1], second[1], second[0], first[0]]
    with pytest.raises(IndexError, match="no block is free"):
        pool.take()


def test_what_is_forgotten_leaves_nothing():
    pool = BlockPool(3)
    one, other = [pool.take()], [pool.take(), pool.take()]
    pool.know(one, [1] * SLOTS)
    pool.know(other, [1] * SLOTS + [2] * SLOTS)
    pool.know([*one, other[1]], [1] * SLOTS + [2] * SLOTS + [3] * 4)
    pool.release([*one, *other])
    for _ in range(3):
        pool.take()
    assert pool.shared([1] * SLOTS, 1) == []
    assert not pool._known


def test_a_block_that_is_given_back_twice_is_said_so():
    pool = BlockPool(1)
    blocks = [pool.take()]
    pool.release(blocks)
    with pytest.raises(ValueError, match="block 0 was given back twice"):
        pool.release(blocks)


def test_a_block_that_begins_alike_is_found_once_it_is_filled_and_the_longest_of_them():
    pool, start = BlockPool(8), [1] * SLOTS
    texts = [[*start, *[2] * 5, *[3] * 11], [*start, *[2] * 9, *[4] * 7], [5] * SLOTS]
    chains = [[pool.take() for _ in range(len(text) // SLOTS)] for text in texts]
    for chain, text in zip(chains, texts, strict=True):
        pool.know(chain, text)
    asked = [*start, *[2] * 12, 9, 9, 9, 9, 9]
    shared = pool.shared(asked, 9)
    assert shared == chains[0][:1]
    assert pool.alike(shared, asked) == (0, 0)  # nobody has read them yet
    pool.filled()
    assert pool.alike(shared, asked) == (chains[1][-1], 9)
    assert pool.alike(shared, [*start, *[2] * 6, 3]) == (chains[1][-1], 6)
    assert pool.alike(shared, [*start, 9]) == (0, 0)
    assert pool.alike([], [5, 5, 6]) == (chains[2][0], 2)
    pool.release(chains[1])
    while chains[1][-1] not in {pool.take() for _ in range(1)}:
        pass
    assert pool.alike(shared, asked) == (chains[0][-1], 5)  # what another took is no more
