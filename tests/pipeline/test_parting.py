"""Where two answers part, by tokens and by words."""

from __future__ import annotations

from qualgate.pipeline.parting import ROWS, AnswerPieces, Piece, part


def spelled(ids: tuple[int, ...]) -> list[bytes]:
    return [bytes([token]) for token in ids]


def tokens(*ids: int, ended: str = "eos") -> AnswerPieces:
    return AnswerPieces(text=bytes(ids).decode("latin-1"), token_ids=ids, finish_reason=ended, spelled=spelled)


def words(text: str) -> AnswerPieces:
    return AnswerPieces(text=text, token_ids=(), finish_reason="stop")


def test_tokens_are_listed_from_the_first_different_one_with_those_that_follow_counted():
    first, second = tokens(*range(65, 70)), tokens(65, 66, *range(97, 122))
    parting = part(first, second)
    assert (parting.unit, parting.position, parting.sizes, parting.same) == ("token", 2, (5, 27), False)
    assert parting.rows[0] == (Piece(id=67, text="C"), Piece(id=97, text="a"))
    assert parting.rows[3] == (None, Piece(id=100, text="d"))
    assert len(parting.rows) == ROWS
    assert parting.following == (0, 27 - 2 - ROWS)
    assert part(second, first).following == (27 - 2 - ROWS, 0)


def test_an_answer_that_goes_on_where_the_other_ends_differs_at_that_place():
    parting = part(tokens(65), tokens(65, 66))
    assert (parting.position, parting.rows) == (1, ((None, Piece(id=66, text="B")),))


def test_equal_tokens_that_ended_for_another_reason_are_not_the_same():
    parting = part(tokens(65, 66), tokens(65, 66, ended="length"))
    assert (parting.position, parting.rows, parting.same) == (None, (), False)
    assert part(tokens(65, 66), tokens(65, 66)).same


def test_a_byte_that_is_no_character_is_written_out():
    assert part(tokens(0xE2), tokens(65)).rows[0][0] == Piece(id=0xE2, text="\\xe2")


def test_without_token_ids_of_both_or_with_other_tokenizers_words_are_compared():
    parting = part(words("the cat sat."), words("the dog sat."))
    assert (parting.unit, parting.position, parting.sizes) == ("word", 2, (6, 6))
    assert parting.rows[0] == (Piece(text="cat"), Piece(text="dog"))
    assert part(tokens(65), words("A")).position is None
    assert part(tokens(65), words("")).rows == ((Piece(text="A"), None),)
    other_ids = AnswerPieces(text="A", token_ids=(7,), finish_reason="eos", spelled=lambda ids: [b"A"])
    assert part(tokens(65), other_ids, same_tokenizer=False).same
    assert not part(tokens(65), other_ids).same
