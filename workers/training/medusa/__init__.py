"""Medusa heads, with a frozen target (Medusa-1) or together with it (Medusa-2)."""
