"""Faults on purpose: a TCP proxy that cuts, loses and delays, and signals to processes. For tests and benchmarks."""
