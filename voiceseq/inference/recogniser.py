"""An acoustic model at work: pieces of sound to words, by CTC, by its attention decoder, or by both.

| decoder | what it does |
|---|---|
| ``greedy`` | the best symbol of each frame |
| ``beam`` | CTC prefix beam search, with n-gram model and hotwords where there are any |
| ``attention`` | beam search in the attention decoder alone |
| ``joint`` | one beam search under decoder and CTC together |
| ``rescore`` | the n best of ``beam``, ordered anew with the attention decoder's opinion |

Whatever found a text, its times and confidences are those of CTC's best path through it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from voiceseq.audio.resample import finite
from voiceseq.bundles import Bundle
from voiceseq.core.ctc import ctc_greedy
from voiceseq.core.ctc_scorer import CTCPrefixScorer
from voiceseq.core.prefix import Fusion, prefix_beam_search, score_strings
from voiceseq.core.scorers import PhraseBooster, StepScorer, TokenBonus
from voiceseq.core.search import Hypothesis as Found
from voiceseq.core.search import Scorers, beam_search
from voiceseq.errors import ConfigError, InputError
from voiceseq.inference.language import LanguageModel
from voiceseq.inference.language_models import LetterScorer, bundle_lm, read_lm
from voiceseq.inference.listening import SpeechStream
from voiceseq.inference.opening import open_vocabulary
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis, Samples
from voiceseq.inference.spelling import Spelling
from voiceseq.models.acoustic import LM_FILE, AcousticConfig, AcousticNetwork, AcousticOutput
from voiceseq.models.decoders import SpeechDecoder
from voiceseq.models.whisper_stream import build_acoustic
from voiceseq.text.ngram import NgramModel
from voiceseq.text.normalise import normalise
from voiceseq.text.vocabulary import Vocabulary

CTC_DECODERS = ("greedy", "beam")
ALL_DECODERS = (*CTC_DECODERS, "attention", "joint", "rescore")
BATCH_S = 240.0  # of sound, padding included, that goes through the network at once
LONGEST_S = 30.0
NOTHING = Hypothesis("", 0.0, ())


@dataclass(frozen=True)
class SearchSettings:
    """A bundle's own choices, where the user makes none.

    ``ctc_weight`` is CTC's (with language model) share against the attention decoder. Where a language model counts,
    every word is given ``word_bonus``, and one that it does not know ``lm_weight * unknown``. Raises ConfigError for
    numbers out of their range.
    """

    decoder: str = "greedy"
    beam: int = 8
    lm_weight: float = 0.5
    word_bonus: float = 1.0
    unknown: float = -10.0
    hotword_weight: float = 1.5
    ctc_weight: float = 0.5
    language: str = "en"

    def __post_init__(self) -> None:
        if self.decoder not in ALL_DECODERS:
            raise ConfigError(f"decoder is {self.decoder!r}; choose one of {', '.join(ALL_DECODERS)}")
        if self.beam < 1 or not 0 <= self.ctc_weight <= 1 or self.lm_weight < 0:
            raise ConfigError(
                f"beam {self.beam}, ctc_weight {self.ctc_weight}, lm_weight {self.lm_weight}: 1 or more, 0 to 1 and 0 "
                "or more were wanted"
            )


@dataclass(frozen=True)
class Heard:
    """What the network made of some pieces: CTC's ``log_probs (batch, time, symbols)``, the encoder's frames."""

    log_probs: Tensor
    frames: Tensor
    lengths: Tensor


Read = Callable[[Heard], list[list[Found]]]


class AcousticRecogniser:
    """A ``Recogniser``; with a causal network also a ``LiveRecogniser``."""

    longest_s = LONGEST_S

    def __init__(
        self,
        network: AcousticNetwork,
        vocabulary: Vocabulary,
        settings: SearchSettings | None = None,
        lm: NgramModel | None = None,
        name: str = "recogniser",
    ) -> None:
        self.network, self.vocabulary, self.name = network.eval(), vocabulary, name
        self.settings, self.lm = settings or SearchSettings(), lm
        self.spelling = Spelling(vocabulary)
        self.blank, self.eos = vocabulary.special("blank"), vocabulary.special("eos")
        self.language = self.settings.language
        have = CTC_DECODERS if network.decoder is None else ALL_DECODERS
        default = self.settings.decoder if self.settings.decoder in have else "beam"
        self.decoders = (default, *(one for one in have if one != default))
        self._read_lm = lru_cache(maxsize=2)(read_lm)
        self._fusion = lru_cache(maxsize=4)(self._build_fusion)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError when weights, config, vocabulary and language model do not belong together."""
        network = bundle.network(build_acoustic, AcousticConfig)
        vocabulary = open_vocabulary(bundle, "text", network.config.symbols, check=_roles)
        settings = bundle.decoding_as(SearchSettings)
        lm = bundle_lm(bundle) if LM_FILE in bundle.files else None
        return cls(network, vocabulary, settings, lm, bundle.name or bundle.path.stem)

    @property
    def frame_s(self) -> float:
        return self.network.frame_s

    def recognise(self, pieces: Sequence[Samples], decoding: Decoding) -> list[list[Hypothesis]]:
        """As ``Recogniser.recognise``. Raises InputError for a decoder that it lacks and settings that one ignores."""
        read = self.reader(decoding)
        answers = [[NOTHING]] * len(pieces)
        for rows in self._batches(pieces):
            heard = self.hear([pieces[row] for row in rows])
            for row, answer in zip(rows, self.answers(heard, read), strict=True):
                answers[row] = answer
        return answers

    def stream(self, sample_rate: int = SAMPLE_RATE, decoding: Decoding | None = None) -> SpeechStream:
        """A live listener. Raises InputError where the network needs the whole utterance."""
        if not self.network.encoder.causal:
            raise InputError(f"{self.name} needs whole utterances; a live stream wants a causal or chunked model")
        if decoding is None:
            decoding = Decoding(decoder="beam" if self.lm is not None else "greedy")
        return SpeechStream(self.network, self.spelling, self.blank, self._live_reader(decoding), sample_rate)

    @torch.no_grad()
    def hear(self, pieces: Sequence[Samples]) -> Heard:
        """The network on pieces of at least a window."""
        waves = [torch.from_numpy(np.ascontiguousarray(finite(piece)[0], dtype=np.float32)) for piece in pieces]
        lengths = torch.tensor([len(wave) for wave in waves])
        output: AcousticOutput = self.network(pad_sequence(waves, batch_first=True), lengths)
        return Heard(output.logits.log_softmax(-1), output.frames, output.lengths)

    @torch.no_grad()
    def answers(self, heard: Heard, read: Read) -> list[list[Hypothesis]]:
        """Texts with their words' times and confidences."""
        rows = zip(read(heard), heard.log_probs, heard.lengths.tolist(), strict=True)
        frame_s, blank = self.frame_s, self.blank
        return [
            [self.spelling.hypothesis(one.tokens, one.score, log_probs[:length], frame_s, blank) for one in found]
            for found, log_probs, length in rows
        ]

    def reader(self, decoding: Decoding) -> Read:
        """The search that the settings ask for, as a function. Raises InputError for those that cannot be."""
        decoder = decoding.decoder
        wide = decoding.nbest > 1 or decoding.hotwords or decoding.lm is not None
        if decoder is None:
            decoder = "beam" if wide and self.decoders[0] == "greedy" else self.decoders[0]
        if decoder not in self.decoders:
            raise InputError(f"{self.name} has no decoder {decoder!r}; choose one of {', '.join(self.decoders)}")
        if decoder == "greedy":
            if wide:
                raise InputError("the greedy decoder has one reading, no hotwords and no language model; choose beam")
            return self._greedy
        beam = self.settings.beam if decoding.beam is None else decoding.beam
        if beam < 1 or decoding.nbest < 1:
            raise InputError(f"beam {beam} and nbest {decoding.nbest} came; both want to be 1 or more")
        searches = {"beam": self._beam, "rescore": self._rescore, "joint": self._joint, "attention": self._attention}
        return searches[decoder](decoding, max(beam, decoding.nbest))

    # --- the searches ------------------------------------------------------------------------------------------------

    def _greedy(self, heard: Heard) -> list[list[Found]]:
        best = ctc_greedy(heard.log_probs, heard.lengths, self.blank)
        return [[Found(tuple(one.tokens), one.score, (one.score,), True)] for one in best]

    def _beam(self, decoding: Decoding, beam: int, nbest: int | None = None) -> Read:
        options: dict[str, Any] = {"blank": self.blank, "beam": beam, "nbest": nbest or decoding.nbest}
        options |= {"fusion": self.fusion(decoding), "scorers": self.scorers(decoding)}
        options |= {"start": self.eos, "end": self.eos}
        return lambda heard: prefix_beam_search(heard.log_probs, heard.lengths, **options)

    def _rescore(self, decoding: Decoding, beam: int) -> Read:
        first, share = self._beam(decoding, beam, nbest=beam), self.settings.ctc_weight

        def read(heard: Heard) -> list[list[Found]]:
            answers = []
            for row, found in enumerate(first(heard)):
                both = zip(found, self._written(heard, row, found), strict=True)
                scores = [share * one.score + (1 - share) * written for one, written in both]
                answers.append(_ordered(found, scores, decoding.nbest))
            return answers

        return read

    def _attention(self, decoding: Decoding, beam: int) -> Read:
        def read(heard: Heard) -> list[list[Found]]:
            return self._search(heard, [(self._decoder_scorer(heard), 1.0)], decoding, beam, decoding.nbest, alpha=1.0)

        return read

    def _joint(self, decoding: Decoding, beam: int) -> Read:
        share = self.settings.ctc_weight
        models = self.fusion(decoding, phrases=False), self.scorers(decoding)

        def read(heard: Heard) -> list[list[Found]]:
            ctc = CTCPrefixScorer(heard.log_probs.clamp(min=-1e4), heard.lengths, self.blank, self.eos)
            scorers: Scorers = [(self._decoder_scorer(heard), 1 - share), (ctc, share)]
            found = self._search(heard, scorers, decoding, beam, beam)
            return [self._with_lm(heard, row, some, models, decoding.nbest) for row, some in enumerate(found)]

        return read

    def _search(
        self, heard: Heard, scorers: Scorers, decoding: Decoding, beam: int, nbest: int, alpha: float = 0.0
    ) -> list[list[Found]]:
        ban = torch.zeros(len(self.vocabulary))
        ban[self.blank] = -torch.inf
        more: Scorers = [*scorers, (TokenBonus(ban), 1.0)]
        if decoding.hotwords:
            phrases, boost = self._phrases(decoding.hotwords), self._boost(decoding)
            booster = PhraseBooster(phrases, len(self.vocabulary), self.eos, boost, self.spelling.separator)
            more = [*more, (booster, 1.0)]
        settings = {"beam": beam, "nbest": nbest, "alpha": alpha, "max_length": heard.lengths}
        return beam_search(more, len(heard.lengths), self.eos, self.eos, **settings)  # type: ignore[arg-type]

    def _decoder_scorer(self, heard: Heard) -> StepScorer:
        decoder = self._decoder()
        return StepScorer(decoder.step, *decoder.start(heard.frames, heard.lengths))

    def _decoder(self) -> SpeechDecoder:
        assert self.network.decoder is not None  # who has none does not offer what asks for it
        return self.network.decoder

    def _written(self, heard: Heard, row: int, found: Sequence[Found]) -> list[float]:
        """The attention decoder's log-probability of each text, its end included."""
        length = int(heard.lengths[row])
        frames = heard.frames[row : row + 1, :length].expand(len(found), -1, -1)
        texts = [torch.tensor([self.eos, *one.tokens, self.eos]) for one in found]
        lengths = torch.tensor([len(text) - 1 for text in texts])
        tokens = pad_sequence(texts, batch_first=True, padding_value=self.eos)
        logits = self._decoder()(tokens[:, :-1], frames, torch.full((len(found),), length), lengths)
        log_probs = logits.log_softmax(-1).gather(2, tokens[:, 1:, None]).squeeze(2)
        valid = torch.arange(log_probs.shape[1]) < lengths[:, None]
        return log_probs.masked_fill(~valid, 0.0).sum(1).tolist()

    def _with_lm(
        self, heard: Heard, row: int, found: Sequence[Found], models: tuple[Fusion | None, Scorers], nbest: int
    ) -> list[Found]:
        """The best texts under what found them and, with CTC's share, the language model."""
        fusion, scorers = models
        if fusion is None:
            return list(found[:nbest])
        log_probs, scores = heard.log_probs[row : row + 1, : int(heard.lengths[row])], []
        options = {"blank": self.blank, "fusion": fusion, "scorers": scorers, "start": self.eos, "end": self.eos}
        for one in found:
            scored = score_strings(log_probs, None, [one.tokens], **options)[0]  # type: ignore[arg-type]
            scores.append(one.score + self.settings.ctc_weight * (scored.score - scored.log_probs[0]))
        return _ordered(found, scores, nbest)

    # --- language model and hotwords ---------------------------------------------------------------------------------

    def fusion(self, decoding: Decoding, phrases: bool = True) -> Fusion | None:
        """N-gram model (the user's, else the bundle's own) and hotwords as the prefix search takes them."""
        weight = self._lm_weight(decoding)
        hotwords = decoding.hotwords if phrases else ()
        if not hotwords and (not weight or (decoding.lm is None and self.lm is None)):
            return None
        return self._fusion(decoding.lm, weight, hotwords, self._boost(decoding))

    def scorers(self, decoding: Decoding) -> Scorers:
        """The user's language model where it is a neural one; it takes the place of the bundle's own."""
        weight = self._lm_weight(decoding)
        model = self._read_lm(decoding.lm) if decoding.lm is not None and weight else None
        return [(LetterScorer(model, self.vocabulary), weight)] if isinstance(model, LanguageModel) else []

    def _lm_weight(self, decoding: Decoding) -> float:
        return self.settings.lm_weight if decoding.lm_weight is None else decoding.lm_weight

    def _build_fusion(self, lm: str | None, weight: float, hotwords: tuple[str, ...], boost: float) -> Fusion:
        any_model = self.lm if lm is None else self._read_lm(lm)
        model = any_model if isinstance(any_model, NgramModel) else None
        bonus = self.settings.word_bonus if any_model is not None and weight else 0.0
        words = self.spelling.lm_words(model) if model is not None else ()
        return Fusion(
            len(self.vocabulary),
            None if model is None else model.table,
            words,
            self.spelling.separator,
            weight,
            unknown=self.settings.unknown if model is not None else 0.0,
            bonus=bonus,
            phrases=self._phrases(hotwords),
            boost=boost,
        )

    def _boost(self, decoding: Decoding) -> float:
        return self.settings.hotword_weight if decoding.hotword_weight is None else decoding.hotword_weight

    def _phrases(self, hotwords: Sequence[str]) -> list[list[int]]:
        """Hotwords as symbols. Raises InputError for those that cannot be spelt."""
        phrases = [self.vocabulary.encode(normalise(word)) for word in hotwords]
        if empty := [word for word, phrase in zip(hotwords, phrases, strict=True) if not phrase]:
            raise InputError(f"the hotword {empty[0]!r} has no letters; give words as they are said")
        return phrases

    # --- batches -----------------------------------------------------------------------------------------------------

    def _batches(self, pieces: Sequence[Samples]) -> list[list[int]]:
        """Rows of about equal length that fit into a batch; pieces too short for a frame are in none."""
        rows = [row for row, piece in enumerate(pieces) if _samples(piece) >= self.network.shortest]
        batches: list[list[int]] = []
        for row in sorted(rows, key=lambda row: len(pieces[row])):
            if batches and len(pieces[row]) * (len(batches[-1]) + 1) <= BATCH_S * SAMPLE_RATE:
                batches[-1].append(row)
            else:
                batches.append([row])
        return batches

    def _live_reader(self, decoding: Decoding) -> Callable[[Tensor], Hypothesis]:
        read = self.reader(decoding)

        def final(log_probs: Tensor) -> Hypothesis:
            """``log_probs (time, symbols)`` of an utterance that is over."""
            heard = Heard(log_probs[None], log_probs.new_zeros(1, len(log_probs), 1), torch.tensor([len(log_probs)]))
            return self.answers(heard, read)[0][0]

        return final


def _samples(piece: Samples) -> int:
    if piece.ndim != 1:
        raise InputError(f"a piece has shape {piece.shape}; one channel (n,) was wanted")
    return len(piece)


def _ordered(found: Sequence[Found], scores: Sequence[float], nbest: int) -> list[Found]:
    """The hypotheses with their new scores, best first."""
    new = [Found(one.tokens, score, one.log_probs, one.finished) for one, score in zip(found, scores, strict=True)]
    return sorted(new, key=lambda one: -one.score)[:nbest]


def _roles(vocabulary: Vocabulary) -> None:
    for role in ("blank", "eos"):
        vocabulary.special(role)
