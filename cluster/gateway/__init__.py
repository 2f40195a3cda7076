"""The gateway: takes requests from clients, runs each on a verifier, and keeps what it needs to go on elsewhere."""
