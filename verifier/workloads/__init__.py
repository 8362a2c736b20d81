"""One workload per file: a model, its data, its loss. Each file provides WORKLOAD."""
