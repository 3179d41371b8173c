"""Packs the gradsieve package into a wheel or a source archive: what pip asks of a build backend (PEP 517), written
with the standard library alone so that an installation downloads nothing. Never runs code of the package; the same
sources give the same bytes. Runs in pip's process for builds."""
import base64
import hashlib
import io
import os
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gradsieve"
EARLIEST_ZIP_SECOND = 315_532_800  # 1980-01-01, before which a zip archive knows no time


def _project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _stem():
    project = _project()
    return f"{project['name']}-{project['version']}"


def _metadata():
    project = _project()
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", f"License: {project['license']['text']}",
             f"Requires-Python: {project['requires-python']}"]
    return "\n".join(lines + [f"Classifier: {text}" for text in project["classifiers"]]) + "\n"


def _wheel_text():
    return "Wheel-Version: 1.0\nGenerator: gradsieve_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _package_files():
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix == ".py" or path.name == "py.typed")


def _dist_info():
    return {f"{_stem()}.dist-info/METADATA": _metadata().encode(), f"{_stem()}.dist-info/WHEEL": _wheel_text().encode()}


def _record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the .dist-info folder alone; gives back its name."""
    folder = Path(metadata_directory) / f"{_stem()}.dist-info"
    folder.mkdir(parents=True)
    for name, content in _dist_info().items():
        (folder.parent / name).write_bytes(content)
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel into `wheel_directory`; gives back its file name."""
    entries = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _package_files()}
    entries.update(_dist_info())
    record = f"{_stem()}.dist-info/RECORD"
    lines = "".join(_record_line(name, content) for name, content in entries.items())
    entries[record] = f"{lines}{record},,\n".encode()
    stamp = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST_ZIP_SECOND)), EARLIEST_ZIP_SECOND))[:6]
    name = f"{_stem()}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in entries.items():
            member = zipfile.ZipInfo(path, stamp)
            member.external_attr = 0o100644 << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(member, content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """Writes the source archive into `sdist_directory`; gives back its file name."""
    name = f"{_stem()}.tar.gz"
    sources = [ROOT / "pyproject.toml", Path(__file__).resolve(), *_package_files()]
    with tarfile.open(Path(sdist_directory) / name, "w:gz") as archive:
        for path in sources:
            archive.add(path, f"{_stem()}/{path.relative_to(ROOT).as_posix()}")
        member = tarfile.TarInfo(f"{_stem()}/PKG-INFO")
        member.size = len(_metadata().encode())
        archive.addfile(member, io.BytesIO(_metadata().encode()))
    return name
