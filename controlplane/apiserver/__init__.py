"""The apiserver of a replica: gRPC services, admission, joblet streams, HTTP.

Every replica accepts everything, leader or not. It writes config for users and inventory for joblets, never what a
leader writes.
"""
