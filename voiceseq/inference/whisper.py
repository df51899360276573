"""Whisper at work: pieces of sound to words, by its decoder, by its CTC head (where it was taught one), or by both.

| decoder | what it does |
|---|---|
| ``greedy`` | the most probable piece at each step |
| ``beam`` | beam search, with hotwords; its n best are ordered anew by a language model where there is one |
| ``ctc`` | the best character of each frame |
| ``rescore`` | the n best of ``beam``, ordered anew with CTC's opinion |

A decoder that hears nothing likes to make something up. So what it writes is limited by the length of the sound, and a
text that it is not sure of, or that says the same again and again, is dropped where silence is likely.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from voiceseq.audio.resample import finite
from voiceseq.bundles import Bundle
from voiceseq.core.alignment import forced_align
from voiceseq.core.ctc import ctc_greedy, ctc_loss
from voiceseq.core.scorers import PhraseBooster, StepScorer, TokenBonus
from voiceseq.core.search import Hypothesis as Found
from voiceseq.core.search import Scorers, beam_search, score_sequence
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.inference.language_models import bundle_lm, read_lm, text_log_prob
from voiceseq.inference.opening import open_vocabulary
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis, Samples, Word
from voiceseq.inference.spelling import Spelling
from voiceseq.models.acoustic import LM_FILE
from voiceseq.models.whisper import FRAME_S, Memory, WhisperConfig, WhisperNetwork
from voiceseq.text.ngram import NgramModel
from voiceseq.text.normalise import normalise
from voiceseq.text.pieces import ROLES, Pieces
from voiceseq.text.vocabulary import Vocabulary

DECODERS = ("greedy", "beam")
CTC_DECODERS = ("ctc", "rescore")
BATCH_S = 120.0  # of sound, padding included, that goes through the network at once
ALIKE = 1.3  # the longest piece of a batch is at most so much longer than the shortest: padding is work, too
SILENCE = 10 ** (-75 / 20)  # a piece that is nowhere louder holds no speech
PIECES_PER_S, FEW_PIECES = 8.0, 8  # more than that nobody says
REPETITIVE = 2.4  # a text that packs better than this says the same again and again
# What short noises sound like; said by itself and unsurely it is one. "uh huh" and "mm hmm" are answers.
HESITATIONS, HESITANT = frozenset(("hm", "hmm", "mm", "um", "uh", "er", "ah", "oh")), math.log(0.8)
NOTHING = Hypothesis("", 0.0, ())
CTC_ALONE = (0.0,)  # what the decoder thinks of a text that CTC found by itself: it was not asked


@dataclass(frozen=True)
class WhisperSettings:
    """A bundle's own choices, where the user makes none.

    Args:
        ctc_weight: CTC's share against the decoder in ``rescore``.
        least_log_prob: mean of a piece, in nats, below which a text is dropped if ``no_speech`` is this probable.
        longest_s: pieces of sound as long as this are understood.

    Raises:
        ConfigError: numbers out of their range.
    """

    decoder: str = "greedy"
    beam: int = 5
    lm_weight: float = 0.3
    hotword_weight: float = 1.5
    ctc_weight: float = 0.3
    least_log_prob: float = -1.0
    no_speech: float = 0.6
    longest_s: float = 30.0
    language: str = "en"

    def __post_init__(self) -> None:
        if self.decoder not in (*DECODERS, *CTC_DECODERS):
            raise ConfigError(f"decoder is {self.decoder!r}; choose one of {', '.join((*DECODERS, *CTC_DECODERS))}")
        if self.beam < 1 or not 0 <= self.ctc_weight <= 1 or not 1 <= self.longest_s <= 30:
            raise ConfigError(
                f"beam {self.beam}, ctc_weight {self.ctc_weight}, longest_s {self.longest_s}: 1 or more, 0 to 1 and "
                "1 to 30 were wanted"
            )


@dataclass(frozen=True)
class Heard:
    """What the encoder made of some pieces: ``frames (batch, time, size)``, CTC's log-probabilities where it has any.

    ``seconds`` are those of the sound, ``lengths`` the frames with the silence after it.
    """

    frames: Tensor
    lengths: Tensor
    seconds: Tensor
    log_probs: Tensor | None

    def row(self, number: int) -> Tensor:
        """The frames of one piece, ``(1, time, size)``."""
        return self.frames[number : number + 1, : int(self.lengths[number])]


Read = Callable[[Heard], list[list[Found]]]


class WhisperRecogniser:
    """A ``Recogniser``."""

    def __init__(
        self,
        network: WhisperNetwork,
        pieces: Pieces,
        letters: Vocabulary | None = None,
        settings: WhisperSettings | None = None,
        name: str = "whisper",
        lm: NgramModel | None = None,
    ) -> None:
        self.network, self.pieces, self.name, self.lm = network.light(), pieces, name, lm
        self.settings = settings or WhisperSettings()
        self.language, self.longest_s = self.settings.language, self.settings.longest_s
        self.letters = letters
        self.spelling = Spelling(letters) if letters is not None else None
        self.end, self.start = pieces.specials["end"], pieces.specials["start"]
        self.first = pieces.specials["no_timestamps"]
        self.ban = banned(pieces)
        have = DECODERS if letters is None else (*DECODERS, *CTC_DECODERS)
        default = self.settings.decoder if self.settings.decoder in have else "greedy"
        self.decoders = (default, *(one for one in have if one != default))
        self._lm = lru_cache(maxsize=2)(read_lm)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError when weights, config and vocabularies do not belong together."""
        network = bundle.network(WhisperNetwork, WhisperConfig)
        pieces = open_pieces(bundle, network.config.symbols)
        letters = None
        if network.config.characters:
            letters = open_vocabulary(bundle, "letters", network.config.characters, lambda one: one.special("blank"))
        lm = bundle_lm(bundle) if LM_FILE in bundle.files else None
        return cls(network, pieces, letters, bundle.decoding_as(WhisperSettings), bundle.name or bundle.path.stem, lm)

    def recognise(self, pieces: Sequence[Samples], decoding: Decoding) -> list[list[Hypothesis]]:
        """As ``Recogniser.recognise``. Raises InputError for a decoder that it lacks and settings that one ignores."""
        read = self.reader(decoding)
        answers = [[NOTHING]] * len(pieces)
        for rows in self._batches(pieces):
            heard = self.hear([pieces[row] for row in rows])
            for row, answer in zip(rows, self.answers(heard, read), strict=True):
                answers[row] = answer
        return answers

    @torch.no_grad()
    def hear(self, pieces: Sequence[Samples]) -> Heard:
        """The encoder on pieces that are not empty: on each alone, which a processor's cache likes better than all at
        once; the decoder's matrices are read for all of them together."""
        waves = [torch.from_numpy(np.ascontiguousarray(finite(piece)[0], dtype=np.float32)) for piece in pieces]
        counts = torch.tensor([len(wave) for wave in waves])
        alone = [self.network.listen(wave[None])[0][0] for wave in waves]
        frames, lengths = pad_sequence(alone, batch_first=True), torch.tensor([len(one) for one in alone])
        log_probs = self.network.characters(frames) if self.letters is not None else None
        return Heard(frames, lengths, counts / SAMPLE_RATE, log_probs)

    @torch.no_grad()
    def answers(self, heard: Heard, read: Read) -> list[list[Hypothesis]]:
        """Texts with their words' times and confidences."""
        return [[self._hypothesis(heard, row, one) for one in found] for row, found in enumerate(read(heard))]

    def reader(self, decoding: Decoding) -> Read:
        """The search that the settings ask for, as a function. Raises InputError for those that cannot be."""
        decoder, wide = decoding.decoder, decoding.nbest > 1 or decoding.hotwords or decoding.lm is not None
        if decoder is None:
            decoder = "beam" if wide and self.decoders[0] in ("greedy", "ctc") else self.decoders[0]
        if decoder not in self.decoders:
            raise InputError(f"{self.name} has no decoder {decoder!r}; choose one of {', '.join(self.decoders)}")
        if decoder in ("greedy", "ctc") and wide:
            raise InputError(f"the {decoder} decoder has one reading, no hotwords and no language model; choose beam")
        if decoder == "ctc":
            return self._ctc
        if decoder == "greedy":
            return lambda heard: self.search(heard, decoding, 1, 1)
        beam = self.settings.beam if decoding.beam is None else decoding.beam
        if beam < 1 or decoding.nbest < 1:
            raise InputError(f"beam {beam} and nbest {decoding.nbest} came; both want to be 1 or more")
        return self._beam(decoding, max(beam, decoding.nbest), self.settings.ctc_weight if decoder == "rescore" else 0)

    # --- the searches ------------------------------------------------------------------------------------------------

    def _ctc(self, heard: Heard) -> list[list[Found]]:
        """Characters, as pieces: so that all that follows is the same."""
        assert heard.log_probs is not None
        assert self.letters is not None
        found = []
        for best in ctc_greedy(heard.log_probs, heard.lengths, self.letters.special("blank")):
            text = " ".join(self.letters.decode(best.tokens).split())
            tokens = tuple(self.pieces.encode(f" {text}")) if text else ()
            found.append([Found(tokens, best.score, CTC_ALONE, True)])
        return found

    def _beam(self, decoding: Decoding, beam: int, ctc_weight: float) -> Read:
        if decoding.lm is not None:
            self._lm(decoding.lm)  # a file that is none is told before anything is heard

        def read(heard: Heard) -> list[list[Found]]:
            answers, silent = [], self._silent(heard)
            for row, found in enumerate(self.search(heard, decoding, beam, beam)):
                scores = self._judged(heard, row, found, decoding, ctc_weight)
                # the search believed its own best one: what has come before it is judged again
                answers.append(self._believed(heard, row, ordered(found, scores, decoding.nbest), silent[row]))
            return answers

        return read

    def _judged(
        self, heard: Heard, row: int, found: Sequence[Found], decoding: Decoding, ctc_weight: float
    ) -> list[float]:
        """The scores by which the n best are ordered anew: the decoder's, with CTC's and the language model's."""
        lm = self._lm(decoding.lm) if decoding.lm is not None else self.lm
        weight = self.settings.lm_weight if decoding.lm_weight is None else decoding.lm_weight
        scores = [one.score for one in found]
        if ctc_weight:
            heard_as = self._ctc_scores(heard, row, found)
            scores = [(1 - ctc_weight) * a + ctc_weight * b for a, b in zip(scores, heard_as, strict=True)]
        if lm is not None and weight:
            texts = [self._text(one) for one in found]
            said = [text_log_prob(lm, text) / max(1, len(text.split())) for text in texts]
            scores = [score + weight * one for score, one in zip(scores, said, strict=True)]
        return scores

    @torch.no_grad()
    def score_texts(self, piece: Samples, texts: Sequence[str], decoding: Decoding) -> list[float]:
        """What the search that is asked for thinks of given texts (in small letters): what error analysis compares."""
        heard, decoder = self.hear([piece]), decoding.decoder or self.decoders[0]
        found = []
        for text in texts:
            tokens = self.pieces.encode(f" {text}") if text else []
            _, scorers = self._begin(heard)
            alpha = 0.0 if decoder == "greedy" else 1.0
            (scored,) = score_sequence(scorers, [tokens], self.first, self.end, alpha=alpha)
            found.append(replace(scored, tokens=tuple(tokens)))
        if decoder == "greedy":
            return [one.score for one in found]
        if decoder == "ctc":
            means = self._ctc_scores(heard, 0, found)
            return [mean * (len(one.tokens) + 1) for mean, one in zip(means, found, strict=True)]
        return self._judged(heard, 0, found, decoding, self.settings.ctc_weight if decoder == "rescore" else 0)

    def _begin(self, heard: Heard) -> tuple[Tensor, Scorers]:
        """What the decoder says first, of silence among others; and who scores the pieces that follow."""
        memory: Memory = self.network.start(heard.frames, heard.lengths)
        log_probs, caches = self.network.step(torch.full((len(heard.lengths),), self.start), None, memory)
        return log_probs, [(StepScorer(self.network.step, caches, memory), 1.0), (TokenBonus(self.ban), 1.0)]

    def search(
        self,
        heard: Heard,
        decoding: Decoding,
        beam: int,
        nbest: int,
        around: Callable[[Scorers], Scorers] | None = None,
    ) -> list[list[Found]]:
        """Beam search for texts of the highest mean log-probability; where nobody speaks, no text.

        ``around`` may put something in the place of the scorers, to watch them.
        """
        rows = len(heard.lengths)
        log_probs, scorers = self._begin(heard)
        silent = self._silent(heard, log_probs)
        if decoding.hotwords:
            scorers = [*scorers, (self._booster(decoding), 1.0)]
        scorers = around(scorers) if around is not None else scorers
        room = self.network.config.text_positions - 2
        limit = (heard.seconds * PIECES_PER_S + FEW_PIECES).long().clamp(max=room)
        found = beam_search(
            scorers,
            rows,
            self.first,
            self.end,
            beam=beam,
            nbest=nbest,
            max_length=limit,
            alpha=1.0 if beam > 1 else 0.0,
        )
        return [
            self._believed(heard, row, some, quiet) for row, (some, quiet) in enumerate(zip(found, silent, strict=True))
        ]

    def _silent(self, heard: Heard, log_probs: Tensor | None = None) -> list[float]:
        """How probable it is that nobody speaks: where CTC hears no character, else what the decoder says of it in
        its first ``log_probs``."""
        if heard.log_probs is not None and self.letters is not None:
            found = ctc_greedy(heard.log_probs, heard.lengths, self.letters.special("blank"))
            return [0.0 if best.tokens else 1.0 for best in found]
        if log_probs is None:
            return [0.0] * len(heard.lengths)
        return log_probs[:, self.pieces.specials["no_speech"]].exp().tolist()

    def _believed(self, heard: Heard, row: int, found: list[Found], no_speech: float) -> list[Found]:
        """Readings, best first, if the best one was said."""
        return found if self._believable(found[0], no_speech) else [self._instead(heard, row, found[0])]

    def _believable(self, found: Found, no_speech: float) -> bool:
        """Whether a text was said, rather than made up over silence, noise or music."""
        if not found.tokens:
            return True
        text = self._text(found)
        if repetitive(text):
            return False
        mean = found.log_probs[0] / (len(found.tokens) + 1)
        if mean < HESITANT and text in HESITATIONS:
            return False
        return mean >= self.settings.least_log_prob or no_speech < self.settings.no_speech

    def _instead(self, heard: Heard, row: int, found: Found) -> Found:
        """Where a text is not believed: CTC's, which cannot run in circles, if the decoder does; else none."""
        if heard.log_probs is not None and repetitive(self._text(found)):
            return self._ctc(heard)[row][0]
        return Found((), 0.0, (0.0,), True)

    def _booster(self, decoding: Decoding) -> PhraseBooster:
        phrases = []
        for word in decoding.hotwords:
            spelt = normalise(word)
            if not spelt:
                raise InputError(f"the hotword {word!r} has no letters; give words as they are said")
            phrases += [self.pieces.encode(f" {text}") for text in dict.fromkeys((spelt, spelt.title()))]
        boost = self.settings.hotword_weight if decoding.hotword_weight is None else decoding.hotword_weight
        return PhraseBooster(phrases, len(self.pieces), self.end, boost)

    def _ctc_scores(self, heard: Heard, row: int, found: Sequence[Found]) -> list[float]:
        """CTC's log-probability of each text, for each piece of it."""
        assert heard.log_probs is not None
        assert self.letters is not None
        log_probs = heard.log_probs[row : row + 1, : int(heard.lengths[row])]
        scores = []
        for one in found:
            spelt = torch.tensor([self._letters(self._text(one))], dtype=torch.long)
            loss = ctc_loss(log_probs, spelt, blank=self.letters.special("blank"), impossible="skip")
            whole = -float(loss.loss) * max(1, spelt.shape[1]) if not loss.skipped else -math.inf
            scores.append(whole / (len(one.tokens) + 1))
        return scores

    # --- words -------------------------------------------------------------------------------------------------------

    def _text(self, found: Found) -> str:
        return " ".join(self.pieces.decode(found.tokens).split())

    def _letters(self, text: str) -> list[int]:
        """What CTC can say of a text."""
        assert self.letters is not None
        return self.letters.encode("".join(one for one in text.lower() if one in self.letters))

    def _hypothesis(self, heard: Heard, row: int, found: Found) -> Hypothesis:
        text = self._text(found)
        if not text:
            return Hypothesis("", float(found.score), ())
        if heard.log_probs is not None and self.spelling is not None and self.letters is not None:
            log_probs, blank = heard.log_probs[row, : int(heard.lengths[row])], self.letters.special("blank")
            timed = self.spelling.hypothesis(self._letters(text), found.score, log_probs, FRAME_S, blank)
            return timed if found.log_probs == CTC_ALONE else self._surer(heard, row, found, timed)
        return Hypothesis(text, float(found.score), self._attended(heard, row, found))

    @torch.no_grad()
    def weights(self, heard: Heard, row: int, found: Found) -> Tensor:
        """``(heads, pieces, frames)``: where the upper half of the decoder's layers listened for each piece."""
        tokens = torch.tensor([[self.start, self.first, *found.tokens]])
        frames, length = heard.row(row), heard.lengths[row : row + 1]
        weights = self.network.decoder.memory_weights(self.network.embedding(tokens), frames, length)
        last = max(1, math.ceil(float(heard.seconds[row]) / FRAME_S))
        return weights[0, weights.shape[1] // 2 :, :, 1:-1, :last].flatten(0, 1)

    def _surer(self, heard: Heard, row: int, found: Found, timed: Hypothesis) -> Hypothesis:
        """The words with CTC's times, as sure as the decoder is of them: it is the better judge of what it wrote."""
        groups = word_groups(self.pieces, found.tokens)
        if len(groups) != len(timed.words):
            return timed
        sure = self._sure(heard, row, found)
        means = [math.prod(sure[begin:end]) ** (1 / (end - begin)) for begin, end in groups]
        words = [replace(word, confidence=mean) for word, mean in zip(timed.words, means, strict=True)]
        return replace(timed, words=tuple(words))

    def _sure(self, heard: Heard, row: int, found: Found) -> list[float]:
        """The decoder's probability of each piece that it wrote, or that CTC did."""
        if found.each:
            return [math.exp(one) for one in found.each]
        tokens = torch.tensor([[self.start, self.first, *found.tokens]])
        logits = self.network(heard.row(row), heard.lengths[row : row + 1], tokens)[0, 1:-1]
        return logits.log_softmax(-1).gather(1, tokens[0, 2:, None])[:, 0].exp().tolist()

    def _attended(self, heard: Heard, row: int, found: Found) -> tuple[Word, ...]:
        """Words at the frames to which the decoder listened when it wrote them, as sure as it was of their pieces."""
        sure = self._sure(heard, row, found)
        spans = listened(self.weights(heard, row, found))
        words = []
        for begin, end in word_groups(self.pieces, found.tokens):
            text = self.pieces.decode(found.tokens[begin:end]).strip()
            if text:
                times = spans[begin][0] * FRAME_S, spans[end - 1][1] * FRAME_S
                words.append(Word(text, *times, math.prod(sure[begin:end]) ** (1 / (end - begin))))
        return tuple(words)

    # --- batches -----------------------------------------------------------------------------------------------------

    def _batches(self, pieces: Sequence[Samples]) -> list[list[int]]:
        """Rows of about equal length that fit into a batch; those in which nothing can be heard are in none."""
        whole = self.network.config.tail_s is None
        rows = [row for row, piece in enumerate(pieces) if audible(piece)]
        batches: list[list[int]] = []
        for row in sorted(rows, key=lambda row: len(pieces[row])):
            seconds = 30.0 if whole else len(pieces[row]) / SAMPLE_RATE
            alike = batches and (whole or len(pieces[row]) <= ALIKE * len(pieces[batches[-1][0]]))
            if alike and seconds * (len(batches[-1]) + 1) <= BATCH_S:
                batches[-1].append(row)
            else:
                batches.append([row])
        return batches


def audible(piece: Samples) -> bool:
    """Whether a piece has any sound. Raises InputError for more than one channel."""
    if piece.ndim != 1:
        raise InputError(f"a piece has shape {piece.shape}; one channel (n,) was wanted")
    return len(piece) > 0 and bool(np.abs(np.nan_to_num(piece, posinf=0.0, neginf=0.0)).max() > SILENCE)


def repetitive(text: str) -> bool:
    """Whether a text packs so well that it must say the same again and again."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) > REPETITIVE


def banned(pieces: Pieces) -> Tensor:
    """``(pieces,)``: 0 for what may be written, -inf for other special pieces, and signs that are no punctuation."""
    ban = torch.full((len(pieces),), -torch.inf)
    for number, symbol in enumerate(pieces.symbols):
        text = symbol.decode("utf-8", "ignore").strip()
        if not text or any(one.isalnum() for one in text) or all(one in ".,?!'-$%&:;" for one in text):
            ban[number] = 0.0
    ban[pieces.specials["end"]] = 0.0
    return ban


def word_groups(pieces: Pieces, tokens: Sequence[int]) -> list[tuple[int, int]]:
    """From where to where the pieces of each word go."""
    begins = [place for place, token in enumerate(tokens) if place == 0 or pieces.begins_word(token)]
    return list(pairwise([*begins, len(tokens)]))


def listened(weights: Tensor) -> list[tuple[int, int]]:
    """``weights (heads, pieces, frames)`` -> the frames of each piece, one after the other.

    How much more a frame is listened to for one piece than for the others, in the mean of the heads, is as good as a
    log-probability: the best path goes through all pieces in their order.
    """
    spread = (weights - weights.mean(1, keepdim=True)) / weights.std(1, keepdim=True, correction=0).clamp(min=1e-6)
    scores = spread.mean(0).T
    count = scores.shape[1]
    if count > len(scores):  # more pieces than frames
        edges = np.linspace(0, len(scores), count + 1).astype(int).tolist()
        return list(pairwise(edges))
    never = torch.full((len(scores), 1), -1e4)
    spans = forced_align(torch.cat((never, scores.float()), 1).log_softmax(-1), list(range(1, count + 1)))
    return [(span.start, span.end) for span in spans]


def ordered(found: Sequence[Found], scores: Sequence[float], nbest: int) -> list[Found]:
    """The hypotheses with their new scores, best first."""
    new = [replace(one, score=score) for one, score in zip(found, scores, strict=True)]
    return sorted(new, key=lambda one: -one.score)[:nbest]


def open_pieces(bundle: Bundle, size: int) -> Pieces:
    """The pieces of a bundle, as many as its network has. Raises BundleError."""
    if "pieces" not in bundle.vocabularies:
        raise BundleError(f"{bundle.path} holds no vocabulary 'pieces'; a {bundle.kind} wants one: get it again")
    try:
        pieces = Pieces.from_json(bundle.vocabularies["pieces"])
        if missing := [role for role in ROLES if role not in pieces.specials]:
            raise InputError(f"no pieces have the roles {', '.join(missing)}")
    except InputError as error:
        raise BundleError(f"{bundle.path}: vocabularies/pieces.json: {error}") from error
    if len(pieces) != size:
        raise BundleError(f"{bundle.path}: {len(pieces)} pieces and a network of {size} do not belong together")
    return pieces
