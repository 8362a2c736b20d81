"""What happens inside a rank, and in the single process: the scenario is followed step by step, and nothing is judged.

Special here: only this package calls a strategy's code, and it keeps the strategy's errors apart from ours. ``acts.py``
is the entry point, ``verifier/worker.py`` the loop.
"""
