"""Training a target so that its first layers can draft for it (Elhoushi et al. 2024, "LayerSkip")."""
