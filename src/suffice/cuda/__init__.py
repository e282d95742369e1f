"""Many columns at a time, on a device and with kernels written for it."""
