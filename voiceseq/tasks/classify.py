"""Training a classifier of texts, such as positive and negative reviews."""

import dataclasses

from torch import Tensor
from torch.nn import functional

from voiceseq.datasets.corpora.sentences import read_labelled
from voiceseq.datasets.sentences import SentenceBatch, clipped
from voiceseq.errors import InputError
from voiceseq.models.classifier import ClassifierConfig, ClassifierNetwork
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.sentences import SentenceData
from voiceseq.text.vocabulary import Vocabulary


class ClassifyData(SentenceData):
    """Lines ``label<TAB>text``; ``names`` are the classes' names in the order of the sorted labels (null: the labels).

    Of a long text the first and the last words are read, ``longest`` in all; ``spelling``: and their letters.
    """

    def __init__(
        self,
        train: str,
        validation: str,
        names: list[str] | None = None,
        longest: int = 400,
        spelling: bool = False,
        vocabulary: str | None = None,
        vectors: str | None = None,
        minimum_count: int = 2,
        batch: int = 32,
        steps_per_epoch: int = 200,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        learned, measured = read_labelled(train), read_labelled(validation)
        labels = sorted({row.label for row in [*learned, *measured]})
        if names is not None and len(names) != len(labels):
            raise InputError(f"{train} has the labels {', '.join(labels)}; as many names were wanted, {names} came")
        self.classes, self.longest = Vocabulary(tuple(names or labels), "word"), longest
        numbers = {label: number for number, label in enumerate(labels)}
        rows = [[(clipped(row.words, longest), numbers[row.label]) for row in part] for part in (learned, measured)]
        super().__init__(
            rows[0],
            rows[1],
            batch,
            steps_per_epoch,
            seed,
            overfit,
            vocabulary=vocabulary,
            vectors=vectors,
            minimum_count=minimum_count,
            spelling=spelling,
        )
        self.describe(train, licence, vectors)


class ClassifyTask(SequenceTask):
    """Cross entropy of the class; on validation also the share that is right."""

    monitor = "val/accuracy"
    monitor_mode = "max"

    def __init__(
        self, model: ClassifierConfig, optimiser: OptimiserConfig, data: ClassifyData, label_smoothing: float = 0.0
    ) -> None:
        super().__init__(optimiser)
        self.network = ClassifierNetwork(dataclasses.replace(model, classes=len(data.classes), **data.sizes()))
        data.fill(self.network.encoder.embedding)
        self.data, self.label_smoothing = data, label_smoothing

    def loss(self, batch: SentenceBatch) -> tuple[Tensor, int, dict[str, float]]:
        logits = self.network(*batch.inputs).float()
        assert batch.labels is not None
        smoothing = self.label_smoothing if self.training else 0.0
        right = float((logits.argmax(-1) == batch.labels).float().mean())
        loss = functional.cross_entropy(logits, batch.labels, label_smoothing=smoothing)
        return loss, len(batch.labels), {"accuracy": right}

    def parts(self) -> BundleParts:
        vocabularies = self.data.vocabularies() | {"classes": self.data.classes.to_json()}
        config = dataclasses.asdict(self.network.config)
        return BundleParts("classifier", config, vocabularies, {"longest": self.data.longest}, self.data.sources)
