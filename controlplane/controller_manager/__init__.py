"""Level-triggered controllers on one runner, in the leader only: orders, targets, clean-up."""
