"""Observes every strategy from below, at the operators of c10d: records each collective, delays and poisons it.

Special here: whatever takes part in a collective passes through ``kernels.py``, whoever called it.
"""
