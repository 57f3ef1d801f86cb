"""Train and evaluate the reference model. Only in a checkout: a wheel contains the weights."""
