"""The trace of a search is that search: same end, and each hypothesis goes on from one that was there."""

from itertools import pairwise

import pytest
import torch

from voiceseq.core.prefix import prefix_beam_search
from voiceseq.core.scorers import StepScorer
from voiceseq.core.search import beam_search
from voiceseq.core.tracing import Watched, trace_prefixes

END = 0


def scorer(seed):
    """Six tokens; what follows depends on the last two."""
    table = torch.randn(6, 6, 6, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)
    return StepScorer(lambda tokens, last: (table[last, tokens], tokens), lambda batch: torch.zeros(batch).long())


@pytest.mark.parametrize("seed", range(5))
def test_a_watched_search_finds_the_same_and_tells_how(seed):
    settings = {"beam": 3, "nbest": 3, "max_length": 6}
    plain = beam_search([(scorer(seed), 1.0)], 1, 1, END, **settings)[0]
    watched = Watched([(scorer(seed), 1.0)], END)
    found = beam_search([(watched, 1.0)], 1, 1, END, **settings)[0]
    assert [one.tokens for one in found] == [one.tokens for one in plain]
    assert [one.score for one in found] == pytest.approx([one.score for one in plain], abs=1e-5)
    assert [len(step) for step in watched.steps[:2]] == [1, 3]
    for before, after in pairwise(watched.steps):
        going = {one.tokens for one in before if not one.ended}
        assert all((one.tokens if one.ended else one.tokens[:-1]) in going for one in after)
        assert after == sorted(after, key=lambda one: -one.score)
    ended = {one.tokens: one.score for step in watched.steps for one in step if one.ended}
    told = [one for one in found if one.tokens in ended]  # the very last step is nobody's to note
    assert [ended[one.tokens] for one in told] == pytest.approx([one.score for one in told], abs=1e-5)


def test_prefixes_frame_by_frame_end_where_the_search_ends():
    log_probs = torch.randn(1, 40, 8, generator=torch.Generator().manual_seed(0)).mul(3).log_softmax(-1)
    steps = trace_prefixes(log_probs[0], beam=6, nbest=3)
    (found,) = prefix_beam_search(log_probs, beam=6, nbest=3)
    assert len(steps) == 40
    assert {one.tokens for one in found} <= {one.tokens for one in steps[-1]}
    assert steps[-1][0].tokens == found[0].tokens
    for before, after in pairwise(steps):
        there = {one.tokens for one in before}
        assert all(one.tokens in there or one.tokens[:-1] in there for one in after)
