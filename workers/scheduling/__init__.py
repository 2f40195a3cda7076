"""Pure scheduling policies: what a step computes, and how long it may wait for proposals."""
