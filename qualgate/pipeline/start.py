"""A first gate file and evalset, written where a user stands: from a model's folder and cases of their own."""

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
from qualgate.formatting import counted
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import PlannedPolicy, plan_policy
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
from qualgate.pipeline.foretell import QUICK_DRAWS
from qualgate.pipeline.plan import make_plan
from qualgate.quant.agreement.templates import chat_template
from qualgate.quant.model_folder import ModelFolder, read_model_folder
from qualgate.quant.recipes import parse_recipe
from qualgate.records import Policy, Rule

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
    """What was written, and what a user should know of it."""

    files: tuple[str, ...]
    notes: tuple[str, ...]
    decidable: bool  # the rules, on these cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Who takes part. model, variants: folders, relative to where the gate file is written. quantize: methods.
    judge: a YAML file with the keys of the gate file's `judge`."""

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
    """Write the gate file and the evalsets into `folder`; nothing there is overwritten, and what cannot be run as it
    stands is not written.

    cases: the user's JSON lines. look: ask the baseline a few of them, and score the sets by what its answers allow.
    """
    _refuse_present(folder, (GATE_FILE, f"{NAME}.yaml", f"{NAME}.jsonl"))
    baseline = read_model_folder(_model_folder(folder, "--model", models.model))
    for one in models.variants:
        _model_folder(folder, "--variant", one)
    _check_methods(models.quantize)
    _check_length(baseline, max_new_tokens)
    rows, look = _rows(baseline, cases, max_new_tokens), look and cases is not None
    if free := look and max_new_tokens is None and (baseline.files.context_length or LENGTH * 8) >= LENGTH * 8:
        rows = replace(rows, sets=tuple(one.with_length(max(one.length, LENGTH)) for one in rows.sets))
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
    written = _write(folder, texts)
    sets, looked = rows.sets, {}
    try:
        gate = load_gate_file(folder / GATE_FILE)
        make_plan(gate)
        if look:
            sets, looked = _as_answered(sets, gate, margin[0], free, progress)
            texts, margin = draft.texts(sets, looked)
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            make_plan(load_gate_file(folder / GATE_FILE))
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    notes = (*rows.notes, *_notes(sets, looked), f"margins: {margin[1]}")
    return Started(files=tuple(texts)[::-1], notes=notes, decidable=margin[2])


def _as_answered(
    sets: Sequence[OwnSet], gate: GateFile, margin: float, free: bool, progress: Callable[[str], None]
) -> tuple[tuple[OwnSet, ...], dict[str, Looked]]:
    """The sets scored as the baseline's first answers allow, and what was found. free: no length was asked for."""
    answers = first_answers(gate, progress)
    looked = {one.name: choose(one, answers[one.name], margin) for one in sets}
    refuse_unjudgeable(looked)
    scored = (replace(one, metrics=way_of(looked[one.name]).metrics) for one in sets)
    return tuple(one.with_length(length_for(answers[one.name])) if free else one for one in scored), looked


