"""Reads the op tables (csrc/ops/<family>/rows.yaml), and writes them as C++ and JSON."""
