"""The price table: prices of a token and of a device second, with a version that every cost cites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from qualgate.documents import ABSENT, Written, as_model, quote, read_yaml, refuse, stated
from qualgate.records import Prices


def _name(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > 64:
        raise stated(f"expected a name of 1 to 64 printable characters, found {quote(text)}")
    return text


def _price(value: float) -> float:
    if 0 < value < LEAST_PRICE:
        raise stated(f"a price is 0 (free), or from {LEAST_PRICE:g} to {MOST_PRICE:g}; found {value:g}")
    return value


LEAST_PRICE, MOST_PRICE = 1e-15, 1e15
Price = Annotated[float, Field(ge=0, le=MOST_PRICE), AfterValidator(_price)]


class PriceFile(Written):
    """`version` changes with the prices; a price that is left out is not charged."""

    version: Annotated[str, AfterValidator(_name)]
    """Named beside every cost; change it with the prices. Example: `version: "2026-11"`"""
    currency: Annotated[str, AfterValidator(_name)]
    """What the prices are in. Example: `currency: EUR`"""
    prompt_token: Price = 0.0
    """Price of a token that is read. Example: `prompt_token: 0.0000002`"""
    output_token: Price = 0.0
    """Price of a token that is written. Example: `output_token: 0.000001`"""
    device_second: Price = 0.0
    """Price of a second of the device; needs `concurrency`. Example: `device_second: 0.0005`"""
    concurrency: int = Field(default=ABSENT, ge=1, le=1_000_000)
    """How many answers share the device at a time. Example: `concurrency: 8`"""


def load_prices(path: Path) -> Prices:
    """Load the price table at `path`. UsageError with the line of every fault."""
    document = read_yaml(path)
    model, faults = as_model(PriceFile, document)
    if model is not None:
        if not (model.prompt_token or model.output_token or model.device_second):
            faults.append(document.fault((), "every price is 0, so no answer would cost anything"))
        if model.device_second and model.concurrency is None:
            message = "`device_second` needs `concurrency`: how many answers share the device at a time"
            faults.append(document.fault(("device_second",), message))
        if model.concurrency is not None and not model.device_second:
            faults.append(document.fault(("concurrency",), "`concurrency` says nothing without `device_second`"))
    if model is None or faults:
        refuse(faults)
    return Prices(
        version=model.version,
        currency=model.currency,
        prompt_token=model.prompt_token,
        output_token=model.output_token,
        device_second=model.device_second,
        concurrency=model.concurrency or 1,
    )
