"""Every piece of evidence in a SQL store: one transaction a job, sealed rows, verdicts that nobody can change."""
