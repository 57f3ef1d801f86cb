"""The static gate: compile every kernel as it is shipped, for GPUs that are not there, and read the machine code.

Triton's own compiler, assembler and disassembler need no GPU. What is read: registers, spills, shared and tensor memory
(where the latter runs out, Triton writes a kernel that stops at once and says nothing), and the instructions a thread
spends on a weight in the loop that holds the matrix products. At 4.3 TB/s int4 weights arrive so fast that an SM has
3.6 to 4.0 instructions for each: more, and bandwidth is lost whatever else is done.

Run it in a process without TRITON_INTERPRET: the two do not mix.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from qualgate_kernels import configs, dense_gpu, gemm, launch, paged_gpu, rotary_gpu
from qualgate_kernels.kept import FORMS
from qualgate_kernels.paged import Seen, new_blocks
from qualgate_kernels.planes import Prepared, lay_out
from tests.packed_samples import weight

TARGETS = (80, 90, 100)
SHARED_LIMIT = {80: 166_912, 90: 232_448, 100: 232_448}  # bytes a block may ask for
TENSOR_MEMORY = 512  # columns a block may ask for, from sm_100 on
INT4_BUDGET = 3.6  # instructions per weight on sm_90, at one token tile of 16
PRODUCT = re.compile(r"\b(HGMMA|QGMMA|IGMMA|HMMA|IMMA|QMMA|UTC[A-Z]*MMA)\b")
IN_FEATURES, OUT_FEATURES = 4096, 128  # of the compiled weights: rows are a launch argument, K's divisors are not


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel in one configuration, as a launch would ask for it."""

    name: str
    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    tile: configs.Tile | None = None
    weights_a_block: int = 0  # of one thread block in one turn of the loop
    int4: bool = False
    options: dict[str, Any] | None = None  # what the compiler is told; None: what `launch` says for the tile
    multiplies: bool = True  # whether a loop with matrix products is expected; tensor cores have none of float32
    product: str = ""  # the instruction that is to multiply; "": any


@dataclass(frozen=True, slots=True)
class Reading:
    """What the machine code of an entry says."""

    name: str
    target: int
    registers: int
    spills: int  # instructions that move a register to local memory or back
    shared: int  # bytes
    tensor_memory: int  # columns, from sm_100 on
    loop: int  # instructions of the loop with the matrix products, a thread; 0 = no such loop
    per_weight: float | None
    products: str  # the instruction that multiplies
    faults: tuple[str, ...]
    counts: bool = False  # whether the int4 budget is for it


WEIGHT_ONLY = (
    "int4 g128", "int4 g64", "int4 g32", "int4 g128 asym", "int4", "int3 g128", "int8 g128", "int8", "int8 g128 asym",
    "int2 g64", "e4m3", "e4m3 128x128", "mxfp4", "nvfp4",
)  # fmt: skip
EIGHT_BIT = (("int8", "int8"), ("e4m3", "fp8"), ("e4m3 128x128", "fp8 g128"))
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
ELEMENTS = DTYPES | {torch.uint8: "u8", torch.int8: "i8"}
TOKENS = (16, 32, 64)  # one of each tile


def entries(target: int, *, quick: bool = False) -> Iterator[Entry]:
    """Every kernel in every configuration that is shipped for sm_`target`; quick: one or two of each kernel."""
    found = [*_products(target, quick), *_paged(quick), *_dense(quick)]
    found += _rotary(quick)
    return (entry for entry in found if target >= 89 or "*fp8e4nv" not in entry.signature.values())


def _products(target: int, quick: bool) -> Iterator[Entry]:
    for form in ("int4 g128", "mxfp4") if quick else WEIGHT_ONLY:
        prepared = lay_out(weight(form, OUT_FEATURES, IN_FEATURES), splits=4)
        for dtype in (torch.bfloat16,) if quick else DTYPES:
            for tokens in TOKENS[:1] if quick else TOKENS:
                yield _weight_only(f"{form}, x {DTYPES[dtype]}, {tokens} tokens", prepared, dtype, tokens, target)
    for form, activations in EIGHT_BIT[:2] if quick else EIGHT_BIT:
        prepared = lay_out(weight(form, OUT_FEATURES, IN_FEATURES), activations, splits=4)
        for tokens in TOKENS[:1] if quick else TOKENS:
            yield _eight_bit(f"{form}, {activations} activations, {tokens} tokens", prepared, tokens, target)
        yield _round(f"round tokens to {activations}", prepared)
        yield _reduce(f"reduce {form}, {activations} activations", prepared, "i32" if form == "int8" else "fp32")
    yield _reduce("reduce", lay_out(weight("int4 g128", OUT_FEATURES, IN_FEATURES), splits=4), "fp32")
    yield Entry(
        "three terms of float32", gemm.terms_kernel,
        {"x": "*fp32", "out": "*bf16", "M": "i32", "K": "i32", "x_stride": "i32"},
        {"BLOCK": launch.ROUND_BLOCK}, multiplies=False,
    )  # fmt: skip


