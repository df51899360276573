"""Models of plain text at work: which word stands at ``[MASK]``, and what a word means where it stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.datasets.pairs import pad
from voiceseq.datasets.sentences import SentenceCoder
from voiceseq.errors import InputError
from voiceseq.inference.opening import check_texts
from voiceseq.inference.sentences import open_coder
from voiceseq.models.masked import BidirectionalNetwork, MaskedNetwork
from voiceseq.models.sentence import SentenceConfig
from voiceseq.text.words import split_words, visible

MASK = re.compile(r"\[MASK\]|<mask>", re.IGNORECASE)
AROUND = 50  # words to each side of a mask that are read
MOST = 100  # masks of one text


@dataclass(frozen=True)
class Candidate:
    """A word and how probable it is at its place."""

    word: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the best word at each mask, and for each mask the best few."""

    text: str
    filled: str
    candidates: list[list[Candidate]]


class MaskedModel:
    """``voiceseq.load("masked").fill(["let's make [MASK] chicken"])``."""

    def __init__(self, network: MaskedNetwork, coder: SentenceCoder) -> None:
        self.network = network.eval()
        self.coder = coder
        self.bos, self.eos, self.mask = (coder.words.special(role) for role in ("bos", "eos", "mask"))

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or words that do not make a masked language model."""
        network = bundle.network(MaskedNetwork, SentenceConfig)
        return cls(network, open_coder(bundle, network.config))

    def fill(self, texts: Sequence[str], n_best: int = 5) -> list[Filled]:
        """What may stand at each ``[MASK]`` of each text; each mask is filled by itself.

        Raises InputError for a text without a mask or with more than 100, one bare text instead of a list, n_best < 1.
        """
        if n_best < 1:
            raise InputError(f"n_best is {n_best}; at least 1 was wanted")
        return [self._fill(visible(text), n_best) for text in check_texts(texts)]

    def _fill(self, text: str, n_best: int) -> Filled:
        parts = MASK.split(text)
        if not 1 < len(parts) <= MOST + 1:
            raise InputError(f"{text[:40]!r} has {len(parts) - 1} masks; 1 to {MOST} were wanted: write [MASK]")
        candidates = self._candidates([self.coder.numbers(split_words(part)) for part in parts], n_best)
        filled = parts[0] + "".join(best[0].word + part for best, part in zip(candidates, parts[1:], strict=True))
        return Filled(text, filled, candidates)

    @torch.no_grad()
    def _candidates(self, parts: list[list[int]], n_best: int) -> list[list[Candidate]]:
        """``parts`` are the numbers of the words between the masks."""
        numbers, masks = list(parts[0]), []
        for part in parts[1:]:
            masks.append(len(numbers))
            numbers += [self.mask, *part]
        starts = [max(0, mask - AROUND) for mask in masks]
        rows = [[self.bos, *numbers[s : m + AROUND + 1], self.eos] for s, m in zip(starts, masks, strict=True)]
        frames = self.network(*pad(rows))
        places = torch.tensor(masks) - torch.tensor(starts) + 1
        logits = self.network.logits(frames[torch.arange(len(rows)), places])
        logits[:, list(self.coder.words.special_ids)] = -torch.inf
        best = logits.softmax(-1).topk(min(n_best, logits.shape[1] - len(self.coder.words.special_ids)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        symbols = self.coder.words.symbols
        return [[Candidate(symbols[i], p) for i, p in zip(*pair, strict=True)] for pair in pairs]


class ContextModel:
    """``voiceseq.load("runs/.../bundle").vectors([...])``: ELMo's vectors, a word's depends on those around it."""

    def __init__(self, network: BidirectionalNetwork, coder: SentenceCoder) -> None:
        self.network = network.eval()
        self.coder = coder

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or words that do not make a bidirectional language model."""
        network = bundle.network(BidirectionalNetwork, SentenceConfig)
        return cls(network, open_coder(bundle, network.config))

    @torch.no_grad()
    def vectors(self, texts: Sequence[str]) -> list[Tensor]:
        """``(layers + 1, words, size)`` for each text. Raises InputError for a text without words, or one bare text."""
        found = []
        for text in check_texts(texts):
            words, lengths = pad([self.coder.numbers(split_words(text))])
            context = self.network.context
            found.append(torch.stack(context.states(context.embedding(words), lengths))[:, 0])
        return found
