"""The reference model: a small Llama trained here, shipped in the package, so that a demo needs no download."""

from pathlib import Path

PATH = Path(__file__).parent / "weights"
"""A folder that `AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained` load."""
