"""Sound folders are let through, and one that is not is named."""

from __future__ import annotations

import pytest

from tests.verification.references import folders_sound


@pytest.mark.proof
def test_sound_folders_are_let_through():
    asked, refused = folders_sound.sound(every=12, own_every=20)
    assert asked >= 9
    assert refused == []


@pytest.mark.proof
def test_a_folder_that_is_not_sound_is_refused_and_one_of_a_limit_is_not_accused(monkeypatch):
    recipe = next(one for one in folders_sound.recipes() if one["name"] == "gm-aga")
    recipe["config"]["quantization_config"]["bits"] = 8
    limit = next(one for one in folders_sound.recipes() if one["name"] == "ct-kv-perhead")
    monkeypatch.setattr(folders_sound, "recipes", lambda: [recipe, limit])
    monkeypatch.setattr(folders_sound, "OWN", [])
    monkeypatch.setattr(folders_sound, "find", _none)
    said = list[str]()
    asked, (refused,) = folders_sound.sound(say=said.append)
    assert asked == 2
    assert refused.startswith("gm-aga (gptqmodel 7.6.0: default: act_group_aware): ")
    assert "bits" in refused
    assert len(said) == len(folders_sound.LIBRARIES)


def _none(name: str) -> None:
    raise folders_sound.UsageError(f"no environment of {name}")
