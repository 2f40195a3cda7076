"""Torch-free nouns that every other room shares."""
