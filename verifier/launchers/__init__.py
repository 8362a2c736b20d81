"""One launcher per file: a way to start N rank processes."""
