"""Bundles of OpenSSF model-signing 1.x, signed with a key: read and written without that library.

A bundle lists the files of a model folder by sha256, in an in-toto statement in a DSSE envelope. It says nothing of a
verdict. Keys are elliptic curves (P-256, P-384, P-521), for the library takes no Ed25519 key.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from qualgate.errors import UsageError
from qualgate.errors.extras import needs
from qualgate.store.signing.envelope import NotSigned
from qualgate.store.signing.manifest import NOT_OF_THE_MODEL, differences
from qualgate.store.signing.statement import PAYLOAD, STATEMENT

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

MEDIA = "application/vnd.dev.sigstore.bundle.v0.3+json"
PREDICATE = "https://model_signing/signature/v1.0"
MOST = 16 << 20  # characters of a bundle: 10,000 files take 4 million
MAKE_KEY = "openssl ecparam -name prime256v1 -genkey -noout -out FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A publisher's bundle, and the file of the public key that must have signed it."""

    file: Path
    key: Path

    def fault(self, folder: Path, files: Mapping[str, str]) -> str:
        """Return how a folder's files differ from those of the bundle; "" if they do not. A file that the bundle does
        not list differs, also where the bundle says that it ignores it. NotSigned for a bundle that its key did not
        sign. files: path inside the folder → sha256."""
        listed = {name: digest for name, digest in self._files().items() if name.split("/")[0] not in NOT_OF_THE_MODEL}
        own = self.file.resolve()
        found = {name: digest for name, digest in files.items() if (folder / name).resolve() != own or name in listed}
        if different := differences(listed, found):
            return f"these are not the files of the bundle {self.file}: {different}"
        return ""

    def _files(self) -> dict[str, str]:
        """Return path → sha256 of each listed file, whose signature is checked first."""
        try:
            if self.file.stat().st_size > MOST:
                raise NotSigned(f"{self.file}: the bundle has more than {MOST:,} characters")
            bundle = json.loads(self.file.read_bytes())
            if (
                "certificate" in bundle["verificationMaterial"]
                or "x509CertificateChain" in bundle["verificationMaterial"]
            ):
                raise NotSigned(f"{self.file}: it is signed with a certificate (sigstore); only keys are checked here")
            envelope, hint = bundle["dsseEnvelope"], bundle["verificationMaterial"]["publicKey"].get("hint")
            payload, [signature] = b64decode(envelope["payload"], validate=True), envelope["signatures"]
            signed, kinds = b64decode(signature["sig"], validate=True), (bundle["mediaType"], envelope["payloadType"])
        except OSError as error:
            raise UsageError(f"{self.file}: the bundle cannot be read ({error.strerror}).") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise NotSigned(f"{self.file}: this is no bundle of model-signing, or a damaged one") from None
        if kinds != (MEDIA, PAYLOAD):
            raise NotSigned(
                f"{self.file}: this is no bundle of model-signing 1.x but {' of '.join(map(str, kinds))!r:.100}"
            )
        _check_signature(self.file, self.key, hint, payload, signed)
        return _listed(self.file, payload)


def _check_signature(file: Path, key: Path, hint: object, payload: bytes, signed: bytes) -> None:
    from cryptography.exceptions import InvalidSignature

    public = _public_key(key)
    if hint and hint != _hint(public):
        raise NotSigned(f"{file}: it is not signed by the key {key}")
    try:
        public.verify(signed, _signed_bytes(payload), _hash_of(public))
    except InvalidSignature:
        raise NotSigned(f"{file}: its signature does not fit its text, or is not by the key {key}") from None


