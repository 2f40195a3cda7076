"""Work in threads that end."""

import threading

import pytest

from workers.core.threads import run_apart


def test_results_and_errors_come_back_and_the_thread_is_gone() -> None:
    before = threading.active_count()
    assert run_apart(threading.current_thread) is not threading.current_thread()
    assert run_apart(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        run_apart(lambda: 1 // 0)
    assert threading.active_count() == before
