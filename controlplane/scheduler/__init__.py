"""The scheduler: runs in the leader only, turns waiting tasks into fulfilments, cycle after cycle."""
