"""Ed25519 keys: made, and read from the files that the environment names. A key never enters a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from qualgate.errors import UsageError
from qualgate.errors.extras import needs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
    from securesystemslib.signer import CryptoSigner, SSlibKey

Key = TypeVar("Key")
KEY = "QUALGATE_KEY"  # file of the private key that signs
TRUSTED = "QUALGATE_TRUSTED_KEYS"  # files of public keys, separated as in PATH


def make_key(path: Path) -> SSlibKey:
    """Write a new private key to `path`, which only its owner may read, and the public one beside it, as `path`.pub.
    UsageError if one of the files exists or cannot be written."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    made = _library().generate_ed25519()
    public = made.public_key._crypto_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for file, text, mode in ((path, made.private_bytes, 0o600), (public_path(path), pem, 0o644)):
        try:
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
                out.write(text)
        except OSError as error:
            raise UsageError(f"{file}: the key cannot be written ({error.strerror}).") from None
    return made.public_key


def public_path(path: Path) -> Path:
    """Return where `make_key` puts the public key."""
    return path.with_name(path.name + ".pub")


def own_key() -> CryptoSigner | None:
    """Return the key that QUALGATE_KEY names; None if it names none. UsageError for a file that is no Ed25519 key."""
    return signer(Path(name)) if (name := os.environ.get(KEY, "").strip()) else None


def signing_key() -> CryptoSigner:
    """Return that key. UsageError as `own_key`, and if QUALGATE_KEY names none."""
    if (key := own_key()) is None:
        raise UsageError(f"there is no key to sign with: set {KEY} to a key's file. `qualgate key new FILE` makes one.")
    return key


def trusted_keys() -> tuple[SSlibKey, ...]:
    """Return the public keys that the environment names, the own one too. UsageError as `own_key` and `public_keys`."""
    names = [name for name in os.environ.get(TRUSTED, "").split(os.pathsep) if name.strip()]
    own = own_key()
    return (*([own.public_key] if own else []), *public_keys([Path(name) for name in names]))


def signer(path: Path) -> CryptoSigner:
    """Return the private key of a PEM file without a password. UsageError if it is none."""
    return _signer(path, _content(path))


def public_keys(paths: Sequence[Path]) -> tuple[SSlibKey, ...]:
    """Return the public keys of PEM files. UsageError for a file that holds none."""
    return tuple(_public(path, _content(path)) for path in paths)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: the key cannot be read ({error.strerror}).") from None


@cache
def _signer(path: Path, content: bytes) -> CryptoSigner:
    library = _library()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private: PrivateKeyTypes = load_pem_private_key(content, None)
        return library(_ed25519(path, private, private.public_key()))
    except (ValueError, TypeError):
        raise UsageError(
            f"{path}: this is no private key in PEM without a password. `qualgate key new FILE` makes one."
        ) from None


@cache
def _public(path: Path, content: bytes) -> SSlibKey:
    _library()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    try:
        key: PublicKeyTypes = load_pem_public_key(content)
        return SSlibKey.from_crypto(_ed25519(path, key, key))
    except ValueError:
        private = b"PRIVATE KEY" in content
        raise UsageError(
            f"{path}: " + (f"this is the private key; give the public one, {public_path(path).name}." if private else
                           "this is no public key in PEM.")
        ) from None  # fmt: skip


def _ed25519(path: Path, key: Key, public: object) -> Key:
    """Return `key` if its public half is of Ed25519. UsageError for another kind."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(public, Ed25519PublicKey):
        raise UsageError(f"{path}: this is no Ed25519 key. `qualgate key new FILE` makes one.")
    return key


def _library() -> type[CryptoSigner]:
    """Return the library's signer. UsageError, with the command that installs it, if it is not there."""
    try:
        from securesystemslib.signer import CryptoSigner
    except ImportError:
        raise UsageError(needs("signing", "signing")) from None
    return CryptoSigner
