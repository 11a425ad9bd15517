"""Quantized kernels: there are none."""

engine = "none"
supported_engines = ["none"]
