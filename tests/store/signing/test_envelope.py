"""A signed envelope: what is opened is what was signed by a trusted key, whatever byte is changed."""

from __future__ import annotations

import random

import pytest

from qualgate.errors import UsageError
from qualgate.store.signing.envelope import MOST, NotSigned, opened, sign
from qualgate.store.signing.keys import KEY, TRUSTED, make_key, own_key, public_keys, public_path, signer, trusted_keys

BODY = {"number": 1, "text": "漢 \"'\\ \u202e"}


@pytest.fixture
def key(tmp_path):
    make_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def text(key):
    return sign(BODY, "a/b", signer(key))


def test_what_is_opened_is_what_was_signed_and_by_whom(key, text):
    public = public_keys([public_path(key)])
    assert opened(text, "a/b", public) == (BODY, public[0].keyid)
    assert opened(text + "\n", "a/b", public) == (BODY, public[0].keyid)


def test_a_changed_bit_anywhere_is_refused(key, text):
    public, rng = public_keys([public_path(key)]), random.Random(4)
    for _ in range(400):
        changed = bytearray(text.encode())
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        with pytest.raises(NotSigned):
            opened(changed.decode("latin-1"), "a/b", public)


@pytest.mark.parametrize("hostile", ["", "null", "[]", "{}", "1", '{"payload":1,"payloadType":"a/b","signatures":[]}',
                                     "[" * 100_000, "x" * (MOST + 1), "\ud800"])  # fmt: skip
def test_no_text_but_an_envelope_is_opened(key, hostile):
    with pytest.raises(NotSigned):
        opened(hostile, "a/b", public_keys([public_path(key)]))


def test_the_same_envelope_written_in_other_letters_is_refused(key, text):
    public = public_keys([public_path(key)])
    for other in (text.replace('","', '", "', 1), " " + text, text + "\r"):
        with pytest.raises(NotSigned):
            opened(other, "a/b", public)


def test_another_type_another_key_and_no_key_are_refused_by_name(key, text, tmp_path):
    make_key(tmp_path / "other")
    with pytest.raises(NotSigned, match="holds 'a/b', not c/d"):
        opened(text, "c/d", public_keys([public_path(key)]))
    for keys in (public_keys([public_path(tmp_path / "other")]), ()):
        with pytest.raises(NotSigned, match="is no trusted key"):
            opened(text, "a/b", keys)


def test_a_key_is_private_and_is_never_written_over(key):
    assert key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="cannot be written"):
        make_key(key)


def test_keys_come_from_the_environment_the_own_one_is_trusted_too(key, tmp_path, monkeypatch):
    make_key(tmp_path / "other")
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.setenv(TRUSTED, f"{public_path(tmp_path / 'other')}")
    assert own_key() is None
    assert trusted_keys() == public_keys([public_path(tmp_path / "other")])
    monkeypatch.setenv(KEY, str(key))
    assert own_key().public_key == public_keys([public_path(key)])[0]
    assert trusted_keys() == public_keys([public_path(key), public_path(tmp_path / "other")])


def test_a_file_that_holds_no_such_key_is_named(key, tmp_path):
    (tmp_path / "text").write_text("no key")
    with pytest.raises(UsageError, match=r"text: this is no private key"):
        signer(tmp_path / "text")
    with pytest.raises(UsageError, match=r"text: this is no public key"):
        public_keys([tmp_path / "text"])
    with pytest.raises(UsageError, match=r"this is the private key; give the public one, key\.pub"):
        public_keys([key])
    with pytest.raises(UsageError, match="cannot be read"):
        signer(tmp_path / "absent")
    with pytest.raises(UsageError, match="no private key in PEM"):
        signer(public_path(key))


def test_another_kind_of_key_is_refused(tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private = generate_private_key(SECP256R1())
    (tmp_path / "ec").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "ec.pub").write_bytes(
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for read in (lambda: signer(tmp_path / "ec"), lambda: public_keys([tmp_path / "ec.pub"])):
        with pytest.raises(UsageError, match="no Ed25519 key"):
            read()
