"""The parts of the page on a verdict, each one thing that it says."""
