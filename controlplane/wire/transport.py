"""The transport between the parts of the plane: binding a port of gRPC, and opening a channel to a replica.

Every gRPC connection but those to etcd begins here, so TLS and the credentials of servers and channels have one place.
With TLS a server shows its certificate, and a client trusts the CAs of its file alone; both are TLS 1.2 or later. A
changed certificate serves the next handshake, and connections that stand go on. Callers prove themselves by tokens.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import cast

import grpc

from controlplane.tls_files import TlsFiles, TlsMaterial, TlsSource, load_pair

Options = Sequence[tuple[str, int]]
Metadata = tuple[tuple[str, str], ...]


class ChannelOpener:
    """Opens channels to replicas: encrypted with a source of TLS files, else plain.

    A channel keeps the CAs that it was opened with. Whoever keeps channels asks for `generation`, and opens another one
    when it has grown.
    """

    def __init__(self, trust: TlsSource | None = None) -> None:
        self.trust = trust

    @property
    def generation(self) -> int:
        return self.trust.generation if self.trust is not None else 0

    @property
    def is_encrypted(self) -> bool:
        return self.trust is not None

    def open(self, endpoint: str, options: Options = ()) -> grpc.aio.Channel:
        """A channel to the replica at HOST:PORT; the first use connects."""
        if self.trust is None:
            return grpc.aio.insecure_channel(endpoint, options=options)
        return grpc.aio.secure_channel(endpoint, channel_credentials(self.trust.material), options=options)


PLAIN = ChannelOpener()


def opener_for(ca_file: str, cert_file: str = "", key_file: str = "") -> ChannelOpener:
    """Encrypted when there is a CA file; Invalid when a file cannot be used."""
    return ChannelOpener(TlsSource(TlsFiles(cert_file, key_file, ca_file))) if ca_file else PLAIN


def channel_credentials(material: TlsMaterial) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(material.ca or None, material.key or None, material.cert or None)


def credentials(token: str) -> Metadata:
    """The metadata of a call with this token, empty without a token."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def bind_port(server: grpc.aio.Server, address: str, tls: TlsSource | None = None) -> int:
    """The port of the server from now on; 0 when the address cannot be bound."""
    try:
        if tls is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, server_credentials(tls))
    except RuntimeError:
        return 0


def server_credentials(tls: TlsSource) -> grpc.ServerCredentials:
    """Credentials that follow the source: gRPC asks at each handshake whether there is another certificate."""
    served, material = tls.state

    def newest() -> grpc.ServerCertificateConfiguration | None:
        nonlocal served
        generation, material = tls.state
        if generation == served:
            return None
        served = generation
        return _certificate(material)

    # gRPC documents None as an answer, its types do not.
    fetch = cast(Callable[[], grpc.ServerCertificateConfiguration], newest)
    return grpc.dynamic_ssl_server_credentials(_certificate(material), fetch, require_client_authentication=False)


def _certificate(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.cert)])


def server_context(material: TlsMaterial) -> ssl.SSLContext:
    """The context of an HTTP server; `load_pair` changes its certificate while it serves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    load_pair(context, material)
    return context


def client_context(material: TlsMaterial) -> ssl.SSLContext:
    """The context of an HTTP client that trusts these CAs alone."""
    context = ssl.create_default_context(cadata=material.ca.decode("ascii"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
