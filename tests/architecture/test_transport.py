"""Every gRPC connection but those to etcd is made by `wire/transport.py`."""

from __future__ import annotations

import ast

from tests.architecture.source import modules, shown, tree_of

MAKERS = {"insecure_channel", "secure_channel", "add_insecure_port", "add_secure_port"}
ALLOWED = {"controlplane/wire/transport.py", "controlplane/store/channel.py", "controlplane/store/lease.py"}


def test_channels_and_ports_are_made_in_one_module() -> None:
    makers = {
        shown(path)
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr in MAKERS
    }
    assert makers == ALLOWED
