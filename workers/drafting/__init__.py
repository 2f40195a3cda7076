"""Growing token trees from draft logits; shared by drafters and by proposers that run in the verifier."""
