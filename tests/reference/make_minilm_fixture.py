"""Makes `minilm_hidden.npz`: MiniLM run by its original implementation (PyTorch).

Environment (a separate one; neither the library nor its tests need torch):
Python 3.11 with `torch==2.13.0` (CPU), `transformers==5.24.0`, `safetensors==0.8.0`,
numpy. Run it as

    python make_minilm_fixture.py DIRECTORY

where DIRECTORY holds `model.safetensors` and `config.json` of all-MiniLM-L6-v2, as
`tfjax fetch-weights` leaves them.

It reads the 69 token ids of `minilm_paragraph.json`, runs `BertModel` on them once in
float32, evaluation mode, one sequence without padding, and keeps of the hidden states
(7, 69, 384), index 0 the embedding after LayerNorm:

- `columns` (32,): every twelfth column number; `hidden` (7, 69, 32): those columns;
- `projected` (7, 69, 16): all 384 columns times the sign matrix `signs` (384, 16)
  divided by sqrt(384), summed in float64, so that an error in any column is seen;
- `norms` (7, 69): the Euclidean norm of each row, in float64;
- `ids` (69,) and `versions`, of torch and transformers.

The last layer in full is in `minilm_paragraph.npz`; the script prints the largest
difference from it.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import transformers


def signs(rows: int, columns: int) -> np.ndarray:
    """Rows of a Walsh matrix: entry (i, j) is the parity of the bits of i & (23 j)."""
    i, j = np.arange(rows)[:, None], 23 * np.arange(1, columns + 1)[None, :]
    bits = np.bitwise_count(i & j)
    return 1.0 - 2.0 * (bits % 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    here = Path(__file__).resolve().parent

    ids = json.loads((here / "minilm_paragraph.json").read_text())["ids"]
    torch.set_num_threads(1)  # one order of summation
    model = transformers.BertModel.from_pretrained(
        directory,
        local_files_only=True,
        dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    with torch.no_grad():
        states = model(
            input_ids=torch.tensor([ids]), output_hidden_states=True
        ).hidden_states
    hidden = torch.stack(states)[:, 0].numpy()
    assert hidden.shape == (7, len(ids), 384)
    assert hidden.dtype == np.float32

    last = np.load(here / "minilm_paragraph.npz")["last"]
    print("last layer, largest difference:", np.abs(hidden[-1] - last).max())

    columns = np.arange(0, 384, 12)
    matrix = signs(384, 16)
    wide = hidden.astype(np.float64)
    np.savez_compressed(
        here / "minilm_hidden.npz",
        ids=np.asarray(ids),
        columns=columns,
        hidden=hidden[:, :, columns],
        signs=matrix.astype(np.int8),
        projected=wide @ matrix / np.sqrt(384),
        norms=np.linalg.norm(wide, axis=-1),
        versions=np.array([torch.__version__, transformers.__version__]),
    )


if __name__ == "__main__":
    main()
