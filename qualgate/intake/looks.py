"""Store the looks at growing score files in a file that the caller names.

One line of JSON, sealed by its digest: for each look, the answers that it added (evalset, case, repeat), a digest of
both sides' answers, and the tests that judged it. The same content again counts as the same look.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.records import Looked, RunEvidence
from qualgate.records.identity import canonical_json, content_hash, read_sealed, write_sealed

VERSION = 1


def looks_at(path: Path, evidence: RunEvidence, test: str) -> tuple[Looked, ...]:
    """All looks up to this one, which may be new or an earlier one. test: see `Policy.test`.

    UsageError for a damaged file, and for one of other cases or answers.
    """
    stored, present = _read(path), frozenset((key.evalset, key.case_id, key.repeat) for key in evidence.expected)
    looked_at: frozenset[tuple[str, str, int]] = frozenset()
    for number, look in enumerate(stored, 1):
        if not look.questions <= present:
            lost = sorted(look.questions - present)[0]
            raise UsageError(
                f"{path} belongs to other files: look {number} included {lost[1]!r:.80} of {lost[0]!r:.80}, which "
                "these files lack. Cases may be added, never removed; give another comparison its own looks file."
            )
        if _answers(evidence, look.questions) != look.answers:
            raise UsageError(
                f"{path} belongs to other files: some of the {len(look.questions):,} answers of look {number} are not "
                "those that were judged then. Give another comparison, or new scores, their own looks file."
            )
        looked_at |= look.questions
        if looked_at == present:
            tests = tuple(sorted({*look.tests, test}))
            return (*stored[: number - 1], replace(look, tests=tests))
    new = present - looked_at
    return (*stored, Looked(questions=new, answers=_answers(evidence, new), tests=(test,)))


def keep_looks(path: Path, looks: tuple[Looked, ...]) -> None:
    """Write the last look, unless the file has it already. UsageError if the file cannot be written."""
    stored = _read(path)
    if looks != stored[: len(looks)]:
        body = [
            {"questions": sorted(look.questions), "answers": look.answers, "tests": list(look.tests)}
            for look in (*looks, *stored[len(looks) :])
        ]
        text = canonical_json({"version": VERSION, "looks": body}).encode("utf-8", "surrogatepass")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_sealed(path, text)
        except OSError as error:
            raise UsageError(
                f"--looks {path}: cannot be written ({error.strerror}); choose a folder you may write to."
            ) from None


def _read(path: Path) -> tuple[Looked, ...]:
    """Read the stored looks; () if there is no file. UsageError for a damaged one."""
    if not path.exists():
        return ()
    try:
        body = json.loads(bytes(read_sealed(path)).decode("utf-8", "surrogatepass"))
        if body["version"] != VERSION:
            raise ValueError(f"version {body['version']}")
        return tuple(
            Looked(
                questions=frozenset((name, case, repeat) for name, case, repeat in look["questions"]),
                answers=look["answers"],
                tests=tuple(look["tests"]),
            )
            for look in body["looks"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read as a looks file ({error}). If it was one, restore it: it records how often these "
            "files were judged. Otherwise name a new file."
        ) from None


def _answers(evidence: RunEvidence, questions: Collection[tuple[str, str, int]]) -> str:
    """Hash every side's answers, as far as a verdict may rest on them. questions: those to include."""
    answers = [
        [
            repr(unit.key),
            unit.case_hash,
            unit.status,
            unit.finish_reason,
            unit.cluster,
            repr(sorted(unit.values.items())),
        ]
        for arm in (evidence.baseline, *evidence.variants)
        for unit in arm.units
        if (unit.key.evalset, unit.key.case_id, unit.key.repeat) in questions
    ]
    return content_hash(sorted(answers, key=repr))
