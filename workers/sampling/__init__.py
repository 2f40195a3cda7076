"""Logits processing, noise and the verification rules."""
