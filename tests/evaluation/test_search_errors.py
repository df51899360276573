"""Error analysis: hand-made cases, and real searches whose faults are known."""

import itertools
import math

import pytest
import torch

from voiceseq.core.prefix import Fusion, prefix_beam_search, score_strings
from voiceseq.core.scorers import Scorer
from voiceseq.core.search import beam_search, score_sequence
from voiceseq.errors import InputError
from voiceseq.evaluation.search_errors import analyse_search

END = 0


def test_by_hand():
    scores = {"right": -1.0, "good": -2.0, "bad": -3.0, "worst": -9.0, "never": -math.inf}
    analysis = analyse_search(
        ["right", "bad", "good", "bad", "never"],
        ["right", "good", "worst", "never", "right"],
        lambda texts: [scores[text] for text in texts],
    )
    assert [row.fault for row in analysis.rows] == [None, "search", "model", "model", "search"]
    assert analysis.rows[1].output_score == -3.0
    assert analysis.rows[1].reference_score == -2.0
    assert analysis.fraction("search") == 0.5
    assert analysis.fraction("model") == 0.5
    assert [(row["fault"], row["count"], row["of_all"]) for row in analysis.table()] == [
        ("search", 2, 0.4),
        ("model", 2, 0.4),
    ]
    assert "4 of 5" in str(analysis)
    assert "50.0%" in str(analysis)


def test_ties_are_the_models_fault_and_lists_equal_tuples():
    analysis = analyse_search([[1, 2], [3]], [(1, 2), (4,)], lambda sequences: [-1.0] * len(sequences))
    assert [row.fault for row in analysis.rows] == [None, "model"]


def test_nothing_wrong_and_nothing_at_all():
    assert analyse_search(["a"], ["a"], lambda texts: [0.0]).fraction("search") == 0.0
    assert "0 of 0" in str(analyse_search([], [], lambda texts: []))


@pytest.mark.parametrize(
    ("outputs", "references", "function", "message"),
    [
        (["a"], [], lambda texts: [0.0], "1 outputs"),
        (["a"], ["b"], lambda texts: [0.0, 1.0], "2 scores"),
        (["a"], ["b"], lambda texts: [math.nan], "NaN"),
    ],
)
def test_bad_input(outputs, references, function, message):
    with pytest.raises(InputError, match=message):
        analyse_search(outputs, references, function)


def test_unknown_fault():
    with pytest.raises(InputError, match="'search' and 'model'"):
        analyse_search([], [], lambda texts: []).fraction("data")


class Positions(Scorer):
    """p(token | utterance, last token, position), random."""

    def __init__(self, batch):
        generator = torch.Generator().manual_seed(0)
        self.table = (2 * torch.randn(batch, 5, 4, 4, generator=generator)).log_softmax(-1)

    def start(self, batch):
        return torch.arange(batch), torch.zeros(batch, dtype=torch.long)

    def score(self, tokens, state):
        utterance, position = state
        return self.table[utterance, position.clamp(max=4), tokens], (utterance, position + 1)


def test_the_faults_of_greedy_search_are_those_of_search():
    batch, alpha = 40, 0.7
    scorers = [(Positions(batch), 1.0)]
    score = lambda sequences: [h.score for h in score_sequence(scorers, sequences, 0, END, alpha=alpha)]  # noqa: E731
    best, narrow = (
        [h[0].tokens for h in beam_search(scorers, batch, 0, END, beam=b, max_length=4, alpha=alpha, patience=None)]
        for b in (4**5, 1)
    )
    # the exact argmax as the reference: whatever a narrow beam gets wrong is the fault of the search
    analysis = analyse_search(narrow, best, score)
    assert analysis.wrong
    assert analysis.fraction("search") == 1.0
    # the exact argmax as the output: whatever is wrong is the fault of the model
    analysis = analyse_search(best, narrow, score)
    assert analysis.fraction("model") == 1.0


def test_with_prefix_beam_search():
    generator = torch.Generator().manual_seed(1)
    log_probs = (0.8 * torch.randn(30, 6, 4, generator=generator)).log_softmax(-1)
    fusion = Fusion(4, bonus=0.7)
    narrow, best = (
        [h[0].tokens for h in prefix_beam_search(log_probs, beam=beam, fusion=fusion)] for beam in (1, 5000)
    )
    score = lambda strings: [h.score for h in score_strings(log_probs, None, strings, fusion=fusion)]  # noqa: E731
    analysis = analyse_search(narrow, best, score)
    assert analysis.wrong
    assert analysis.fraction("search") == 1.0
    references = list(itertools.islice(itertools.cycle([(1,), (2, 3)]), 30))
    assert analyse_search(best, references, score).fraction("search") == 0.0
