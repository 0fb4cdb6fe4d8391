"""The scheduler: runs in the leader only, turns what waits into fulfilments, one cycle after the other."""
