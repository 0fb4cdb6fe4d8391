"""Drills on a running `up`: a steady load of orders, a watch of etcd's commits, and faults made on purpose."""
