"""Generated code, model <-> wire, errors <-> status codes."""
