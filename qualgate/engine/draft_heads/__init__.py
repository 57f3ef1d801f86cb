"""Draft heads: small layers that draft from their target's states: EAGLE-3, and a model's own (MTP)."""
