"""The compiled kernels. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "qualgate_kernels._drift",
            ["kernels/qualgate_kernels/cpu/drift.c"],
            extra_compile_args=["-O3", "-std=c11", "-fvisibility=hidden"],
            libraries=["m"],
            optional=True,  # without a compiler the torch twin serves
        )
    ]
)
