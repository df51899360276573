"""The sentence encoder and what is built on it: padding, spelling, context, pools; weights that fit one another."""

import dataclasses
from itertools import pairwise

import pytest
import torch

from voiceseq.core.shapes import Pool
from voiceseq.datasets.sentences import SentenceCoder, letter_vocabulary, word_vocabulary
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.classifier import ClassifierConfig, ClassifierNetwork, NgramVotes
from voiceseq.models.masked import BidirectionalNetwork, MaskedNetwork
from voiceseq.models.sentence import SentenceConfig, SentenceEncoder
from voiceseq.models.tagger import TaggerConfig, TaggerNetwork

SENTENCES = [["A", "small", "cat", "sat"], ["it", "sat"], ["A", "catalogue", "!"]]
SMALL = {"embedding": 6, "size": 8, "heads": 2, "dropout": 0.0}


@pytest.fixture
def coder() -> SentenceCoder:
    torch.manual_seed(1)
    return SentenceCoder(word_vocabulary(SENTENCES), letter_vocabulary(SENTENCES, 1))


def settings(coder: SentenceCoder, **more: object) -> dict:
    assert coder.letters is not None
    return {"words": len(coder.words), "letters": len(coder.letters), **SMALL, **more}


@pytest.mark.parametrize("cell", ["lstm", "gru", "transformer"])
@pytest.mark.parametrize("more", [{}, {"spelling": 4}, {"context": 6, "context_layers": 2}, {"layers": 2}])
def test_a_sentence_is_read_the_same_alone_and_padded(coder: SentenceCoder, cell: str, more: dict) -> None:
    encoder = SentenceEncoder(SentenceConfig(**settings(coder, cell=cell, **more))).eval()
    together = encoder(*coder.batch(SENTENCES).inputs)
    assert together.shape == (3, 4, 8)
    for row, sentence in enumerate(SENTENCES):
        alone = encoder(*coder.batch([sentence]).inputs)[0]
        torch.testing.assert_close(together[row, : len(sentence)], alone, rtol=1e-4, atol=1e-5)
        assert not together[row, len(sentence) :].any()


def test_spelling_tells_unknown_words_apart(coder: SentenceCoder) -> None:
    unknown = [["dog"], ["dogs"]]
    for size, alike in ((0, True), (4, False)):
        encoder = SentenceEncoder(SentenceConfig(**settings(coder, spelling=size))).eval()
        one, other = encoder(*coder.batch(unknown).inputs)
        assert torch.allclose(one, other) == alike


def test_context_sees_both_sides_and_its_language_model_does_not_learn(coder: SentenceCoder) -> None:
    network = TaggerNetwork(TaggerConfig(**settings(coder, context=6, tags=3)))
    context = network.encoder.context
    assert context is not None
    frozen = {name for name, value in context.named_parameters() if not value.requires_grad}
    assert frozen == {name for name, _ in context.named_parameters()} - {"scales", "gamma"}
    words, lengths = coder.batch([["small", "cat", "sat"], ["it", "cat", "!"]]).inputs[:2]
    one, other = context(words, lengths)
    assert not torch.allclose(one[1], other[1])  # the same word elsewhere
    left, right = one.chunk(2, -1)
    changed = words.clone()
    changed[0, 2] = 0  # the last word: what is read from the left does not know it yet
    left_2, right_2 = context(changed, lengths)[0].chunk(2, -1)
    torch.testing.assert_close(left[:2], left_2[:2])
    assert not torch.allclose(right[0], right_2[0])


def test_language_model_states_never_see_what_they_predict(coder: SentenceCoder) -> None:
    network = BidirectionalNetwork(SentenceConfig(**settings(coder, context=6, context_layers=2))).eval()
    words = torch.tensor([[5, 6, 7, 8]])
    nexts, befores = network(words)
    for place in range(4):
        changed = words.clone()
        changed[0, place] = 0
        nexts_2, befores_2 = network(changed)
        torch.testing.assert_close(nexts[:, :place], nexts_2[:, :place])
        torch.testing.assert_close(befores[:, place + 1 :], befores_2[:, place + 1 :])
        assert not torch.allclose(nexts[:, place:], nexts_2[:, place:])
        assert not torch.allclose(befores[:, : place + 1], befores_2[:, : place + 1])


def test_the_weights_of_plain_text_fit_tagger_and_classifier_by_name(coder: SentenceCoder) -> None:
    masked = MaskedNetwork(SentenceConfig(**settings(coder, cell="transformer", layers=2)))
    for other in (
        TaggerNetwork(TaggerConfig(**settings(coder, cell="transformer", layers=2, tags=3))),
        ClassifierNetwork(ClassifierConfig(**settings(coder, cell="transformer", layers=2, classes=2))),
    ):
        own = other.state_dict()
        fitting = {
            name for name, value in masked.state_dict().items() if name in own and own[name].shape == value.shape
        }
        assert fitting == {name for name in own if name.startswith("encoder.")}
    language = BidirectionalNetwork(SentenceConfig(**settings(coder, context=6)))
    own = TaggerNetwork(TaggerConfig(**settings(coder, context=6, tags=3))).state_dict()
    assert {n for n in language.state_dict() if n in own} == {n for n in own if n.startswith("encoder.context.")}


def test_word_dropout_is_of_training_alone(coder: SentenceCoder) -> None:
    encoder = SentenceEncoder(SentenceConfig(**settings(coder, word_dropout=0.5)))
    batch = coder.batch([SENTENCES[0] * 20])
    frames = encoder.eval()(*batch.inputs)
    torch.testing.assert_close(frames, encoder(*batch.inputs))
    assert not torch.allclose(frames, encoder.train()(*batch.inputs))


