"""The project's loggers speak through Serve's: same files, same level, and JSON where `logging_config` says so."""

import logging

__all__ = ["OURS", "SERVE", "log_through_serve"]

OURS = ("cluster", "workers")
SERVE = "ray.serve"


def log_through_serve() -> None:
    """In a replica's process, once. Serve's logger keeps its handlers to itself, and may change them later."""
    for name in OURS:
        logger = logging.getLogger(name)
        logger.parent = logging.getLogger(SERVE)
        logger.setLevel(logging.NOTSET)  # Serve's; and forget which levels were asked for before