def _paged(quick: bool) -> Iterator[Entry]:
    """Blocks of every form, every width of heads up to the widest; what the kernel may do besides, all and none."""
    for form in ("bfloat16", "int4") if quick else FORMS:
        for dim in (128,) if quick else (64, 80, 96, 128, 192, 256):
            blocks = new_blocks(1, 1, dim, form=form)
            said = f"{form}, {dim} dimensions"
            for split, much in ((True, True),) if quick else product((False, True), repeat=2):
                yield _paged_attention(
                    f"paged attention, {said}{', all' * much}{', split' * split}", blocks, split, much
                )
            if form not in ("bfloat16", "float32"):  # codes are kept by torch, and merged as these are
                continue
            kept = dict.fromkeys(("keys", "values"), f"*{DTYPES[blocks.keys.dtype]}")
            sinks = Seen(scale=1.0, sinks=torch.ones(1))
            yield Entry(
                f"paged attention, merge, {said}", paged_gpu.merge_spans_kernel,
                {
                    **dict.fromkeys(("partial", "totals", "sinks", "out"), "*fp32"), "packs": "*i32",
                    **dict.fromkeys(("heads", "kv_heads", "spans"), "i32"),
                },
                paged_gpu.merge_constants(blocks, sinks), options=paged_gpu.options(blocks), multiplies=False,
            )  # fmt: skip
            yield Entry(
                f"paged attention, keep, {said}", paged_gpu.keep_paged_kernel,
                {**kept, **dict.fromkeys(("key", "value"), "*fp32"), "slots": "*i64", "kv_heads": "i32"},
                paged_gpu.keep_constants(blocks), options={"num_warps": 1}, multiplies=False,
            )  # fmt: skip


def _paged_attention(name: str, blocks: Any, split: bool, much: bool) -> Entry:
    """much: a window, a soft cap and sinks."""
    seen = Seen(scale=1.0, soft_cap=1.0, window=1, sinks=torch.ones(1)) if much else Seen(scale=1.0)
    signature = {
        **dict.fromkeys(("keys", "values"), f"*{ELEMENTS[blocks.keys.dtype]}"),
        **dict.fromkeys(("key_scales", "value_scales"), "*bf16" if blocks.key_scales is not None else "*fp32"),
        **dict.fromkeys(("key_scale", "value_scale"), "fp32"),
        **dict.fromkeys(("query", "sinks", "out", "partial", "totals"), "*fp32"),
        **dict.fromkeys(("table", "sequence", "position", "packs"), "*i32"),
        **dict.fromkeys(("scale", "soft_cap"), "fp32"),
        **dict.fromkeys(("count", "heads", "kv_heads", "table_width", "spans", "window"), "i32"),
    }  # fmt: skip
    return Entry(
        name, paged_gpu.attend_paged_kernel, signature, paged_gpu.constants(blocks, seen, split),
        options=paged_gpu.options(blocks), multiplies=blocks.form != "float32",
        product="HMMA" if much and "128 dim" in name and blocks.form != "float32" else "",  # 16 pairs, a warp at a time
    )  # fmt: skip


def _dense(quick: bool) -> Iterator[Entry]:
    """Weights of every dtype, every tile, parts of K one after the other and side by side; norms of usual widths."""
    for dtype in (torch.bfloat16,) if quick else DTYPES:
        for tokens in dense_gpu.TILES[:1] if quick else dense_gpu.TILES:
            for split in (False, True):
                signature = {
                    "x": "*fp32", "weight": f"*{DTYPES[dtype]}", "out": "*fp32",
                    **dict.fromkeys(("M", "N", "K", "blocks", "parts"), "i32"),
                }  # fmt: skip
                yield Entry(
                    f"dense, {DTYPES[dtype]}, {tokens} tokens{', split' * split}", dense_gpu.dense_kernel, signature,
                    dense_gpu.constants(dtype, tokens, split), options=dense_gpu.options(dtype),
                    multiplies=dtype == torch.bfloat16,
                )  # fmt: skip
    yield Entry(
        "dense, add parts", dense_gpu.add_parts_kernel,
        {**dict.fromkeys(("made", "out"), "*fp32"), **dict.fromkeys(("M", "N", "parts"), "i32")},
        {"ADDED": dense_gpu.ADDED}, options={"num_warps": 4}, multiplies=False,
    )  # fmt: skip
    for width in (4096,) if quick else (1024, 4096, 16384):
        yield Entry(
            f"norm, {width} wide", dense_gpu.norm_kernel,
            {**dict.fromkeys(("x", "out"), "*fp32"), "weight": "*bf16", "width": "i32", "eps": "fp32"},
            dense_gpu.norm_constants(width), options=dense_gpu.norm_options(width), multiplies=False,
        )  # fmt: skip


