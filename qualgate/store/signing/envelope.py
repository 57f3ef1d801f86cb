"""Signed JSON in a DSSE envelope (secure-systems-lab/dsse). What is opened is what was signed, or nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qualgate.errors import IntegrityError
from qualgate.records.identity import canonical_json

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

MOST = 4 << 20  # characters of an envelope


class NotSigned(IntegrityError):
    """The envelope is damaged, of another type, or not signed by a trusted key."""


def sign(body: dict[str, Any], payload_type: str, key: CryptoSigner) -> str:
    """Return the envelope of `body`, as JSON in one line."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(canonical_json(body).encode("utf-8"), payload_type, {})
    envelope.sign(key)
    return canonical_json(envelope.to_dict())


def opened(text: str, payload_type: str, keys: Sequence[SSlibKey]) -> tuple[dict[str, Any], str]:
    """Return the signed body and the id of the key that signed it, one of `keys`. Raises NotSigned."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    if len(text) > MOST:
        raise NotSigned(f"the envelope has more than {MOST:,} characters")
    try:
        envelope = Envelope.from_dict(json.loads(text))
        signers = sorted(envelope.signatures)
        if canonical_json(envelope.to_dict()) != text.removesuffix("\n"):  # the same bytes in other letters
            raise ValueError
    except Exception:  # the library lets many errors through: the text is hostile
        raise NotSigned("this is no signed envelope (DSSE), or a damaged one") from None
    if envelope.payload_type != payload_type:
        raise NotSigned(f"the envelope holds {envelope.payload_type!r:.80}, not {payload_type}")
    try:
        accepted = envelope.verify(list(keys), 1)
    except (VerificationError, ValueError):
        ids = {key.keyid for key in keys}
        if ids.intersection(signers):
            raise NotSigned("its signature does not fit its text: one of the two was changed") from None
        named = ", ".join(one[:12] for one in signers) or "nobody"
        raise NotSigned(
            f"it is signed by {named}, which is no trusted key (QUALGATE_TRUSTED_KEYS names those)"
        ) from None
    try:
        body = json.loads(envelope.payload)
        if not isinstance(body, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise NotSigned("what is signed is no JSON object") from None
    return body, next(iter(accepted))
