"""The gate of machine code, with no GPU and no compiler: what it reads, and that it reads every kernel that is shipped.

`make verify` compiles them all, by the proof `static`.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from qualgate_kernels import dense_gpu, gemm, paged_gpu, rotary_gpu
from tests.verification.machine_code.static_gate import TARGETS, entries, hot_loop

MODULES = (dense_gpu, gemm, paged_gpu, rotary_gpu)


def test_every_shipped_kernel_is_compiled_for_every_target():
    shipped = {name for module in MODULES for name in dir(module) if name.endswith("_kernel")}
    for target in TARGETS:
        asked = list(entries(target, quick=True))
        assert {entry.kernel.fn.__name__ for entry in asked} == shipped
        assert {entry.product for entry in asked} == {"", "HMMA"} | ({"HGMMA"} if target == 90 else set())
    assert [entry.int4 for entry in entries(90, quick=True)].count(True) == 1, "one is held against the int4 budget"


def test_a_loop_is_found_in_a_listing_and_its_spills_are_counted():
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
