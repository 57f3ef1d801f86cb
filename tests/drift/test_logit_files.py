"""llama.cpp's table from files that anyone may have written."""

from __future__ import annotations

import json
import os
import pickle
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.drift.llama_table import compare, llama_table
from qualgate.drift.logit_files import table_of_files
from qualgate.errors import UsageError
from tests.verification.references.llama_lines import SETS, chunks_of, printed


class Files:
    def __init__(self, folder, name: str = "small") -> None:
        self.base, self.variant, self.tokens = (folder / f"{which}.npy" for which in ("base", "variant", "tokens"))
        self.chunks = chunks_of(name)
        base, variant, tokens = (np.concatenate([chunk[part] for chunk in self.chunks]) for part in range(3))
        self.save(base=base.astype(np.float32), variant=variant.astype(np.float32), tokens=tokens)

    def save(self, **arrays) -> None:
        for name, array in arrays.items():
            np.save(getattr(self, name), array)

    @property
    def arguments(self) -> list[str]:
        return ["drift", "--logits", str(self.base), str(self.variant), "--tokens", str(self.tokens)]


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


def refused(files: Files, match: str, chunk: int | None = None) -> None:
    with pytest.raises(UsageError, match=match):
        table_of_files(files.base, files.variant, files.tokens, chunk)


@pytest.mark.parametrize("name", SETS)
def test_the_lines_are_the_references_and_clustered_errors_stand_behind_each(name, tmp_path):
    files = Files(tmp_path, name)
    chunk = len(files.chunks[0][2])
    shown = CliRunner().invoke(app, [*files.arguments, "--chunk", str(chunk)])
    assert shown.exit_code == 0, shown.output
    lines = [line for line in shown.output.splitlines() if line and not line.startswith("=")][:34]
    assert [line.partition("  by chunk")[0].rstrip() for line in lines] == [line.rstrip() for line in printed(name)]
    table = llama_table([compare(*chunk) for chunk in files.chunks])
    errors = [line.partition("by chunk ± ")[2] for line in lines]
    for place, (value, error) in enumerate(zip(table.values, errors, strict=True)):
        if value.clustered is None:
            assert error == ""
        else:
            number = float(error.removesuffix(" %")) / (100 if place >= 18 else 1)
            assert number == pytest.approx(value.clustered, abs=1e-5)
    said = json.loads(CliRunner().invoke(app, [*files.arguments, "--chunk", str(chunk), "--json"]).stdout)
    assert (said["chunks"], said["tokens"], len(said["values"])) == (len(files.chunks), table.tokens, 34)
    assert said["values"][6]["name"] == "Mean KLD"
    assert said["values"][6]["clustered_error"] == table["Mean KLD"].clustered


def test_without_chunks_there_are_no_clustered_errors_and_blocks_change_nothing(files, monkeypatch):
    whole = table_of_files(files.base, files.variant, files.tokens)
    assert whole.chunks == 1
    assert all(value.clustered is None for value in whole.values)
    monkeypatch.setattr("qualgate.drift.logit_files.NUMBERS_AT_ONCE", 7 * np.load(files.base).shape[1])
    assert repr(table_of_files(files.base, files.variant, files.tokens)) == repr(whole)
    assert "by chunk" not in CliRunner().invoke(app, files.arguments).output


def test_arrays_of_other_shapes_and_types_are_refused(files):
    base, tokens = np.load(files.base), np.load(files.tokens)
    positions, vocabulary = base.shape
    for wrong, match in (
        ({"variant": base[:-1]}, "not the same positions"),
        ({"base": base.astype(np.float64)}, "float64"),
        ({"base": base.astype(">f4")}, ">f4"),
        ({"base": base[0]}, "float32 of shape"),
        ({"base": base[:99]}, "99 positions"),
        ({"base": base[:0]}, "0 positions"),
        ({"base": base[:, :1]}, "over 1 tokens"),
        ({"tokens": tokens[:-1]}, "one token for each"),
        ({"tokens": tokens.astype(np.float32)}, "tokens are integers"),
        ({"tokens": tokens[:, None]}, "tokens are integers"),
        ({"tokens": np.where(np.arange(positions) == 3, vocabulary, tokens)}, f"token {vocabulary} at 3"),
        ({"tokens": np.where(np.arange(positions) == 5, -1, tokens)}, "token -1 at 5"),
    ):
        files.save(**wrong)
        refused(files, match)
        files.save(base=base, variant=base, tokens=tokens)
    for chunk in (0, -1, positions + 1, positions - 1):
        refused(files, "whole number of such chunks", chunk)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_no_number_is_refused_by_its_file(files, value):
    broken = np.load(files.variant)
    broken[3, 1] = value
    files.save(variant=broken)
    refused(files, r"variant\.npy: rows .* not a number")


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


def test_no_file_runs_code_or_promises_more_than_it_holds(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = files.base.read_bytes()
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([Trap()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr("base.npy", whole)
    head = whole[: whole.index(b"\n") + 1]
    shape = head[head.index(b"(") : head.index(b")") + 1]
    longer = head.replace(shape, b"(4611686018427387904, 4611686018427387904)"[:])
    longer = longer[:8] + (len(longer) - 10).to_bytes(2, "little") + longer[10:]
    for content in (
        pickle.dumps(Trap()), objects.read_bytes(), (tmp_path / "z").read_bytes(), b"", whole[:7], whole[:40],
        whole[:-4], longer + whole[len(head) :], whole.replace(b"'<f4'", b"'|V4'"), whole.replace(b"{", b"[", 1),
    ):  # fmt: skip
        files.base.write_bytes(content)
        refused(files, r"base\.npy")
    assert not (tmp_path / "sprung").exists()
    files.base.unlink()
    refused(files, "no such file")
    os.mkfifo(files.base)
    refused(files, "no such file")


def test_options_that_do_not_go_together_are_refused(files):
    for arguments in (
        files.arguments[:4],
        ["drift", "--tokens", str(files.tokens)],
        ["drift", "--chunk", "5"],
        [*files.arguments, "--store", "sqlite:///x.db"],
        [*files.arguments, "--run", "x"],
    ):
        assert isinstance(CliRunner().invoke(app, arguments).exception, UsageError), arguments
