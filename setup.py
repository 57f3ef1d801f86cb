"""Compiles the CPU kernels where there is a C compiler; everything else stands in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("kernels/qualgate_kernels/cpu")
# No contraction: a product and a sum are fused where the source says so, in every function alike.
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wno-psabi", "-pthread"]

# Loaded with ctypes: no modules of Python's, and no header of its. Without a compiler the torch twins serve.
setup(
    ext_modules=[
        Extension(
            "qualgate_kernels.cpu._kernels",
            sources=sorted(str(path) for path in (FOLDER / "c").glob("*.c")),
            depends=sorted(str(path) for path in (FOLDER / "c").glob("*.h")),
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
            libraries=["m"],
            optional=True,
        ),
    ]
)
