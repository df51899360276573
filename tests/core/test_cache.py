"""The cache and mixtures against their definitions, word by word."""

import pytest
import torch

from voiceseq.core import cache
from voiceseq.core.cache import cache_probs, mix, mixture_weights
from voiceseq.errors import InputError


@pytest.mark.parametrize("window", [1, 3, 50])
@pytest.mark.parametrize("piece", [512, 4])
def test_the_definition_word_by_word(window: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PIECE", piece)
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(2, 13, 5, generator=generator)
    targets = torch.randint(4, (2, 13), generator=generator)
    found = cache_probs(states, targets, window, 0.7)
    for row in range(2):
        for t in range(13):
            places = range(max(0, t - window), t)
            weights = {i: float(torch.exp(0.7 * states[row, t] @ states[row, i])) for i in places}
            right = sum(weights[i] for i in places if targets[row, i] == targets[row, t])
            assert float(found[row, t]) == pytest.approx(right / sum(weights.values()) if weights else 0.0, abs=1e-5)


def test_the_future_is_not_known() -> None:
    """What comes later changes nothing; and over all words the probabilities add up to 1."""
    generator = torch.Generator().manual_seed(2)
    states, targets = torch.randn(1, 9, 4, generator=generator), torch.randint(3, (1, 9), generator=generator)
    found = cache_probs(states, targets, 5, 1.0)
    for t in range(1, 9):
        changed, others = states.clone(), targets.clone()
        changed[:, t + 1 :] += 5.0
        others[:, t + 1 :] = 2
        torch.testing.assert_close(cache_probs(changed, others, 5, 1.0)[:, : t + 1], found[:, : t + 1])
        total = 0.0
        for word in range(3):
            others = targets.clone()
            others[0, t] = word
            total += float(cache_probs(states, others, 5, 1.0)[0, t])
        assert total == pytest.approx(1.0, abs=1e-5)


def test_shares_of_a_mixture_are_the_best() -> None:
    generator = torch.Generator().manual_seed(3)
    log_probs = torch.randn(3, 400, generator=generator).log_softmax(0)
    weights = mixture_weights(log_probs, 500)
    assert float(weights.sum()) == pytest.approx(1.0)
    best = float(mix(log_probs, weights).mean())
    for _ in range(20):
        other = (weights.log() + 0.3 * torch.randn(3, generator=generator)).softmax(0)
        assert float(mix(log_probs, other).mean()) <= best + 1e-6
    torch.testing.assert_close(mix(log_probs, weights), (weights @ log_probs.double().exp()).log())


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(InputError, match="window"):
        cache_probs(torch.zeros(1, 2, 3), torch.zeros(1, 2), 0, 1.0)
    with pytest.raises(InputError, match="were wanted"):
        cache_probs(torch.zeros(1, 2, 3), torch.zeros(1, 3), 2, 1.0)
    with pytest.raises(InputError, match="impossible"):
        mixture_weights(torch.full((2, 3), -torch.inf))
    with pytest.raises(InputError, match="shape"):
        mixture_weights(torch.zeros(3))
