"""Runs a model over a ragged batch of sequence chunks."""
