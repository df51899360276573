"""CTC prefix beam search: the best strings, each with all of its paths, under CTC, a language model and hotwords.

``score(y) = log P_ctc(y) + fusion(y) + sum_k weight_k log p_k(y)``. The paths that collapse to one prefix are merged
exactly, as the mass that ends in a blank plus the mass that ends in its last symbol; only prefixes that leave the beam
lose theirs. Where places are short they go first to the ``nbest`` best prefixes of each future (last symbol, n-gram
context, word and phrase in the making): prefixes that differ only long ago would fill the beam otherwise. The scores
returned are those of whole strings: log P_ctc is computed anew by the forward algorithm.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from voiceseq.core.masks import check_frames
from voiceseq.core.scorers import Floats, Ints, NgramTable, State, join_rows, phrase_automaton
from voiceseq.core.search import Hypothesis, Scorers, Weighted, check_beam, score_sequence
from voiceseq.errors import InputError

if TYPE_CHECKING:  # numba takes half a second to import: only who searches pays
    from voiceseq.core.prefix_loops import FusionArrays


@dataclass(frozen=True)
class Fusion:
    """What is added to the CTC score of a string, symbol by symbol.

    With a ``separator`` symbol the n-gram is over the words between separators and is read when a word is complete;
    without one each symbol is a word. ``spellings[w]``: the symbols of the n-gram's word w (empty: cannot be spelt).

    - ``weight * (log p(word) + unknown if it is no word of the model)`` for each word, and ``</s>``
    - ``bonus`` for each word
    - ``boost`` for each symbol of a completed phrase; what an unfinished one was given ahead is taken back
    """

    vocabulary: int
    ngram: NgramTable | None = None
    spellings: Sequence[Sequence[int]] = ()
    separator: int | None = None
    weight: float = 0.5
    unknown: float = 0.0
    bonus: float = 0.0
    phrases: Sequence[Sequence[int]] = ()
    boost: float = 1.0

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("weight", "unknown", "bonus", "boost")}
        if not all(map(math.isfinite, numbers.values())) or self.weight < 0:
            raise InputError(f"the fusion has {numbers}; finite numbers and a weight of 0 or more were wanted")
        if self.separator is not None and not 0 <= self.separator < self.vocabulary:
            raise InputError(f"the separator {self.separator} came; one of {self.vocabulary} symbols was wanted")
        words = 0 if self.ngram is None else int(self.ngram.first[1])
        if len(self.spellings) != words:
            raise InputError(f"{len(self.spellings)} spellings came for an n-gram model of {words} words; one each")
        longest = max((len(spelling) for spelling in self.spellings), default=0)
        if self.separator is None and longest > 1:
            raise InputError("a word of several symbols came without a separator; say which symbol separates words")
        if any(not 0 <= token < self.vocabulary for spelling in self.spellings for token in spelling):
            raise InputError(
                f"a spelling holds a symbol outside 0..{self.vocabulary - 1}: is it the vocabulary of CTC?"
            )

    @cached_property
    def arrays(self) -> "FusionArrays":
        """What the compiled loops read."""
        from voiceseq.core.prefix_loops import FusionArrays

        nothing, none = np.zeros(2, np.int64), np.zeros(1)
        table = self.ngram or NgramTable(nothing, nothing, none, nothing, none, nothing, 0, 0, 0)
        token_word = np.full(self.vocabulary, table.unknown)
        for word, spelling in enumerate(self.spellings):
            if self.separator is None and len(spelling):
                token_word[spelling[0]] = word
        trie = _trie(self.spellings if self.separator is not None else (), self.vocabulary)
        phrases = phrase_automaton(self.phrases, self.vocabulary, self.separator)
        return FusionArrays(
            self.ngram is not None or bool(self.bonus) or bool(self.phrases),
            self.ngram is not None,
            *table,
            token_word,
            *trie,
            self._ahead(trie),
            -1 if self.separator is None else self.separator,
            phrases.follow,
            phrases.award,
            phrases.credit,
            phrases.final,
            phrases.start,
            *(float(number) for number in (self.weight, self.unknown, self.bonus, self.boost)),
        )

    def _ahead(self, trie: tuple[Ints, Ints, Ints, Ints]) -> Floats:
        """What a word in the making is given before it is complete: the unigram score of the best that it may become.

        Without it a word would cost nothing until its separator, and the beam would fill with words that never end.
        """
        first, _, target, word = trie
        ahead = np.full(len(word) + 1, -math.inf)
        ahead[-1] = 0.0  # outside the trie
        if self.ngram is not None:
            ahead[:-1] = np.where(word >= 0, self.ngram.log_prob[word], -math.inf)
            ahead[-1] = max(ahead[-1], 0.0) + self.ngram.log_prob[self.ngram.unknown] + self.unknown
        for node in range(len(word) - 1, -1, -1):  # children have larger numbers than their parents
            for arc in range(first[node], first[node + 1]):
                ahead[node] = max(ahead[node], ahead[target[arc]])
        ahead = self.weight * ahead + self.bonus if self.weight else np.full(len(ahead), self.bonus)
        ahead[0] = 0.0
        return ahead

    @cached_property
    def bound(self) -> float:
        """The most that one symbol other than the separator can add."""
        f = self.arrays
        boost = float((self.boost * ((f.award + f.credit)[f.follow] - f.credit[:, None])).max())
        word = self.bonus + self.weight * max(0.0, self.unknown)
        if self.separator is not None:  # from letter to letter of a word, or out of the trie
            parent = np.repeat(np.arange(len(f.spell_word)), np.diff(f.spell_first))
            step = (f.ahead[f.spell_target] - f.ahead[parent]).max(initial=0.0)
            word = max(float(step), float(f.ahead[-1] - f.ahead.min()))
        return max(0.0, word) + max(0.0, boost)


def _trie(spellings: Sequence[Sequence[int]], vocabulary: int) -> tuple[Ints, Ints, Ints, Ints]:
    """First arc of each node, the arcs' tokens and targets, the word spelt at each node (-1: none)."""
    arcs: dict[int, int] = {}  # node * vocabulary + token -> node
    words = [-1]
    for word, spelling in enumerate(spellings):
        node = 0
        for token in spelling:
            key = node * vocabulary + token
            if key not in arcs:
                arcs[key] = len(words)
                words.append(-1)
            node = arcs[key]
        if node and words[node] < 0:  # of two words that are spelt alike the first is meant
            words[node] = word
    keys = np.array(sorted(arcs), dtype=np.int64)
    first = np.searchsorted(keys, np.arange(len(words) + 1) * vocabulary).astype(np.int64)
    return first, keys % vocabulary, np.array([arcs[int(key)] for key in keys], np.int64), np.array(words, np.int64)


