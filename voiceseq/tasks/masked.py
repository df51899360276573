"""Learning from plain text, BERT's way: masked words, and whether one sentence follows another."""

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from voiceseq.core.losses import mask_tokens
from voiceseq.datasets.batching import step_generator
from voiceseq.datasets.pairs import pad
from voiceseq.models.masked import MaskedNetwork
from voiceseq.models.sentence import SentenceConfig
from voiceseq.tasks.base import BundleParts, OptimiserConfig, SequenceTask
from voiceseq.tasks.bidirectional import PlainData


class MaskedBatch(NamedTuple):
    """``<bos> first <eos> second <eos>``, masked; ``targets`` are the words as they were, ``follows`` 1 or 0."""

    words: Tensor
    lengths: Tensor
    segments: Tensor
    targets: Tensor
    chosen: Tensor
    follows: Tensor


class MaskedData(PlainData):
    """Pairs of sentences, every second one with its true successor, 15 % of their words to be guessed."""

    def batch(self, numbers: list[int], validation: bool, step: int) -> MaskedBatch:
        """Of validation the same pairs and the same masks every time."""
        chance = step_generator(self.seed, int(validation), step)
        sentences, labels = self.numbers[validation], self.validation_rows if validation else self.train_rows
        bos, eos = (self.coder.words.special(role) for role in ("bos", "eos"))
        firsts, pairs, follows = [], [], []
        for row, stay in zip(numbers, torch.rand(len(numbers), generator=chance).tolist(), strict=True):
            true = int(labels[row][1])
            true = true if stay < 0.5 and 0 < true < len(labels) else -1
            second = true if true > 0 else int(torch.randint(len(labels), (), generator=chance))
            firsts.append(len(sentences[row]) + 2)
            pairs.append([bos, *sentences[row], eos, *sentences[second], eos])
            follows.append(int(true > 0))
        targets, lengths = pad(pairs)
        segments = (torch.arange(targets.shape[1]) >= torch.tensor(firsts)[:, None]).long()
        words = self.coder.words
        masks = mask_tokens(targets, lengths, len(words), words.special("mask"), words.special_ids, generator=chance)
        return MaskedBatch(masks.tokens, lengths, segments, targets, masks.chosen, torch.tensor(follows))


class MaskedTask(SequenceTask):
    """Cross entropy of the masked words, and of whether the second sentence follows the first."""

    def __init__(self, model: SentenceConfig, optimiser: OptimiserConfig, data: MaskedData) -> None:
        super().__init__(optimiser)
        self.network = MaskedNetwork(dataclasses.replace(model, **data.sizes()))
        data.fill(self.network.encoder.embedding)
        self.data = data

    def loss(self, batch: MaskedBatch) -> tuple[Tensor, int, dict[str, float]]:
        frames = self.network(batch.words, batch.lengths, batch.segments)
        logits, wanted = self.network.logits(frames[batch.chosen]).float(), batch.targets[batch.chosen]
        following = self.network.follows(frames).float()
        masked, pairs = functional.cross_entropy(logits, wanted), functional.cross_entropy(following, batch.follows)
        right = float((logits.argmax(-1) == wanted).float().mean())
        paired = float((following.argmax(-1) == batch.follows).float().mean())
        metrics = {"masked": float(masked.detach()), "words right": right, "pairs right": paired}
        return masked + pairs, len(wanted), metrics

    def parts(self) -> BundleParts:
        config = dataclasses.asdict(self.network.config)
        return BundleParts("masked-lm", config, self.data.vocabularies(), training_data=self.data.sources)
