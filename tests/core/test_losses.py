import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from voiceseq.core.ctc import ctc_loss
from voiceseq.core.losses import (
    append_token,
    cross_entropy,
    glove_loss,
    joint_ctc_attention,
    mask_tokens,
    masked_lm_loss,
    trigger_loss,
    trigger_targets,
)
from voiceseq.errors import InputError


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def random_tokens(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


LENGTHS = torch.tensor([6, 1, 4])


# --- cross entropy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_cross_entropy_is_torchs_on_the_valid_tokens(smoothing):
    logits, targets = random(3, 6, 5), random_tokens(5, 3, 6)
    rows = [(logits[row, :n], targets[row, :n]) for row, n in enumerate(LENGTHS.tolist())]
    expected = functional.cross_entropy(
        torch.cat([row[0] for row in rows]), torch.cat([row[1] for row in rows]), label_smoothing=smoothing
    )
    torch.testing.assert_close(cross_entropy(logits, targets, LENGTHS, smoothing), expected)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.floats(0, 0.9), st.data())
def test_cross_entropy_is_its_equation(batch, time, symbols, smoothing, data):
    logits, targets = random(batch, time, symbols, seed=time), random_tokens(symbols, batch, time)
    lengths = data.draw(st.lists(st.integers(1, time), min_size=batch, max_size=batch))
    total = 0.0
    for row, length in enumerate(lengths):
        for t in range(length):
            wanted = [smoothing / symbols] * symbols
            wanted[targets[row, t]] += 1 - smoothing
            normaliser = math.log(sum(math.exp(x) for x in logits[row, t].tolist()))
            total -= sum(w * (float(x) - normaliser) for w, x in zip(wanted, logits[row, t], strict=True))
    ours = cross_entropy(logits, targets, torch.tensor(lengths), smoothing)
    assert float(ours) == pytest.approx(total / sum(lengths), abs=1e-9)


def test_cross_entropy_padding_has_no_say():
    logits, targets = random(3, 6, 5).requires_grad_(), random_tokens(5, 3, 6)
    loss = cross_entropy(logits, targets, LENGTHS, 0.1)
    rubbish = targets.clone()
    for row, length in enumerate(LENGTHS.tolist()):
        rubbish[row, length:] = -100
    torch.testing.assert_close(cross_entropy(logits + 0.0, rubbish, LENGTHS, 0.1), loss)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert [int(row.any(-1).sum()) for row in gradient] == LENGTHS.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((random(3, 6), random_tokens(5, 3, 6)), "logits has shape"),
        ((random(3, 6, 5), random_tokens(5, 3, 5)), "targets has shape"),
        ((random(3, 6, 5), random_tokens(5, 3, 6) + 1), "targets holds 5"),
        ((random(3, 6, 5), random_tokens(5, 3, 6) - 1), "targets holds -1"),
        ((random(3, 6, 5), random(3, 6)), "targets has shape .* dtype"),
        ((random(3, 6, 5) * torch.nan, random_tokens(5, 3, 6)), "NaN"),
        ((random(3, 6, 5), random_tokens(5, 3, 6), torch.tensor([6, 0, 1])), "at least 1 frame"),
        ((random(3, 6, 5), random_tokens(5, 3, 6), torch.tensor([6, 7, 1])), "only 6 frames"),
        ((random(3, 6, 5), random_tokens(5, 3, 6), None, 1.0), "label_smoothing"),
    ],
)
def test_cross_entropy_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        cross_entropy(*arguments)


# --- joint CTC / attention -------------------------------------------------------------------------------------------


def joint_batch():
    targets = torch.tensor([[1, 2, 3], [4, -1, -1], [2, 2, -1]])
    return random(3, 8, 6).log_softmax(-1), random(3, 4, 6, seed=1), targets, torch.tensor([8, 3, 5]), LENGTHS_U


