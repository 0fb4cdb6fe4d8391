"""The worker of a target: follows what is desired, runs it through a driver, reports. It knows nothing of etcd."""
