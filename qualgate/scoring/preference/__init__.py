"""Which of two answers a judge prefers: what it is asked, how its replies are read, and what may sway it."""
