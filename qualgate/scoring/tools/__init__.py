"""Tool calls: read them from an answer (dialects), and compare them with the expected ones (strict, or as BFCL)."""
