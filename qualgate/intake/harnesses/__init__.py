"""Read results that other harnesses wrote: a file a format, each with `recognise` and `read`."""
