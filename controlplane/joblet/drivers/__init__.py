"""The drivers by which a joblet runs attempts: processes, pods of a cluster, or simulated ones."""
