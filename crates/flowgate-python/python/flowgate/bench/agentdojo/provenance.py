"""What a result is measured with, and the key under which it is cached.

A result is reused only if everything that decides it is the same: the case, the row, the seed, AgentDojo, the policies, the native
module and the Python sources of this package, the plugins, and, where they take part, the server of the model and the program of the
gateway. The commit is recorded beside them, and decides nothing: digests say more.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ... import _flowgate
from .cases import Case, Row, Settings
from .registry import plugin_files

__all__ = ["data_of", "endpoint_of", "key_of"]

PACKAGE = Path(__file__).resolve().parents[2]


def key_of(case: Case, row: Row, settings: Settings, data: dict[str, str]) -> str:
    """Return the key of a result: a digest of everything that decides it."""
    deciding = {name: value for name, value in data.items() if name != "commit"}
    base_url = settings.base_url if _asks_server(row) else ""
    text = json.dumps([asdict(case), asdict(row), settings.seed, base_url, deciding], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _asks_server(row: Row) -> bool:
    return row.model not in ("obedient", "capable")


def endpoint_of(row: Row, settings: Settings) -> str:
    """Return the server of a row's model without a name or a password in its address; empty for a double."""
    if not _asks_server(row):
        return ""
    scheme, separator, rest = settings.base_url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def data_of(settings: Settings) -> dict[str, str]:
    """Return what results are measured with: versions, the commit, and digests of policies, programs and plugins."""
    policies = Path(settings.policies)
    data = {
        "agentdojo": _version("agentdojo"),
        "flowgate": _version("flowgate-ifc"),
        "commit": _commit(),
        "policies": digest(sorted(policies.rglob("*.flow")), policies),
        "native": _native_digest(),
        "sources": _sources_digest(),
    }
    if settings.gateway:
        data["gateway"] = digest([Path(settings.gateway)], Path(settings.gateway).parent)
    if files := plugin_files(settings.plugins):
        data["plugins"] = digest(files, None)
    return data


def digest(files: Iterable[Path], root: Path | None) -> str:
    """Return a digest of files and of their names, below `root` or alone. A file that cannot be read counts as an empty one."""
    total = hashlib.sha256()
    for path in files:
        name = path.relative_to(root).as_posix() if root is not None else path.name
        try:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            content = ""
        total.update(f"{name}\0{content}\n".encode())
    return total.hexdigest()[:16]


@lru_cache
def _native_digest() -> str:
    """Return the digest of the module in Rust, which has the monitor, the methods and the detectors."""
    path = Path(str(_flowgate.__file__))
    return digest([path], path.parent)


@lru_cache
def _sources_digest() -> str:
    """Return the digest of the Python sources of this package: the doubles and the judges are among them."""
    return digest(sorted(PACKAGE.rglob("*.py")), PACKAGE)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Return the commit of the working folder, marked if files differ from it; `unknown` outside a repository."""
    run: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 20}
    try:
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], **run).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], **run).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}{'+' if changed else ''}"
