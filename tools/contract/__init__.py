"""Reads the contract that each kernel's .wgsl file states, and writes it as C++ and JSON."""
