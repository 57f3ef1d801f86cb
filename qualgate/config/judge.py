"""The gate file's `judge:` section: the model that compares answers for rules on `judge.win`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator

from qualgate.config.budget import BudgetEntry, PriceEntry, as_patience, as_price
from qualgate.config.paths import PlainFile
from qualgate.config.served import AskedKeys, as_asked
from qualgate.documents import ABSENT, stated
from qualgate.records import Judge
from qualgate.records.judged import FLOOR, REPLY_TOKENS

MOST_RUBRIC = 20_000  # characters


def _in_words(rubric: str) -> str:
    if not rubric.strip():
        raise stated("`judge.rubric` is empty; say what makes one answer better than another")
    return rubric


class JudgeEntry(AskedKeys):
    """A served model that is shown the baseline's and a variant's answer, in both orders, and says by a rubric which is
    better. It is measured by labels of people first, and decides nothing below its floor."""

    model_config = {"json_schema_extra": {"anyOf": [{"required": ["endpoint"]}]}}
    example: ClassVar = "{endpoint: http://127.0.0.1:8100/v1, model: NAME, rubric: …, labels: labels.jsonl}"
    model: str = Field(min_length=1, max_length=500)
    """The name under which its server lists the judge. Example: `model: judge-70b`"""
    rubric: Annotated[str, AfterValidator(_in_words), Field(min_length=1, max_length=MOST_RUBRIC)]
    """By what one answer is better than another, in words. Example: `rubric: The answer that solves the problem wins;
    wrong facts lose.`
    """
    labels: PlainFile
    """JSON lines with what people prefer: `id`, `question`, `a`, `b`, `preferred` (`a`, `b` or `tie`). Example:
    `labels: labels.jsonl`
    """
    floor: Annotated[float, Field(gt=0.5, lt=1)] = FLOOR
    """The share of decided labels on which it must surely prefer what people do; below, it decides nothing. Example:
    `floor: 0.75`
    """
    max_tokens: Annotated[int, Field(ge=16, le=32_768)] = REPLY_TOKENS
    """Tokens that its reply may take, thoughts included. Example: `max_tokens: 2048`"""
    price: PriceEntry = ABSENT
    """Of its tokens, by the million; left out, as `budget` says. Example: `price: {prompt: 0.15, answer: 0.6}`"""

    @model_validator(mode="after")
    def _is_asked(self) -> JudgeEntry:
        if self.endpoint is None:
            raise stated("`judge.endpoint` is missing; write the API's address, such as http://127.0.0.1:8100/v1")
        return self


def as_judge(entry: JudgeEntry | None, budget: BudgetEntry | None = None) -> Judge | None:
    """The judge as a record, its labels unread. budget: supplies a price if the entry has none."""
    if entry is None:
        return None
    return Judge(
        model=entry.model,
        served=replace(as_asked(entry), price=as_price(entry.price, budget), patience=as_patience(budget)),
        rubric=entry.rubric,
        floor=entry.floor,
        max_tokens=entry.max_tokens,
    )
