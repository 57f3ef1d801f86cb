"""What a run came to, for people and for machines: from stored evidence alone, computing no statistic."""
