"""Sources of the published parsers and templates that dialects were checked against."""

from __future__ import annotations

VLLM = "vllm-project/vllm v0.33.0 vllm/"
SGLANG = "sgl-project/sglang v0.5.23 python/sglang/srt/function_call/"


def template(file: str, commit: str) -> str:
    """A chat template of llama.cpp's collection, as it stood at `commit`."""
    return f"ggml-org/llama.cpp @ {commit} models/templates/{file}"
