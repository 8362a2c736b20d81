"""What happens inside a rank, and in the single process: follows the scenario, step by step, and judges nothing.

Special here: the code of a strategy is called from here alone, and its errors are kept apart from ours. ``acts.py`` is
the way in, ``verifier/worker.py`` the loop.
"""
