"""Verdicts as people and machines read them: one renderer per file, each a pure function of a Report."""
