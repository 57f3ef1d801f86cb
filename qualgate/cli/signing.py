"""Keys, the audit of a store, and attestations: `key`, `audit`, `attest` and `verify`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qualgate.cli.arguments import JsonOption, StoreOption, store_url
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say
from qualgate.errors import Exit, UsageError

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

    from qualgate.store.audit import Head
    from qualgate.store.signing.check import Checked
    from qualgate.store.signing.model_signing import Bundle

key_app = typer.Typer(help="Keys that sign verdicts, decisions and attestations.", no_args_is_help=True)
audit_app = typer.Typer(help="Whether a store is what was recorded and signed.", no_args_is_help=True)
KeysOption = Annotated[
    list[Path] | None,
    typer.Option("--key", help="file of a trusted public key; by default those of QUALGATE_TRUSTED_KEYS"),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="write to this file instead of the terminal")]
BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", help="OpenSSF model-signing bundle, signed with a key: it must list the folder's files"),
]
BundleKeyOption = Annotated[
    Path | None, typer.Option("--bundle-key", help="the bundle's public key, of P-256, P-384 or P-521")
]
DaysOption = Annotated[float, typer.Option("--days", min=0.001, max=3_660, help="how long it holds")]


@key_app.command("new")
def key_new(file: Annotated[Path, typer.Argument(metavar="FILE", help="a new file, for the private key")]) -> None:
    """Make a key (Ed25519): the private one in FILE, the public one in FILE.pub."""
    from qualgate.store.signing.keys import KEY, make_key, public_path

    made = make_key(file)
    say(
        f"key {made.keyid[:12]}\n"
        f"{file}: private. Whoever has it can sign: keep it away from the store. To sign with it:\n"
        f"  export {KEY}={file.absolute()}\n"
        f"{public_path(file)}: public, for whoever checks signatures"
    )


@audit_app.command("verify")
def audit_verify(
    store: StoreOption = None,
    key: KeysOption = None,
    head: Annotated[Path | None, typer.Option("--head", help="a head that `audit head` saved earlier")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every digest and signature of a store, and that its history continues a saved head.

    Without a trusted key only digests are checked, which whoever can write the store can compute anew."""
    from qualgate.report.screen import fit
    from qualgate.store.audit import broken
    from qualgate.store.audit import head as head_of
    from qualgate.store.database import open_store
    from qualgate.text.escaping import visible_line
    from qualgate.text.numbers import counted

    keys, saved = _keys(key), _saved(head)
    with open_store(store_url(None, store), create=False) as opened:
        faults = [visible_line(line) for line in broken(opened, keys, saved)]
        now = None if faults else head_of(opened)
    covers = _covers(keys, saved)
    if as_json:
        say(json.dumps({"faults": faults, "covers": covers, "head": asdict(now) if now else None}, indent=2))
    for line in [] if as_json else faults:
        say(fit(line))
    if not as_json and now is not None:
        held = f"{counted(now.verdicts, 'verdict')}, {counted(now.decisions, 'decision')}"
        say(fit(f"whole: {held}; checked: {', '.join(covers)}"))
    if faults:
        raise typer.Exit(Exit.INTEGRITY)


@audit_app.command("head")
def audit_head(store: StoreOption = None, out: OutOption = None) -> None:
    """Print the head of a store's history, as JSON. Keep it elsewhere: with it, `audit verify` finds rows that were
    removed or replaced since, even by somebody who has the key."""
    from qualgate.store.audit import head
    from qualgate.store.database import open_store

    with open_store(store_url(None, store), create=False) as opened:
        _write(json.dumps(asdict(head(opened))), out)


@audit_app.command("sign")
def audit_sign(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="id of the run")], store: StoreOption = None
) -> None:
    """Sign the newest verdicts of a run that was made without a key, or that changed since they were signed. You say
    with it that you trust what is stored."""
    from qualgate.store.audit import sign_run
    from qualgate.store.database import open_store

    with open_store(store_url(None, store), create=False) as opened:
        count = sign_run(opened, run_id)
    say(f"run {run_id}: {count} signed" if count else f"run {run_id}: every verdict was signed already")


@audit_app.command("revoked")
def audit_revoked(store: StoreOption = None, days: DaysOption = 30, out: OutOption = None) -> None:
    """Print the signed list of blocks and revocations, for `verify --revoked`: earlier attestations do not hold."""
    from qualgate.pipeline.attest import revoked

    text, count = revoked(store_url(None, store), days)
    _write(text, out)
    tell(f"revoked or blocked: {count}")


def attest(
    variant: Annotated[str, typer.Argument(metavar="VARIANT", help="name of the variant")],
    run_id: Annotated[str | None, typer.Option("--run", help="id of a run; the newest by default")] = None,
    store: StoreOption = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="where the variant's folder is now")] = None,
    days: DaysOption = 90,
    out: OutOption = None,
    bundle: BundleOption = None,
    bundle_key: BundleKeyOption = None,
    write_bundle: Annotated[
        Path | None, typer.Option("--write-bundle", help="also write such a bundle of the approved folder to this file")
    ] = None,
    sign_bundle: Annotated[Path | None, typer.Option("--sign-bundle", help="the new bundle's private key")] = None,
) -> None:
    """Sign what was decided about a variant's folder, as an in-toto attestation, for `qualgate verify`."""
    from qualgate.pipeline.attest import Bundles
    from qualgate.pipeline.attest import attest as made
    from qualgate.text.escaping import visible_line

    if (write_bundle is None) != (sign_bundle is None):
        raise UsageError("--write-bundle FILE and --sign-bundle KEY go together.")
    bundles = Bundles(publisher=_bundle(bundle, bundle_key), out=write_bundle, key=sign_bundle)
    text, attested, written = made(store_url(None, store), run_id, variant, folder, days, out, bundles)
    _write(text, out)
    if written:
        _write(written, write_bundle)
    decided = f"; {attested.decided}" if attested.decided else ""
    holds = "" if attested.result == "FAILED" else f" Holds until {attested.until[:16]}."
    tell(visible_line(f"{attested.result}: {attested.variant}, the gate says {attested.word}{decided}.{holds}"))


