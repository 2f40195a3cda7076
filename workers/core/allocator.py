"""How freed memory is kept: glibc hands large blocks back to the system, which has to map them anew page by page."""

import ctypes

__all__ = ["keep_freed_memory"]

# malloc.h of glibc
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_SETTINGS = {
    _MMAP_MAX: 0,  # no mapping of its own for any block, however large
    _TRIM_THRESHOLD: 2**31 - 1,
    _TOP_PAD: 2**26,  # bytes that the heap grows by
    _ARENA_MAX: 1,  # another thread's arena cannot hold large blocks
}


def keep_freed_memory() -> bool:
    """Let this process reuse the memory of freed tensors; False where the C library has no such setting.

    For work whose every step allocates the same large tensors, as training does. The process keeps the most memory that
    it ever used.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc: other allocators keep what is freed
        return False
    return all(mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in _SETTINGS.items())
