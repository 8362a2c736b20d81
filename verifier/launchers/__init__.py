"""One launcher per file: how N rank processes come to run."""
