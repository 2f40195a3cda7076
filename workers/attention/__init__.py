"""Paged attention with tree masks, registered with transformers."""
