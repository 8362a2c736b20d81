"""Honest strategies in as many styles as people write them: one file each. None may trip any check."""
