"""The SQL store of all evidence: one transaction per job, sealed rows, verdicts that nobody can change."""
