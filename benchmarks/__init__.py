"""Benchmarks: commands that measure; some write a page of docs/. None is a test."""
