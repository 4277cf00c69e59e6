"""The loop, and what surrounds it: sessions, scheduling, stopping, streaming, metrics."""
