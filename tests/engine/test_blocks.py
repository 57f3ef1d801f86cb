"""Blocks of keys and values: whose they are, which are found again, and which go first."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.blocks import BlockPool
from qualgate_kernels.slots import SLOTS

# Texts of a few whole blocks of one letter each and a rest, so that many begin alike.
TEXTS = st.tuples(st.lists(st.integers(0, 2), max_size=4), st.integers(0, SLOTS - 1)).map(
    lambda made: tuple(letter for letter in made[0] for _ in range(SLOTS)) + (9,) * made[1]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), TEXTS, st.integers(0, 5)),
        st.tuples(st.sampled_from(["close", "know"]), st.integers(0, 9), st.just(0)),
    ),
    max_size=40,
)


@dataclass(eq=False)
class Chain:
    """A sequence that holds blocks."""

    tokens: tuple[int, ...]
    blocks: list[int]


class Holders:
    """Sequences that share a pool, and what each block holds: of every position all tokens up to it."""

    def __init__(self, count: int) -> None:
        self.pool = BlockPool(count)
        self.open: list[Chain] = []
        self.content: dict[int, tuple[tuple[int, ...], ...]] = {}

    def begin(self, tokens: tuple[int, ...], most: int) -> None:
        """A sequence finds what it can, takes the rest, writes it and makes it known; or does without."""
        before = [block for chain in self.open for block in chain.blocks]
        blocks = self.pool.shared(tokens, most)
        assert len(blocks) <= min(most, len(tokens) // SLOTS)
        for place, block in enumerate(blocks):
            assert self.content[block] == held(tokens, place), "what was found is not what was looked for"
        own = []
        while len(blocks) + len(own) < -(-len(tokens) // SLOTS):
            if not self.pool.free:
                self.pool.release([*blocks, *own])
                return
            own.append(self.pool.take())
            assert own[-1] not in {*before, *blocks, *own[:-1]}, "two would write to it"
        for block, place in zip(own, range(len(blocks), len(blocks) + len(own)), strict=True):
            self.content[block] = held(tokens, place)
        chain = Chain(tokens, [*blocks, *own])
        self.pool.know(chain.blocks, tokens)
        self.open.append(chain)

    def know(self, which: int) -> None:
        """As a sequence does at every chunk; others that held the same may be gone by then."""
        if self.open:
            chain = self.open[which % len(self.open)]
            self.pool.know(chain.blocks, chain.tokens)

    def close(self, which: int) -> None:
        if self.open:
            self.pool.release(self.open.pop(which % len(self.open)).blocks)


def held(tokens: tuple[int, ...], place: int) -> tuple[tuple[int, ...], ...]:
    """What block number `place` of a text holds."""
    return tuple(tokens[: at + 1] for at in range(place * SLOTS, min(len(tokens), (place + 1) * SLOTS)))


@given(count=st.integers(1, 12), steps=STEPS)
def test_blocks_are_counted_found_by_all_before_them_and_never_written_by_two(count, steps):
    holders = Holders(count)
    pool = holders.pool
    for step, what, most in steps:
        if step == "open":
            holders.begin(what, most)
        else:
            holders.know(what) if step == "know" else holders.close(what)
        inside = {block for chain in holders.open for block in chain.blocks}
        assert (pool.used, pool.free) == (len(inside), count - len(inside))
        for chain in holders.open:
            for place, block in enumerate(chain.blocks):
                assert holders.content[block] == held(chain.tokens, place), "somebody else wrote to it"
    while holders.open:
        holders.close(0)
    assert (pool.used, pool.free) == (0, count)
    assert sorted(pool.take() for _ in range(count)) == list(range(count))


@given(tokens=TEXTS, most=st.integers(0, 5))
def test_all_of_a_beginning_is_found_that_is_known_and_asked_for(tokens, most):
    pool = BlockPool(8)
    blocks = [pool.take() for _ in range(-(-len(tokens) // SLOTS))]
    pool.know(blocks, tokens)
    whole = len(tokens) // SLOTS
    assert pool.shared((*tokens, 7, 8), most) == blocks[: min(whole, most)]
    assert pool.shared((5, *tokens), 5) == []  # the same tokens behind others are others


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
