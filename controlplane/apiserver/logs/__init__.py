"""Logs of tasks: from the joblet which keeps them, over its stream, to a reader at any replica.

A replica with the joblet on a stream of its own reads there. Any other replica asks its peers, the candidates of the
election, and the peer with the joblet passes the log on. A peer never asks a third replica, so a question travels one
step at most, and nothing about logs is written to etcd. Every piece carries its offset in the output: when a peer or a
stream breaks, the asked replica goes on at the next byte, and when the asked replica dies, its client goes on.
"""
