"""Make a quantized folder, with our own methods or a library, and record its evidence."""
