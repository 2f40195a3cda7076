"""Paged K/V cache: blocks with reference counts, prefix cache, storage."""