LENGTHS_U = torch.tensor([3, 1, 2])


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_joint_loss_is_the_weighted_sum(weight):
    log_probs, logits, targets, input_lengths, target_lengths = joint_batch()
    joint = joint_ctc_attention(*joint_batch(), eos=5, weight=weight, label_smoothing=0.1)
    decoder = torch.tensor([[1, 2, 3, 5], [4, 5, 0, 0], [2, 2, 5, 0]])
    attention = cross_entropy(logits, decoder, torch.tensor([4, 2, 3]), 0.1)
    ctc = ctc_loss(log_probs, targets, input_lengths, target_lengths).loss
    torch.testing.assert_close(joint.ctc, ctc)
    torch.testing.assert_close(joint.attention, attention)
    torch.testing.assert_close(joint.loss, weight * ctc + (1 - weight) * attention)


def test_joint_loss_skips_in_ctc_alone():
    log_probs, logits, targets, _, target_lengths = joint_batch()
    short = torch.tensor([8, 3, 2])  # the repeat of row 2 wants 3 frames
    with pytest.raises(InputError, match="row 2: 2 tokens need 3 frames, has 2"):
        joint_ctc_attention(log_probs, logits, targets, short, target_lengths, eos=5)
    joint = joint_ctc_attention(log_probs, logits, targets, short, target_lengths, eos=5, impossible="skip")
    assert joint.skipped == 1
    torch.testing.assert_close(joint.attention, joint_ctc_attention(*joint_batch(), eos=5).attention)
    torch.testing.assert_close(joint.ctc, ctc_loss(log_probs[:2], targets[:2], short[:2], target_lengths[:2]).loss)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"weight": 1.5}, "weight is 1.5"), ({"eos": 6}, "targets holds 6"), ({"impossible": "no"}, "'skip'")],
)
def test_joint_loss_bad_input(changes, message):
    with pytest.raises(InputError, match=message):
        joint_ctc_attention(*joint_batch(), **{"eos": 5, **changes})


def test_append_token():
    tokens = torch.tensor([[1, 2], [3, 0], [0, 0]])
    assert append_token(tokens, torch.tensor([2, 1, 0]), 9).tolist() == [[1, 2, 9], [3, 9, 0], [9, 0, 0]]


# --- trigger ---------------------------------------------------------------------------------------------------------


def test_trigger_targets_stand_after_the_word():
    targets, weights = trigger_targets([[(3, 0)], [], [(8, 1), (10, 0)]], words=2, size=10, spread=5, edge=1, ignore=2)
    assert targets[0, :, 0].tolist() == [0, 0, 0, 0.5, 1, 1, 1, 0.5, 0, 0]
    assert weights[0, :, 0].tolist() == [1, 0, 0, 1, 1, 1, 1, 1, 0, 0]
    assert weights[0, :, 1].tolist() == [1] * 10  # ignored for its own word alone
    assert targets[2, :, 1].tolist() == [0] * 8 + [0.5, 1]  # the clip ends before the spread does
    assert not targets[1].any()
    assert not targets[2, :, 0].any()  # ended with the clip: no frame after it, the last two ignored
    assert weights[2, :, 0].tolist() == [1] * 8 + [0, 0]


def test_trigger_ramp_and_overlap():
    targets, weights = trigger_targets([[(1, 0)]], 1, 10, spread=7, edge=2)
    third = 1 / 3
    assert targets[0, :, 0].tolist() == pytest.approx([0, third, 2 * third, 1, 1, 1, 2 * third, third, 0, 0])
    assert weights.eq(1).all()
    overlap = trigger_targets([[(1, 0), (3, 0)]], 1, 9, spread=4, edge=1).targets
    assert overlap[0, :, 0].tolist() == [0, 0.5, 1, 1, 1, 1, 0.5, 0, 0]


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 3), st.integers(0, 5), st.data())
def test_trigger_targets_by_their_definition(size, spread, edge, ignore, data):
    ends = data.draw(st.lists(st.integers(0, size), max_size=3))
    if 2 * edge >= spread:
        return
    targets, weights = trigger_targets([[(end, 0) for end in ends]], 1, size, spread, edge, ignore)
    for t in range(size):
        heights = [min(1, (t - end + 1) / (edge + 1), (end + spread - t) / (edge + 1)) for end in ends]
        inside = [height for end, height in zip(ends, heights, strict=True) if end <= t < end + spread]
        assert float(targets[0, t, 0]) == pytest.approx(max(inside, default=0.0))
        near = any(end - ignore <= t < end + spread + ignore for end in ends)
        assert float(weights[0, t, 0]) == float(bool(inside) or not near)


