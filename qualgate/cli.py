"""The command line: parse, call one library function, render, exit with the contract's code.

Rooms are imported inside the commands: `qualgate --help` must not wait for torch.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from qualgate.errors import Exit, QualgateError, UsageError

if TYPE_CHECKING:
    from qualgate.report.summary import Report

# typer carries its own copy of click, or uses click itself: its parser's errors are known by their common base.
_PARSER_ERROR = cast(
    "type[Exception]", next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
)
EXIT_CODES = """\b
Exit codes (only 0 lets a pipeline continue):
    0  approve: every critical rule is proven
   10  block: a critical rule is proven broken
   11  review: the policy asks for a person
   12  undecided: evidence missing, too little, stale or mismatched
   13  infrastructure failure or incomplete run
   14  integrity failure: stored evidence is not what was recorded
   64  usage or configuration error
  130  interrupted (143: terminated); run again to resume
"""

app = typer.Typer(
    name="qualgate",
    help="Decides whether a quantized LLM variant may replace its full-precision baseline.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="The gate file: schema, check, and the metrics a rule may name.", no_args_is_help=True)
evalset_app = typer.Typer(help="Evalsets: list the shipped ones, check your own.", no_args_is_help=True)
db_app = typer.Typer(help="The store's schema.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(evalset_app, name="evalset")
app.add_typer(db_app, name="db")

GateFileArgument = Annotated[Path, typer.Argument(metavar="GATE.yaml", help="the gate file")]
OptionalGateFile = Annotated[Path | None, typer.Argument(metavar="[GATE.yaml]", help="the gate file")]
StoreOption = Annotated[str | None, typer.Option("--store", help="the store's URL, when there is no gate file")]
RunOption = Annotated[str | None, typer.Option("--run", help="a run's id; the newest by default")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on stdout")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="folder for the store and the reports")] = Path("qualgate-demo"),
    as_json: JsonOption = False,
) -> None:
    """Judge four quantized variants of the shipped reference model on the shipped evalsets."""
    from importlib.resources import files

    from qualgate.report.render import write_atomically

    gate_file = out / "gate.yaml"
    write_atomically(gate_file, (files("qualgate") / "demo.yaml").read_text(encoding="utf-8"))
    _run(gate_file, as_json)


@app.command()
def run(
    gate_file: GateFileArgument,
    blame: Annotated[
        bool, typer.Option("--blame", help="also run packed weights through the torch twin: recipe or kernel?")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Generate with the baseline and every variant, score, store, decide. Interrupted, run it again: it resumes."""
    _run(gate_file, as_json, blame=blame)


def _run(gate_file: Path, as_json: bool, *, blame: bool = False) -> None:
    from qualgate import run as main_path
    from qualgate.config import load_gate_file
    from qualgate.report.progress import shown_progress

    gate = load_gate_file(gate_file)
    with shown_progress() as progress:
        outcome = main_path.run(gate, progress, blame=blame)
    if outcome.resumed:
        typer.echo(f"resumed run {outcome.run_id}", err=True)
    for failure in outcome.failures:
        typer.echo(f"could not run: {failure}", err=True)
    report = _report(gate.store_url, outcome.run_id)
    _show(report, as_json)
    written = report.write(gate_file.parent / "qualgate-reports")  # after it is shown: a full disk must not hide it
    if not as_json:
        for path in written:
            typer.echo(f"report: {path}")
        typer.echo(f"open the dashboard: {_own_name()} dashboard --store {_relative_url(gate.store_url)}\n")
        for line in report.lines():
            typer.echo(line)
    raise typer.Exit(outcome.exit)


@app.command()
def plan(gate_file: GateFileArgument, as_json: JsonOption = False) -> None:
    """Show what `run` would do: arms, cases, tokens, rules, about how long. Generates nothing."""
    from qualgate.config import load_gate_file
    from qualgate.plan import forecast, make_plan
    from qualgate.report.render import plan_as_json, plan_as_text

    gate = load_gate_file(gate_file)
    planned = make_plan(gate)
    rows = forecast(planned, gate.workers)
    typer.echo(plan_as_json(planned, rows) if as_json else plan_as_text(planned, rows, gate.workers))


