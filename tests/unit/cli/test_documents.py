"""Files of objects: what is read, and what is refused with which sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.cli import documents, yaml12
from controlplane.model.errors import Invalid
from controlplane.model.job import Job
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet


def read(tmp_path: Path, text: str | bytes) -> list[Any]:
    file = tmp_path / "objects.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [document.object for document in documents.read(str(file))]


def refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(Invalid) as caught:
        read(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_several_documents_become_several_objects(tmp_path: Path) -> None:
    objects = read(tmp_path, "kind: Job\nname: a\n---\nkind: Packet\nname: p\njobs: [{job: a, count: 3}]\n")
    assert [type(item) for item in objects] == [Job, Packet]


def test_json_is_read_alone_and_as_a_list(tmp_path: Path) -> None:
    assert read(tmp_path, '{"kind": "Job", "name": "a"}')[0].name == "a"
    assert [item.name for item in read(tmp_path, '[{"kind":"Job","name":"a"},\t{"kind":"Job","name":"b"}]')] == [
        "a",
        "b",
    ]


def test_a_time_stays_text_and_on_is_a_key(tmp_path: Path) -> None:
    [order] = read(tmp_path, "kind: Order\npacket: p\nnot_before: 2026-12-01T00:00:00Z\n")
    assert isinstance(order, OrderRequest)
    assert order.not_before == "2026-12-01T00:00:00Z"
    [job] = read(tmp_path, "kind: Job\nname: a\nfailure_policies: [{on: {exit_codes: [137]}, action: retry}]\n")
    assert job.failure_policies[0].on.exit_codes == (137,)


@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", "yes"), ("08:00", "08:00"), ("1_000", "1_000"), ("0x1f", 31), ("1e3", 1000.0), ("~", None), ("'1'", "1")],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert list(yaml12.documents(f"a: {text}\n")) == [{"a": value}]


def test_an_alias_bomb_is_refused_where_its_first_anchor_stands(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert refusal(tmp_path, bomb) == (
        "objects.yaml: line 1, column 5: an anchor (&a0) is not allowed: aliases are refused"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "objects.yaml: holds no object"),
        ("---\n# nothing\n---\n", "objects.yaml: holds no object"),
        ("[]", "objects.yaml: holds no object"),
        ("kind: Job\nname: a\nname: b\n", "line 3, column 1: the key 'name' appears twice in one mapping"),
        ('{"kind":"Job","kind":"Job"}', "the key 'kind' appears twice in one object"),
        ("kind: [Job\nname: a\n", "line 2, column 5: did not find expected ',' or ']'"),
        ("kind: !!python/name:os.system x\n", "a tag (tag:yaml.org,2002:python/name:os.system) is not allowed"),
        ("kind: Job\n---\nkind: Order\npriority: high\n", "document 2: priority: must be a whole number, not 'high'"),
        ("kind: Job\nrequests: {cpu: -1}\n", "document 1: requests.cpu: must not be negative, but is -1"),
        ("kind: Job\nrequests: {cpu: .nan}\n", "document 1: requests.cpu: must be a finite number, not nan"),
        ('{"kind":"Job","requests":{"cpu":NaN}}', "document 1: requests.cpu: must be a finite number, not nan"),
        ("kind: Job\ncolour: red\n", "document 1: colour: is not a field of Job"),
        ("just text\n", "document 1: document: must be a mapping with a kind, not text"),
        (b"kind: \xff\n", "must be UTF-8; byte 6 is not"),
        (b"kind: \x00\n", "line 1, column 7: holds a character that YAML does not allow"),
        (f"a: {'9' * 5000}\n", "line 1, column 4: a number has too many digits"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_the_rule(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    assert sentence in refusal(tmp_path, text)


@pytest.mark.parametrize("text", ["[" * 50_000, "- " * 50_000 + "x", '{"a":' * 50_000])
def test_deep_nesting_is_refused(tmp_path: Path, text: str) -> None:
    assert "must not be nested deeper than 32 levels" in refusal(tmp_path, text)


def test_a_file_above_the_size_limit_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, b"#" * (documents.MAX_BYTES + 1)) == "objects.yaml: must not be above 8 MiB"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"none\.yaml: cannot be read: No such file"):
        documents.read(str(tmp_path / "none.yaml"))
