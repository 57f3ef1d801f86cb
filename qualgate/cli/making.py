"""Quantized checkpoints: `inspect` says what one holds, `quantize` makes one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.arguments import JsonOption
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say
from qualgate.errors import UsageError


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="a model folder, quantized or not, or `reference`")],
    tensor: Annotated[str | None, typer.Option("--tensor", help="write this tensor, dequantized, to --out")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="safetensors file for --tensor: float32 [out, in]")] = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="another form of the same model, to measure the error against")
    ] = None,
    determinism: Annotated[
        str | None,
        typer.Option("--determinism", metavar="EVALSET", help="run 8 cases of this evalset twice and compare the bits"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a checkpoint really holds: each tensor's format, size, statistics and oddities."""
    from qualgate import refmodel
    from qualgate.engine.refusal import refusal
    from qualgate.quant import inspect as inspection
    from qualgate.report.inspection import inspection_as_json, print_inspection
    from qualgate.report.progress import shown_progress

    model = refmodel.PATH if str(model) == "reference" else model
    compare = refmodel.PATH if str(compare) == "reference" else compare
    if (tensor is None) != (out is None):
        raise UsageError("--tensor NAME and --out FILE.safetensors go together: the tensor, and where to write it.")
    if tensor is not None and out is not None:
        shape = inspection.write_tensor(model, tensor, out)
        say(f"written: {out} (float32 {' x '.join(map(str, shape))})")
        return
    if determinism is not None:
        _determinism(model, determinism, as_json)
        return
    with shown_progress("tensors") as progress:
        report = inspection.inspect(model, progress, refusal)
        differences, unmatched = inspection.compare(model, compare, progress) if compare else ((), ())
    if as_json:
        say(inspection_as_json(report, differences, unmatched))
    else:
        print_inspection(report, differences, unmatched)


def _determinism(model: Path, evalset: str, as_json: bool) -> None:
    """Measure whether a model's bits depend on how it is read, on eight cases spread evenly over the evalset, and print
    it."""
    from dataclasses import asdict

    from qualgate import evalsets
    from qualgate.engine.determinism import model_determinism
    from qualgate.engine.device import choose_device
    from qualgate.report.determinism import determinism_lines
    from qualgate.report.screen import fit

    cases = evalsets.load(evalset, Path.cwd()).cases
    spread = [cases[index * len(cases) // 8] for index in range(8)] if len(cases) > 8 else list(cases)
    matrix = model_determinism(model, spread, device=choose_device("auto"))
    say(json.dumps(asdict(matrix), indent=2) if as_json else fit("\n".join(determinism_lines(matrix))))


MethodOption = Annotated[
    str | None, typer.Option("--method", help="int8 int4 int3 int2 fp8 mxfp4 mxfp8 nvfp4 gptq awq smoothquant")
]
FormatOption = Annotated[
    str,
    typer.Option("--format", help="gptq, gptq_v2, awq or compressed-tensors (the default without --backend)"),
]
CalibrationOption = Annotated[
    str | None, typer.Option("--calibration", help="a calibration set: shipped name or NAME.yaml")
]
KeepOption = Annotated[
    list[str] | None, typer.Option("--keep", metavar="PATTERN=PRECISION", help="give these layers another precision")
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="any other key of the gate file's `quantize:`"),
]
SensitivityOption = Annotated[
    bool,
    typer.Option(
        "--sensitivity",
        help="rank layers by the error that rounding each one alone to the method's grid causes (an upper estimate for "
        "gptq, awq, smoothquant and calibrated nvfp4); writes nothing",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option("--backend", help="quantize with a library: gptqmodel, llmcompressor, auto-gptq or autoawq"),
]
SetupBackendOption = Annotated[
    str | None, typer.Option("--setup-backend", help="only create the environment of this library")
]
EvalsetOption = Annotated[
    list[str] | None,
    typer.Option("--evalset", help="evalset on which to measure the coverage of the calibration set; may be repeated"),
]


def quantize(
    model: Annotated[str | None, typer.Argument(help="a full-precision model's folder, or `reference`")] = None,
    method: MethodOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder to create")] = None,
    format: FormatOption = "",
    bits: Annotated[int | None, typer.Option("--bits", help="bits of a gptq or awq weight; 4 by default")] = None,
    group_size: Annotated[int | None, typer.Option("--group-size", help="weights per scale; 0 is a whole row")] = None,
    calibration: CalibrationOption = None,
    keep: KeepOption = None,
    option: OptionOption = None,
    sensitivity: SensitivityOption = False,
    backend: BackendOption = None,
    setup_backend: SetupBackendOption = None,
    backend_dir: Annotated[Path | None, typer.Option("--backend-dir", help="folder of environments")] = None,
    evalset: EvalsetOption = None,
    devices: Annotated[str, typer.Option("--devices", help="auto or cpu")] = "auto",
    date: Annotated[str, typer.Option("--date", help="date to write into the model card; none by default")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a quantized folder that other libraries load. Interrupted, run it again: finished layers are kept."""
    from qualgate import refmodel
    from qualgate.engine.device import choose_device
    from qualgate.pipeline.quantize import folder as making
    from qualgate.quant.recipes import words_of_recipe
    from qualgate.report.progress import shown_progress
    from qualgate.report.quantized import outsourced_lines, quantized_lines, sensitivity_lines

    if setup_backend is not None:
        _set_up(setup_backend, backend_dir, as_json)
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
        with shown_progress("layers") as show_layers:
            ranked = making.sensitivity(
                folder, recipe, calibration or "", relative_to=here, device=device, progress=show_layers
            )
        _show(as_json, sensitivity_lines(ranked), [layer.as_json() for layer in ranked])
        return
    if out is None:
        raise UsageError("--out is missing: the folder to make.")
    order = making.Order(
        model=folder, recipe=recipe, out=out, format=format or ("compressed-tensors" if backend is None else ""),
        relative_to=here, against=evalset or (), device=device, date=date,
    )  # fmt: skip
    if backend is not None:
        from qualgate.pipeline.quantize.with_library import quantize_with

        outsourced = quantize_with(backend, order, backend_dir, tell)
        _show(as_json, outsourced_lines(outsourced), outsourced.as_json())
        return
    with shown_progress("layers") as progress:
        quantized = making.quantize(order, progress)
    _show(as_json, quantized_lines(quantized), quantized.as_json())


def _set_up(backend: str, folder: Path | None, as_json: bool) -> None:
    from qualgate.quant.backends.environment import set_up

    ready = set_up(backend, folder, tell)
    _show(as_json, [f"{backend} is ready: {ready.python}"], {"backend": backend, "versions": ready.versions})


def _show(as_json: bool, lines: list[str], value: object) -> None:
    from qualgate.report.screen import fit

    say(json.dumps(value, indent=2) if as_json else fit("\n".join(lines)))