@app.command()
def gate(
    gate_file: OptionalGateFile = None, store: StoreOption = None, run_id: RunOption = None, as_json: JsonOption = False
) -> None:
    """Decide again from stored evidence, without generating: by the gate file's rules, refusing evidence older than the
    files it names; or (with --store alone) by the run's own rules, about what was stored then."""
    from qualgate.config import load_gate_file
    from qualgate.run import decide_again

    loaded = load_gate_file(gate_file, files=False) if gate_file is not None else None
    url = _store_url(loaded.store_url if loaded else None, store)
    outcome = decide_again(url, run_id, loaded)
    report = _report(url, outcome.run_id)
    _show(report, as_json)
    if not as_json:
        for line in report.lines():
            typer.echo(line)
    raise typer.Exit(outcome.exit)


@app.command()
def report(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    run_id: RunOption = None,
    format: Annotated[str, typer.Option("--format", help="terminal, json or markdown")] = "terminal",
    out: Annotated[Path | None, typer.Option("--out", help="write to this file instead of the terminal")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a stored run's verdicts with their numbers. The same stored evidence gives the same bytes."""
    from qualgate.report.render import write_atomically

    if format not in ("terminal", "json", "markdown"):
        raise UsageError(f"--format {format}: not one of terminal, json, markdown.")
    url, run_id = _stored_run(gate_file, store, run_id)
    found = _report(url, run_id)
    form = "json" if as_json else format
    if out is not None:
        write_atomically(out, found.as_json() if form == "json" else found.as_markdown())
    elif form == "terminal":
        _show(found, as_json=False)
        for line in found.lines():
            typer.echo(line)
    else:
        typer.echo(found.as_json() if form == "json" else found.as_markdown())


@app.command()
def dashboard(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    port: Annotated[int, typer.Option("--port", help="on 127.0.0.1")] = 8501,
) -> None:
    """Open the reviewers' dashboard on this machine: runs, queue, flips, approve and block."""
    import importlib.util
    import signal
    import socket
    import subprocess

    from qualgate_app import STREAMLIT_FLAGS

    if importlib.util.find_spec("streamlit") is None:
        raise UsageError("the dashboard needs streamlit: pip install 'qualgate[dashboard]'")
    url = _store_url_of(gate_file, store)
    spec = importlib.util.find_spec("qualgate_app.main")
    assert spec is not None, "the wheel carries qualgate_app"
    assert spec.origin is not None
    command = [sys.executable, "-m", "streamlit", "run", spec.origin, "--server.port", str(port)]
    for name, value in STREAMLIT_FLAGS.items():
        command += [f"--{name}", value]
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"port {port} on this machine is taken ({error.strerror}); give another --port") from None
    typer.echo(f"dashboard: http://127.0.0.1:{port}   (Ctrl-C ends it)")
    with subprocess.Popen(command, env={**os.environ, "QUALGATE_STORE": url}) as served:
        signal.signal(signal.SIGTERM, lambda *_: served.terminate())  # else it would serve on without us
        try:
            code = served.wait()
        except KeyboardInterrupt:
            code = 0
        code = 0 if code == -signal.SIGTERM else code
    raise typer.Exit(Exit.APPROVE if code == 0 else Exit.INFRASTRUCTURE)


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="a model folder, quantized or not")],
    tensor: Annotated[str | None, typer.Option("--tensor", help="write this tensor, dequantized, to --out")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="safetensors file for --tensor: float32 [out, in]")] = None,
    compare: Annotated[Path | None, typer.Option("--compare", help="another form of the same model: the truth")] = None,
    determinism: Annotated[
        str | None, typer.Option("--determinism", metavar="EVALSET", help="do 8 of its cases give the same bits again?")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a checkpoint really holds: each tensor's format, size, statistics and oddities."""
    from qualgate.quant import inspect as inspection
    from qualgate.report.inspection import inspection_as_json, print_inspection
    from qualgate.report.progress import shown_progress

    if (tensor is None) != (out is None):
        raise UsageError("--tensor NAME and --out FILE.safetensors go together: the tensor, and where to write it.")
    if tensor is not None and out is not None:
        shape = inspection.write_tensor(model, tensor, out)
        typer.echo(f"written: {out} (float32 {' x '.join(map(str, shape))})")
        return
    if determinism is not None:
        _determinism(model, determinism, as_json)
        return
    with shown_progress("tensors") as progress:
        report = inspection.inspect(model, progress)
        differences, unmatched = inspection.compare(model, compare, progress) if compare else ((), ())
    if as_json:
        typer.echo(inspection_as_json(report, differences, unmatched))
    else:
        print_inspection(report, differences, unmatched)


def _determinism(model: Path, evalset: str, as_json: bool) -> None:
    from dataclasses import asdict

    from qualgate import evalsets
    from qualgate.engine.determinism import model_determinism
    from qualgate.engine.load import choose_device
    from qualgate.report.determinism import determinism_lines

    cases = evalsets.load(evalset, Path.cwd()).cases
    spread = [cases[index * len(cases) // 8] for index in range(8)] if len(cases) > 8 else list(cases)
    found = model_determinism(model, spread, device=choose_device("auto"))
    typer.echo(json.dumps(asdict(found), indent=2) if as_json else "\n".join(determinism_lines(found)))


@config_app.command("schema")
def config_schema() -> None:
    """Print the gate file's JSON Schema (draft 7), for editors."""
    from qualgate.config import gate_file_schema

    typer.echo(json.dumps(gate_file_schema(), indent=2))


@config_app.command("check")
def config_check(gate_file: GateFileArgument) -> None:
    """Check a gate file, its models and its evalsets without running anything."""
    from qualgate.config import load_gate_file
    from qualgate.plan import make_plan

    planned = make_plan(load_gate_file(gate_file))
    typer.echo(
        f"{gate_file}: fine. {len(planned.arms) - 1} variants, {len(planned.evalsets)} evalsets, "
        f"{len(planned.expected)} units, {len(planned.policy.rules)} rules."
    )


@config_app.command("metrics")
def config_metrics(as_json: JsonOption = False) -> None:
    """List the metrics a rule may name."""
    from dataclasses import asdict

    from qualgate.metrics import METRICS

    if as_json:
        typer.echo(json.dumps([asdict(metric) for metric in METRICS.values()], indent=2))
        return
    for metric in METRICS.values():
        typer.echo(
            f"{metric.name:<22} {metric.kind:<8} {', '.join(metric.bounds):<10} {metric.meaning} ({metric.unit})"
        )


@evalset_app.command("list")
def evalset_list(as_json: JsonOption = False) -> None:
    """List the shipped evalsets and calibration sets."""
    from qualgate import evalsets

    found = [evalsets.load(name, Path.cwd()) for name in evalsets.shipped()]
    calibration = [evalsets.load_calibration(name, Path.cwd()) for name in evalsets.shipped("calibration")]
    if as_json:
        rows = [
            {"name": s.name, "version": s.version, "cases": len(s.cases), "metrics": s.metrics, "sha256": s.sha256}
            for s in found
        ]
        rows += [
            {"name": s.name, "version": s.version, "cases": len(s.cases), "kind": "calibration", "sha256": s.sha256}
            for s in calibration
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for item in found:
        typer.echo(f"{item.name:<14} v{item.version:<5} {len(item.cases):>5} cases   {', '.join(item.metrics)}")
    for item in calibration:
        typer.echo(f"{item.name:<14} v{item.version:<5} {len(item.cases):>5} cases   for quantizers, scores nothing")


@evalset_app.command("check")
def evalset_check(ref: Annotated[str, typer.Argument(metavar="NAME.yaml")]) -> None:
    """Name every fault of an evalset or calibration set with file and line; exit 64 when there is one."""
    from qualgate import evalsets

    path = evalsets.locate(ref, Path.cwd())
    faults = evalsets.check(path)
    for fault in faults:
        typer.echo(str(fault), err=True)
    if faults:
        raise UsageError(f"{path}: {len(faults)} fault{'s' if len(faults) > 1 else ''}.")
    found = evalsets.read(path)
    typer.echo(f"{path}: fine. {len(found.cases)} cases, sha256 {found.sha256}")


@evalset_app.command("coverage")
def evalset_coverage(
    calibration: Annotated[str, typer.Argument(help="a calibration set: shipped name or NAME.yaml")],
    evalset: Annotated[list[str], typer.Argument(help="the evalsets that will judge the variant")],
    model: Annotated[str, typer.Option("--model", help="the baseline's folder")] = "reference",
    dtype: Annotated[str, typer.Option("--dtype", help="of the baseline's weights")] = "bfloat16",
    cases: Annotated[int, typer.Option("--cases", min=1, help="of the evalsets, run through the model")] = 256,
    as_json: JsonOption = False,
) -> None:
    """Measure how far a calibration set covers evalsets; exit 64 when they share what they must not."""
    from typing import Any

    from qualgate import evalsets, refmodel
    from qualgate.calibration import refuse_leaks
    from qualgate.engine.coverage import coverage
    from qualgate.engine.load import choose_device
    from qualgate.report.coverage import coverage_lines

    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(f"--dtype {dtype}: not one of bfloat16, float16, float32.")
    here = Path.cwd()
    found = coverage(
        refmodel.PATH if model == "reference" else Path(model),
        evalsets.load_calibration(calibration, here),
        [evalsets.load(name, here) for name in evalset],
        dtype=cast("Any", dtype),
        device=choose_device("auto"),
        activation_cases=cases,
    )
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, allow_nan=False))
    else:
        typer.echo("\n".join(coverage_lines(found.as_json())))
    refuse_leaks(found.leakage.cases)


@db_app.command("upgrade")
def db_upgrade(
    store: Annotated[str, typer.Option("--store", help="the store's URL")] = "sqlite:///qualgate.db",
) -> None:
    """Bring a store's schema to this version, after a backup copy."""
    from qualgate.store.database import upgrade

    typer.echo(upgrade(store))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine and installation can do, and what is missing."""
    from qualgate.doctor import findings

    found = findings()
    if as_json:
        typer.echo(json.dumps([{"what": f.what, "ok": f.ok, "detail": f.detail} for f in found], indent=2))
    else:
        for finding in found:
            typer.echo(f"{'ok  ' if finding.ok else 'NO  '} {finding.what:<14} {finding.detail}")
    raise typer.Exit(Exit.APPROVE if all(f.ok or f.optional for f in found) else Exit.INFRASTRUCTURE)


@app.command()
def quantize(
    model: Annotated[str | None, typer.Argument(help="a full-precision model's folder, or `reference`")] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="int8 int4 int3 int2 fp8 mxfp4 mxfp8 nvfp4 gptq awq smoothquant")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="the folder to make")] = None,
    format: Annotated[
        str,
        typer.Option("--format", help="gptq, gptq_v2, awq or compressed-tensors (the default; a backend has its own)"),
    ] = "",
    bits: Annotated[int | None, typer.Option("--bits", help="of gptq and awq; 4 by default")] = None,
    group_size: Annotated[int | None, typer.Option("--group-size", help="weights a scale; 0 = a row")] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", help="a calibration set: shipped name or NAME.yaml")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="PATTERN=PRECISION", help="layers that get another precision")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="any other key of the gate file's `quantize:`"),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="rank layers by what each costs when it alone is rounded to nearest on the method's grid (gptq, awq, "
            "smoothquant and calibrated nvfp4 do better; direct casts are exact); writes nothing",
        ),
    ] = False,
    backend: Annotated[
        str | None, typer.Option("--backend", help="let a library do it: gptqmodel, llmcompressor, auto-gptq, autoawq")
    ] = None,
    setup_backend: Annotated[
        str | None, typer.Option("--setup-backend", help="make this library's environment, and do no more")
    ] = None,
    backend_dir: Annotated[Path | None, typer.Option("--backend-dir", help="where environments lie")] = None,
    evalset: Annotated[
        list[str] | None, typer.Option("--evalset", help="what the calibration's coverage is measured on")
    ] = None,
    devices: Annotated[str, typer.Option("--devices", help="auto or cpu")] = "auto",
    date: Annotated[str, typer.Option("--date", help="for the model card; none by default")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a quantized folder that other libraries load. Interrupted, run it again: finished layers are kept."""
    from qualgate import quantize as making
    from qualgate import refmodel
    from qualgate.engine.load import choose_device
    from qualgate.quant.recipes import words_of_recipe
    from qualgate.report.progress import shown_progress
    from qualgate.report.quantized import outsourced_lines, quantized_lines, sensitivity_lines

    def show(lines: list[str], value: object) -> None:
        typer.echo(json.dumps(value, indent=2) if as_json else "\n".join(lines))

    def say(line: str) -> None:
        typer.echo(line, err=True)

    if setup_backend is not None:
        from qualgate.quant.backends.environment import set_up

        ready = set_up(setup_backend, backend_dir, say)
        show([f"{setup_backend} is ready: {ready.python}"], {"backend": setup_backend, "versions": ready.versions})
        return
    if model is None or method is None:
        raise UsageError("quantize needs a MODEL and a --method: qualgate quantize MODEL --method int4 --out FOLDER")
    folder, here = refmodel.PATH if model == "reference" else Path(model), Path.cwd()
    recipe = words_of_recipe(
        method, option or [], keep or [], bits=bits, group_size=group_size, calibration=calibration,
        uses_data=not sensitivity,
    )  # fmt: skip
    device = choose_device(devices)
    if sensitivity:
        with shown_progress("layers") as progress:
            ranked = making.sensitivity(
                folder, recipe, calibration or "", relative_to=here, device=device, progress=progress
            )
        show(sensitivity_lines(ranked), [one.as_json() for one in ranked])
        return
    if out is None:
        raise UsageError("--out is missing: the folder to make.")
    if backend is not None:
        from qualgate.outsource import quantize_with

        by = quantize_with(
            backend, folder, recipe, out, against=evalset or (), folder=backend_dir, relative_to=here, device=device,
            date=date, progress=say, format=format,
        )  # fmt: skip
        show(outsourced_lines(by), by.as_json())
        return
    with shown_progress("layers") as progress:
        made = making.quantize(
            folder, recipe, out, format or "compressed-tensors", relative_to=here, against=evalset or (), device=device,
            date=date, progress=progress,
        )  # fmt: skip
    show(quantized_lines(made), made.as_json())


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="a benchmark's name")] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the benchmarks")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="fewer rounds, every goal")] = False,
    out: Annotated[Path | None, typer.Option("--json", help="write the result to this file")] = None,
) -> None:
    """Run one of the benchmarks behind the figures in the README."""
    from qualgate.bench import BENCHMARKS, run_benchmark
    from qualgate.report.render import write_atomically

    if listed or name is None:
        for known, meaning in BENCHMARKS.items():
            typer.echo(f"{known:<12} {meaning}")
        return
    result = json.dumps(run_benchmark(name, quick=quick), indent=2) + "\n"
    if out is None:
        typer.echo(result)
    else:
        write_atomically(out, result)
        typer.echo(f"written: {out}")