def prefix_beam_search(
    log_probs: Tensor,
    lengths: Tensor | None = None,
    *,
    blank: int = 0,
    beam: int = 16,
    nbest: int = 1,
    fusion: Fusion | None = None,
    scorers: Scorers = (),
    start: int = 0,
    end: int | None = None,
) -> list[list[Hypothesis]]:
    """The ``nbest`` best strings of each utterance, best first, under ``log_probs (batch, time, vocabulary)``.

    ``log_probs`` are normalised; -inf is a probability of zero. ``fusion``: n-gram, bonus and phrases, in compiled
    code. ``scorers``: neural language models by the scorer contract over the same vocabulary, asked once for each new
    prefix (a Python step a frame: slower); they begin with ``start`` and close with ``end``, if one is given.
    ``Hypothesis.log_probs`` holds CTC, n-gram, words, boosted symbols (each unweighted), then the scorers'.
    Utterances are spread over torch's threads. Where nothing is possible: one empty hypothesis of score -inf.

    Raises InputError for a beam below 1, wrong shapes, NaN, or positive "log-probabilities".
    """
    lengths, fusion = _check(log_probs, lengths, blank, fusion)
    check_beam(beam, nbest)
    frames = [row[:length].double().numpy() for row, length in zip(log_probs.detach().cpu(), lengths, strict=True)]

    def one(utterance: Floats) -> list[Hypothesis]:
        found = _search(utterance, blank, beam, nbest, fusion, scorers, start, end)
        return _rescore(utterance, found, blank, fusion, scorers, start, end)

    if scorers or len(frames) == 1 or torch.get_num_threads() == 1:
        return [one(utterance) for utterance in frames]
    fusion.arrays  # noqa: B018  made here, once, and not by every thread
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(one, frames))


