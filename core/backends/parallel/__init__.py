"""One target on several devices: every process holds a shard, rank 0 decides, and the others follow its calls.

Rank 0 alone runs the engine, the plugins and the command line. How weights are split is the model library's business.
"""
