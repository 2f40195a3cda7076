"""Faults on purpose: a TCP proxy that loses, delays and cuts, and signals to processes. Tests and benchmarks share it."""
