"""Write a first gate file and evalset from a model's folder and the user's own cases."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile, load_gate_file
from qualgate.config.arms import VARIANT_NAME
from qualgate.config.gate_file import SHIPPED_MODEL_FOLDER
from qualgate.config.paths import SHIPPED_MODEL
from qualgate.config.starter import FORM_ALONE, Starter, StarterSet, evalset_text, gate_file_text
from qualgate.documents import Fault, refuse
from qualgate.errors import UsageError
from qualgate.errors.misplaced import no_model_folder
from qualgate.evalsets.own_rows import BY_FORM, SETTINGS, OwnRows, OwnSet, read_rows
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import PlannedPolicy, plan_policy
from qualgate.pipeline.before_run import QUICK_DRAWS
from qualgate.pipeline.first_answers import (
    LENGTH,
    Looked,
    choose,
    first_answers,
    length_for,
    looked_as_lines,
    refuse_unjudgeable,
    way_of,
    why_chosen,
)
from qualgate.pipeline.plan import make_plan
from qualgate.quant.agreement.templates import chat_template
from qualgate.quant.model_folder import ModelFolder, read_model_folder
from qualgate.quant.recipes import parse_recipe
from qualgate.records import Policy, Rule
from qualgate.text.numbers import counted

GATE_FILE, NAME = "gate.yaml", "own"
MARGINS = (0.02, 0.03, 0.05, 0.08, 0.10)  # the smallest that can be decided is written
STARTER = (  # in place of a user's cases: any model that follows instructions knows these
    ("What is the capital of France? Answer with its name alone.", "Paris"),
    ("What is 7 times 8? Answer with the number alone.", "56"),
    ("Which month comes after April? Answer with its name alone.", "May"),
    ("Write the word `gate` backwards. Answer with that word alone.", "etag"),
    ("Is 91 a prime number? Answer yes or no, in lower case.", "no"),
    ("What is the opposite of `cold`? Answer with one word, in lower case.", "hot"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The written files, and notes for the user."""

    files: tuple[str, ...]
    notes: tuple[str, ...]
    decidable: bool  # whether the rules can be decided on these cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models of the gate file. model, variants: folders, relative to the gate file's. quantize: methods. judge: a
    YAML file with the keys of the gate file's `judge`."""

    model: str
    variants: Sequence[str] = ()
    quantize: Sequence[str] = ()
    judge: Path | None = None


def start(
    folder: Path,
    models: Models,
    cases: Path | None = None,
    max_new_tokens: int | None = None,
    *,
    look: bool = True,
    progress: Callable[[str], None] = lambda line: None,
) -> Started:
    """Write the gate file and the evalsets into `folder`. Nothing is overwritten, and files that cannot be run are not
    left behind.

    cases: the user's JSON lines. look: ask the baseline a few of them, and choose metrics by its answers.
    """
    _refuse_present(folder, (GATE_FILE, f"{NAME}.yaml", f"{NAME}.jsonl"))
    baseline = read_model_folder(_model_folder(folder, "--model", models.model))
    for variant in models.variants:
        _model_folder(folder, "--variant", variant)
    _check_methods(models.quantize)
    _check_length(baseline, max_new_tokens)
    rows, look = _rows(baseline, cases, max_new_tokens), look and cases is not None
    has_room = (baseline.files.context_length or LENGTH * 8) >= LENGTH * 8
    choose_lengths = look and max_new_tokens is None and has_room
    if choose_lengths:
        rows = replace(rows, sets=tuple(own_set.with_length(max(own_set.length, LENGTH)) for own_set in rows.sets))
    dtype = str(baseline.files.config.get("dtype") or baseline.files.config.get("torch_dtype") or "")
    draft = _Draft(
        model=_written(models.model),
        dtype=dtype if dtype in ("float16", "float32") else "bfloat16",
        variants=_variants(models.variants, models.quantize),
        judge=_text_of(models.judge) if models.judge is not None else "",
        source=f"from {cases.name}" if cases else "a few questions to begin with: replace them by your own",
    )
    texts, margin = draft.texts(rows.sets, {})
    _check_sets(rows.sets, texts, cases)
    _refuse_present(folder, texts)
    paths = _write(folder, texts)
    sets, looked = rows.sets, {}
    try:
        gate = load_gate_file(folder / GATE_FILE)
        make_plan(gate)
        if look:
            sets, looked = _as_answered(sets, gate, margin[0], choose_lengths, progress)
            texts, margin = draft.texts(sets, looked)
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            make_plan(load_gate_file(folder / GATE_FILE))
    except BaseException:
        for path in paths:
            path.unlink(missing_ok=True)
        raise
    notes = (*rows.notes, *_notes(sets, looked), f"margins: {margin[1]}")
    return Started(files=tuple(texts)[::-1], notes=notes, decidable=margin[2])


