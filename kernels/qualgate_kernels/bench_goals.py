"""The goals of the kernels on a GPU: of packed products, and of all else. Needs no torch."""

from __future__ import annotations

PRODUCTS = {
    "int4_8192_bandwidth": ">= 0.75 of the copy bandwidth of the run, 8192 x 8192 int4 g128, 1 to 16 rows",
    "int4_28672_bandwidth": ">= 0.75 of the copy bandwidth of the run, 28672 x 4096 int4 g128, 1 to 16 rows",
    "int4_8192_bf16": ">= 3.0x torch bf16, 8192 x 8192 int4 g128, 1 to 16 rows",
    "int4_28672_bf16": ">= 3.0x torch bf16, 28672 x 4096 int4 g128, 1 to 16 rows",
    "int4_8192_best": ">= 1.0x the best of torch int4, gemlite, Marlin, 8192 x 8192 int4 g128, 1 to 16 rows",
    "int4_28672_best": ">= 1.0x the best of torch int4, gemlite, Marlin, 28672 x 4096 int4 g128, 1 to 16 rows",
    "verify_cost": "time(8 rows) / time(1 row) <= 1.15, both shapes",
    "invariance_tax": "<= 5 % over the same kernels split as suits the number of rows best",
}
OTHERS = {
    "right": "a row's bits are its own, and every product is near float64's: all checks",
    "dense_price": "a bfloat16 product of one row takes <= 1.15x torch's, which is not invariant",
    "rotary_speed": ">= 3.0x torch's own operations in a graph, heads of one row",
    "paged_bfloat16": ">= 0.70 of the run's copy bandwidth, keys and values of 131,072 positions",
    "paged_fp8": ">= 1.7x bfloat16's attention",
    "paged_int8": ">= 1.7x bfloat16's attention",
    "paged_int4": ">= 2.8x bfloat16's attention",
    "drift_speed": ">= 600 TFLOP/s, 8192 rows of 4096 under two heads of 128,256",
    "drift_ratio": ">= 2.5x the unfused torch pair",
    "step_graph": ">= 1.5x that int4 step with its kernels launched one by one",
    "step_int4": ">= 600 tokens/s, norms and products of one row of an 8B model in one graph, without attention",
    "step_bf16": ">= 230 tokens/s, the same in bfloat16",
}
LIMITS = {
    "dense_price": 1.15, "rotary_speed": 3.0, "paged_bfloat16": 0.7, "paged_fp8": 1.7, "paged_int8": 1.7,
    "paged_int4": 2.8, "drift_speed": 600.0, "drift_ratio": 2.5, "step_graph": 1.5, "step_int4": 600.0,
    "step_bf16": 230.0,
}  # fmt: skip
