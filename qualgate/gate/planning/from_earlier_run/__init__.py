"""How surely a rule on what is measured would decide, told from what an earlier run of the gate file measured."""
