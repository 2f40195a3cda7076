"""Logits processing, noise and the verification rules.

Read `base.py` (what a rule is), `coupled.py` and `rejection.py` (the exact rules), then `logits.py` and `noise.py`.
"""
