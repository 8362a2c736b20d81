"""Real published bugs rebuilt in our own words: one file each, linked to its thread, with what must be found."""
