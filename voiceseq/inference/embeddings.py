"""Word embeddings at work: the vectors of a bundle or of a file, made less biased, drawn."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from voiceseq.bundles import Bundle
from voiceseq.bundles.stores import MANIFEST
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.opening import open_vocabulary
from voiceseq.text.vectors import WordVectors, read_vectors

Pair = Sequence[str]


class WordEmbeddings(WordVectors):
    """``voiceseq.load("word-vectors")``: ``neighbours("king")``, ``analogy("man", "king", "woman")``."""

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for weights or a vocabulary that are no word vectors."""
        tensors = bundle.weights
        names = ("inputs", "outputs") if bundle.config.get("method") == "glove" else ("inputs",)
        if absent := [name for name in names if name not in tensors]:
            raise BundleError(f"{bundle.path} holds no {absent[0]!r}; it is no bundle of word vectors: get it again")
        matrix = sum(tensors[name].float() for name in names)
        try:
            words = open_vocabulary(bundle, "words", len(matrix)).symbols  # type: ignore[arg-type]
            return cls(words, matrix.numpy())  # type: ignore[union-attr]
        except InputError as error:
            raise BundleError(f"{bundle.path}: {error}") from error


def open_vectors(name: str) -> WordVectors:
    """A bundle by name or path, or a text file of vectors (word2vec's or GloVe's, plain or ``.gz``)."""
    import voiceseq

    path = Path(name)
    if path.is_file() and path.suffix != ".zip" and path.name != MANIFEST:
        return read_vectors(path)
    model = voiceseq.load(name)
    if not isinstance(model, WordVectors):
        raise BundleError(f"{name} is a {type(model).__name__}; word vectors were wanted")
    return model


def bias_direction(vectors: WordVectors, pairs: Iterable[Pair]) -> np.ndarray:
    """The direction in which the two of each pair (she, he) differ: the first principal component ``(dimension,)``.

    Each pair is centred, so that what both mean plays no part. Raises InputError where no pair has vectors.
    """
    known = [[vectors.number(word) for word in pair] for pair in pairs if all(word in vectors for word in pair)]
    if not known:
        raise InputError("no pair has vectors for both of its words; give pairs such as she, he")
    both = vectors.unit[np.array(known)]
    apart = (both - both.mean(1, keepdims=True)).reshape(-1, both.shape[-1])
    direction = np.linalg.svd(apart, full_matrices=False)[2][0]
    # pointing from the second words to the first, whatever sign the decomposition chose
    return direction if float((both[:, 0] - both[:, 1]).sum(0) @ direction) >= 0 else -direction


def debias(
    vectors: WordVectors, direction: np.ndarray, specific: Iterable[str], equalise: Iterable[Pair] = ()
) -> WordVectors:
    """Bolukbasi's hard debiasing, on unit vectors: neutralise all words but the ``specific``, equalise some pairs.

        neutral:    w' = (w - (w.b) b) / |w - (w.b) b|
        equalised:  mean m of the pair, nu = m - (m.b) b;  w' = nu +- sqrt(1 - |nu|^2) b

    So no neutral word is nearer to one word of an equalised pair than to the other.
    """
    unit = vectors.unit.astype(np.float64)
    kept = {vectors.number(word) for word in specific if word in vectors}
    neutral = np.array([number for number in range(len(vectors)) if number not in kept], int)
    rest = unit[neutral] - np.outer(unit[neutral] @ direction, direction)
    unit[neutral] = rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1e-12)
    for one, other in equalise:
        if one in vectors and other in vectors:
            a, b = vectors.number(one), vectors.number(other)
            mean = (unit[a] + unit[b]) / 2
            shared = mean - (mean @ direction) * direction
            side = np.sqrt(max(0.0, 1 - shared @ shared)) * (1 if (unit[a] - unit[b]) @ direction > 0 else -1)
            unit[a], unit[b] = shared + side * direction, shared - side * direction
    return WordVectors(vectors.words, unit)


def flatten(vectors: WordVectors, words: Sequence[str], method: str = "pca", seed: int = 1) -> np.ndarray:
    """``(words, 2)``: the words' vectors on a plane, by principal components or by t-SNE.

    Raises InputError for another method, words without vectors, or fewer than 3 of them.
    """
    if method not in ("pca", "tsne"):
        raise InputError(f"the method {method!r} came; choose pca or tsne")
    if len(words) < 3:
        raise InputError(f"{len(words)} words came; a picture wants at least 3")
    chosen = vectors.unit[[vectors.number(word) for word in words]]
    if method == "pca":
        centred = chosen - chosen.mean(0)
        return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    from sklearn.manifold import TSNE  # brought by librosa; imported late, since it is slow to import

    perplexity = min(30.0, (len(words) - 1) / 3)
    return TSNE(2, perplexity=perplexity, metric="cosine", init="pca", random_state=seed).fit_transform(chosen)
