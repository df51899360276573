"""Look inside a recogniser: what CTC heard in each frame, where attention listened, what the beam did."""

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from voiceseq.core.search import Hypothesis as Found
from voiceseq.core.search import Scorers
from voiceseq.core.tracing import Live, Watched, trace_prefixes
from voiceseq.errors import InputError
from voiceseq.inference.recogniser import AcousticRecogniser
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis, Recogniser, Samples
from voiceseq.inference.whisper import WhisperRecogniser, audible
from voiceseq.models.whisper import FRAME_S

BEAM, NBEST = 5, 5
MOST_SYMBOLS = 32  # rows of the picture of posteriors; of subwords there are thousands
SEEN = 0.05  # a symbol that is nowhere this probable is not drawn
BLANK = "∅"

Matrix = NDArray[np.float32]
Spell = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Map:
    """A picture with names of its rows: ``values (rows, frames)``, 0 to 1."""

    rows: tuple[str, ...]
    values: Matrix

    def to_json(self) -> dict[str, Any]:
        """``data``: a byte a value (255 is 1), row after row, in base64."""
        data = np.round(255 * np.clip(self.values, 0, 1)).astype(np.uint8).tobytes()
        frames = self.values.shape[1]
        return {"rows": list(self.rows), "frames": frames, "data": base64.b64encode(data).decode()}


