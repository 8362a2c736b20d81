"""Benchmarks: commands that measure, each writing a page of docs/. None is a test."""