@pytest.mark.parametrize("pool", ["mean", "max", "last", "attention"])
def test_pools(coder: SentenceCoder, pool: str) -> None:
    network = ClassifierNetwork(ClassifierConfig(**settings(coder, pool=pool, classes=3))).eval()
    batch = coder.batch(SENTENCES)
    logits = network(*batch.inputs)
    assert logits.shape == (3, 3)
    for row, sentence in enumerate(SENTENCES):
        torch.testing.assert_close(logits[row], network(*coder.batch([sentence]).inputs)[0], rtol=1e-4, atol=1e-5)
    frames = network.encoder(*batch.inputs)
    if pool == "last":  # the backward half has read everything at the first word
        wanted = torch.stack([torch.cat((f[n - 1, :4], f[0, 4:])) for f, n in zip(frames, batch.lengths, strict=True)])
    else:
        wanted = network.pool(frames, batch.lengths)
    torch.testing.assert_close(logits, network.output(wanted))
    if pool == "attention":
        weights = network.attention(*batch.inputs)
        torch.testing.assert_close(weights.sum(1), torch.ones(3))
        assert not weights[1, 2:].any()
    else:
        with pytest.raises(InputError, match="no weights"):
            network.attention(*batch.inputs)
    assert isinstance(network.pool, Pool)


def test_votes_of_words_and_pairs(coder: SentenceCoder) -> None:
    """Against a plain loop over the different words and pairs of each text."""
    network = NgramVotes(len(coder.words), 50, 2).eval()
    torch.nn.init.normal_(network.votes.weight)
    sentences = [["cat", "sat", "cat", "sat", "cat"], ["it"], ["small", "cat"]]
    batch = coder.batch(sentences)
    found = network(batch.words, batch.lengths)
    for row, sentence in enumerate(sentences):
        numbers = coder.numbers(sentence)
        grams = {*numbers, *(len(coder.words) + (a * 1_000_003 + b) % 50 for a, b in pairwise(numbers))}
        wanted = sum(network.votes.weight[gram] for gram in grams) * 4 / len(grams) ** 0.5
        torch.testing.assert_close(found[row], wanted)
    assert not torch.allclose(found, network.train()(batch.words, batch.lengths))
    many = torch.stack([network(batch.words, batch.lengths) for _ in range(2000)]).mean(0)
    torch.testing.assert_close(many, found, rtol=0.2, atol=0.4)  # on the average nothing is lost
    whole = ClassifierNetwork(ClassifierConfig(**settings(coder, classes=2, ngrams=50))).eval()
    before = whole(*batch.inputs)
    assert whole.ngrams is not None
    torch.nn.init.normal_(whole.ngrams.votes.weight)
    torch.testing.assert_close(whole(*batch.inputs), before + whole.ngrams(batch.words, batch.lengths))


@pytest.mark.parametrize("crf", [True, False])
def test_a_tagger_decodes_its_own_best(coder: SentenceCoder, crf: bool) -> None:
    network = TaggerNetwork(TaggerConfig(**settings(coder, tags=3, crf=crf))).eval()
    batch = coder.batch(SENTENCES)
    emissions = network(*batch.inputs)
    found = network.decode(emissions, batch.lengths)
    assert [len(row) for row in found] == [4, 2, 3]
    probabilities = network.probabilities(emissions, batch.lengths)
    for row, tags in enumerate(found):
        torch.testing.assert_close(probabilities[row, : len(tags)].sum(-1), torch.ones(len(tags)))
        loss = float(
            network.loss(emissions[row : row + 1, : len(tags)], torch.tensor([tags]), torch.tensor([len(tags)]))
        )
        others = torch.randint(3, (20, len(tags)))
        lengths = torch.full((20,), len(tags))
        every = [
            float(network.loss(emissions[row : row + 1, : len(tags)], other[None], lengths[:1])) for other in others
        ]
        assert all(loss <= one + 1e-5 for one in every)


def test_segments_and_masks(coder: SentenceCoder) -> None:
    network = MaskedNetwork(SentenceConfig(**settings(coder, cell="transformer"))).eval()
    words = torch.tensor([[1, 5, 2, 6, 2]])
    segments = torch.tensor([[0, 0, 0, 1, 1]])
    frames = network(words, segments=segments)
    assert not torch.allclose(frames, network(words))
    assert network.logits(frames).shape == (1, 5, len(coder.words))
    assert network.follows(frames).shape == (1, 2)


def test_wrong_settings_and_input_are_named(coder: SentenceCoder) -> None:
    with pytest.raises(ConfigError, match=r"layers is 0.*dropout is 1\.5.*size is 7"):
        SentenceConfig(layers=0, dropout=1.5, size=7)
    with pytest.raises(ConfigError, match="pool is 'sum'; one of mean, max, last, attention"):
        ClassifierConfig(pool="sum")
    for make, said in (
        (lambda: SentenceEncoder(SentenceConfig()), "words is 0"),
        (lambda: SentenceEncoder(SentenceConfig(words=5, spelling=2)), "letters is 0"),
        (lambda: TaggerNetwork(TaggerConfig(words=5)), "tags is 0"),
        (lambda: ClassifierNetwork(ClassifierConfig(words=5)), "classes is 0"),
        (lambda: MaskedNetwork(SentenceConfig(words=5)), "choose transformer"),
        (lambda: BidirectionalNetwork(SentenceConfig(words=5)), "context 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            make()
    encoder = SentenceEncoder(SentenceConfig(**settings(coder, spelling=4)))
    plain = dataclasses.replace(coder, letters=None)
    with pytest.raises(InputError, match="no spellings came"):
        encoder(*plain.batch(SENTENCES).inputs)
    with pytest.raises(InputError, match="words holds 99"):
        encoder(torch.tensor([[99]]))
