"""One fault per file: a mistake planted in a right strategy, and the checks that must catch it."""
