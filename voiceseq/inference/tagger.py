"""A tagger at work: texts in, each word with its tag out, names marked in the text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from voiceseq.bundles import Bundle
from voiceseq.datasets.sentences import SentenceBatch, SentenceCoder
from voiceseq.inference.opening import check_texts, open_vocabulary
from voiceseq.inference.sentences import open_coder, read_all, windows
from voiceseq.models.tagger import TaggerConfig, TaggerNetwork
from voiceseq.text.tags import Span, is_bio, spans
from voiceseq.text.vocabulary import Vocabulary
from voiceseq.text.words import Token, tokens, visible

PIECE, AROUND = 200, 20  # words read at once of a long text, and how many more on both sides


@dataclass(frozen=True)
class TaggedText:
    """A text (what cannot be seen is left out of it), its words with their places, their tags, how sure each is."""

    text: str
    tokens: tuple[Token, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    of_spans: bool = False

    @property
    def words(self) -> list[str]:
        return [token.word for token in self.tokens]

    @property
    def spans(self) -> list[Span]:
        """Places in the *text* with their kind, where the tags are of spans; else none."""
        if not self.of_spans:
            return []
        return [Span(self.tokens[s].start, self.tokens[e - 1].end, kind) for s, e, kind in spans(self.tags)]

    def marked(self) -> str:
        """``[Harry Potter](person) met ...`` where the tags are of spans, ``He/PRON met/VERB ...`` where of words."""
        if not self.of_spans:
            return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))
        parts, last = [], 0
        for start, end, kind in self.spans:
            parts += [self.text[last:start], f"[{self.text[start:end]}]({kind})"]
            last = end
        return "".join([*parts, self.text[last:]])


class Tagger:
    """``voiceseq.load("wnut17").tag(["Yesterday, Harry Potter met Hermione Granger."])``."""

    def __init__(self, network: TaggerNetwork, coder: SentenceCoder, tags: Vocabulary) -> None:
        self.network = network.eval()
        self.coder, self.tags = coder, tags
        self.of_spans = is_bio(tags.symbols)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or vocabularies that do not make a tagger."""
        network = bundle.network(TaggerNetwork, TaggerConfig)
        tags = open_vocabulary(bundle, "tags", network.config.tags)
        return cls(network, open_coder(bundle, network.config), tags)

    def tag(self, texts: Sequence[str], pretokenised: bool | None = None) -> list[TaggedText]:
        """The tags of each text's words; ``pretokenised``: they stand between spaces (None: as it looks).

        A text without words has no tags. Raises InputError for one bare text instead of a list.
        """
        shown = [visible(text) for text in check_texts(texts)]
        found = [tokens(text, pretokenised) for text in shown]
        tagged = self.tag_words([[token.word for token in words] for words in found])
        return [
            TaggedText(text, tuple(words), tuple(tags), tuple(sure), self.of_spans)
            for text, words, (tags, sure) in zip(shown, found, tagged, strict=True)
        ]

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[str], list[float]]]:
        """The tags of ready words and how probable each is; a long list is read in pieces, with what is around them."""
        places = [(n, *window) for n, words in enumerate(sentences) for window in windows(len(words), PIECE, AROUND)]
        read = read_all([sentences[n][begin:end] for n, begin, _, _, end in places], self.coder, self._read)
        tagged: list[tuple[list[str], list[float]]] = [([], []) for _ in sentences]
        for (n, begin, start, stop, _), (tags, sure) in zip(places, read, strict=True):
            tagged[n][0].extend(tags[start - begin : stop - begin])
            tagged[n][1].extend(sure[start - begin : stop - begin])
        return tagged

    def _read(self, batch: SentenceBatch) -> list[tuple[list[str], list[float]]]:
        with torch.no_grad():
            emissions = self.network(*batch.inputs)
        probabilities = self.network.probabilities(emissions, batch.lengths)
        found = []
        for row, tags in enumerate(self.network.decode(emissions, batch.lengths)):
            sure = probabilities[row, torch.arange(len(tags)), torch.tensor(tags)].tolist()
            found.append(([self.tags.symbols[tag] for tag in tags], sure))
        return found
