"""Reads the WGSL of a user's kernels and prepares it for the device.

``types``: WGSL's types, their layout in memory, and values packed in that layout. ``program``: the
declarations of a program. ``prepare``: the text of one kernel as the device gets it.
"""
