"""A small language model: train it on text that every Python has, then let it write."""
