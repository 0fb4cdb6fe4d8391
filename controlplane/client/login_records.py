"""Records of a login at an OIDC provider: the page for the person, and what a program keeps between two runs."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class LoginClient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The provider, and the program as the provider knows it."""

    issuer: str
    client_id: str
    client_secret: str = ""
    scope: str = ""
    ca_file: str = ""
    # The access token is sent to the plane instead of the ID token.
    access_token: bool = False


class LoginTokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`token` is for the plane. `expires` is a time stamp, '' when unknown; without `refresh` there is no renewal."""

    token: str
    refresh: str = ""
    expires: str = ""


class DevicePage(NamedTuple):
    """The page and the code for the person. `whole_url`, where the provider gives one, already holds the code."""

    url: str
    code: str
    whole_url: str
