"""The expert system: rules written by users, compiled once, and the effects of the rules for a job on each target.

Pure like the rest of the engine, and below the engine: no module of this package knows queues, room or settings.
"""
