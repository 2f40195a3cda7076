"""Who lives, and who gets the next request."""