def _rotary(quick: bool) -> Iterator[Entry]:
    """Heads of usual widths, as float32 arithmetic and served arithmetic have them."""
    for dtype in (torch.bfloat16,) if quick else DTYPES:
        for dim in (128,) if quick else (64, 80, 128, 256):
            yield Entry(
                f"heads turned, {DTYPES[dtype]}, {dim} dimensions", rotary_gpu.turn_kernel,
                {
                    **dict.fromkeys(("query", "key"), f"*{DTYPES[dtype]}"),
                    **dict.fromkeys(("cosines", "sines", "turned_query", "turned_key"), "*fp32"),
                    **dict.fromkeys(("heads", "kv_heads"), "i32"),
                    **dict.fromkeys(("query_head", "query_row", "key_head", "key_row"), "i32"),
                },
                rotary_gpu.constants(dim), options=rotary_gpu.OPTIONS, multiplies=False,
            )  # fmt: skip


def _weight_only(name: str, prepared: Prepared, dtype: torch.dtype, tokens: int, target: int) -> Entry:
    terms = 3 if dtype == torch.float32 else 1
    tile = configs.tile(tokens, prepared.block_k, prepared.like.bits, terms, target)
    operand = torch.bfloat16 if terms == 3 else dtype
    partial = prepared.splits > 1 and tokens <= configs.SIDE_BY_SIDE
    constants = launch.weight_only_constants(prepared, operand, terms, tile, partial=partial, bias=not partial)
    signature = {
        "x": f"*{DTYPES[operand]}", "words": "*i16",
        **dict.fromkeys(("scales", "zeros"), "*i32"),
        "row_scales": "*fp32", "bias": f"*{DTYPES[dtype]}", "out": "*fp32" if partial else f"*{DTYPES[dtype]}",
        **dict.fromkeys(("M", "N", "K", "x_stride", "x_part", "padded_n", "blocks", "per_split"), "i32"),
    }  # fmt: skip
    like = prepared.like
    counted = like.code == "int" and like.bits == 4 and tokens == 16 and terms == 1 and prepared.group_size >= 128
    return Entry(
        name, gemm.weight_only_kernel, signature, constants, tile, tile.rows * prepared.block_k, counted,
        product="HGMMA" if counted and target == 90 and dtype == torch.bfloat16 else "",
    )  # fmt: skip


def _eight_bit(name: str, prepared: Prepared, tokens: int, target: int) -> Entry:
    tile = configs.tile(tokens, prepared.block_k, prepared.like.bits, 1, target)
    partial = prepared.splits > 1 and tokens <= configs.SIDE_BY_SIDE
    codes = "i8" if prepared.activations == "int8" else "fp8e4nv"
    constants = launch.eight_bit_constants(prepared, tile, partial=partial, bias=not partial)
    exact = codes == "i8" and not prepared.grouped
    signature = {
        "x": f"*{codes}", "words": f"*{codes}", "scales": "*i32", "token_scales": "*fp32", "row_scales": "*fp32",
        "bias": "*bf16", "out": ("*i32" if exact else "*fp32") if partial else "*bf16",
        **dict.fromkeys(("M", "N", "padded_k", "token_groups", "padded_n", "blocks", "per_split"), "i32"),
    }  # fmt: skip
    return Entry(name, gemm.eight_bit_kernel, signature, constants, tile, tile.rows * prepared.block_k)


def _round(name: str, prepared: Prepared) -> Entry:
    codes = "i8" if prepared.activations == "int8" else "fp8e4nv"
    signature = {
        "x": "*bf16", "codes": f"*{codes}", "scales": "*fp32",
        **dict.fromkeys(("K", "padded_k", "x_stride", "groups"), "i32"),
    }  # fmt: skip
    return Entry(name, gemm.round_tokens_kernel, signature, launch.round_constants(prepared), multiplies=False)


def _reduce(name: str, prepared: Prepared, partials: str) -> Entry:
    signature = {
        "partials": f"*{partials}", "row_scales": "*fp32", "token_scales": "*fp32", "bias": "*bf16", "out": "*bf16",
        "M": "i32", "N": "i32", "padded_n": "i32",
    }  # fmt: skip
    constants = launch.reduce_constants(prepared, bias=True)
    return Entry(name, gemm.reduce_kernel, signature, constants, multiplies=False)


DIVISIBLE = (
    "K",
    "x_stride",
    "x_part",
    "padded_n",
    "padded_k",
    "N",
    "PD",
    "QD",
    "capacity",
)  # by 16, as they are in models


