"""Drafting with the first layers of the target (`method: layerskip`)."""
