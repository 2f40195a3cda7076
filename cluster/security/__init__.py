"""API keys: made, stored as hashes, looked up."""
