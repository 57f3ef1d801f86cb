"""The row `languages`, whole, and that its texts are what it says of them."""

from __future__ import annotations

from tests.verification.references import languages, scoring


def test_no_answer_in_the_right_language_is_called_wrong_and_nearly_all_others_are(monkeypatch):
    [found], [row] = scoring._languages(False)
    measured = found["languages"]
    assert row["met"] is True
    assert measured["alarms"] == []
    kinds = {"own", "own, one sentence", "own, with code", "own, with a foreign name", "other", "other, one sentence"}
    assert measured["asked"].keys() == kinds | {"half", "glued"}
    for worse in ({"alarms": ["one"]}, {"right": measured["right"] | {"half": 1_600}}):
        monkeypatch.setattr(languages, "measured", lambda worse=worse: measured | worse)
        assert scoring._languages(False)[1][0]["met"] is False


def test_thresholds_were_chosen_on_sentences_that_the_row_does_not_hold():
    assert len(languages.TEXTS) == 30
    for sentences in languages.TEXTS.values():
        assert len(set(sentences)) == len(sentences) == 6
        assert not set(sentences[languages.CHOSEN_ON]) & set(sentences[languages.MEASURED_ON])