def _notes(sets: Sequence[OwnSet], looked: Mapping[str, Looked]) -> Iterator[str]:
    for name, found in looked.items():
        yield from looked_as_lines(name, found)
    for one in sets:
        most = max(case["max_new_tokens"] for case in one.cases)
        yield f"{one.name}: {counted(len(one.cases), 'case')}, answers of at most {most:,} tokens"
    if any(one.kind in BY_FORM for one in sets):
        yield FORM_ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """The files, but for how the sets are scored."""

    model: str
    dtype: str
    variants: dict[str, tuple[str, str]]
    judge: str
    source: str

    def texts(
        self, rows: Sequence[OwnSet], looked: Mapping[str, Looked]
    ) -> tuple[dict[str, str], tuple[float, str, bool]]:
        """File name → text, the gate file last; and the margin of its rules, see `_margin`."""
        margin = _margin(rows)
        sets = [
            StarterSet(
                name=one.name,
                metrics=one.metrics,
                cases=len(one.cases),
                by_form=one.kind in BY_FORM,
                settings=way_of(looked[one.name]).settings if looked else SETTINGS.get(one.kind, {}),
                why=why_chosen(looked[one.name]) if looked else "",
            )
            for one in rows
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
        texts = {f"{one.name}.jsonl": "".join(json.dumps(case) + "\n" for case in one.cases) for one in rows}
        texts |= {f"{one.name}.yaml": evalset_text(one, self.source) for one in sets}
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
    """Told of the option: the line of a gate file that is not written helps nobody."""
    for method in methods:
        try:
            parse_recipe(method)
        except UsageError as error:
            raise type(error)(f"--quantize: {str(error).removeprefix('quantize: ')}") from None


def _check_length(baseline: ModelFolder, max_new_tokens: int | None) -> None:
    limit = baseline.files.context_length
    if limit is not None and (max_new_tokens or 0) >= limit:
        raise UsageError(
            f"--max-new-tokens {max_new_tokens}: the model's context is {limit:,} tokens, a prompt and its answer "
            "together; give fewer."
        )


def _rows(baseline: ModelFolder, cases: Path | None, max_new_tokens: int | None) -> OwnRows:
    chat = bool(chat_template(baseline.files))
    if cases is not None:
        return read_rows(cases, NAME, chat=chat, max_new_tokens=max_new_tokens)
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "starter.jsonl"
        path.write_text("".join(json.dumps({"question": asked, "answer": said}) + "\n" for asked, said in STARTER))
        rows = read_rows(path, NAME, chat=chat, max_new_tokens=max_new_tokens)
    few = (
        f"{NAME}.jsonl holds {len(STARTER)} questions to begin with, which prove little: replace them by cases of yours"
    )
    return replace(rows, notes=(few,))


def _check_sets(sets: Sequence[OwnSet], texts: dict[str, str], source: Path | None) -> None:
    """As `evalset check` would, with the lines of the user's own file."""
    faults: list[Fault] = []
    with tempfile.TemporaryDirectory() as made:
        for name, text in texts.items():
            (Path(made) / name).write_text(text, encoding="utf-8")
        for one in sets:
            for fault in evalsets.check(Path(made) / f"{one.name}.yaml"):
                line = one.lines[fault.line - 1] if 0 < fault.line <= len(one.lines) else fault.line
                faults.append(Fault(source or Path(f"{one.name}.jsonl"), line, fault.message))
    if faults:
        refuse(faults)


def _margin(sets: Sequence[OwnSet]) -> tuple[float, str, bool]:
    """The smallest margin that these cases can decide, why it is that, and whether any can."""
    planned = [
        PlannedSet(name=one.name, metrics=one.metrics, cases=len(one.cases), clusters=_clusters(one)) for one in sets
    ]

    def rates(margin: float, *, search: bool = False) -> PlannedPolicy:
        rules = (Rule(metric=m, scope="evalset", evalset=s.name, max_drop=margin) for s in sets for m in s.metrics)
        return plan_policy(planned, Policy(rules=tuple(rules)), draws=QUICK_DRAWS, search=search)

    answers = counted(sum(len(one.cases) for one in sets), "case")
    for margin in MARGINS:
        found = rates(margin)
        if found.decidable:
            said = f"the smallest that {answers} can decide: an equal variant passes in {found.approve:.0%} of runs"
            return margin, said, True
    found = rates(MARGINS[-1], search=True)
    more = next((change for change in found.changes if change.kind == "more cases"), None)
    would = f"; of {sum(more.cases.values()):,} cases it would in 9 of 10" if more else ""
    return MARGINS[-1], f"{answers}: an equal variant passes in {found.approve:.0%} of runs{would}", False


def _clusters(one: OwnSet) -> tuple[int, ...]:
    sizes = Counter(case.get("cluster") or case["id"] for case in one.cases)
    return tuple(sizes.values()) if max(sizes.values()) > 1 else ()


def _variants(folders: Sequence[str], methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for key, value in [*(("model", one) for one in folders), *(("quantize", one) for one in methods)]:
        base = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(value).name).strip("-.+_")[:50]
        base = base if re.fullmatch(VARIANT_NAME, base) and base.lower() != "baseline" else "variant"
        names = (base, *(f"{base}-{number}" for number in range(2, len(folders) + len(methods) + 2)))
        found[next(name for name in names if name not in found)] = (key, _written(value) if key == "model" else value)
    return found or {"int8": ("quantize", "int8")}


def _written(model: str) -> str:
    """A folder as a gate file beside it names one."""
    path = Path(model)
    return model if model == SHIPPED_MODEL or path.is_absolute() or model[:1] == "~" else f"./{path.as_posix()}"


def _refuse_present(folder: Path, names: Sequence[str] | dict[str, str]) -> None:
    there = [name for name in names if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        raise UsageError(
            f"{', '.join(there)}: already here, and nothing is overwritten. Move what is there, or go to another "
            "folder."
        )


def _write(folder: Path, texts: dict[str, str]) -> list[Path]:
    written: list[Path] = []
    try:
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UsageError(
            f"{folder}: cannot be written to ({error.strerror}); go to a folder you may write to."
        ) from None
    return written
