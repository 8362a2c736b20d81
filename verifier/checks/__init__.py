"""One check per file: a pure function of a recording. The file name is code and name."""