def _listed(file: Path, payload: bytes) -> dict[str, str]:
    """Return the files in a signed statement. NotSigned for another statement, or a root digest that does not fit."""
    try:
        body = json.loads(payload)
        kind, [subject], predicate = (body["_type"], body["predicateType"]), body["subject"], body["predicate"]
        how = predicate["serialization"]["method"], predicate["serialization"]["hash_type"]
        if kind != (STATEMENT, PREDICATE) or how != ("files", "sha256"):
            raise NotSigned(
                f"{file}: only lists of whole files by sha256 are read ({PREDICATE}), not {(*kind, *how)!r:.200}"
            )
        rows = [(row["name"], row["digest"], row["algorithm"]) for row in predicate["resources"]]
        root = sha256(b"".join(bytes.fromhex(digest) for _, digest, _ in rows)).hexdigest()
        files = {str(PurePosixPath(name)): digest.lower() for name, digest, _ in rows}
        if root != subject["digest"]["sha256"] or len(files) < len(rows) or {row[2] for row in rows} != {"sha256"}:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NotSigned(f"{file}: what is signed is no list of files of model-signing") from None
    return files


def write_bundle(folder: str, files: Mapping[str, str], ignored: Sequence[str], key: Path) -> str:
    """Return a bundle of a folder's files, which `model_signing verify key` accepts.

    Args:
        folder: Its name.
        files: Path inside it → sha256.
        ignored: Paths inside it that are not listed, beside `NOT_OF_THE_MODEL`.
        key: The private key's file. UsageError for one that holds none.
    """
    private, ordered = _private_key(key), sorted(files, key=PurePosixPath)
    root = sha256(b"".join(bytes.fromhex(files[name]) for name in ordered)).hexdigest()
    how = {"method": "files", "hash_type": "sha256", "allow_symlinks": True}
    predicate = {
        "resources": [{"name": name, "algorithm": "sha256", "digest": files[name]} for name in ordered],
        "serialization": {**how, "ignore_paths": [*NOT_OF_THE_MODEL, *ignored]},
    }
    subject = [{"name": folder, "digest": {"sha256": root}}]
    statement = {"_type": STATEMENT, "subject": subject, "predicateType": PREDICATE, "predicate": predicate}
    payload = json.dumps(statement).encode()
    signed = private.sign(_signed_bytes(payload), _hash_of(private.public_key()))
    material = {"publicKey": {"hint": _hint(private.public_key())}, "tlogEntries": []}
    envelope = {
        "payload": b64encode(payload).decode(),
        "payloadType": PAYLOAD,
        "signatures": [{"sig": b64encode(signed).decode(), "keyid": ""}],
    }
    return json.dumps({"mediaType": MEDIA, "verificationMaterial": material, "dsseEnvelope": envelope})


def _signed_bytes(payload: bytes) -> bytes:
    """Return the bytes that DSSE signs: the payload with its type and both lengths."""
    return f"DSSEv1 {len(PAYLOAD)} {PAYLOAD} {len(payload)} ".encode() + payload


def _public_key(path: Path) -> EllipticCurvePublicKey:
    return _curve_key(path, "load_pem_public_key", "EllipticCurvePublicKey", "the public key")


def _private_key(path: Path) -> EllipticCurvePrivateKey:
    return _curve_key(path, "load_pem_private_key", "EllipticCurvePrivateKey", "a private key without a password")


def _curve_key(path: Path, load: str, kind: str, what: str) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise UsageError(needs("a bundle of model-signing", "signing")) from None
    try:
        content = path.read_bytes()
        more = () if "public" in load else (None,)
        key: Any = getattr(serialization, load)(content, *more)
        if isinstance(key, getattr(ec, kind)) and key.curve.name in ("secp256r1", "secp384r1", "secp521r1"):
            return key
    except OSError as error:
        raise UsageError(f"{path}: the key cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError):
        pass
    raise UsageError(f"{path}: give {what} of P-256, P-384 or P-521 in PEM; model-signing takes no other: {MAKE_KEY}")


def _hash_of(public: EllipticCurvePublicKey) -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.ECDSA({256: hashes.SHA256, 384: hashes.SHA384}.get(public.curve.key_size, hashes.SHA512)())


def _hint(public: EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return sha256(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