def compiled(entry: Entry, target: int) -> Any:
    """What Triton makes of `entry` for sm_`target`."""
    order = entry.kernel.arg_names
    assert sorted(order) == sorted([*entry.signature, *entry.constants]), entry.name
    divisible = [["tt.divisibility", 16]]
    signature = {name: entry.signature.get(name, "constexpr") for name in order}
    plain = {param.name for param in entry.kernel.params if param.do_not_specialize_on_alignment}
    attributes = {
        (order.index(name),): divisible
        for name, kind in entry.signature.items()
        if (kind.startswith("*") or name in DIVISIBLE) and name not in plain
    }
    source = ASTSource(entry.kernel, signature, constexprs=entry.constants, attrs=attributes)
    options = entry.options or launch.options(entry.tile, target)
    return triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)


def read(entry: Entry, target: int) -> Reading:
    """Compile and disassemble `entry`, and hold it against its budget."""
    made = compiled(entry, target)
    registers, code = disassembled(made.asm["cubin"])
    instructions, loop = hot_loop(code)
    spills = sum(bool(re.search(r"\b(LDL|STL)\b", line)) for line in instructions)
    shared = made.metadata.shared
    found = next((match[0] for line in loop if (match := PRODUCT.search(line))), "")
    per_weight = None
    if entry.tile and loop:
        per_weight = len(loop) * 32 * entry.tile.warps / entry.weights_a_block
    faults = []
    if spills:
        faults.append(f"{spills} spills, expected 0")
    tensor_memory = getattr(made.metadata, "tmem_size", None) or 0
    if tensor_memory > TENSOR_MEMORY:  # a launch would be refused
        faults.append(f"{tensor_memory} columns of tensor memory, there are {TENSOR_MEMORY}")
    if shared > SHARED_LIMIT[target]:
        faults.append(f"{shared} bytes of shared memory, sm_{target} has {SHARED_LIMIT[target]}")
    if entry.multiplies and not loop:
        faults.append("no loop with matrix products")
    if entry.product and found != entry.product:
        faults.append(f"matrix products by {found or 'none'}, expected {entry.product}")
    counts = target == 90 and entry.int4
    if counts and (per_weight is None or per_weight > INT4_BUDGET):
        faults.append(f"{per_weight} instructions per weight, expected at most {INT4_BUDGET}")
    return Reading(
        entry.name, target, registers, spills, shared, tensor_memory, len(loop),
        per_weight and round(per_weight, 2), found, tuple(faults), counts,
    )  # fmt: skip


def disassembled(cubin: bytes) -> tuple[int, str]:
    """(registers a thread, the listing)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = subprocess.run(
            [_tool("cuobjdump"), "--dump-resource-usage", str(path)], capture_output=True, text=True, check=True
        )
        listing = subprocess.run([_tool("nvdisasm"), "-c", str(path)], capture_output=True, text=True, check=True)
    registers = re.search(r"REG:(\d+)", usage.stdout)
    assert registers, usage.stdout
    return int(registers[1]), listing.stdout


@cache
def _tool(name: str) -> str:
    import triton.backends.nvidia as nvidia

    return os.path.join(os.path.dirname(nvidia.__file__), "bin", name)


def hot_loop(listing: str) -> tuple[list[str], list[str]]:
    """(all instructions, those of the loop with the matrix products in it). Blocks that wait are laid at a listing's
    end and jump back into the loop, so of all backward jumps the shortest over the most products is the loop's."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(instructions)
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            instructions.append(found[1])
    loops = []
    for place, line in enumerate(instructions):
        branch = re.search(r"\bBRA\b.*?`?\(?(\.L_\w+)\)?", line)
        if branch and labels.get(branch[1], place + 1) <= place:
            body = instructions[labels[branch[1]] : place + 1]
            products = sum(bool(PRODUCT.search(inner)) for inner in body)
            if products:
                loops.append((-products, len(body), body))
    return instructions, min(loops, default=(0, 0, []))[2]


def read_numbered(job: tuple[bool, int, int]) -> Reading:
    """The reading of entry number `job[1]` of the quick or the whole table for target `job[2]`; a compiler's failure is
    a fault."""
    quick, number, target = job
    entry = next(entry for place, entry in enumerate(entries(target, quick=quick)) if place == number)
    try:
        return read(entry, target)
    except Exception as error:  # the compiler's own exceptions have no common base
        fault = f"does not compile: {type(error).__name__}: {error}"[:500]
        return Reading(entry.name, target, 0, 0, 0, 0, 0, None, "", (fault,))


def as_row(reading: Reading) -> dict[str, Any]:
    """For a report. counts: whether its instructions per weight are held against the int4 budget."""
    failed = any(fault.startswith("does not compile") for fault in reading.faults)
    return {**asdict(reading), "counts": reading.counts, "failed": failed}
