"""The nightly file: what it means, and every fault with its line."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from qualgate.config.nightly import load_nightly
from qualgate.errors import UsageError
from tests.config.gate_files import FAULTS

WHOLE = """\
version: 1
schedule: {at: "02:00", days: [mon, tue], timezone: Europe/Berlin}
owners: [team@example.com]
gates:
  support: {gate: ./gate.yaml, models: ["./models/*"], owners: [ana@example.com], unchanged: run}
store: sqlite:///nights.db
digest:
  slack: {url_env: SLACK_URL, when: changed}
  webhook: {url_env: HOOK_URL}
  mail: {server: smtp.example.com, sender: gate@example.com, user_env: SMTP_USER, password_env: SMTP_PASSWORD}
"""
SHORT = 'version: 1\nschedule: {at: "02:00"}\ngates: {support: {gate: ./gate.yaml}}\n'


@pytest.fixture
def load(tmp_path):
    (tmp_path / "gate.yaml").write_text("version: 1\n")

    def loaded(text: str):
        (tmp_path / "nightly.yaml").write_text(text)
        return load_nightly(tmp_path / "nightly.yaml")

    return loaded


def test_a_whole_file(load, tmp_path):
    found = load(WHOLE)
    assert found.schedule.days == ("mon", "tue")
    assert found.gate_path("support") == tmp_path / "gate.yaml"
    assert found.gates["support"].unchanged == "run"
    assert found.store_url == f"sqlite:///{tmp_path / 'nights.db'}"
    assert found.digest.slack.when == "changed"
    assert found.digest.mail.port == 587


@pytest.mark.parametrize(("old", "new", "line", "said"), FAULTS["nightly"])
def test_faults_are_told_with_their_line(load, old, new, line, said):
    text = WHOLE.replace(old, new, 1)
    if not said:  # the gate's own owner is enough
        assert load(text).owners == ()
        return
    with pytest.raises(UsageError, match=re.escape(f"nightly.yaml:{line}: ") + ".*" + re.escape(said)) as refused:
        load(text)
    assert "hooks.example.com/secret" not in str(refused.value), "a secret is not repeated"


@pytest.mark.parametrize(("days", "is_refused"), [(0, False), (1, False), (6, False), (9, True)])
def test_the_last_night_of_a_schedule_may_still_be_made_though_none_follows(load, days, is_refused):
    """On its last day, and after a machine was off then."""
    until = (datetime.now(UTC) - timedelta(days=days)).date()
    text = SHORT.replace('"02:00"', f'"00:00", until: {until}')
    with pytest.raises(UsageError, match="never fires again") if is_refused else nullcontext():
        assert load(text).schedule.until == until


def test_owners_and_mail_go_together(load):
    with pytest.raises(UsageError, match=r":3: `owners` are mailed, and `digest.mail` does not say by which server"):
        load(re.sub(r"\n  mail: .*", "", WHOLE))
    nobody = WHOLE.replace("owners: [team@example.com]\n", "").replace(", owners: [ana@example.com]", "")
    with pytest.raises(UsageError, match="there are none; name them"):
        load(nobody)


@pytest.mark.parametrize("store", ["postgresql://ci@db/qualgate", "sqlite:////srv/nights.db"])
def test_where_other_files_may_keep_nights_too_a_file_says_which_are_its_own(load, store):
    with pytest.raises(UsageError, match=r"4.*say which are its own: name: support-team"):
        load(f"{SHORT}store: {store}\n")
    assert load(f"{SHORT}store: {store}\nname: support\n").name == "support"
    assert load(SHORT).name == "nightly.yaml"


def test_a_gate_file_is_told_from_a_nightly_file(load):
    with pytest.raises(UsageError, match="this is a gate file; a nightly file names it"):
        load("version: 1\nbaseline: {model: reference}\n")
