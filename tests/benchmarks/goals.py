"""What each benchmark of speed and cost is to show: row id → goal. Ids stay what they are from version to version."""

from __future__ import annotations

from tests.benchmarks.shape import Benchmark

BEST = "at its best batch of 4 to 128, the same dequantized weights and answers"
DECODE = Benchmark(
    name="decode",
    about="exact answers a second against transformers, lm-eval's hf and vLLM; a step over its products; memory",
    goals={
        "drafted_int8": f">= 8x transformers.generate {BEST}; drafted, drift counted in",
        "drafted_int4": f">= 6x transformers.generate {BEST}; drafted, drift counted in",
        "lm_eval_int8": f">= 9x lm-eval's hf {BEST}, loading excluded; drafted, drift counted in",
        "lm_eval_int4": f">= 7x lm-eval's hf {BEST}, loading excluded; drafted, drift counted in",
        "plain": f">= 3.5x the faster of transformers.generate_batch and generate {BEST}; not drafted",
        "vllm_plain": ">= 1.2x vLLM in float32, warmed up, fresh prompts, prefix cache on; not drafted",
        "vllm_int8": ">= 2.5x vLLM on the same W8A8 folder; drafted, drift counted in",
        "vllm_int4": ">= 2.2x vLLM on the same GPTQ int4 folder; drafted, drift counted in",
        "step_1": "<= 1.5x its products, called one by one; 1 row at 230 positions, int4",
        "step_64": "<= 3x its products, called one by one; 64 rows at 230 positions, int4",
        "choices": ">= 3x lm-eval's hf at its best batch of 4 to 128 on questions that share solved ones; same choices",
        "memory": "peak <= 0.7x generate's, a bf16 baseline <= 1.1x its file, libraries apart",
    },
    in_parts=True,
)

SPECULATION = Benchmark(
    name="speculation",
    about="what drafts gain: ML-SpecQD on two cores, the law of it, its control; transformers' and vLLM's speculation",
    goals={
        "target_bandwidth": ">= 70 % of the read bandwidth of the same rounds; bfloat16, one row, 1 and 2 threads",
        "verify": "time(8 rows) / time(1 row) <= 1.3 bfloat16, <= 2 int4 and MXFP4, 1 and 2 threads",
        "specqd_1": ">= 2.0x plain, seconds a token after the first; MXFP4 self-draft, widened target, batch 1",
        "specqd_2": ">= 2.7x plain, seconds a token after the first; n-grams under the self-draft, widened, batch 1",
        "law": ">= 90 % of cells within 10 % of what acceptance and costs foretell; who drafts x γ x batch x task",
        "control": ">= 5 % over the best fixed γ, geometric mean; never < 0.98x plain where drafts do not pay",
        "assistant": ">= 1.3x transformers.generate with assistant_model, batch 1, the same models",
        "lookup": ">= 1.3x transformers.generate with prompt_lookup_num_tokens, batch 1, the same model",
        "vllm_ngram": ">= 1.2x vLLM with its n-gram speculation, bfloat16, batch 1, the same model",
        "vllm_draft": ">= 1.2x vLLM with its draft_model speculation, bfloat16, batch 1, the same models",
        "bits": "acceptance of self-drafts of 8 to 2 bits, >= 8 formats x 4 tasks; does keeping layers high help",
        "gpu_spec": "a table: one GPU, batch 1 to 256, crossover, what verifying int4 costs",
    },
    in_parts=True,
)

COMMANDS = Benchmark(
    name="commands",
    about="seconds a user waits: --help, gate over 20,000 and 100,000 stored scores, the dashboard",
    goals={
        "help": "<= 0.5 s",
        "gate_20000_scores": "<= 3 s",
        "gate_100k": "< 5 s and < 500 MB over 100,000 stored scores",
        "gate_files_100k": "< 5 s and < 500 MB over two files of 100,000 score rows",
        "dashboard_first_page": "<= 2 s",
    },
)

INTAKE = Benchmark(
    name="intake",
    about="seconds and memory of `qualgate intake` over two result files of a million rows each",
    goals=dict.fromkeys(
        ("table", "lm-eval", "inspect", "promptfoo", "lighteval"),
        "<= 60 s and <= 1 GiB, PSS of the process tree; 1,000,000 rows a side",
    ),
    in_parts=True,
)

DEMO = Benchmark(
    name="demo",
    about="the demo's seconds and memory, and its verdicts over evalset seeds",
    goals={
        "demo_seconds": "<= 360 s after installation, on two idle cores",
        "demo_memory": "<= 2 GiB, PSS of the process tree",
        "int8_approves": ">= 19 of 20 evalset seeds",
        "int2_blocks": "20 of 20 evalset seeds",
    },
)

