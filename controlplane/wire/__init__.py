"""Generated code, model <-> wire, errors <-> status codes, the users' JSON, transport."""
