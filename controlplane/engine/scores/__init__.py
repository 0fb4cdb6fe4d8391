"""The scores: one file each. A score rates targets for a task in a single respect, and has a weight from the settings.

`scoring.SCORES` lists the scores. The fullness of a target (`scoring.ranking`) counts beside the scores, and changes
with every placed task; the scores do not change within a run of equal tasks. Scores are pure and keep no state.
"""
