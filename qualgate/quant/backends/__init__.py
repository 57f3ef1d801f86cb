"""Quantization libraries that cannot share an interpreter with qualgate, nor with each other, each run in its own.

`environment` makes and finds their virtual environments, `job` says what is asked of them, `inside` is the one script
that runs there, `call` starts it and listens.
"""
