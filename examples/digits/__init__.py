"""Handwritten digits: train a small convolutional network on any PyTorch device, then use it."""
