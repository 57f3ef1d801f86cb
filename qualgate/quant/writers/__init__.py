"""From packed weights to the folders other libraries load: GPTQ v1 and v2, AWQ GEMM, compressed-tensors.

`gptq`, `awq` and `compressed_tensors` lay out one weight each and say so in a config; `folder` puts a model together;
`card` says what was done.
"""
