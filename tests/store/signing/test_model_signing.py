"""Bundles of OpenSSF model-signing beside an attestation: read from its publisher, and written for others.

`bundles` holds one that version 1.1.1 of the library made. With QUALGATE_MODEL_SIGNING=PYTHON, an interpreter that has
the library and pyOpenSSL, `pytest -m interop` proves both directions against it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from qualgate.errors import IntegrityError
from qualgate.store.signing.manifest import manifest_of
from qualgate.store.signing.model_signing import Bundle
from tests.command_line import qualgate
from tests.store.signing.test_attestation import verified

BUNDLES = Path(__file__).with_name("bundles")
LIBRARY = os.environ.get("QUALGATE_MODEL_SIGNING")
WITH_PUBLISHER = ("--bundle", "model.sig", "--bundle-key", "ec.pub")


def make_key(folder: Path, name: str = "ec", curve: ec.EllipticCurve | None = None) -> None:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    (folder / name).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pub").write_bytes(public)


def attested_with(folder: Path, *more: str, variant: str = "same", model: str = "copy"):
    words = ("--folder", model, "--out", "att.json", *more)
    return qualgate("attest", variant, *words, cwd=folder, QUALGATE_KEY="ci")


@pytest.fixture
def written(signed) -> Path:
    """A folder `copy` with its attestation, and a bundle that `attest` wrote."""
    make_key(signed)
    made = attested_with(signed, "--write-bundle", "model.sig", "--sign-bundle", "ec")
    assert made.returncode == 0, made.stderr
    return signed


def test_a_folder_is_verified_by_its_bundle_too_and_a_file_that_it_does_not_list_is_named(written):
    assert verified(written, "copy", *WITH_PUBLISHER).returncode == 0
    shutil.move(written / "model.sig", written / "copy" / "model.sig")
    inside = ("--bundle", "copy/model.sig", "--bundle-key", "ec.pub")
    assert verified(written, "copy", *inside).returncode == 0, "where others look for it"
    (written / "copy" / "more.txt").write_text("x")
    found = verified(written, "copy", *inside)
    assert (found.returncode, "the files of the bundle copy/model.sig: more.txt was added" in found.stdout) == (
        14,
        True,
    )


def test_a_bundle_that_is_changed_or_by_another_key_is_refused(written):
    make_key(written, "other", ec.SECP521R1())
    found = verified(written, "copy", "--bundle", "model.sig", "--bundle-key", "other.pub")
    assert (found.returncode, "not signed by the key other.pub" in found.stderr) == (14, True)
    path, rng = written / "model.sig", random.Random(4)
    whole, before = path.read_bytes(), verified(written, "copy", *WITH_PUBLISHER).stdout
    for _ in range(40):
        bad = bytearray(whole)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        found = verified(written, "copy", *WITH_PUBLISHER)
        assert found.returncode == 14 or found.stdout == before  # a key id, or a name that nobody reads
    for text in ("{}", "[" * 100_000, '{"verificationMaterial": {"certificate": {}}}'):
        path.write_text(text)
        assert verified(written, "copy", *WITH_PUBLISHER).returncode == 14


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--bundle", "model.sig"), "go together"),
        (("--bundle", "model.sig", "--bundle-key", "ci.pub"), "P-256, P-384 or P-521"),
        (("--bundle", "none.sig", "--bundle-key", "ec.pub"), "cannot be read"),
    ],
)
def test_words_that_make_no_check_are_named(written, options, why):
    found = verified(written, "copy", *options)
    assert (found.returncode, why in " ".join(found.stderr.split())) == (64, True), found.stderr


def test_what_its_publisher_did_not_sign_is_not_attested_and_what_is_blocked_gets_no_bundle(written):
    assert attested_with(written, *WITH_PUBLISHER).returncode == 0
    (written / "copy" / "notes.txt").write_text("x")
    found = attested_with(written, *WITH_PUBLISHER)
    assert (found.returncode, "notes.txt was added" in found.stderr) == (14, True)
    found = attested_with(written, "--write-bundle", "n.sig", "--sign-bundle", "ec", variant="noisy", model="noisy")
    assert (found.returncode, "says nothing of a verdict" in " ".join(found.stderr.split())) == (64, True)
    assert not (written / "n.sig").exists()


def test_a_bundle_of_the_library_is_read(tmp_path):
    for name, text in (("config.json", "hi\n"), ("sub/w.safetensors", "w\n"), (".cache/c", "c\n"), (".git/x", "g\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    file, key = BUNDLES / "model_signing_1_1_1.json", BUNDLES / "model_signing_1_1_1.pub"
    bundle = Bundle(file=file, key=key)
    assert bundle.fault(tmp_path, manifest_of(tmp_path)) == ""
    (tmp_path / ".gitignore").write_text("*")
    assert ".gitignore was added" in bundle.fault(tmp_path, manifest_of(tmp_path)), "which the library ignores"
    body = json.loads(file.read_text())
    body["dsseEnvelope"]["signatures"] *= 2
    (tmp_path / "two.json").write_text(json.dumps(body))
    with pytest.raises(IntegrityError, match="no bundle"):
        Bundle(file=tmp_path / "two.json", key=key).fault(tmp_path, {})


def library(folder: Path, *words: str) -> int:
    command = [str(LIBRARY), "-m", "model_signing", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


@pytest.mark.interop
@pytest.mark.skipif(not LIBRARY, reason="QUALGATE_MODEL_SIGNING names no interpreter")
@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_the_library_takes_our_bundles_and_we_take_its(signed, curve):
    make_key(signed, curve=curve)
    (signed / "copy" / ".cache").mkdir()
    (signed / "copy" / ".cache" / "c").write_text("c")
    made = attested_with(signed, "--out", "copy/att.json", "--write-bundle", "copy/model.sig", "--sign-bundle", "ec")
    assert made.returncode == 0, made.stderr
    check = ("verify", "key", "copy", "--public_key", "ec.pub", "--signature", "copy/model.sig")
    assert library(signed, *check) == 0
    for name in ("config.json", "more.txt"):
        path = signed / "copy" / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes((before or b"") + b" ")
        assert library(signed, *check) != 0, name
        path.write_bytes(before) if before else path.unlink()
    (signed / "copy" / "model.sig").unlink()
    assert library(signed, "sign", "key", "copy", "--private_key", "ec", "--signature", "their.sig") == 0
    theirs = ("--bundle", "their.sig", "--bundle-key", "ec.pub")
    found = verified(signed, "copy", *theirs, attestation="copy/att.json")
    assert (found.returncode, "att.json is missing" in found.stdout) == (14, True), "it lists the attestation, too"
    shutil.move(signed / "copy" / "att.json", signed / "att.json")
    assert library(signed, "sign", "key", "copy", "--private_key", "ec", "--signature", "their.sig") == 0
    assert verified(signed, "copy", *theirs).returncode == 0
