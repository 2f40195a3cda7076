"""Everything that can return a proposal to the verifier: remote drafters, n-gram lookup."""