def _as_answered(
    sets: Sequence[OwnSet], gate: GateFile, margin: float, free: bool, progress: Callable[[str], None]
) -> tuple[tuple[OwnSet, ...], dict[str, Looked]]:
    """Return the sets with metrics chosen by the baseline's answers, and the results. free: choose lengths too."""
    answers = first_answers(gate, progress)
    looked = {own_set.name: choose(own_set, answers[own_set.name], margin) for own_set in sets}
    refuse_unjudgeable(looked)
    scored = (replace(own_set, metrics=way_of(looked[own_set.name]).metrics) for own_set in sets)
    return tuple(
        own_set.with_length(length_for(answers[own_set.name])) if free else own_set for own_set in scored
    ), looked


def _notes(sets: Sequence[OwnSet], looked: Mapping[str, Looked]) -> Iterator[str]:
    """Yield notes for the user: what the baseline answered and how that chose the metrics, then the size of each set.
    looked: set → result of asking it; {} if it was not asked."""
    for name, look in looked.items():
        yield from looked_as_lines(name, look)
    for own_set in sets:
        longest = max(case["max_new_tokens"] for case in own_set.cases)
        yield f"{own_set.name}: {counted(len(own_set.cases), 'case')}, answers of at most {longest:,} tokens"
    if any(own_set.kind in BY_FORM for own_set in sets):
        yield FORM_ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """Contents of the files, except how the sets are scored."""

    model: str
    dtype: str
    variants: dict[str, tuple[str, str]]
    judge: str
    source: str

    def texts(
        self, rows: Sequence[OwnSet], looked: Mapping[str, Looked]
    ) -> tuple[dict[str, str], tuple[float, str, bool]]:
        """Return file name → text, the gate file last; and the margin of its rules, see `_margin`."""
        margin = _margin(rows)
        sets = [
            StarterSet(
                name=own_set.name,
                metrics=own_set.metrics,
                cases=len(own_set.cases),
                by_form=own_set.kind in BY_FORM,
                settings=way_of(looked[own_set.name]).settings if looked else SETTINGS.get(own_set.kind, {}),
                why=why_chosen(looked[own_set.name]) if looked else "",
            )
            for own_set in rows
        ]
        starter = Starter(
            model=self.model,
            dtype=self.dtype,
            variants=self.variants,
            sets=sets,
            margin=margin[0],
            why=margin[1],
            judge=self.judge,
        )
        texts = {
            f"{own_set.name}.jsonl": "".join(json.dumps(case) + "\n" for case in own_set.cases) for own_set in rows
        }
        texts |= {f"{starter_set.name}.yaml": evalset_text(starter_set, self.source) for starter_set in sets}
        return texts | {GATE_FILE: gate_file_text(starter)}, margin


def _model_folder(folder: Path, option: str, model: str) -> Path:
    path = SHIPPED_MODEL_FOLDER if model == SHIPPED_MODEL else folder / Path(model).expanduser()
    if not path.is_dir():
        raise UsageError(f"{option}: {no_model_folder(model, path)}")
    return path


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--judge {path}: cannot be read ({error}); give a file with the keys of `judge`") from None


def _check_methods(methods: Sequence[str]) -> None:
    """Raise UsageError naming the option, since the gate file is not written yet."""
    for method in methods:
        try:
            parse_recipe(method)
        except UsageError as error:
            raise type(error)(f"--quantize: {str(error).removeprefix('quantize: ')}") from None


def _check_length(baseline: ModelFolder, max_new_tokens: int | None) -> None:
    """Raise UsageError for a limit that leaves no room for a prompt in the model's context."""
    limit = baseline.files.context_length
    if limit is not None and (max_new_tokens or 0) >= limit:
        raise UsageError(
            f"--max-new-tokens {max_new_tokens}: the model's context is {limit:,} tokens, a prompt and its answer "
            "together; give fewer."
        )


