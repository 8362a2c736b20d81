"""Reads recordings and says what is wrong: what checks share, from an expectation to a cause.

Special here: pure functions of recordings, without torch and without processes, so that a run is judged again anywhere,
in a fraction of the time that it took. ``judging.py`` runs the checks, which are in ``verifier/checks/``.
"""
