"""Against vLLM's CPU build, in an environment of its own (docs/medusa.md says how to make one)."""