def verify(
    folder: Annotated[Path, typer.Argument(metavar="MODEL_FOLDER", help="the folder to be deployed")],
    attestation: Annotated[Path, typer.Option("--attestation", help="what `qualgate attest` wrote")],
    policy: Annotated[Path, typer.Option("--policy", help="your gate file: its rules must be those that decided")],
    key: KeysOption = None,
    revoked: Annotated[Path | None, typer.Option("--revoked", help="what `qualgate audit revoked` wrote")] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="digest that the baseline must have, as an earlier `verify` showed it")
    ] = "",
    accept_overruled: Annotated[
        bool, typer.Option("--accept-overruled", help="accept what a person approved against the gate")
    ] = False,
    bundle: BundleOption = None,
    bundle_key: BundleKeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a model folder is what was judged and approved, by your rules. Needs no store and no network; exits
    with 0 only if everything matches and nothing is expired or revoked."""
    from qualgate.config import load_gate_file
    from qualgate.pipeline.attest import expected_of
    from qualgate.store.signing.check import check

    keys = _keys(key)
    if not keys:
        raise UsageError("without a trusted key nothing can be verified: give --key, or set QUALGATE_TRUSTED_KEYS.")
    for file in (attestation, *([revoked] if revoked else [])):
        if not file.is_file():
            raise UsageError(f"{file} is not there.")
    expected = replace(expected_of(load_gate_file(policy, files=False)), baseline=baseline)
    listed = revoked.read_text(encoding="utf-8", errors="replace") if revoked else ""
    publisher = _bundle(bundle, bundle_key)
    checked = check(folder, attestation, expected, keys, datetime.now(UTC), revoked=listed, overruled=accept_overruled,
                    bundle=publisher)  # fmt: skip
    _show(folder, checked, as_json=as_json)
    raise typer.Exit(checked.exit)


_SHOWN = ("result", "run", "variant", "word", "baseline", "decided", "made", "until")


def _show(folder: Path, checked: Checked, *, as_json: bool) -> None:
    from qualgate.report.screen import fit
    from qualgate.text.escaping import visible_line

    attested = checked.attested
    if as_json:
        body = {name: getattr(attested, name) for name in _SHOWN}
        say(json.dumps({"exit": int(checked.exit), "reasons": checked.reasons, "key": checked.key, **body}, indent=2))
        return
    for reason in checked.reasons:
        say(fit(f"{folder}: {visible_line(reason)}"))
    if not checked.reasons:
        what = f"{attested.variant} ({attested.weights}) of run {attested.run}, the gate said {attested.word}"
        decided = f"; {attested.decided}" if attested.decided else ""
        say(fit(f"{folder}: approved. {visible_line(what + decided)}. Holds until {attested.until[:16]}."))
        say(fit(f"compared with the baseline {attested.baseline}"))


def _bundle(file: Path | None, key: Path | None) -> Bundle | None:
    """Return the publisher's bundle; None if none is given. UsageError for a file without a key, or the reverse."""
    from qualgate.store.signing.model_signing import Bundle

    if (file is None) != (key is None):
        raise UsageError("--bundle FILE and --bundle-key KEY go together.")
    return Bundle(file=file, key=key) if file is not None and key is not None else None


def _keys(files: Sequence[Path] | None) -> tuple[SSlibKey, ...]:
    from qualgate.store.signing.keys import public_keys, trusted_keys

    return public_keys(files) if files else trusted_keys()


def _covers(keys: Sequence[SSlibKey], saved: Head | None) -> list[str]:
    by_keys = [f"signatures by {', '.join(key.keyid[:12] for key in keys)}"] if keys else []
    by_keys = by_keys or ["no signature, for no key was given"]
    return ["digests", *by_keys, *([f"the head of {saved.at[:16]}"] if saved else [])]


def _saved(file: Path | None) -> Head | None:
    """Return the head in a file. UsageError for a file that holds none."""
    from qualgate.store.audit import Head

    if file is None:
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if {name: type(value) for name, value in found.items()} != _HEAD:
            raise ValueError
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror}).") from None
    except (ValueError, AttributeError):
        raise UsageError(f"{file}: this is no head. `qualgate audit head --out {file.name}` saves one.") from None
    return Head(**found)


_HEAD = {
    name: kind
    for what in ("verdicts", "decisions", "roles", "records")
    for name, kind in ((what, int), (f"{what}_sha256", str))
}
_HEAD |= {"at": str}


def _write(text: str, out: Path | None) -> None:
    from qualgate.report.render import write_atomically

    if out is None:
        say(text)
    else:
        write_atomically(out, text + "\n")