def _store_url(from_gate_file: str | None, option: str | None) -> str:
    if from_gate_file is not None and option is not None:
        raise UsageError("give either a gate file or --store, not both.")
    url = from_gate_file or option or "sqlite:///qualgate.db"
    return url if from_gate_file is not None or not url.startswith("sqlite:///") else _absolute_url(url)


def _store_url_of(gate_file: Path | None, option: str | None) -> str:
    from qualgate.config import load_gate_file

    return _store_url(load_gate_file(gate_file, files=False).store_url if gate_file is not None else None, option)


def _stored_run(gate_file: Path | None, store: str | None, run_id: str | None) -> tuple[str, str | None]:
    """The store's URL and the run: with a gate file, the newest run of that file's variants and evalsets."""
    if gate_file is None or run_id is not None:
        return _store_url_of(gate_file, store), run_id
    from qualgate.config import load_gate_file
    from qualgate.run import newest_run_of
    from qualgate.store.database import open_store

    gate = load_gate_file(gate_file, files=False)
    url = _store_url(gate.store_url, store)
    with open_store(url, create=False) as opened:
        return url, newest_run_of(opened, gate)


def _absolute_url(url: str) -> str:
    return f"sqlite:///{Path(url.removeprefix('sqlite:///')).resolve()}"


