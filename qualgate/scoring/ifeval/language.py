"""The language of a text, by langdetect (extra `harness`)."""

from __future__ import annotations

from functools import lru_cache

READ = 100_000  # characters; langdetect itself reads 10,000 after leaving out addresses


class NoDetector(Exception):
    """langdetect is not installed."""


@lru_cache(maxsize=64)
def language(text: str) -> str | None:
    """Return the ISO 639-1 code (zh-cn, zh-tw for Chinese); None for a text without letters. Raises NoDetector.

    langdetect draws at random; here each text starts from the same seed, so that a text's score is always the same.
    """
    try:
        from langdetect import LangDetectException, detector_factory
    except ImportError:
        raise NoDetector(
            "langdetect is not installed: `qualgate doctor` shows how to get the extra `harness`"
        ) from None
    detector_factory.init_factory()
    detector = detector_factory._factory.create()  # pyrefly: ignore[missing-attribute]
    detector.seed = 0
    try:
        detector.append(text[:READ])
        return detector.detect()
    except LangDetectException:
        return None
