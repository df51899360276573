"""Small bundles of the kinds that read sentences; what they say is by chance, how they say it is tested."""

import dataclasses
from pathlib import Path

import torch

from voiceseq.bundles import save_bundle
from voiceseq.datasets.sentences import letter_vocabulary, word_vocabulary
from voiceseq.models.classifier import ClassifierConfig, ClassifierNetwork
from voiceseq.models.masked import BidirectionalNetwork, MaskedNetwork
from voiceseq.models.sentence import SentenceConfig
from voiceseq.models.tagger import TaggerConfig, TaggerNetwork
from voiceseq.text.vocabulary import Vocabulary

SENTENCES = [["Yesterday", ",", "Harry", "Potter", "met", "Hermione", "."], ["let", "'s", "make", "fried", "chicken"]]
NAMES = ("B-person", "B-place", "I-person", "I-place", "O")
CLASSES = ("negative", "positive")


def make_bundles(folder: Path) -> dict[str, Path]:
    """One of each kind, by name."""
    words, letters = word_vocabulary(SENTENCES), letter_vocabulary(SENTENCES, 1)
    sizes = {"words": len(words), "letters": len(letters), "embedding": 8, "size": 16, "heads": 2}
    torch.manual_seed(3)
    networks = {
        "names": TaggerNetwork(TaggerConfig(**sizes, spelling=4, tags=len(NAMES))),
        "speech": TaggerNetwork(TaggerConfig(**sizes, cell="transformer", tags=2, crf=False)),
        "classes": ClassifierNetwork(ClassifierConfig(**sizes, classes=2)),
        "masked": MaskedNetwork(SentenceConfig(**sizes, cell="transformer")),
        "both": BidirectionalNetwork(SentenceConfig(**sizes, context=8)),
    }
    kinds = {
        "names": "tagger",
        "speech": "tagger",
        "classes": "classifier",
        "masked": "masked-lm",
        "both": "bidirectional-lm",
    }
    more = {
        "names": {"letters": letters, "tags": Vocabulary(NAMES, "word")},
        "speech": {"tags": Vocabulary(("NOUN", "VERB"), "word")},
        "classes": {"classes": Vocabulary(CLASSES, "word")},
    }
    return {
        name: save_bundle(
            folder / name,
            kind=kinds[name],
            config=dataclasses.asdict(network.config),
            weights=network.state_dict(),
            vocabularies={key: one.to_json() for key, one in ({"words": words} | more.get(name, {})).items()},
            decoding={"longest": 30} if name == "classes" else None,
        )
        for name, network in networks.items()
    }
