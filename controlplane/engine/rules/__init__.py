"""The expert system: rules that users wrote, compiled once, and what they say of a job on each target.

Pure like the rest of the engine, and below it: nothing here knows queues, room or settings.
"""
