"""Stands below every strategy, at the operators of c10d: writes down each collective, and delays, poisons and guards.

Special here: whatever takes part in a collective passes through ``kernels.py``, whoever called it.
"""
