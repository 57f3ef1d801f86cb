"""Compiles the CPU kernels where there is a C compiler; everything else stands in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("kernels/qualgate_kernels/cpu/c")

setup(
    ext_modules=[
        Extension(
            "qualgate_kernels.cpu._kernels",  # loaded with ctypes: no module of Python's, and no header of its
            sources=sorted(str(path) for path in FOLDER.glob("*.c")),
            depends=sorted(str(path) for path in FOLDER.glob("*.h")),
            # No contraction: a product and a sum are fused where the source says so, in every function alike.
            extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden",
                                "-Wno-psabi", "-pthread"],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)  # fmt: skip
