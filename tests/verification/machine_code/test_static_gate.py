"""The machine code of the GPU kernels, with no GPU: of an int4 product, and in `make verify` of every kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

READ = """
import json, sys
from tests.verification.machine_code import static_gate as gate
form, *targets = sys.argv[1:]
asked = [(entry, int(to)) for to in targets for entry in gate.entries(int(to), quick=True) if form in entry.name]
found = [gate.as_row(gate.read(entry, target)) for entry, target in asked]
print(json.dumps(found))
"""


def read(*targets: int, form: str = "") -> list[dict]:
    """Of kernels with `form` in their name, in a process where Triton compiles: beside its interpreter it does not."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", READ, form, *map(str, targets)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def hopper() -> list[dict]:
    return read(90, form="int4")


def test_int4_products_compile_for_hopper_within_their_budget(hopper):
    assert len(hopper) > 0
    assert [row["faults"] for row in hopper if row["faults"]] == []


@pytest.mark.proof
def test_every_kernel_compiles_for_every_target_within_its_budget():
    from tests.verification.machine_code.static_gate import TARGETS

    readings = read(*TARGETS)
    assert [row["faults"] for row in readings if row["faults"]] == []
    from qualgate_kernels import attention_gpu, dense_gpu, drift_gpu, gemm, paged_gpu, rotary_gpu
    from tests.verification.machine_code import static_gate

    compiled = {entry.kernel.fn.__name__ for entry in static_gate.entries(90, quick=True)}
    modules = (attention_gpu, dense_gpu, drift_gpu, gemm, paged_gpu, rotary_gpu)
    shipped = {name for module in modules for name in dir(module) if name.endswith("_kernel")}
    assert compiled == shipped
    assert {row["target"] for row in readings} == set(static_gate.TARGETS)
    # Of paged attention, packs of 16 pairs are multiplied a warp at a time, on every GPU, three times a product.
    read_paged = [
        row for row in readings if row["name"].startswith("paged attention, ") and "dimensions, all" in row["name"]
    ]
    paged = [(row["target"], row["products"]) for row in read_paged]
    assert set(paged) == {(target, "HMMA") for target in static_gate.TARGETS}


def test_an_int4_weight_takes_no_more_than_its_share_of_instructions(hopper):
    [counted] = [row for row in hopper if row["counts"]]
    assert 1 < counted["per_weight"] <= 3.6
    assert counted["products"] == "HGMMA"  # the weight goes to the tensor core from registers, not a warp at a time


def test_a_loop_is_found_in_a_listing_and_its_spills_are_counted():
    from tests.verification.machine_code.static_gate import hot_loop

    listing = """
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDS R4, [R0] ;
        /*0020*/                   HGMMA.64x16x16.F32 R8, R4, gdesc[UR4], R8 ;
.L_x_2:
        /*0030*/              @!P0 BRA `(.L_x_2) ;
        /*0040*/               @P1 BRA `(.L_x_1) ;
        /*0050*/                   STL [R1], R2 ;
        /*0060*/                   EXIT ;
"""
    instructions, loop = hot_loop(listing)
    assert len(instructions) == 7
    assert [line.split()[0] for line in loop] == ["LDS", "HGMMA.64x16x16.F32", "@!P0", "@P1"]
    assert hot_loop("        /*0000*/                   EXIT ;") == (["EXIT"], [])