def test_trigger_loss_is_its_equation():
    logits = random(2, 8, 2)
    targets, weights = trigger_targets([[(2, 0)], [(4, 1)]], 2, 8, spread=3, edge=1, ignore=1)
    lengths, positive = torch.tensor([8, 6]), [3.0, 5.0]
    total = counted = 0.0
    for row, length in enumerate(lengths.tolist()):
        for t in range(length):
            for word in range(2):
                p = 1 / (1 + math.exp(-float(logits[row, t, word])))
                y, w = float(targets[row, t, word]), float(weights[row, t, word])
                total -= w * (positive[word] * y * math.log(p) + (1 - y) * math.log(1 - p))
                counted += w
    ours = trigger_loss(logits, targets, weights, lengths, torch.tensor(positive))
    assert float(ours) == pytest.approx(total / counted)


def test_trigger_loss_padded_is_alone():
    logits = random(2, 8, 2).requires_grad_()
    targets, weights = trigger_targets([[(2, 0)], [(4, 1)]], 2, 8, spread=3, edge=1)
    lengths = torch.tensor([8, 5])
    together = trigger_loss(logits, targets, weights, lengths, 4.0)
    alone = [trigger_loss(logits[i : i + 1, :n], targets[i : i + 1, :n], None, None, 4.0) for i, n in enumerate((8, 5))]
    torch.testing.assert_close(together, (8 * alone[0] + 5 * alone[1]) / 13)
    (gradient,) = torch.autograd.grad(together, logits)
    assert not gradient[1, 5:].any()


def test_ignored_frames_get_no_gradient():
    logits = random(1, 9, 1).requires_grad_()
    targets, weights = trigger_targets([[(4, 0)]], 1, 9, spread=2, ignore=2)
    (gradient,) = torch.autograd.grad(trigger_loss(logits, targets, weights), logits)
    assert gradient[0, :, 0].ne(0).tolist() == [True, True, False, False, True, True, False, False, True]
    assert (gradient[0, 4:6] < 0).all()  # positives pull up, the rest down
    assert (gradient[0, [0, 1, 8]] > 0).all()


TRIGGER = (random(1, 4, 2), torch.zeros(1, 4, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trigger_targets([[(11, 0)]], 1, 10, 3), "ends at frame 11"),
        (lambda: trigger_targets([[(-1, 0)]], 1, 10, 3), "ends at frame -1"),
        (lambda: trigger_targets([[], [(1, 1)]], 1, 10, 3), "row 1: word 1"),
        (lambda: trigger_targets([[]], 1, 10, 4, edge=2), "two edges"),
        (lambda: trigger_targets([[]], 1, 10, 0), "spread 0"),
        (lambda: trigger_targets([[]], 0, 10, 1), "words 0"),
        (lambda: trigger_targets([[]], 1, 10, 3, ignore=-1), "ignore -1"),
        (lambda: trigger_loss(TRIGGER[0], TRIGGER[1][:, :3]), "targets has shape"),
        (lambda: trigger_loss(*TRIGGER, torch.ones(1, 4, 1)), "weights has shape"),
        (lambda: trigger_loss(*TRIGGER, torch.zeros(1, 4, 2)), "no valid frame"),
        (
            lambda: trigger_loss(
                *TRIGGER, torch.tensor([0.0, 0, 0, 1])[None, :, None].expand(1, 4, 2), torch.tensor([3])
            ),
            "no v",
        ),
        (lambda: trigger_loss(TRIGGER[0], TRIGGER[1] + 2), "0 to 1.0 was wanted"),
        (lambda: trigger_loss(*TRIGGER, torch.ones(1, 4, 2) * -1), "weights holds"),
        (lambda: trigger_loss(TRIGGER[0], TRIGGER[1] * torch.nan), "targets holds 8 NaN"),
        (lambda: trigger_loss(TRIGGER[0] / 0, TRIGGER[1]), "infinite"),
        (lambda: trigger_loss(*TRIGGER, positive_weight=0.0), "positive_weight"),
        (lambda: trigger_loss(*TRIGGER, positive_weight=torch.ones(3)), "positive_weight"),
    ],
)
def test_trigger_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