def score_strings(
    log_probs: Tensor,
    lengths: Tensor | None,
    strings: Sequence[Sequence[int]],
    *,
    blank: int = 0,
    fusion: Fusion | None = None,
    scorers: Scorers = (),
    start: int = 0,
    end: int | None = None,
) -> list[Hypothesis]:
    """Score given strings, one an utterance, exactly as ``prefix_beam_search`` scores what it returns."""
    lengths, fusion = _check(log_probs, lengths, blank, fusion)
    if len(strings) != len(log_probs):
        raise InputError(f"{len(strings)} strings came for {len(log_probs)} utterances; one each was wanted")
    if any(not 0 <= token < log_probs.shape[2] or token == blank for string in strings for token in string):
        raise InputError(f"a string holds the blank or a symbol outside 0..{log_probs.shape[2] - 1}")
    found = []
    for row, length, string in zip(log_probs.detach().cpu(), lengths, strings, strict=True):
        tokens = np.array(string, dtype=np.int64)
        utterance = row[:length].double().numpy()
        found += _rescore(utterance, [(tokens, -math.inf)], blank, fusion, scorers, start, end)
    return found


def _check(log_probs: Tensor, lengths: Tensor | None, blank: int, fusion: Fusion | None) -> tuple[Tensor, Fusion]:
    finite = log_probs.clamp(min=-1e30) if log_probs.is_floating_point() else log_probs  # -inf is fine here
    lengths = check_frames(finite, lengths, name="log_probs")
    vocabulary = log_probs.shape[2]
    if not 0 <= blank < vocabulary:
        raise InputError(f"the blank {blank} came; one of the {vocabulary} symbols was wanted")
    if float(log_probs.max()) > 1e-3:
        raise InputError(f"log_probs reaches {float(log_probs.max()):.3g}; for logits use log_softmax(-1) first")
    if fusion is not None and fusion.vocabulary != vocabulary:
        raise InputError(f"log_probs has {vocabulary} symbols, the fusion {fusion.vocabulary}; give it the same")
    return lengths, fusion or Fusion(vocabulary)


def _search(
    frames: Floats,
    blank: int,
    beam: int,
    nbest: int,
    fusion: Fusion,
    scorers: Scorers,
    start: int,
    end: int | None,
) -> list[tuple[Ints, float]]:
    """The best strings of ``frames (time, vocabulary)`` with the log P_ctc that the beam kept of them."""
    from voiceseq.core import prefix_loops as loops

    f = fusion.arrays
    order = np.argsort(-frames, axis=1)
    tree, old, new, count = loops.plant(f, 1 + len(frames) * beam, beam)
    closing: Floats | float = 0.0
    if scorers:
        old, closing = _advance_with_scorers(fusion, frames, order, blank, tree, old, new, count, scorers, start, end)
    else:
        old, _ = loops.advance(f, frames, order, blank, tree, old, new, count, np.zeros((0, 0)), fusion.bound, nbest)
    old = old[: count[loops.LIVE]]
    ranks = np.argsort(-(loops.finish(f, tree, old) + closing), kind="stable")[:nbest]
    mass = np.logaddexp(old["blank"], old["symbol"])
    return [(loops.spell_out(tree, old[i]["node"]), float(mass[i])) for i in ranks]


