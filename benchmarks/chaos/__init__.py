"""Faults at random under a steady load, every answer checked token by token: `python -m benchmarks.chaos`."""
