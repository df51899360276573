"""From symbols to words: where a word begins, when it was said and how surely, for letters and for subwords."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from voiceseq.core.alignment import forced_align, word_spans
from voiceseq.core.ctc import TokenSpan, frames_needed
from voiceseq.errors import InputError
from voiceseq.inference.speech import Hypothesis, Word
from voiceseq.text.ngram import NgramModel
from voiceseq.text.subwords import MARK
from voiceseq.text.vocabulary import Vocabulary

SPACE = " "


class Spelling:
    """``separator`` is the space's number; None for subwords, which mark a word's beginning instead."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        subwords = vocabulary.level == "subword"
        self.separator = None if subwords else vocabulary.index(SPACE)
        self._begins = {n for n, symbol in enumerate(vocabulary.symbols) if subwords and symbol.startswith(MARK)}

    def text(self, tokens: Sequence[int]) -> str:
        """The words with single spaces between them."""
        return SPACE.join(self.vocabulary.decode(list(tokens)).split())

    def lm_words(self, model: NgramModel) -> list[tuple[int, ...]]:
        """The symbols of each word of an n-gram model: of letters, or (subwords) the one piece that it is.

        Raises InputError where no word of the model can be spelt.
        """
        if self.separator is not None:
            spelt = model.spellings(self.vocabulary.symbols)
        else:
            special = self.vocabulary.special_ids
            numbers = {symbol: n for n, symbol in enumerate(self.vocabulary.symbols) if n not in special}
            spelt = [(numbers[word],) if word in numbers else () for word in model.words]
        if not any(spelt):
            kind = "words in small letters" if self.separator is not None else "this model's subwords"
            raise InputError(f"no word of the language model can be spelt; one over {kind} was wanted")
        return spelt

    def hypothesis(
        self, tokens: Sequence[int], score: float, log_probs: Tensor, frame_s: float, blank: int
    ) -> Hypothesis:
        """The text of ``tokens`` with times and confidences from ``log_probs (time, symbols)``."""
        words = self.words(self._spans(tokens, log_probs, blank), frame_s) if tokens else ()
        return Hypothesis(SPACE.join(word.word for word in words), float(score), words)

    def words(self, spans: Sequence[TokenSpan], frame_s: float) -> tuple[Word, ...]:
        """Spans of symbols as words with seconds."""
        groups = [(text, group) for group in self._groups(spans) if (text := self.text([s.token for s in group]))]
        joined = word_spans([span for _, group in groups for span in group], word_lengths=[len(g) for _, g in groups])
        return tuple(
            Word(text, span.start * frame_s, span.end * frame_s, min(1.0, span.confidence))
            for (text, _), span in zip(groups, joined, strict=True)
        )

    def _groups(self, spans: Sequence[TokenSpan]) -> list[list[TokenSpan]]:
        groups: list[list[TokenSpan]] = [[]]
        for span in spans:
            if span.token == self.separator or span.token in self._begins:
                groups.append([])
            if span.token != self.separator:
                groups[-1].append(span)
        return [group for group in groups if group]

    def _spans(self, tokens: Sequence[int], log_probs: Tensor, blank: int) -> list[TokenSpan]:
        """CTC's best path through the tokens; an even spread of what a decoder wrote and CTC has no time for."""
        wanted = torch.tensor(tokens)
        needed = int(frames_needed(wanted[None], torch.tensor([len(tokens)]))[0])
        if needed <= len(log_probs):
            return forced_align(log_probs.clamp(min=-1e4), wanted, blank)
        step = len(log_probs) / len(tokens)
        edges = [math.floor(step * place) for place in range(len(tokens) + 1)]
        return [TokenSpan(t, a, max(a + 1, b), 0.0) for t, a, b in zip(tokens, edges, edges[1:], strict=False)]
