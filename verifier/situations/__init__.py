"""One situation per file: conditions that every strategy meets. Each file provides SITUATION."""
