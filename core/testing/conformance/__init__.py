"""The conformance kit: named checks of a plugin's promises, one list for each kind of plugin.

A check is a function of a subject, the plugin and what the kit knows of it; it raises AssertionError with its first
counterexample in words. Everything is seeded by numbers in the code, so a red check is red again.
"""
