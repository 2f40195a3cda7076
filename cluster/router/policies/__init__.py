"""How a replica is chosen: pure functions of a snapshot."""