def _rows(baseline: ModelFolder, cases: Path | None, max_new_tokens: int | None) -> OwnRows:
    """Read the user's cases; without a file of cases, a few starter questions with a note that they prove little.
    max_new_tokens: None leaves the limit to the reader."""
    chat = bool(chat_template(baseline.files))
    if cases is not None:
        return read_rows(cases, NAME, chat=chat, max_new_tokens=max_new_tokens)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "starter.jsonl"
        path.write_text(
            "".join(json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in STARTER)
        )
        rows = read_rows(path, NAME, chat=chat, max_new_tokens=max_new_tokens)
    note = (
        f"{NAME}.jsonl holds {len(STARTER)} questions to begin with, which prove little: replace them by cases of yours"
    )
    return replace(rows, notes=(note,))


def _check_sets(sets: Sequence[OwnSet], texts: dict[str, str], source: Path | None) -> None:
    """Check the sets as `evalset check` does, with line numbers of the user's own file."""
    faults: list[Fault] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts.items():
            (Path(scratch) / name).write_text(text, encoding="utf-8")
        for own_set in sets:
            for fault in evalsets.check(Path(scratch) / f"{own_set.name}.yaml"):
                line = own_set.lines[fault.line - 1] if 0 < fault.line <= len(own_set.lines) else fault.line
                faults.append(Fault(source or Path(f"{own_set.name}.jsonl"), line, fault.message))
    if faults:
        refuse(faults)


def _margin(sets: Sequence[OwnSet]) -> tuple[float, str, bool]:
    """Return the smallest margin that these cases can decide, the reason, and whether any can."""
    planned = [
        PlannedSet(name=own_set.name, metrics=own_set.metrics, cases=len(own_set.cases), clusters=_clusters(own_set))
        for own_set in sets
    ]

    def rates(margin: float, *, search: bool = False) -> PlannedPolicy:
        rules = (Rule(metric=m, scope="evalset", evalset=s.name, max_drop=margin) for s in sets for m in s.metrics)
        return plan_policy(planned, Policy(rules=tuple(rules)), draws=QUICK_DRAWS, search=search)

    answers = counted(sum(len(own_set.cases) for own_set in sets), "case")
    for margin in MARGINS:
        plan = rates(margin)
        if plan.decidable:
            reason = f"the smallest that {answers} can decide: an equal variant passes in {plan.approve:.0%} of runs"
            return margin, reason, True
    plan = rates(MARGINS[-1], search=True)
    more_cases = next((change for change in plan.changes if change.kind == "more cases"), None)
    more_text = f"; of {sum(more_cases.cases.values()):,} cases it would in 9 of 10" if more_cases else ""
    return MARGINS[-1], f"{answers}: an equal variant passes in {plan.approve:.0%} of runs{more_text}", False


def _clusters(own_set: OwnSet) -> tuple[int, ...]:
    sizes = Counter(case.get("cluster") or case["id"] for case in own_set.cases)
    return tuple(sizes.values()) if max(sizes.values()) > 1 else ()


def _variants(folders: Sequence[str], methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return variant name → (key of the gate file, value): one for each folder and each method, int8 if there are
    none. Names come from the value and are numbered if taken."""
    variants: dict[str, tuple[str, str]] = {}
    for key, value in [*(("model", folder) for folder in folders), *(("quantize", method) for method in methods)]:
        base = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(value).name).strip("-.+_")[:50]
        base = base if re.fullmatch(VARIANT_NAME, base) and base.lower() != "baseline" else "variant"
        names = (base, *(f"{base}-{number}" for number in range(2, len(folders) + len(methods) + 2)))
        name = next(name for name in names if name not in variants)
        variants[name] = (key, _written(value) if key == "model" else value)
    return variants or {"int8": ("quantize", "int8")}


def _written(model: str) -> str:
    """Return a model folder as a gate file beside it names it."""
    path = Path(model)
    return model if model == SHIPPED_MODEL or path.is_absolute() or model[:1] == "~" else f"./{path.as_posix()}"


def _refuse_present(folder: Path, names: Sequence[str] | dict[str, str]) -> None:
    """Raise UsageError if any of these files or links exists."""
    present = [name for name in names if (folder / name).exists() or (folder / name).is_symlink()]
    if present:
        raise UsageError(
            f"{', '.join(present)}: already here, and nothing is overwritten. Move what is there, or go to another "
            "folder."
        )


def _write(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write the new files and return their paths. Nothing is overwritten; on an error the files written so far are
    removed, and UsageError is raised."""
    paths: list[Path] = []
    try:
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                paths.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in paths:
            path.unlink(missing_ok=True)
        raise UsageError(
            f"{folder}: cannot be written to ({error.strerror}); go to a folder you may write to."
        ) from None
    return paths
