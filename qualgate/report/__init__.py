"""Reports of a run for people and for machines: from stored evidence alone, computing no statistic."""
