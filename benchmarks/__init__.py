"""Measurements. Each writes JSON with its provenance to benchmarks/results; `make bench` runs them all."""
