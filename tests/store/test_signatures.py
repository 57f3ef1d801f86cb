"""Signatures of verdicts and decisions: what is changed and sealed again without the key is found."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from sqlalchemy import select, text

from qualgate.errors import IntegrityError, UsageError
from qualgate.pipeline.stored import decide_again
from qualgate.store import audit, decisions, evidence_seal, queries, scorings, signatures, tables
from qualgate.store.database import open_store
from qualgate.store.decisions import Seen
from qualgate.store.rows import verdict_digest
from qualgate.store.sealed import sealed_row, store_rows
from qualgate.store.signing.keys import KEY, TRUSTED, make_key, public_keys, public_path
from qualgate.store.tables import verdicts
from tests.store.conftest import SMALL
from tests.store.made import make_run, said
from tests.store.tampering import forge_answer, tamper


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        make_key(folder / name)
    return folder


@pytest.fixture
def trusted(keys, monkeypatch):
    monkeypatch.setenv(KEY, str(keys / "mine"))
    return public_keys([public_path(keys / "mine")])


@pytest.fixture
def signed(url, trusted):
    """A store with a run whose verdicts are signed, and a signed decision."""
    with open_store(url) as store:
        run_id = make_run(store, SMALL)
        decide(store, run_id, "int8", "approve")
        yield store, run_id


def decide(store, run_id, variant, action):
    stored = queries.run_summary(store, run_id).verdict(variant)
    last = stored.decisions[-1].hash if stored.decisions else None
    return decisions.append(store, run_id, variant, said(stored, action), Seen(stored.sha256, last))


def faults(store, trusted, head=None):
    return list(audit.broken(store, trusted, head))


def test_a_signed_store_is_whole_and_goes_on_from_its_head(signed, trusted):
    store, run_id = signed
    head = audit.head(store)
    assert (head.verdicts, head.decisions, head.roles) == (4, 1, 0)
    assert faults(store, trusted, head) == []
    decide(store, run_id, "mxfp4", "block")
    make_run(store, SMALL)
    assert faults(store, trusted, head) == []
    assert audit.Head(**json.loads(json.dumps(asdict(head)))) == head


def test_an_answer_that_is_sealed_again_without_the_key_is_found_by_audit_gate_and_approval(
    signed, trusted, monkeypatch
):
    store, run_id = signed
    forge_answer(store, run_id, "int2-g32")
    assert list(audit.broken(store, (), None)) == [], "the attacker sealed everything that needs no key"
    found = faults(store, trusted)
    assert len(found) == 4
    assert all("the evidence is not what it was when the verdict on" in fault for fault in found)
    with pytest.raises(IntegrityError, match="the evidence is not what it was"):
        decide_again(store.url, run_id, None)
    monkeypatch.delenv(KEY)
    assert decide_again(store.url, run_id, None).run_id == run_id, "who trusts no key is not protected"


def test_a_verdict_that_is_sealed_again_without_the_key_is_found(signed, trusted):
    store, run_id = signed
    with store.read() as connection:
        row = connection.execute(select(verdicts).where(verdicts.c.variant == "int2-g32")).one()
    body = row.body_json.replace('"word":"undecided"', '"word":"approve"').replace('"exit":12', '"exit":0')
    assert body != row.body_json
    tamper(store, "update verdicts set body_json = :body, word = 'approve', sha256 = :sha where variant = 'int2-g32'",
           body=body, sha=verdict_digest(run_id, row.policy_json, body))  # fmt: skip
    assert list(audit.broken(store, (), None)) == []
    [fault, *_] = faults(store, trusted)
    assert "has the signature of another one" in fault
    with pytest.raises(IntegrityError, match="signature of another one"):
        decide_again(store.url, run_id, None)


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("update verdicts set signature = null where variant = 'int8'", "is not signed"),
        ("update verdicts set signature = substr(signature, 1, 60) || 'A' || substr(signature, 62)", "not as signed"),
        ("update verdicts set signature = (select signature from decisions limit 1) where variant = 'int8'",
         "has the signature of another one"),
        ("update decisions set signature = null", "the decision approve 'int8'"),
        ("update verdicts set created_at = '2020-01-01T00:00:00.000000Z' where variant = 'int4-g32'",
         "stands at another place"),
    ],
)  # fmt: skip
def test_a_signature_that_is_taken_away_moved_or_changed_is_found(signed, trusted, attack, said):
    tamper(signed[0], attack)
    assert any(said in fault for fault in faults(signed[0], trusted))


def test_who_signs_with_another_key_is_not_trusted_and_decides_nothing_where_the_first_is(
    signed, trusted, keys, monkeypatch
):
    store, run_id = signed
    monkeypatch.setenv(KEY, str(keys / "other"))
    with pytest.raises(IntegrityError, match="which is no trusted key"):
        decide(store, run_id, "int4-g32", "block")
    monkeypatch.setenv(TRUSTED, str(public_path(keys / "mine")))
    decide(store, run_id, "int4-g32", "block")
    [fault] = faults(store, trusted)
    assert "the decision block 'int4-g32'" in fault
    assert "which is no trusted key" in fault


def test_a_decision_that_nobody_signed_is_vouched_for_by_a_person_who_says_so(signed, trusted, keys, monkeypatch):
    store, run_id = signed
    monkeypatch.delenv(KEY)
    decide(store, run_id, "int4-g32", "block")
    assert "is not signed" in faults(store, trusted)[0]
    monkeypatch.setenv(TRUSTED, str(public_path(keys / "mine")))
    with pytest.raises(IntegrityError, match="is not signed"):
        decide(store, run_id, "mxfp4", "block")
    monkeypatch.setenv(KEY, str(keys / "mine"))
    assert (audit.sign_run(store, run_id), audit.sign_run(store, run_id)) == (1, 0)
    assert faults(store, trusted) == []
    decide(store, run_id, "mxfp4", "block")
    tamper(store, "delete from sealed where kind = 'vouched'")
    assert "is not signed" in faults(store, trusted)[0]


def test_a_block_that_was_removed_shows_at_the_decisions_of_other_runs(signed, trusted):
    store, run_id = signed
    other = make_run(store, SMALL)
    block = decide(store, run_id, "int4-g32", "block")
    last = decide(store, other, "int8", "block")
    tamper(store, "delete from decisions where hash = :hash", hash=block.hash)
    with store.read() as connection:
        first, row = connection.execute(select(tables.decisions).order_by(tables.decisions.c.decision_id)).all()
    moved = {**row._mapping, "prev_hash": first.hash}
    tamper(store, "update decisions set prev_hash = :before, hash = :hash where hash = :old",
           before=first.hash, hash=decisions.row_hash(moved), old=last.hash)  # fmt: skip
    audit.check_signed(store, run_id)
    with pytest.raises(IntegrityError, match=f"run {other}: the decision block 'int8'"):
        audit.check_signed(store, run_id, all_decisions=True)


@pytest.mark.parametrize("cut", ["verdicts where verdict_id = (select max(verdict_id) from verdicts)",
                                 "verdicts", "decisions"])  # fmt: skip
def test_what_is_cut_off_the_end_is_found_by_a_saved_head(signed, trusted, cut):
    store, _ = signed
    head = audit.head(store)
    tamper(store, f"delete from {cut}")
    assert not [fault for fault in faults(store, trusted) if "head" in fault]
    [fault] = [fault for fault in faults(store, trusted, head) if "that the head of" in fault]
    assert fault.endswith("are fewer now")


def test_a_label_or_a_load_that_is_cut_off_the_end_is_found_by_a_saved_head(signed, trusted):
    store, _ = signed
    for number in range(2):
        store_rows(store, [sealed_row("load", {"number": number})])
    head = audit.head(store)
    store_rows(store, [sealed_row("night", {"later": True})])
    assert faults(store, trusted, head) == []
    tamper(store, "delete from sealed where kind = 'load' and body_json like '%1%'")
    assert faults(store, trusted) == []
    [fault] = faults(store, trusted, head)
    assert "the 2 labels, preferences, loads, nights and other records that the head" in fault
    assert fault.endswith("are others now")


def test_an_emptied_table_of_scores_is_one_line_for_its_run(signed, trusted):
    store, run_id = signed
    tamper(store, "delete from scores")
    assert len(faults(store, ())) == 1
    assert faults(store, ())[0] == f"run {run_id}: its 60 answers are not what was recorded: none has a score"


def test_a_store_that_was_written_anew_from_its_first_row_is_found_by_a_saved_head(signed, trusted, tmp_path):
    store, _ = signed
    head = audit.head(store)
    with open_store(f"sqlite:///{tmp_path / 'anew.db'}") as anew:
        run_id = make_run(anew, SMALL)
        decide(anew, run_id, "int8", "approve")
        assert faults(anew, trusted) == []
        assert [fault.split(" that")[0] for fault in faults(anew, trusted, head)] == [
            "the 4 verdicts",
            "the 1 decisions",
        ]


def test_verdicts_from_before_there_was_a_key_are_signed_by_a_person_who_says_so(recorded, keys, monkeypatch):
    store, run_id = recorded
    trusted = public_keys([public_path(keys / "mine")])
    assert len(faults(store, trusted)) == 4
    with pytest.raises(UsageError, match="no key to sign with"):
        audit.sign_run(store, run_id)
    monkeypatch.setenv(KEY, str(keys / "mine"))
    before = queries.run_summary(store, run_id)
    assert (audit.sign_run(store, run_id), audit.sign_run(store, run_id)) == (4, 0)
    assert faults(store, trusted) == []
    after = queries.run_summary(store, run_id)
    assert [one.sha256 for one in after.verdicts] == [one.sha256 for one in before.verdicts]


def test_damage_is_not_signed(recorded, trusted):
    tamper(recorded[0], "update units set text = 'forged'")
    with pytest.raises(IntegrityError, match="Nothing was signed"):
        audit.sign_run(*recorded)


def test_a_later_scoring_is_signed_with_its_verdicts_and_a_forged_one_is_found(signed, trusted):
    store, run_id = signed
    last = scorings.read(store, run_id)
    scores = {answer.unit_id: answer.scores for answer in last.answers}
    scorings.add(store, run_id, last.number, scores, {})
    assert any("the evidence is not what it was" in fault for fault in faults(store, trusted))
    assert audit.sign_run(store, run_id) == 4
    assert faults(store, trusted) == []


def test_without_a_key_nothing_is_signed_and_nothing_asked(recorded, monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    store, run_id = recorded
    decide(store, run_id, "int8", "block")
    with store.read() as connection:
        assert {*connection.scalars(text("select signature from verdicts union select signature from decisions"))} == {
            None
        }
    assert faults(store, ()) == []


@pytest.mark.parametrize("written_meanwhile", [False, True])
def test_a_decision_computes_the_seal_once_before_others_wait_for_it_and_again_if_somebody_wrote_meanwhile(
    signed, trusted, keys, monkeypatch, written_meanwhile
):
    store, run_id = signed
    monkeypatch.setenv(TRUSTED, str(public_path(keys / "mine")))
    computed, locked, real, write = [], [], evidence_seal.evidence_seal, type(store).write

    @contextmanager
    def writing(self, run=""):
        with write(self, run) as connection:
            locked.append(True)
            yield connection
        locked.clear()

    def counted(connection, of):
        computed.append(bool(locked))
        return real(connection, of)

    def checked(store, of):
        if written_meanwhile:
            tamper(store, "update units set sha256 = 'x' || substr(sha256, 2) where unit_id = 1")

    for module in (evidence_seal, signatures):
        monkeypatch.setattr(module, "evidence_seal", counted)
    monkeypatch.setattr(decisions, "check_evidence", checked)
    monkeypatch.setattr(type(store), "write", writing)
    if written_meanwhile:
        with pytest.raises(IntegrityError, match="the evidence is not what it was when"):
            decide(store, run_id, "int4-g32", "approve")
    else:
        decide(store, run_id, "int4-g32", "approve")
    assert computed == [False, True][: 1 + written_meanwhile]
