"""The edge of the apiserver: gRPC and HTTP servers, limits and deadlines of requests, status codes of errors.

Only the edge knows a transport. Methods decode a request, call a command or a query, and encode the answer.
"""
