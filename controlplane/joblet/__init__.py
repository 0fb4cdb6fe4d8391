"""The worker of a target: follows desired fulfilments, runs them through a driver, reports. Knows nothing of etcd."""