@torch.no_grad()
def _advance_with_scorers(
    fusion: Fusion,
    frames: Floats,
    order: Ints,
    blank: int,
    tree: Any,
    old: Any,
    new: Any,
    count: Ints,
    scorers: Scorers,
    start: int,
    end: int | None,
) -> tuple[Any, Floats]:
    """Frame by frame, the scorers' rows renewed between; returns the beam and what ``end`` adds to each prefix."""
    from voiceseq.core import prefix_loops as loops

    model = Weighted(scorers, 1)
    total, _, states = model.score(torch.tensor([start]), model.start(1))
    if total.shape[1] != frames.shape[1]:
        raise InputError(f"the scorers know {total.shape[1]} tokens, log_probs {frames.shape[1]}; the same was wanted")
    live: list[tuple[Floats, list[State], int]] = [(total[0].double().numpy(), states, 0)]
    for t in range(len(frames)):
        rows = np.stack([row for row, _, _ in live])
        if np.isnan(rows).any():
            raise InputError("a scorer gave NaN; log-probabilities were wanted: look at the model's weights")
        most = fusion.bound + model.gain
        old, new = loops.advance(
            fusion.arrays, frames[t : t + 1], order[t : t + 1], blank, tree, old, new, count, rows, most, len(old)
        )
        live = _renew(model, live, old[: count[loops.LIVE]])
    return old, np.array([0.0 if end is None else row[end] for row, _, _ in live])


def _renew(
    model: Weighted, live: list[tuple[Floats, list[State], int]], beam: Any
) -> list[tuple[Floats, list[State], int]]:
    """Row, states and length of each prefix of the beam; new ones are scored together with those of equal length."""
    before = [live[source] for source in beam["source"]]
    fresh = [j for j, token in enumerate(beam["token"]) if token >= 0]
    after = list(before)
    for length in {before[j][2] for j in fresh}:  # states of one length have one shape (think of key/value caches)
        group = [j for j in fresh if before[j][2] == length]
        joined = [join_rows(parts) for parts in zip(*(before[j][1] for j in group), strict=True)]
        total, _, states = model.score(torch.tensor(beam["token"][group]), joined)
        for k, j in enumerate(group):
            after[j] = total[k].double().numpy(), model.select(states, torch.tensor([k])), length + 1
    return after


def _rescore(
    frames: Floats,
    found: list[tuple[Ints, float]],
    blank: int,
    fusion: Fusion,
    scorers: Scorers,
    start: int,
    end: int | None,
) -> list[Hypothesis]:
    """Whole strings under the whole score. ``found``: strings, and the log P_ctc for where the exact one underflows."""
    from voiceseq.core import prefix_loops as loops

    probs, f = np.exp(frames), fusion.arrays
    silent = f._replace(weight=0.0, bonus=0.0, boost=0.0, ahead=np.zeros_like(f.ahead))
    alone = [silent._replace(weight=1.0), silent._replace(bonus=1.0), silent._replace(boost=1.0)]
    weights = np.array([1.0, fusion.weight, fusion.bonus, fusion.boost, *(weight for _, weight in scorers)])
    hypotheses = []
    for tokens, mass in found:
        ctc = loops.likelihood(probs, tokens, blank)
        ctc = ctc if ctc > -math.inf else mass
        parts = [ctc, *(loops.fuse(part, tokens) for part in alone)]
        if scorers:
            parts += score_sequence(scorers, [tokens.tolist()], start, end)[0].log_probs
        score = sum(weight * part for weight, part in zip(weights.tolist(), parts, strict=True) if weight)
        hypotheses.append(Hypothesis(tuple(tokens.tolist()), score, tuple(map(float, parts)), ctc > -math.inf))
    nothing = Hypothesis((), -math.inf, (-math.inf,) * len(weights), False)
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) or [nothing]
