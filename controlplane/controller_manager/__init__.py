"""Level-triggered controllers of the leader, each on a runner: orders, recurring orders, strays, clean-up; targets,
claims, hosting, scaling; compaction, restoring; and the leader's records of the whole (totals, events, isolation).

A controller re-reads the cache, makes a pure plan and writes fenced items. Controllers never call each other.
"""
