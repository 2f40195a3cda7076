"""Suites that run tiny models through whole engines in one process: exactness, statistics, training."""
