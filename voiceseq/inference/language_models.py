"""Language models for the searches of recognisers: ARPA files, a bundle's own, neural ones of ``experiment=text``."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voiceseq.bundles import Bundle, load_bundle
from voiceseq.core.scorers import Scorer
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.language import LanguageModel
from voiceseq.models.acoustic import LM_FILE
from voiceseq.text.ngram import NgramModel, read_arpa
from voiceseq.text.vocabulary import Vocabulary

UNKNOWN = -20.0  # log-probability of a symbol that the language model does not know


def read_lm(path: str | Path) -> NgramModel | LanguageModel:
    """An ARPA file, or the bundle (a folder or its ``.zip``) of a language model.

    Raises InputError for neither, BundleError for a bundle that is damaged.
    """
    path = Path(path)
    if not path.is_dir() and path.suffix != ".zip":
        return read_arpa(path)
    bundle = load_bundle(path)
    if bundle.kind != "language-model":
        raise InputError(f"{path} is a {bundle.kind!r}; an ARPA file or the bundle of a language model was wanted")
    return LanguageModel.from_bundle(bundle)


def bundle_lm(bundle: Bundle, name: str = LM_FILE) -> NgramModel:
    """The n-gram model of a bundle, which may be inside a ``.zip``. Raises BundleError for a file that is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / LM_FILE
        path.write_bytes(bundle.read(name))
        try:
            return read_arpa(path)
        except InputError as error:
            raise BundleError(f"{bundle.path}: {name} is no language model ({error})") from error


class LetterScorer(Scorer):
    """A language model of characters, asked in the symbols of an acoustic model of letters.

    The acoustic model's ``eos`` is the end of a line. Raises InputError where one of the two is not of characters.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        if {model.vocabulary.level, vocabulary.level} != {"character"}:
            raise InputError(
                f"a neural language model of {model.vocabulary.level}s came for a recogniser of {vocabulary.level}s; "
                "both want to be of characters: give an ARPA file instead"
            )
        self.network = model.network
        known = {symbol: number for number, symbol in enumerate(model.vocabulary.symbols)}
        ends = model.spelling.line_end
        own = {vocabulary.special("eos"): ends}
        theirs = [own.get(number, known.get(symbol, -1)) for number, symbol in enumerate(vocabulary.symbols)]
        self.numbers = torch.tensor(theirs)
        self.strange = self.numbers < 0
        self.numbers = self.numbers.clamp(min=0)

    def start(self, batch: int) -> Any:
        return None

    def score(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        log_probs, state = self.network.step(self.numbers[tokens], state)
        return log_probs[:, self.numbers].masked_fill(self.strange, UNKNOWN), state


def text_log_prob(model: NgramModel | LanguageModel, text: str) -> float:
    """How likely a line of text is, its end included; what a neural model cannot spell is left out of it."""
    if isinstance(model, NgramModel):
        return sum(model.score(text.split()))
    if model.vocabulary.level == "character":
        text = "".join(letter for letter in text if letter in model.vocabulary)
    return model.score([f"{text}\n"])[0].log_prob
