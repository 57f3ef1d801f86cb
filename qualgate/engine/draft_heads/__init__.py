"""Draft heads: small layers that draft from what enters their target's output head, made by `qualgate draft train`."""