@dataclass(frozen=True)
class Step:
    """The beam at one moment: of CTC's prefixes after a frame (``time`` in seconds), of a decoder after a piece."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    ended: tuple[bool, ...]
    parents: tuple[int, ...]  # the place in the step before of what each went on from; -1: none
    time: float | None = None


@dataclass(frozen=True)
class Inside:
    """All there is to see. ``posteriors`` of a recogniser with CTC, ``attention`` of one with a decoder."""

    hypotheses: tuple[Hypothesis, ...]
    frame_s: float
    posteriors: Map | None
    attention: Map | None
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.hypotheses[0].text if self.hypotheses else "",
            "hypotheses": [_hypothesis(one) for one in self.hypotheses],
            "frame_s": self.frame_s,
            "posteriors": self.posteriors and self.posteriors.to_json(),
            "attention": self.attention and self.attention.to_json(),
            "steps": [asdict(one) for one in self.steps],
        }


def _hypothesis(one: Hypothesis) -> dict[str, Any]:
    words = [{"word": w.word, "start": round(w.start, 3), "end": round(w.end, 3), "confidence": round(w.confidence, 4)}
             for w in one.words]  # fmt: skip
    return {"text": one.text, "score": round(one.score, 4), "words": words}


def look_inside(recogniser: Recogniser, piece: Samples, beam: int = BEAM, nbest: int = NBEST) -> Inside:
    """What a recogniser makes of ``piece (n,)``, which is at most ``recogniser.longest_s`` long.

    Raises InputError for one that is too long or holds no sound, and for a recogniser that cannot be looked into.
    """
    if len(piece) > (recogniser.longest_s + 0.1) * SAMPLE_RATE:
        raise InputError(
            f"{len(piece) / SAMPLE_RATE:.1f} s came; one utterance of {recogniser.longest_s:g} s or less was wanted"
        )
    if not audible(piece):
        raise InputError("there is no sound in it")
    decoding = Decoding(beam=max(beam, nbest), nbest=nbest)
    if isinstance(recogniser, WhisperRecogniser):
        return _whisper(recogniser, piece, decoding)
    if isinstance(recogniser, AcousticRecogniser):
        return _acoustic(recogniser, piece, decoding)
    raise InputError(f"{recogniser.name} cannot be looked into: it shows no posteriors and no attention")


def _whisper(recogniser: WhisperRecogniser, piece: Samples, decoding: Decoding) -> Inside:
    watched: list[Watched] = []

    def around(scorers: Scorers) -> Scorers:
        watched.append(Watched(scorers, recogniser.end))
        return [(watched[0], 1.0)]

    heard = recogniser.hear([piece])
    beam = decoding.beam or BEAM
    (found,) = recogniser.search(heard, decoding, beam, decoding.nbest, around)
    (answers,) = recogniser.answers(heard, lambda _: [found])
    posteriors, attention = None, None
    if heard.log_probs is not None and recogniser.letters is not None:
        letters, blank = recogniser.letters, recogniser.letters.special("blank")
        frames = max(1, math.ceil(len(piece) / SAMPLE_RATE / FRAME_S))  # without the silence that is put after it
        posteriors = _posteriors(heard.log_probs[0, :frames], letters.symbols, blank)
    if found[0].tokens:
        weights = recogniser.weights(heard, 0, found[0]).mean(0)
        names = [recogniser.pieces.decode([token]).strip() or "␣" for token in found[0].tokens]
        attention = _attention(weights, names)
    spell = lambda tokens: recogniser.pieces.decode(tokens).strip()  # noqa: E731
    return Inside(tuple(answers), FRAME_S, posteriors, attention, _steps(_with_ends(watched[0].steps, found), spell))


def _acoustic(recogniser: AcousticRecogniser, piece: Samples, decoding: Decoding) -> Inside:
    if len(piece) < recogniser.network.shortest:
        raise InputError(f"{len(piece)} samples came; {recogniser.network.shortest} were wanted, which make a frame")
    heard = recogniser.hear([piece])
    log_probs = heard.log_probs[0, : int(heard.lengths[0])]
    read = recogniser.reader(Decoding(decoder="beam", beam=decoding.beam, nbest=decoding.nbest))
    (answers,) = recogniser.answers(heard, read)
    best = read(heard)[0][0]
    attention, decoder = None, recogniser.network.decoder
    if decoder is not None and best.tokens:
        written = heard.lengths.new_tensor([[recogniser.eos, *best.tokens[:-1]]])
        weights = decoder.weights(written, heard.frames, heard.lengths)[0].detach()
        attention = _attention(weights, [recogniser.vocabulary.symbols[token] for token in best.tokens])
    traced = trace_prefixes(
        log_probs,
        blank=recogniser.blank,
        beam=decoding.beam or BEAM,
        nbest=decoding.nbest,
        fusion=recogniser.fusion(Decoding()),
    )
    steps = _steps(traced, recogniser.spelling.text, recogniser.frame_s)
    posteriors = _posteriors(log_probs, recogniser.vocabulary.symbols, recogniser.blank)
    return Inside(tuple(answers), recogniser.frame_s, posteriors, attention, steps)


def _posteriors(log_probs: Tensor, symbols: Sequence[str], blank: int) -> Map:
    """``log_probs (frames, symbols)``: those that are heard somewhere, in the order in which they are; blank last."""
    probs = log_probs.exp().numpy()
    most = probs.max(0)
    seen = [n for n in np.argsort(-most)[: MOST_SYMBOLS + 1].tolist() if most[n] >= SEEN and n != blank]
    seen = sorted(seen, key=lambda n: int(probs[:, n].argmax()))[:MOST_SYMBOLS]
    rows = [*seen, blank]
    names = ["␣" if symbols[n] == " " else symbols[n] for n in seen]
    return Map((*names, BLANK), probs[:, rows].T.astype(np.float32))


def _attention(weights: Tensor, names: Sequence[str]) -> Map:
    """``weights (written, frames)``; the most that any frame gets is 1 in the picture."""
    values = weights.numpy().astype(np.float32)
    return Map(tuple(names), values / max(1e-6, float(values.max())))


def _with_ends(steps: list[list[Live]], found: Sequence[Found]) -> list[list[Live]]:
    """A search that is over does not look at what ended last: the texts that it found, where they are not there yet."""
    known = {one.tokens for step in steps for one in step if one.ended}
    late = [Live(one.tokens, one.log_probs[0], True) for one in found if one.tokens not in known]
    for one in late:
        place = len(one.tokens) + 1
        if place == len(steps):
            steps.append([])
        if place < len(steps):
            steps[place] = sorted([*steps[place], one], key=lambda live: -live.score)
    return steps


def _steps(traced: list[list[Live]], spell: Spell, frame_s: float | None = None) -> tuple[Step, ...]:
    """Beams as texts; of frames, those after which other prefixes lead."""
    kept = [(number, step) for number, step in enumerate(traced) if step]
    if frame_s is not None:
        new = [after for before, after in pairwise(kept) if _tokens(before[1]) != _tokens(after[1])]
        kept = [*kept[:1], *new]
    made, before = [], dict[tuple[tuple[int, ...], bool], int]()
    for number, step in kept:
        parents = []
        for one in step:
            ways = [one.tokens] if one.ended else [one.tokens, one.tokens[:-1]]
            parents.append(next((before[way, False] for way in ways if (way, False) in before), -1))
        time = None if frame_s is None else round((number + 1) * frame_s, 3)
        texts, scores = tuple(spell(one.tokens) for one in step), tuple(round(one.score, 3) for one in step)
        made.append(Step(texts, scores, tuple(one.ended for one in step), tuple(parents), time))
        before = {(one.tokens, one.ended): place for place, one in enumerate(step)}
    return tuple(made)


def _tokens(step: Sequence[Live]) -> list[Any]:
    return [one.tokens for one in step]
