"""The licences of the packages at run time, from the metadata of what is installed.

`python -m tests.architecture.licences` writes the list, `deploy/LICENCES.md`. A licence that is not in `ALLOWED` is
refused: only permissive licences and the MPL, whose terms end at its own files, may be shipped with the product.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata

from tests.architecture.locks import pins, text_of
from tests.architecture.source import ROOT

PAGE = ROOT / "deploy" / "LICENCES.md"
ALLOWED = frozenset({
    "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0",
    "Unlicense", "Zlib", "0BSD",
})  # fmt: skip
_HEAD = """# Licences

The packages that the product needs at run time, in the versions of `deploy/requirements/runtime.lock`, with the
licences that their metadata name. The product itself is under Apache-2.0. Made by
`python -m tests.architecture.licences`; a test compares the list with what is installed, and refuses a licence that is
neither permissive nor the MPL.

| package | version | licence |
|---|---|---|
"""
# By words of the older fields of the metadata, which are free text.
_WORDS: Mapping[str, str] = {
    r"Apache.*2": "Apache-2.0",
    r"Apache Software License": "Apache-2.0",
    r"Apache License": "Apache-2.0",
    r"^Apache$": "Apache-2.0",
    r"Mozilla Public License 2|MPL": "MPL-2.0",
    r"\bMIT\b": "MIT",
    r"\bISC\b": "ISC",
    r"BSD[- ]3|3-Clause": "BSD-3-Clause",
    r"BSD[- ]2|2-Clause": "BSD-2-Clause",
    r"BSD": "BSD",
    r"Python Software Foundation|PSF": "PSF-2.0",
}


def licence_of(package: str) -> str:
    """As an SPDX expression, where the metadata can be read as such; else their own words."""
    fields = metadata.metadata(package)
    single = {name: "".join(fields.get_all(name) or ()) for name in ("License-Expression", "License")}
    if single["License-Expression"]:
        return single["License-Expression"]
    classifiers = [
        text.rpartition(" :: ")[2] for text in fields.get_all("Classifier") or () if text.startswith("License :: ")
    ]
    said = [text for text in (single["License"], *classifiers) if text and text != "OSI Approved"]
    readings = [_read(text) for text in said]
    return next((reading for reading in readings if reading), said[0] if said else "not said")


def _read(text: str) -> str:
    first = next(iter(text.strip().splitlines()), "")
    alternatives = [
        next((spdx for words, spdx in _WORDS.items() if re.search(words, part)), "")
        for part in re.split(r" or | OR |/", first)
    ]
    return " OR ".join(dict.fromkeys(alternatives)) if all(alternatives) else ""


def is_allowed(licence: str) -> bool:
    """Of an `AND` each part, of an `OR` one."""
    parts = re.split(r"\s+AND\s+", licence)
    return all(any(choice.strip("() ") in ALLOWED for choice in re.split(r"\s+OR\s+", part)) for part in parts)


def licences() -> dict[str, tuple[str, str]]:
    """Version and licence of each package at run time that this machine needs."""
    here = [pin for pin in pins(text_of("runtime")) if pin.is_for_this_python]
    return {pin.name: (metadata.version(pin.name), licence_of(pin.name)) for pin in here}


def page() -> str:
    rows = (f"| {name} | {version} | {licence} |\n" for name, (version, licence) in sorted(licences().items()))
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
