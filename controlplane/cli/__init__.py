"""`cpctl` and `controlplane`: parse, call, print. What is decided is decided elsewhere."""