GPU_PRODUCTS = {
    "int4_8192_bandwidth": ">= 0.75 of the copy bandwidth of the run, 8192 x 8192 int4 g128, 1 to 16 rows",
    "int4_28672_bandwidth": ">= 0.75 of the copy bandwidth of the run, 28672 x 4096 int4 g128, 1 to 16 rows",
    "int4_8192_bf16": ">= 3.0x torch bf16, 8192 x 8192 int4 g128, 1 to 16 rows",
    "int4_28672_bf16": ">= 3.0x torch bf16, 28672 x 4096 int4 g128, 1 to 16 rows",
    "int4_8192_best": ">= 1.0x the best of torch int4, gemlite, Marlin, 8192 x 8192 int4 g128, 1 to 16 rows",
    "int4_28672_best": ">= 1.0x the best of torch int4, gemlite, Marlin, 28672 x 4096 int4 g128, 1 to 16 rows",
    "verify_cost": "time(8 rows) / time(1 row) <= 1.15, both shapes",
    "invariance_tax": "<= 5 % over the same kernels split as suits the number of rows best",
}
GPU_OTHERS = {
    "right": "a row's bits are its own, and every product is near float64's: all checks",
    "dense_price": "a bfloat16 product of one row takes <= 1.15x torch's, which is not invariant",
    "rotary_speed": ">= 3.0x torch's own operations in a graph, heads of one row",
    "paged_bfloat16": ">= 0.70 of the run's copy bandwidth, keys and values of 131,072 positions",
    "paged_fp8": ">= 1.7x bfloat16's attention",
    "paged_int8": ">= 1.7x bfloat16's attention",
    "paged_int4": ">= 2.8x bfloat16's attention",
    "step_graph": ">= 1.5x that int4 step with its kernels launched one by one",
    "step_int4": ">= 600 tokens/s, norms and products of one row of an 8B model in one graph, without attention",
    "step_bf16": ">= 230 tokens/s, the same in bfloat16",
}
GPU = Benchmark(
    name="gpu",
    about="the GPU kernels: are they right, share of the memory's bandwidth, beside torch's and others', a step",
    goals=GPU_PRODUCTS | GPU_OTHERS,
)

KERNELS_CPU = Benchmark(
    name="kernels-cpu",
    about="the C kernels against torch's int4 operator, bf16 linear and a plain read, two threads",
    goals={
        "int4_rows_32_512": ">= 5x torch's eager int4 operator, K = N of 1024 to 4096, every shape",
        "int4_rows_64_up": "<= 1.25x the time of torch bf16 linear, 64 to 512 rows, every shape",
        "int4_few_rows": ">= 2.5x torch bf16 linear, 1 to 4 rows, 64 MiB packed, 4 copies rotated",
        "mxfp4_few_rows": ">= 2.5x torch bf16 linear, 1 to 4 rows, 64 MiB packed, 4 copies rotated",
        "int4_bandwidth": ">= 70 % of the read bandwidth of the same rounds, 1 to 4 rows",
        "mxfp4_bandwidth": ">= 70 % of the read bandwidth of the same rounds, 1 to 4 rows",
    },
)

DRIFT = Benchmark(
    name="drift",
    about="two models' distributions compared a few rows at a time, against full logits through transformers",
    goals={
        f"cpu_{shape}_{what}": limit
        for shape in ("32k_float32", "32k_bfloat16", "150k_float32", "150k_bfloat16")
        for what, limit in (
            ("time", ">= 2x faster than full logits through transformers, 4096 rows, two threads"),
            ("memory", ">= 20x less peak memory above weights and hidden states"),
        )
    },
)

REAL_SIZE = Benchmark(
    name="real-size",
    about="a real chat model of 135M parameters against its peers, drafting, loading; models of 0.5B and 1.5B",
    goals={
        "plain": ">= 2.5x transformers.generate, float32, 12 first turns of MT-Bench, 64 tokens; the same answers",
        "vllm_plain": ">= 2.5x vLLM in float32 on the same",
        "drafted_int8": ">= 1.0x plain decoding without drift; drafted, drift counted in",
        "drafted_int4": ">= 1.0x plain decoding without drift; drafted, drift counted in",
        "products": ">= 70 % of what the threads multiply or read, 8 to 64 rows, bfloat16, int8, int4, 135M to 8B",
        "drift": ">= 60 % of what the threads multiply, 768 positions under vocabularies of 49,152 and 151,936",
        "load": "int4 made on the spot <= 3 s, again from the cache <= 1 s, libraries loaded before",
        "memory": "peak of loading and answering 12 rows <= 1.15x weights, keys and values; bfloat16, int4, 135M, 0.5B",
        "llama_q8_0_1": ">= 1.0x llama.cpp's server on the same int8 weights, prompts one at a time; float32",
        "llama_q4_0_1": ">= 1.0x llama.cpp's server on the same int4 weights, prompts one at a time; float32",
        "llama_q8_0_12": ">= 1.0x llama.cpp's server on the same int8 weights, 12 prompts at once; arithmetic: served",
        "llama_q4_0_12": ">= 1.0x llama.cpp's server on the same int4 weights, 12 prompts at once; arithmetic: served",
        "plain_05b": ">= 2.5x transformers.generate, float32, 12 rows; Qwen2's shape of 0.5B, random; the same answers",
        "plain_15b": ">= 2.5x transformers.generate, float32, 12 rows; Qwen2's shape of 1.5B, random; the same answers",
        "int4_05b": "int4 >= 2.5x our bfloat16 at 1 row, >= 1.6x at 12 rows, a decoding pass; Qwen2's shape of 0.5B",
        "bf16_int4_135m": "int4 >= 2.5x our bfloat16 at 1 row, >= 1.6x at 12 rows, a decoding pass; the chat model",
    },
    in_parts=True,
)

QUANTIZE_TIME = Benchmark(
    name="quantize-time",
    about="processor seconds of GPTQ and of its calibration's coverage, beside llm-compressor",
    goals={
        "gptq": "<= 1.3x llm-compressor's, the same recipe, model and 128 samples of 512 tokens",
        "coverage": "<= 0.2x llm-compressor's, >= 10,000 tokens of each side",
    },
)

RUN_COSTS = Benchmark(
    name="run-costs",
    about="processor seconds of `qualgate run` by part: imports, planning, loading, the model, scoring, store, report",
    goals={
        "not_model": "<= 2.5x an import of transformers' models: all but the model's passes, a 135M model and its int4",
    },
)

_ALL = (DECODE, SPECULATION, COMMANDS, INTAKE, DEMO, GPU, KERNELS_CPU, DRIFT, REAL_SIZE, QUANTIZE_TIME, RUN_COSTS)
SPEED = {each.name: each for each in _ALL}
