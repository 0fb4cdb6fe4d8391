"""Which control plane a command talks to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controlplane.model.errors import Invalid, Unavailable
from controlplane.standalone.endpoints import EtcdFiles, find_endpoints, parse_endpoints


def up_json(folder: Path, *endpoints: str) -> Path:
    content = {"etcd": [], "replicas": [{"grpc": endpoint} for endpoint in endpoints], "joblets": [], "etcd_pids": []}
    (folder / "up.json").write_text(json.dumps(content))
    return folder


def test_a_flag_beats_the_environment_and_the_default_folder_comes_last(tmp_path: Path) -> None:
    environment = {"CONTROLPLANE_ENDPOINTS": "a:1,b:2", "CONTROLPLANE_DATA_DIR": "/d", "XDG_STATE_HOME": str(tmp_path)}
    assert find_endpoints("c:3", None, environment).current() == ("c:3",)
    assert find_endpoints(None, tmp_path, environment).data_dir == tmp_path
    assert find_endpoints(None, None, environment).current() == ("a:1", "b:2")
    del environment["CONTROLPLANE_ENDPOINTS"]
    assert find_endpoints(None, None, environment).data_dir == Path("/d")
    del environment["CONTROLPLANE_DATA_DIR"]
    assert find_endpoints(None, None, environment).data_dir == tmp_path / "controlplane"


def test_addresses_are_read_again_when_the_supervisor_rewrote_them(tmp_path: Path) -> None:
    where = find_endpoints(None, up_json(tmp_path, "127.0.0.1:1"), {})
    assert where.current() == ["127.0.0.1:1"]
    up_json(tmp_path, "127.0.0.1:2", "127.0.0.1:3")
    assert where.current() == ["127.0.0.1:2", "127.0.0.1:3"]


def test_a_folder_where_nothing_was_started_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="start one with `controlplane up`"):
        find_endpoints(None, tmp_path, {}).current()


@pytest.mark.parametrize("text", ["x", "x:", ":1", "x:0", "x:70000", "x:port", ",", "a:1,b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"^endpoints: must"):
        parse_endpoints(text)


def test_the_ca_of_a_folder_is_its_own_and_that_of_endpoints_is_given(tmp_path: Path) -> None:
    environment = {"CONTROLPLANE_CA_FILE": "/env.crt"}
    up_json(tmp_path, "127.0.0.1:1")
    assert find_endpoints(None, tmp_path, environment).ca_file() == ""
    content = json.loads((tmp_path / "up.json").read_text())
    (tmp_path / "up.json").write_text(json.dumps({**content, "tls": {"ca": "/folder.crt"}}))
    assert find_endpoints(None, tmp_path, environment).ca_file() == "/folder.crt"
    assert find_endpoints("a:1", None, environment).ca_file() == "/env.crt"
    assert find_endpoints("a:1", None, environment, ca_file=Path("/given.crt")).ca_file() == "/given.crt"
    assert find_endpoints("a:1", None, {}).ca_file() == ""


def test_https_needs_a_ca() -> None:
    with pytest.raises(Invalid, match="ca-file"):
        find_endpoints("https://a:1", None, {})
    assert find_endpoints("https://a:1", None, {}, ca_file=Path("/a.crt")).current() == ("a:1",)


def test_the_certificates_of_a_folder_are_for_its_own_etcd_only(tmp_path: Path) -> None:
    up_json(tmp_path, "127.0.0.1:1")
    content = json.loads((tmp_path / "up.json").read_text())
    tls = {"ca": "/ca", "etcd_cert": "/cert", "etcd_key": "/key"}
    (tmp_path / "up.json").write_text(json.dumps({**content, "tls": tls}))
    where = find_endpoints(None, tmp_path, {})
    assert where.etcd_files() == ("/ca", "/cert", "/key")
    assert where.etcd_files("https://other:2379") == ("", "", "")
    assert where.etcd_files("", EtcdFiles("/x", "/y", "/z")) == ("/x", "/y", "/z")
