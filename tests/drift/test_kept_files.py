"""A baseline kept once as a file, and variants held against it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import IntegrityError, UsageError

POSITIONS, VOCABULARY = 12, 3000


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(7)
    base = random.normal(0, 4, (POSITIONS, VOCABULARY)).astype(np.float32)
    np.save(tmp_path / "base.npy", base)
    np.save(tmp_path / "variant.npy", base + random.normal(0, 0.02, base.shape).astype(np.float32))
    return tmp_path


def drift(folder, *arguments):
    """Names of files are of the folder; a value of an option stays as it is."""
    return CliRunner().invoke(
        app, ["drift", *(str(folder / a) if a[0].isalpha() and a != "nan" else a for a in arguments)]
    )


def kl(base, variant):
    log_p, log_q = (x.astype(np.longdouble) - np.log(np.exp(x.astype(np.longdouble)).sum(-1, keepdims=True))
                    for x in (base, variant))  # fmt: skip
    return (np.exp(log_p) * (log_p - log_q)).sum(-1).astype(float)


def test_the_true_kl_of_a_later_variant_is_within_what_is_certified(files):
    kept = drift(files, "--keep", "base.npy", "base.kept", "--json")
    assert kept.exit_code == 0, kept.output
    took = json.loads(kept.stdout)
    assert took["bytes"] == (files / "base.kept").stat().st_size
    assert took["llama_bytes"] == POSITIONS * (2 * VOCABULARY + 8)
    truth = kl(np.load(files / "base.npy"), np.load(files / "variant.npy"))
    (files / "base.npy").unlink()  # the kept file alone is enough
    found = json.loads(drift(files, "--kept", "base.kept", "variant.npy", "--json").stdout)
    assert np.all(np.abs(truth - found["kl"]) <= found["errors"])
    assert abs(truth.mean() - found["mean"]) <= found["error"] <= 1e-4
    text = drift(files, "--kept", "base.kept", "variant.npy").stdout
    assert f"mean  {found['mean']:.6g} ± {found['error']:.2g}" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_takes_more_bytes_than_the_reference_is_told_so(tmp_path):
    np.save(tmp_path / "few.npy", np.random.default_rng(3).normal(size=(20, 50)).astype(np.float32))
    took = json.loads(drift(tmp_path, "--keep", "few.npy", "few.kept", "--json").stdout)
    assert took["bytes"] > took["llama_bytes"]
    told = drift(tmp_path, "--keep", "few.npy", "few.kept").stdout
    assert f"{took['bytes'] / took['llama_bytes']:.3g} times what llama.cpp's logits file takes" in told


def test_other_files_are_refused_with_their_names(files):
    assert drift(files, "--keep", "base.npy", "base.kept").exit_code == 0
    np.save(files / "shorter.npy", np.load(files / "variant.npy")[:-1])
    whole = (files / "base.kept").read_bytes()
    (files / "cut.kept").write_bytes(whole[:-3])
    (files / "notes.txt").write_text("qualms, and no logits\n")
    (files / "empty").touch()
    (files / "turned.kept").write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    for arguments, named in (
        (("--kept", "base.kept", "shorter.npy"), "shorter.npy"),
        (("--kept", "cut.kept", "variant.npy"), "cut.kept"),
        (("--kept", "turned.kept", "variant.npy"), "turned.kept"),
        (("--kept", "base.npy", "variant.npy"), "base.npy is a .npy file, not a stored baseline"),
        (("--kept", "variant.npy", "base.kept"), "variant.npy is a .npy file, not a stored baseline"),
        (("--kept", "notes.txt", "variant.npy"), "notes.txt is another kind of file"),
        (("--kept", "empty", "variant.npy"), "empty is another kind of file"),
        (("--kept", "nowhere", "variant.npy"), "no such file"),
        (("--keep", "base.kept", "other.kept"), "no .npy file"),
        (("--keep", "nowhere.npy", "base.kept"), "nowhere.npy: no such file"),
        (("--keep", "base.npy", "base.npy"), "write over"),
        (("--keep", "base.npy", "base.kept", "--chunk", "3"), "--chunk"),
        (("--keep", "base.npy", "base.kept", "--kept", "base.kept", "variant.npy"), "one of them"),
        (("--kept", "base.kept", "variant.npy", "--at-most", "1e-3"), "--at-most"),
        (("--keep", "base.npy", "base.kept", "--at-most", "nan"), "at_most"),
    ):
        result = drift(files, *arguments)
        ours = arguments[1] in ("cut.kept", "turned.kept")  # once kept by us, and damaged since
        assert type(result.exception) is (IntegrityError if ours else UsageError), (arguments, result.output)
        assert named in str(result.exception), arguments
    assert (files / "base.kept").read_bytes() == whole