# --- masked language model -------------------------------------------------------------------------------------------

PAD, MASK, BOS = 0, 1, 2


def test_masking_is_80_10_10_of_the_ordinary_tokens():
    vocabulary = 103
    tokens = random_tokens(vocabulary, 800, 300)
    lengths = random_tokens(300, 800, seed=1) + 1
    masked, chosen = mask_tokens(
        tokens, lengths, vocabulary, MASK, {PAD, BOS}, generator=torch.Generator().manual_seed(0)
    )
    valid = torch.arange(300) < lengths[:, None]
    ordinary = valid & (tokens > 2)
    assert not chosen[~ordinary].any()
    assert masked[~chosen].equal(tokens[~chosen])
    assert float(chosen.sum() / ordinary.sum()) == pytest.approx(0.15, abs=0.006)
    before, after = tokens[chosen], masked[chosen]
    assert float((after == MASK).float().mean()) == pytest.approx(0.8, abs=0.015)
    assert float((after == before).float().mean()) == pytest.approx(0.1 + 0.1 / 100, abs=0.012)
    replaced = after[(after != MASK) & (after != before)]
    assert replaced.min() >= 3
    assert len(replaced.unique()) == 100  # every ordinary token comes, and only these
    assert bool((chosen.any(1) | ~ordinary.any(1)).all())


def test_masking_is_the_generators():
    tokens = random_tokens(20, 4, 50)
    once, again, other = (
        mask_tokens(tokens, None, 20, MASK, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert once.tokens.equal(again.tokens)
    assert once.chosen.equal(again.chosen)
    assert not once.chosen.equal(other.chosen)


def test_short_rows_have_one_token_chosen_unless_all_are_special():
    tokens = torch.tensor([[2, 5, 0], [6, 0, 0], [2, 2, 0]])
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        chosen = mask_tokens(tokens, torch.tensor([2, 1, 2]), 7, MASK, [PAD, BOS], 1e-6, generator).chosen
        assert chosen.tolist() == [[False, True, False], [True, False, False], [False, False, False]]


def test_masked_loss_looks_at_the_chosen_alone():
    logits, tokens = random(3, 6, 5), random_tokens(5, 3, 6)
    chosen = torch.zeros(3, 6, dtype=torch.bool)
    chosen[0, 2] = chosen[2, 0] = chosen[2, 5] = True
    expected = -sum(logits[b, t].log_softmax(-1)[tokens[b, t]] for b, t in chosen.nonzero().tolist()) / 3
    torch.testing.assert_close(masked_lm_loss(logits, tokens, chosen), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mask_tokens(torch.ones(1, 3).long(), None, 0, 1), "0 symbols"),
        (lambda: mask_tokens(torch.ones(1, 3).long(), None, 2, 1, [0]), "0 of 2 tokens not special"),
        (lambda: mask_tokens(torch.ones(1, 3).long(), None, 2, 2), "mask 2"),
        (lambda: mask_tokens(torch.ones(1, 3).long(), None, 5, 1, rate=0.0), "rate 0.0"),
        (lambda: mask_tokens(torch.ones(1, 3).long() * 9, None, 5, 1), "tokens holds 9"),
        (lambda: masked_lm_loss(random(1, 3, 4), torch.ones(1, 3).long(), torch.zeros(1, 3).bool()), "not empty"),
        (lambda: masked_lm_loss(random(1, 3, 4), torch.ones(1, 3).long(), torch.ones(1, 3).long()), "bool mask"),
        (lambda: masked_lm_loss(random(1, 3, 4), torch.ones(1, 2).long(), torch.ones(1, 3).bool()), "tokens has shape"),
    ],
)
def test_masked_lm_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


