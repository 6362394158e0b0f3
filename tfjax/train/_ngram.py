"""Interpolated Witten-Bell n-grams: what a language model has to beat."""

import numpy as np
from jaxtyping import Float, Integer

from .._core import count, must


def witten_bell_bits(
    train: Integer[np.ndarray, " n"],
    validation: Integer[np.ndarray, " m"],
    order: int,
    vocabulary: int,
) -> float:
    r"""Bits per token that an n-gram model of `train` needs for `validation`.

    $$ -\frac1m \sum_j \log_2 p(c_j | c_{j-n+1} \dots c_{j-1}), $$

    over all tokens of `validation`, with the probabilities of
    [`witten_bell_probabilities`][].

    **Arguments:**

    - `train`, `validation`: tokens in `range(vocabulary)`.
    - `order`: n; the context is the n - 1 tokens before.
    - `vocabulary`: how many tokens there are.

    **Returns:** a number above 0, in bits.

    **Raises:** ValueError where tokens are out of range, or there are none.

    !!! example

        >>> import numpy as np
        >>> from tfjax.train import witten_bell_bits
        >>> train = np.array([0, 0, 0, 0])
        >>> round(witten_bell_bits(train, train, order=1, vocabulary=2), 3)
        0.152

    Source: as of [`witten_bell_probabilities`][].
    """
    found = witten_bell_probabilities(train, validation, order, vocabulary)
    return float(-np.mean(np.log2(found)))


def witten_bell_probabilities(
    train: Integer[np.ndarray, " n"],
    validation: Integer[np.ndarray, " m"],
    order: int,
    vocabulary: int,
) -> Float[np.ndarray, " m"]:
    r"""The probabilities of the tokens of `validation` in an n-gram model of `train`.

    With N(hc) how often c follows the context h in `train`, N(h) how often anything
    does, T(h) how many different tokens do, and h' the context h without its first
    token,

    $$ p(c | h) = \frac{N(hc) + T(h)\, p(c | h')}{N(h) + T(h)}, $$

    down to the uniform distribution below the empty context. A context that `train`
    does not have is replaced by the next shorter one. It is a distribution over the
    vocabulary for every h, and has nothing to tune.

    **Arguments:**

    - `train`, `validation`: tokens in `range(vocabulary)`.
    - `order`: n; the context is the n - 1 tokens before, or those that there are at the
      beginning of `validation`.
    - `vocabulary`: how many tokens there are.

    **Returns:** probabilities above 0, in float64.

    **Raises:** ValueError where tokens are out of range, or there are none.

    !!! example

        >>> import numpy as np
        >>> from tfjax.train import witten_bell_probabilities
        >>> train = np.array([0, 0, 0, 0])
        >>> witten_bell_probabilities(train, np.array([0, 0]), 2, 2).tolist()
        [0.9, 0.975]

    Source: I. H. Witten and T. C. Bell, The zero-frequency problem, IEEE Trans. Inf.
    Theory 37, 1991, method C; interpolated as in S. F. Chen and J. Goodman, An
    empirical study of smoothing techniques for language modeling, Computer Speech and
    Language 13, 1999.
    """
    order, vocabulary = count("order", order), count("vocabulary", vocabulary)
    train = _tokens("train", train, vocabulary)
    validation = _tokens("validation", validation, vocabulary)
    found = np.full(len(validation), 1 / vocabulary)
    # Of every window of k tokens, which of the different ones in `train` it is: all
    # windows of none are alike, and a window that `train` does not have is -1. The key
    # of a longer window is that of the window without its last token, and the token.
    context = np.zeros(len(train) + 1, np.int64)
    asked = np.zeros(len(validation) + 1, np.int64)
    contexts = 1
    for k in range(min(order, len(train), len(validation))):
        context, asked = context[: len(train) - k], asked[: len(validation) - k]
        keys, window, many = np.unique(
            context * vocabulary + train[k:], return_inverse=True, return_counts=True
        )
        key = asked * vocabulary + validation[k:]
        place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        seen = keys[place] == key  # never of a key below 0
        followed = np.bincount(context, minlength=contexts)[asked]
        different = np.bincount(keys // vocabulary, minlength=contexts)[asked]
        # The last window of `train` may be a context that nothing follows.
        known = (asked >= 0) & (followed > 0)
        ending = np.where(seen, many[place], 0)
        total = np.where(known, followed + different, 1)
        longer = (ending + different * found[k:]) / total
        found[k:] = np.where(known, longer, found[k:])
        context, asked, contexts = window, np.where(seen, place, -1), len(keys)
    return found


def _tokens(name: str, tokens: np.ndarray, vocabulary: int) -> np.ndarray:
    if not tokens.size:
        raise must(name, "have tokens", "without any")
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= vocabulary:
        raise must(name, f"have tokens in 0..{vocabulary - 1}", f"in {least}..{most}")
    return tokens.astype(np.int64)
