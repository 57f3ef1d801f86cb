"""The row `languages`, whole, and that its texts are what it says of them."""

from __future__ import annotations

from tests.verification.references import languages, scoring


def test_no_answer_in_the_right_language_is_called_wrong_and_nearly_all_others_are():
    [found], [row] = scoring._languages(False)
    assert row["met"] is True
    assert found["languages"]["alarms"] == []
    kinds = {"own", "own, one sentence", "own, with code", "own, with a foreign name", "other", "other, one sentence"}
    assert found["languages"]["asked"].keys() == kinds | {"half", "glued"}


def test_thresholds_were_chosen_on_sentences_that_the_row_does_not_hold():
    assert len(languages.TEXTS) == 30
    for sentences in languages.TEXTS.values():
        assert len(set(sentences)) == len(sentences) == 6
        assert not set(sentences[languages.CHOSEN_ON]) & set(sentences[languages.MEASURED_ON])


def test_an_alarm_or_too_many_missed_fail_the_row(monkeypatch):
    found = languages.measured()
    monkeypatch.setattr(languages, "measured", lambda: found | {"alarms": ["one"]})
    assert scoring._languages(False)[1][0]["met"] is False
    monkeypatch.setattr(languages, "measured", lambda: found | {"right": found["right"] | {"half": 1_600}})
    assert scoring._languages(False)[1][0]["met"] is False