def _relative_url(url: str) -> str:
    path = Path(url.removeprefix("sqlite:///"))
    return f"sqlite:///{path.relative_to(Path.cwd())}" if path.is_relative_to(Path.cwd()) else url


def _own_name() -> str:
    """How this very command can be typed again: a virtual environment's need not be on the PATH."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return f"{os.path.relpath(sys.executable)} -m qualgate"
    return "qualgate" if shutil.which("qualgate") == os.path.abspath(called) else os.path.relpath(called)


def _report(url: str, run_id: str | None) -> Report:
    from qualgate.report.summary import load_report

    return load_report(url, run_id)


def _show(found: Report, as_json: bool) -> None:
    if as_json:
        typer.echo(found.as_json())
    else:
        from qualgate.report.terminal import print_report

        print_report(found)


def main() -> None:
    """Entry point: every outcome leaves through the contract's exit codes, and no error shows a traceback."""
    try:
        code = app(standalone_mode=False)
    except QualgateError as error:
        typer.echo(f"qualgate: {error}", err=True)
        code = error.exit
    except typer.Abort:
        code = Exit.INTERRUPTED
    except _PARSER_ERROR as error:
        error.show()  # type: ignore[attr-defined]
        code = Exit.USAGE
    except KeyboardInterrupt:
        typer.echo("qualgate: interrupted", err=True)
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's own flush is quiet
        code = Exit.INFRASTRUCTURE  # the reader left before the verdict was out: never a pass
    except OSError as error:
        typer.echo(f"qualgate: {error.strerror or error}: {error.filename or 'while writing'}", err=True)
        code = Exit.INFRASTRUCTURE
    sys.exit(int(code or 0))
