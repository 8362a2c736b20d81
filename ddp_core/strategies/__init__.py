"""One strategy per file, found by being there. Each file's ``wrap(model, **options)`` returns the wrapped model."""
