"""From a pipeline file to a specification: every fault at once, each with its line. Imports no torch."""
