"""Medusa heads: small layers that guess the tokens after the next one from the target's last hidden state.

Cai et al., "Medusa: simple LLM inference acceleration framework with multiple decoding heads" (2024).
"""
