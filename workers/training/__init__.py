"""Training what speculates: Medusa heads, early exits, distilled draft models, and the data for all of them."""
