"""Draft heads: small layers that draft from the states of their target: EAGLE-3, and the target's own (MTP)."""
