"""A small draft model distilled from the target."""
