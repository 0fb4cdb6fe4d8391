"""Fulfilments as Pods of a cluster.

Pure modules, over the plain JSON of the API and without any client: `pod` with `node_affinity` (the pod of a
fulfilment), `observing` (the meaning of a pod's status), `results` (the messages of tasks), `availability` (the room of
a cluster), `cluster_quantities` (quantities in the cluster's notation).
"""
