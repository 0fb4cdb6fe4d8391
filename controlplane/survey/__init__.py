"""The survey: waiting tasks and the world they wait in, followed from the cache; and the questions both answer.

`backlog` queues the waiting tasks, `world_builder` builds the world that a cycle decides on, and `standing_survey`
keeps both current in every replica. `explaining` and `planning` ask the engine about them. The engine keeps no state
and does not import this package.
"""
