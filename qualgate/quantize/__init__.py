"""Making a quantized folder, by our own methods or with a library, and what such a folder says of itself."""
