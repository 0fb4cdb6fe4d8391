"""Reading what tasks wrote: from the joblet that keeps it, over its stream, to whoever asked any replica.

A replica that has the joblet on a stream of its own reads there; else it asks the others, who are the candidates of the
election, and one that has it passes the log on. Nobody asks for another, so a question travels one step at most, and
nothing about logs is ever written to etcd. Every piece carries its place in its output: whoever breaks on the way, the
replica that was asked goes on at the next byte, and when that one dies its client does.
"""
