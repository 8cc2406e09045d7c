"""Speed and memory of the device, measured beside its peers on the same machine in one run."""
