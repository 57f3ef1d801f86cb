"""Served arms under load: how long their answers take, and how many they give, when many are asked for at once."""
