"""The command line `outrider`."""

from cluster.cli.main import app, main

__all__ = ["app", "main"]
