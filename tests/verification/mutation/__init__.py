"""Small wrong changes of the product, and which test notices each: `python -m tests.verification.mutation`."""
