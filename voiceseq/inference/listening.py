"""One listener of a streaming acoustic model: partial results as the words come, final ones when they are over.

Sound is taken in blocks of a fixed size, whatever the chunks that come, and every decision falls at the end of a block:
so the finals do not depend on the cut. A partial is CTC's best path so far; a final is read by the whole search. The
network begins anew after every final, and while nobody speaks: it hears each utterance as it heard them in training.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voiceseq.audio.resample import StreamResampler
from voiceseq.core.ctc import ctc_greedy
from voiceseq.inference.speech import SAMPLE_RATE, Hypothesis, Samples, SpeechEvent
from voiceseq.inference.spelling import Spelling
from voiceseq.models.acoustic import AcousticNetwork

BLOCK = 1_600  # samples that are heard at once
PAUSE_S = 0.6  # without a new symbol: the utterance is over
IDLE_S = 1.0  # without any symbol: begin anew
REPLAYED = 3  # blocks that a new beginning hears again, beside those not answered yet: a word may have begun in them
LONGEST_S = 20.0  # an utterance that does not pause is cut where it is quietest
TAIL_S = 0.4  # of silence after the end of the sound, for what the last word still owes


class SpeechStream:
    """``feed`` sound as it comes, ``finish`` for the rest, ``reset`` to begin again exactly like new.

    ``replaced`` counts samples that were NaN or infinite and became silence.
    """

    _state: Any  # the network's
    _rows: Tensor  # (time, symbols), log-probabilities of the utterance
    _last: int | None  # the frame of its last symbol

    def __init__(
        self,
        network: AcousticNetwork,
        spelling: Spelling,
        blank: int,
        final: Callable[[Tensor], Hypothesis],
        sample_rate: int,
    ) -> None:
        self.network, self.spelling, self.blank, self.final = network, spelling, blank, final
        self.resampler = StreamResampler(sample_rate, SAMPLE_RATE)
        self.pause, self.idle, self.longest = (
            round(seconds / network.frame_s) for seconds in (PAUSE_S, IDLE_S, LONGEST_S)
        )
        late_s = network.encoder.lookahead * network.frame_s
        self.replayed = REPLAYED + math.ceil(late_s * SAMPLE_RATE / BLOCK)
        self.reset()

    def reset(self) -> None:
        """Forget all sound."""
        self.resampler.reset()
        self._waiting = np.zeros(0, np.float32)
        self._blocks: list[Samples] = []  # the last ones, to be heard again
        self._heard = 0  # samples that went into the network, those heard twice counted once
        self._said = ""
        self._finished = False
        self._begin()

    @property
    def replaced(self) -> int:
        return self.resampler.replaced

    def feed(self, samples: Samples) -> list[SpeechEvent]:
        """The next samples ``(n,)``; any number of them. Raises InputError after ``finish``."""
        return self._take(self.resampler.feed(np.asarray(samples)))

    def finish(self) -> list[SpeechEvent]:
        """The end of the sound: the last final. A second call gives nothing."""
        if self._finished:
            return []
        rest = np.concatenate((self.resampler.finish(), np.zeros(round(TAIL_S * SAMPLE_RATE), np.float32)))
        end = self._heard + len(self._waiting) + len(rest)
        self._finished = True
        events = self._take(np.concatenate((rest, np.zeros(-end % BLOCK, np.float32))), partials=False)
        last = self.network.flush(self._state)
        if last is not None and last.shape[1]:
            self._keep(last)
        return events + self._close(len(self._rows))

    def _take(self, samples: Samples, partials: bool = True) -> list[SpeechEvent]:
        self._waiting = np.concatenate((self._waiting, samples))
        events: list[SpeechEvent] = []
        while len(self._waiting) >= BLOCK:
            block, self._waiting = self._waiting[:BLOCK], self._waiting[BLOCK:]
            self._blocks = [*self._blocks, block][-self.replayed :]
            self._heard += BLOCK
            self._hear(block)
            events += self._decide()
        return events + (self._partial() if partials else [])

    @torch.no_grad()
    def _hear(self, block: Samples) -> None:
        logits, self._state = self.network.advance(torch.from_numpy(block)[None], self._state)
        if logits.shape[1]:
            self._keep(logits)

    def _keep(self, logits: Tensor) -> None:
        """Put frames behind those of the utterance."""
        log_probs = logits[0].detach().log_softmax(-1)
        self._rows = torch.cat((self._rows, log_probs))
        for place in (log_probs.argmax(-1) != self.blank).nonzero().flatten().tolist():
            self._last = len(self._rows) - len(log_probs) + place

    def _decide(self) -> list[SpeechEvent]:
        """What is over becomes final; where nothing is said, begin anew with the last blocks."""
        count = len(self._rows)
        if self._last is None:
            if count >= self.idle:
                self._begin()
            return []
        if count - 1 - self._last >= self.pause:
            events = self._close(count)
            self._begin()
            return events
        return self._close(self._quietest()) if count >= self.longest else []

    def _quietest(self) -> int:
        """The middle of the widest gap between two words in the second half of the utterance, or its end."""
        words = self.spelling.words(ctc_greedy(self._rows[None], blank=self.blank)[0].spans, frame_s=1.0)
        gaps = [(one.end, other.start) for one, other in pairwise(words) if other.start > len(self._rows) / 2]
        start, end = max(gaps, key=lambda gap: gap[1] - gap[0], default=(len(self._rows),) * 2)
        return round((start + end) / 2)

    def _close(self, count: int) -> list[SpeechEvent]:
        """The first ``count`` frames as a final; the others stay."""
        rows, self._rows = self._rows[:count], self._rows[count:]
        start_s = self._start_s
        self._start_s += count * self.network.frame_s
        self._last = None if self._last is None or self._last < count else self._last - count
        self._said = ""
        said = self.final(rows) if len(rows) else None
        return [] if said is None or not said.text else [self._event("final", said, start_s)]

    def _partial(self) -> list[SpeechEvent]:
        """What CTC's best path says so far, where that has changed."""
        if self._last is None:
            return []
        best = ctc_greedy(self._rows[None], blank=self.blank)[0]
        words = self.spelling.words(best.spans, self.network.frame_s)
        text = " ".join(word.word for word in words)
        if text in ("", self._said):
            return []
        self._said = text
        return [self._event("partial", Hypothesis(text, best.score, words), self._start_s)]

    def _event(self, kind: Any, said: Hypothesis, start_s: float) -> SpeechEvent:
        words = tuple(word.later(start_s) for word in said.words)
        return SpeechEvent(kind, said.text, words[0].start, words[-1].end, words)

    def _begin(self) -> None:
        """A new utterance: a network that knows nothing hears the last blocks once more."""
        self._state = None
        self._start_s = (self._heard - BLOCK * len(self._blocks)) / SAMPLE_RATE
        self._rows = torch.zeros(0, self.network.config.symbols)
        self._last = None
        for block in self._blocks:
            self._hear(block)
