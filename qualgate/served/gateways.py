"""Models that answered behind a gateway, by its reply's headers: it may cache, fall back and balance loads.

LiteLLM, for one, writes the requested name into the body (1.108), whichever model answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from qualgate.records.arms import BY_FALLBACK, DEPLOYMENT, FROM_CACHE, UNNAMED

_MODELS = ("x-litellm-model-name", "x-kong-llm-model", "ngrok-aig-model")
_DEPLOYMENTS = ("x-litellm-model-id",)
_FALLBACKS = ("x-litellm-attempted-fallbacks", "cf-aig-step", "helicone-fallback-index")  # "0": none
_HITS = (
    "x-cache", "x-cache-status", "cache-status", "cf-cache-status", "cf-aig-cache-status", "x-portkey-cache-status",
    "helicone-cache", "x-openrouter-cache-status", "x-proxy-cache", "x-vercel-cache",
)  # fmt: skip
_HIT = re.compile(r"(?i)(?<![a-z-])hit(?![a-z-])(?! *= *\?0)")  # HIT, TCP_HIT, "X; hit" (RFC 9211); not no-hit
_CACHE_KEYS = ("x-litellm-cache-key",)  # of a reply out of a cache alone
_DRAWN = re.compile("[0-9a-f]{16,}")  # a deployment's id, unique by its beginning
MOST_ID = 64  # characters of another one
HEADERS = (*_MODELS, *_DEPLOYMENTS, *_FALLBACKS, *_HITS, *_CACHE_KEYS)


def answerers(headers: Mapping[str, str], named: Sequence[str]) -> tuple[str, ...]:
    """Return the names of models that answered, as `Generation.answered_by` has them.

    Args:
        headers: Of the reply, by names in small letters.
        named: The names in the reply's body; a header that names a model stands in their place.
    """
    names = _values(headers, _MODELS) or list(named) or [UNNAMED]
    if _values(headers, _CACHE_KEYS) or any(map(_HIT.search, _values(headers, _HITS))):
        return tuple(name + FROM_CACHE for name in names)
    if any(re.fullmatch(r"[1-9]\d*", text.strip()) for text in _values(headers, _FALLBACKS)):
        return tuple(name + BY_FALLBACK for name in names)
    deployments = [
        deployment[:8] if _DRAWN.fullmatch(deployment) else deployment[:MOST_ID]
        for deployment in _values(headers, _DEPLOYMENTS)
    ]
    return tuple(name + DEPLOYMENT.format(deployments[0]) if deployments else name for name in names)


def known_names(names: Iterable[str]) -> list[str]:
    """Return the names of models without the one that stands for a reply without a name."""
    return [name for name in names if name != UNNAMED]


def _values(headers: Mapping[str, str], names: Sequence[str]) -> list[str]:
    return [headers[name] for name in names if headers.get(name, "None") not in ("", "None")]
