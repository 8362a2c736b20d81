"""Judges recordings: the code that checks share, from the expected values to the cause of a failure.

Special here: pure functions of recordings, without torch and without processes, so that a run can be judged again
anywhere, in a fraction of the time it took. ``judging.py`` runs the checks, which are in ``verifier/checks/``.
"""
