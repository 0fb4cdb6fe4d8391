"""TLS files: what is refused, what a change brings into use, and what a half-written change does not."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from controlplane.model.errors import Invalid
from controlplane.tls_files import TlsFiles, TlsSource, TlsWatch, read_material
from tests.certs import TestAuthority
from tests.clock import ManualClock


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "ca")


def test_files_are_read_whole(authority: TestAuthority) -> None:
    files = authority.files()
    material = read_material(files)
    assert (material.cert, material.ca) == (Path(files.cert).read_bytes(), Path(files.ca).read_bytes())
    assert material.key == Path(files.key).read_bytes()
    assert "PRIVATE" not in repr(material)


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(Invalid, match="etcd_key"):
        TlsFiles("a.crt", "", prefix="etcd")
    with pytest.raises(Invalid, match="tls_cert"):
        TlsFiles("", "a.key")


def test_a_key_that_others_can_read_is_refused(authority: TestAuthority) -> None:
    Path(authority.files().key).chmod(0o640)
    with pytest.raises(Invalid, match="open to others"):
        read_material(authority.files())


@pytest.mark.parametrize("content", [b"", b"no certificate", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
@pytest.mark.parametrize("name", ["cert", "ca"])
def test_a_file_that_is_no_certificate_is_refused(authority: TestAuthority, name: str, content: bytes) -> None:
    files = authority.files()
    Path(getattr(files, name)).write_bytes(content)
    with pytest.raises(Invalid, match=f"tls_{name}"):
        read_material(files)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_a_password(authority: TestAuthority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(encoding, form, serialization.BestAvailableEncryption(b"secret"))
    Path(authority.files().key).write_bytes(pem)
    with pytest.raises(Invalid, match="encrypted"):
        read_material(authority.files())


def test_unchanged_files_change_nothing(authority: TestAuthority) -> None:
    source = TlsSource(authority.files())
    Path(authority.files().cert).touch()
    assert not source.look()
    assert source.generation == 1


def test_a_new_pair_is_taken_over(authority: TestAuthority) -> None:
    source = TlsSource(authority.files())
    authority.renew()
    assert source.look()
    assert source.state == (2, read_material(authority.files()))


def test_half_of_a_new_pair_leaves_the_pair_before_in_use(authority: TestAuthority, tmp_path: Path) -> None:
    source = TlsSource(authority.files())
    before = source.material
    aside = tmp_path / "aside.key"
    shutil.copy(authority.files().key, aside)
    authority.renew()
    new = tmp_path / "new.key"
    shutil.move(authority.files().key, new)
    shutil.copy(aside, authority.files().key)
    assert not source.look()
    assert source.state == (1, before)
    shutil.copy(new, authority.files().key)
    assert source.look()
    assert source.generation == 2


def test_a_file_that_is_gone_leaves_its_content_in_use(authority: TestAuthority) -> None:
    source = TlsSource(authority.files())
    before = source.material
    Path(authority.ca).unlink()
    assert not source.look()
    assert source.material == before


async def test_a_watch_looks_every_few_seconds_and_when_it_is_asked(authority: TestAuthority) -> None:
    source, clock = TlsSource(authority.files()), ManualClock()
    changed: asyncio.Queue[TlsSource] = asyncio.Queue()
    watch = TlsWatch([source], clock, changed.put_nowait)
    running = asyncio.create_task(watch.run())
    try:
        authority.renew()
        watch.look_soon()
        assert await asyncio.wait_for(changed.get(), 10) is source
        authority.renew()
        async with asyncio.timeout(10):
            while changed.empty():
                clock.pass_seconds(5)
                await asyncio.sleep(0.01)
        assert source.generation == 3
    finally:
        running.cancel()
