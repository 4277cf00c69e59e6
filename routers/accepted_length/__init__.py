"""The router that predicts how much of a copy will be accepted, from the text alone."""
