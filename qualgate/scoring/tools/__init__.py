"""Tool calls: what an answer calls (dialects), and whether that is what was asked for (strict, or compat: as BFCL)."""
