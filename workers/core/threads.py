"""Heavy work in threads that end.

OpenMP gives every thread that computes a pool of workers, and while two pools live, both give up spinning: on two cores
an engine's step then takes half as long again. So what is computed beside an engine runs in a thread that takes its
pool with it.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["run_apart"]

Result = TypeVar("Result")


def run_apart(work: Callable[[], Result]) -> Result:
    """Do `work` in a thread of its own, wait for it, and return or raise what it did."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="apart", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
