"""Loading transformers models and preparing them for the engine."""