# --- GloVe -----------------------------------------------------------------------------------------------------------


def test_glove_is_its_equation():
    words, contexts, biases, others = random(4, 3), random(4, 3, seed=1), random(4, seed=2), random(4, seed=3)
    counts = [1.0, 8.0, 10.0, 500.0]
    expected = 0.0
    for i, count in enumerate(counts):
        weight = (count / 10) ** 0.75 if count < 10 else 1.0
        expected += weight * (float(words[i] @ contexts[i] + biases[i] + others[i]) - math.log(count)) ** 2 / 4
    ours = glove_loss(words, contexts, biases, others, torch.tensor(counts), maximum=10)
    assert float(ours) == pytest.approx(expected)


def test_glove_gradient_by_finite_differences():
    inputs = [random(4, 3), random(4, 3, seed=1), random(4, seed=2), random(4, seed=3)]
    counts = torch.tensor([1, 5, 99, 1000])
    assert torch.autograd.gradcheck(lambda *x: glove_loss(*x, counts), [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: random(4)}, "words has shape"),
        ({1: random(4, 2)}, "contexts"),
        ({2: random(3)}, "word_biases"),
        ({4: torch.ones(3)}, "counts has shape"),
        ({4: torch.tensor([1.0, 0.0, 1.0, 1.0])}, "never seen"),
        ({4: torch.tensor([1.0, torch.nan, 1.0, 1.0])}, "counts holds 1 NaN"),
        ({0: random(4, 3) * torch.nan}, "words holds 12 NaN.*learning rate"),
        ({1: random(4, 3) / 0}, "contexts holds 12 NaN or infinite"),
        ({2: random(4) * torch.nan}, "word_biases holds 4 NaN"),
        ({3: random(4) * torch.nan}, "context_biases holds 4 NaN"),
        ({0: torch.ones(4, 3).long(), 1: torch.ones(4, 3).long()}, "words has dtype torch.int64"),
        ({1: random(4, 3).float()}, "contexts has dtype torch.float32; torch.float64"),
        ({3: random(4).float()}, "context_biases has dtype torch.float32; torch.float64"),
        ({0: [[1.0]]}, "words is a list"),
        ({4: [1.0] * 4}, "counts is a list"),
        ({5: 0.0}, "maximum is 0.0; more than 0"),
        ({5: -1.0}, "maximum is -1.0"),
        ({5: torch.nan}, "maximum is nan"),
        ({6: -0.5}, "power is -0.5; 0 or more"),
    ],
)
def test_glove_bad_input(changes, message):
    arguments = [random(4, 3), random(4, 3), random(4), random(4), torch.ones(4), 100.0, 0.75]
    for place, value in changes.items():
        arguments[place] = value
    with pytest.raises(InputError, match=message):
        glove_loss(*arguments)


@pytest.mark.parametrize(
    "loss",
    [
        lambda logits: cross_entropy(logits, torch.zeros(1, 3).long()),
        lambda logits: trigger_loss(logits, torch.zeros(1, 3, 4)),
        lambda logits: masked_lm_loss(logits, torch.zeros(1, 3).long(), torch.ones(1, 3).bool()),
    ],
)
def test_nan_in_logits_is_blamed_on_the_training(loss):
    with pytest.raises(InputError, match=r"logits holds 12 NaN .*diverged: lower the learning rate or clip") as caught:
        loss(random(1, 3, 4) * torch.nan)
    assert "replace" not in str(caught.value)
