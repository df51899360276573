"""N-gram models: hand-made values, a plain back-off in Python, kenlm on the same file, bad files."""

import gzip
import math
import random

import numpy as np
import pytest
import torch

from voiceseq.core.scorers import NgramScorer
from voiceseq.core.search import score_sequence
from voiceseq.errors import InputError
from voiceseq.text.ngram import NgramModel, read_arpa, write_arpa

SMALL = """\\data\\
ngram 1=6
ngram 2=4
ngram 3=2

\\1-grams:
-99\t<s>\t-0.30
-0.9\t</s>
-1.5\t<unk>\t-0.05
-0.7\tthe\t-0.20
-0.8\tcat\t-0.10
-1.1\tsat

\\2-grams:
-0.2\t<s> the\t-0.15
-0.4\tthe cat\t-0.25
-0.6\tcat sat
-0.3\tsat </s>

\\3-grams:
-0.1\t<s> the cat
-0.05\tthe cat sat

\\end\\
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.arpa"
    path.write_text(SMALL)
    return path


def test_values_by_hand(small):
    model = read_arpa(small)
    assert model.order == 3
    ten = lambda words, **options: [s / math.log(10) for s in model.score(words.split(), **options)]  # noqa: E731
    # all listed: <s> the | <s> the cat | the cat sat | sat </s> behind the back-off of (cat sat), which is 0
    assert ten("the cat sat") == pytest.approx([-0.2, -0.1, -0.05, -0.3])
    # "sat" after "<s>": back-off(<s>) + p(sat); then "the" after "sat": back-off(sat) = 0
    assert ten("sat the", end=False) == pytest.approx([-0.30 - 1.1, -0.7])
    # "<s> the sat": back-off(<s> the) + back-off(the) + p(sat)
    assert ten("the sat", end=False)[1] == pytest.approx(-0.15 - 0.20 - 1.1)
    # an unknown word, and what follows it
    assert ten("dog cat", end=False) == pytest.approx([-0.30 - 1.5, -0.05 - 0.8])
    # without <s>
    assert ten("the cat", begin=False, end=False) == pytest.approx([-0.7, -0.4])
    assert ten("") == pytest.approx([-0.30 - 0.9])


def random_model(path, rng, words=12, order=3, keep=0.4):
    """Any numbers do: back-off scoring asks for no normalisation."""
    names = ["<s>", "</s>", "<unk>"] + [f"w{i}" for i in range(words)]
    orders = [[(name,) for name in names]]
    for _ in range(order - 1):
        contexts = [gram for gram in orders[-1] if gram[-1] != "</s>"]
        grams = [(*gram, name) for gram in contexts for name in names[1:] if name != "<s>"]
        grams = [gram for gram in grams if rng.random() < keep and gram[1:] in set(orders[-1])]
        orders.append(grams)
    lines = ["\\data\\"] + [f"ngram {n}={len(grams)}" for n, grams in enumerate(orders, 1)]
    values = {}
    for n, grams in enumerate(orders, 1):
        lines.append(f"\n\\{n}-grams:")
        for gram in grams:
            prob, backoff = round(-3 * rng.random(), 4), round(-rng.random(), 4)
            if n == order or rng.random() < 0.3 or gram[-1] == "</s>":
                backoff = 0.0
            values[gram] = prob, backoff
            lines.append(f"{prob}\t{' '.join(gram)}" + (f"\t{backoff}" if backoff else ""))
    path.write_text("\n".join([*lines, "", "\\end\\", ""]))
    return values


def plain_score(values, order, words):
    """The definition, over a dictionary."""
    words = [w if (w,) in values else "<unk>" for w in words]
    history, scores = ("<s>",), []
    for word in [*words, "</s>"]:
        context, total = history[-(order - 1) :] if order > 1 else (), 0.0
        while (*context, word) not in values:
            total += values.get(context, (0, 0.0))[1]
            context = context[1:]
        scores.append(math.log(10) * (total + values[(*context, word)][0]))
        history = (*history, word)
    return scores


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_random_models_by_definition_and_kenlm(order, tmp_path):
    rng = random.Random(order)
    path = tmp_path / "random.arpa"
    values = random_model(path, rng, words=8 if order == 4 else 12, order=order)
    model = read_arpa(path)
    sentences = [[f"w{rng.randrange(14)}" for _ in range(rng.randrange(12))] for _ in range(60)]
    for sentence in sentences:
        assert model.score(sentence) == pytest.approx(plain_score(values, order, sentence), abs=1e-9)
    if order == 1:
        return  # kenlm refuses models of order 1
    kenlm = pytest.importorskip("kenlm")
    reference = kenlm.Model(str(path))
    for sentence in sentences:
        theirs = [math.log(10) * score for score, _, _ in reference.full_scores(" ".join(sentence))]
        assert model.score(sentence) == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("name", ["again.arpa", "again.arpa.gz"])
def test_round_trip(name, small, tmp_path):
    model = read_arpa(small)
    write_arpa(model, tmp_path / name)
    again = read_arpa(tmp_path / name)
    assert again.words == model.words
    for old, new in zip(model.orders, again.orders, strict=True):
        for a, b in zip(old, new, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    if name.endswith("gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()).startswith(b"\\data\\")


@pytest.mark.parametrize("order", [1, 2, 3])
def test_scorer_gives_what_the_model_gives(order, tmp_path):
    random_model(tmp_path / "m.arpa", random.Random(3), order=order)
    model = read_arpa(tmp_path / "m.arpa")
    symbols = ["<end>", "<other>", *(f"w{i}" for i in range(11, -1, -1))]
    scorer = NgramScorer(model.table, model.token_words(symbols, end=0))
    generator = torch.Generator().manual_seed(0)
    sentences = [torch.randint(1, 14, (n,), generator=generator).tolist() for n in range(8)]
    scored = score_sequence([(scorer, 1.0)], sentences, 1, 0)
    for tokens, hypothesis in zip(sentences, scored, strict=True):
        assert hypothesis.score == pytest.approx(sum(model.score([symbols[t] for t in tokens])), abs=1e-4)


def test_scorer_rows_are_independent(tmp_path):
    random_model(tmp_path / "m.arpa", random.Random(5))
    model = read_arpa(tmp_path / "m.arpa")
    scorer = NgramScorer(model.table, torch.arange(len(model.words)))
    tokens = torch.tensor([3, 7, 3, 9])
    _, state = scorer.score(torch.zeros(4, dtype=torch.long), scorer.start(4))
    log_probs, state = scorer.score(tokens, state)
    for row in range(4):
        for word in range(1, len(model.words)):
            expected = model.score([model.words[int(tokens[row])], model.words[word]], end=False)[1]
            assert float(log_probs[row, word]) == pytest.approx(expected, abs=1e-5)
    again, _ = scorer.score(tokens[[2, 0]], scorer.select(state, torch.tensor([2, 0])))
    assert torch.equal(again[0], again[1])


def test_no_unknown_word_in_the_file(tmp_path):
    path = tmp_path / "m.arpa"
    path.write_text(SMALL.replace("-1.5\t<unk>\t-0.05\n", "").replace("ngram 1=6", "ngram 1=5"))
    model = read_arpa(path)
    assert model.score(["dog"], end=False)[0] == pytest.approx(math.log(10) * (-0.30 - 100))
    path.write_text(SMALL.replace("<unk>", "<UNK>"))
    assert read_arpa(path).score(["dog"], end=False)[0] == pytest.approx(math.log(10) * (-0.30 - 1.5))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("boundaries", [True, False])
def test_all_positions_at_once_give_what_the_automaton_gives(order, boundaries, tmp_path):
    rng = random.Random(10 + order)
    random_model(tmp_path / "m.arpa", rng, words=8, order=order)
    model = read_arpa(tmp_path / "m.arpa")
    texts = [[f"w{rng.randrange(10)}" for _ in range(rng.randrange(9))] for _ in range(40)] + [[], ["w0"]]
    one_by_one = [score for text in texts for score in model.score(text, begin=boundaries, end=boundaries)]
    assert model.log_probs(iter(texts), boundaries).tolist() == pytest.approx(one_by_one, abs=1e-9)
    assert model.perplexity(texts, boundaries) == pytest.approx(math.exp(-sum(one_by_one) / len(one_by_one)))
    assert len(model.log_probs([], boundaries)) == 0


def test_no_event_has_no_perplexity(small):
    model = read_arpa(small)
    for texts, boundaries in (([], True), ([[], []], False)):
        with pytest.raises(InputError, match="at least one event"):
            model.perplexity(texts, boundaries)
    with pytest.raises(InputError, match="a string came"):
        model.log_probs("the cat")


@pytest.mark.parametrize("word", ["", " ", "new\nline", "a\tb", "\0"])
def test_words_that_a_file_cannot_say(word, small, tmp_path):
    model = read_arpa(small)
    with pytest.raises(InputError, match="cannot stand in an ARPA file"):
        write_arpa(NgramModel([*model.words[:-1], word], model.orders), tmp_path / "m.arpa")
    assert not (tmp_path / "m.arpa").exists()


def test_spellings(small):
    model = read_arpa(small)
    spelt = model.spellings(list("_thecas"))
    assert spelt[model.index["cat"]] == (4, 5, 1)
    assert spelt[model.index["<s>"]] == spelt[model.index["</s>"]] == ()
    assert model.spellings(list("_the"))[model.index["cat"]] == ()


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("\\data\\", "data"), 24, "no \\\\data"),
        (("ngram 2=4", "ngram 2=x"), 3, "ngram 2=<count>"),
        (("ngram 2=4", "ngram 3=4"), 3, "ngram 2=<count>"),
        (("ngram 2=4", "ngram 2=5"), 20, "4 2-grams; 5"),
        (("ngram 2=4", "ngram 2=3"), 18, "3-grams: was wanted"),
        (("-0.7\tthe", "x0.7\tthe"), 10, "log-probability"),
        (("-0.7\tthe", "0.7\tthe"), 10, "log-probability"),
        (("-0.7\tthe", "nan\tthe"), 10, "log-probability"),
        (("the\t-0.20", "the\t-0.20 7"), 10, "log-probability"),
        (("-0.8\tcat", "-0.8\tthe"), 11, "twice"),
        (("-0.6\tcat sat", "-0.6\tcat"), 17, "2 words"),
        (("-0.6\tcat sat", "-0.6\tcat dog"), 17, "'dog' is not"),
        (("<s> the cat", "sat the cat"), 21, "no 2-gram for its context"),
        (("\\end\\", ""), 24, "cut off"),
        (("</s>", "</t>"), 24, "lack </s>"),
    ],
)
def test_bad_files(change, line, message, tmp_path):
    path = tmp_path / "bad.arpa"
    path.write_text(SMALL.replace(*change))
    with pytest.raises(InputError, match=message) as error:
        read_arpa(path)
    assert f"line {line}:" in str(error.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_arpa(tmp_path / "nowhere.arpa")
    (tmp_path / "bytes.arpa").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match="cannot be read"):
        read_arpa(tmp_path / "bytes.arpa")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(SMALL.encode())[:-20])
    with pytest.raises(InputError, match="cannot be read"):
        read_arpa(tmp_path / "cut.gz")
    with pytest.raises(InputError, match="lacks"):
        NgramModel(["a"], [])
    with pytest.raises(InputError, match="vocabulary"):
        NgramScorer(read_small(tmp_path).table, torch.tensor([99]))


def read_small(folder):
    (folder / "small.arpa").write_text(SMALL)
    return read_arpa(folder / "small.arpa")
