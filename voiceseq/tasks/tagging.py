"""Training a tagger: parts of speech, names; a tag for each word."""

import dataclasses

import torch
from torch import Tensor

from voiceseq.core.losses import cross_entropy
from voiceseq.datasets.corpora.sentences import read_tagged
from voiceseq.datasets.pairs import pad
from voiceseq.datasets.sentences import SentenceBatch
from voiceseq.models.tagger import TaggerConfig, TaggerNetwork
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.sentences import SentenceData
from voiceseq.text.tags import impossible_pairs, is_bio, tag_counts
from voiceseq.text.vocabulary import Vocabulary


class TaggingData(SentenceData):
    """Sentences with a tag a word, ``word<TAB>tag`` or CoNLL-U, of which ``column`` is the tag.

    ``further`` columns (``xpos+deprel``) are learned beside it: the network has to know more than it will be asked.
    """

    def __init__(
        self,
        train: str,
        validation: str,
        column: str = "upos",
        further: str | None = None,
        vocabulary: str | None = None,
        vectors: str | None = None,
        minimum_count: int = 2,
        batch: int = 32,
        steps_per_epoch: int = 200,
        seed: int = 1,
        overfit: bool = False,
        licence: str = "unknown",
    ) -> None:
        learned, measured = read_tagged(train, column), read_tagged(validation, column)
        self.tags = Vocabulary(tuple(sorted({tag for row in [*learned, *measured] for tag in row.tags})), "word")
        rows = [[(row.words, self.tags.encode(" ".join(row.tags))) for row in part] for part in (learned, measured)]
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
            spelling=True,
        )
        self.describe(train, licence, vectors)
        more = read_tagged(train, further) if further else []
        self.kinds = {tag: number for number, tag in enumerate(sorted({tag for row in more for tag in row.tags}))}
        self.further = [[self.kinds[tag] for tag in row.tags] for row in more]

    def batch(self, numbers: list[int], validation: bool, step: int) -> SentenceBatch:
        batch: SentenceBatch = super().batch(numbers, validation, step)
        if validation or not self.further:
            return batch
        return batch._replace(further=pad([self.further[number] for number in numbers])[0])


class TaggingTask(SequenceTask):
    """-log P(tags); on validation the share of right tags and, where the tags are of spans, conlleval's F1."""

    monitor_mode = "max"

    def __init__(
        self, model: TaggerConfig, optimiser: OptimiserConfig, data: TaggingData, further_weight: float = 0.5
    ) -> None:
        super().__init__(optimiser)
        further = len(data.kinds)
        self.network = TaggerNetwork(dataclasses.replace(model, tags=len(data.tags), further=further, **data.sizes()))
        self.further_weight = further_weight
        data.fill(self.network.encoder.embedding)
        self.tags, self.data = data.tags, data
        self.of_spans = is_bio(self.tags.symbols)
        self.monitor = "val/f1" if self.of_spans else "val/accuracy"
        if self.network.crf is not None:
            self.network.crf.block(*impossible_pairs(self.tags.symbols))
        self.counts = torch.zeros(5)

    def loss(self, batch: SentenceBatch) -> tuple[Tensor, int, dict[str, float]]:
        frames = self.network.read(*batch.inputs)
        emissions = self.network.output(frames)
        if not self.training:
            self.count(batch, emissions)
        loss = self.network.loss(emissions, batch.labels, batch.lengths)
        if batch.further is not None:
            logits = self.network.further(frames).float()
            loss = loss + self.further_weight * cross_entropy(logits, batch.further, batch.lengths)
        return loss, int(batch.lengths.sum()), {}

    def count(self, batch: SentenceBatch, emissions: Tensor) -> None:
        """Add up what ``tag_counts`` counts; F1 is of the sums, not a mean of F1s."""
        assert batch.labels is not None
        for row, true in zip(self.network.decode(emissions, batch.lengths), batch.labels.tolist(), strict=True):
            names = ([self.tags.symbols[tag] for tag in tags] for tags in (true[: len(row)], row))
            self.counts += torch.tensor(tag_counts(*names))

    def on_validation_epoch_start(self) -> None:
        self.counts.zero_()

    def on_validation_epoch_end(self) -> None:
        words, right, wanted, marked, both = self.counts.tolist()
        values = {"val/accuracy": right / max(words, 1)}
        if self.of_spans:
            values["val/f1"] = 2 * both / max(wanted + marked, 1)
        self.log_dict(values, prog_bar=True, sync_dist=True)

    def parts(self) -> BundleParts:
        vocabularies = self.data.vocabularies() | {"tags": self.tags.to_json()}
        config = dataclasses.asdict(self.network.config)
        return BundleParts("tagger", config, vocabularies, training_data=self.data.sources)
