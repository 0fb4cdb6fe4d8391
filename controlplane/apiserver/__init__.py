"""The apiserver of a replica: gRPC services, admission, joblet streams, HTTP.

Every replica accepts every request, leader or not. The apiserver writes config for users and inventory for joblets,
never a key of the leader.
"""
