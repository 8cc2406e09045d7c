"""Random programs, run on the device and on the CPU and compared after each step."""
