"""Many-to-one, one-to-many and encoder-decoder: against loops, padded, taught and step by step."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from voiceseq.core.attention import AdditiveAttention, DotAttention, LocationAwareAttention
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.shapes import POOLS, Bridge, EncoderDecoder, Pool, TokenDecoder, Unroll
from voiceseq.errors import InputError

VOCABULARY = 7
LENGTHS = torch.tensor([4, 9, 1])
TOKEN_LENGTHS = torch.tensor([6, 2, 5])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


def frames(*shape) -> Tensor:
    return torch.randn(*shape, dtype=torch.double)


def choose(state, rows):
    return state[rows] if isinstance(state, Tensor) else tuple(choose(part, rows) for part in state)


# --- many-to-one --------------------------------------------------------------------------------------------------


def pool_one(pool: Pool, row: Tensor) -> Tensor:
    """One sequence without padding, by the definition."""
    if pool.kind == "attention":
        scores = torch.stack([torch.dot(pool.query, torch.tanh(pool.key.weight @ x + pool.key.bias)) for x in row])
        weights = scores.exp() / scores.exp().sum()
        return sum(w * x for w, x in zip(weights, row, strict=True))
    return {"last": row[-1], "mean": row.sum(0) / len(row), "max": torch.stack([c.max() for c in row.T])}[pool.kind]


@pytest.mark.parametrize("kind", POOLS)
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4), extra=st.integers(0, 3))
def test_pool_of_a_padded_batch_is_each_row_by_definition(kind, lengths, extra):
    pool = Pool(kind, 5 if kind == "attention" else None).double()
    x = frames(len(lengths), max(lengths) + extra, 5)
    for row, length in enumerate(lengths):
        x[row, length:] = 1e300
    pooled = pool(x, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        close(pooled[row], pool_one(pool, x[row, :length]))


@pytest.mark.parametrize("kind", POOLS)
def test_pool_gradients_stay_out_of_the_padding(kind):
    pool = Pool(kind, 5).double()
    x = frames(3, 9, 5).requires_grad_()
    (grad,) = torch.autograd.grad((pool(x, LENGTHS) ** 2).sum(), x)
    for row, length in enumerate(LENGTHS):
        assert grad[row, :length].any()
        assert not grad[row, length:].any()
    assert torch.autograd.gradcheck(lambda x: pool(x, LENGTHS), x)


def test_attention_pooling_returns_its_weights():
    pool = Pool("attention", 5).double()
    x = frames(3, 9, 5)
    pooled, weights = pool.attend(x, LENGTHS)
    close(pooled, torch.einsum("bt,btf->bf", weights, x))
    close(weights.sum(1), torch.ones(3, dtype=torch.double))
    assert not any(weights[row, length:].any() for row, length in enumerate(LENGTHS))


def test_bad_pooling():
    with pytest.raises(InputError, match="'sum'; choose from last, mean, max, attention"):
        Pool("sum")
    with pytest.raises(InputError, match="features=None"):
        Pool("attention")
    with pytest.raises(InputError, match="has no weights"):
        Pool("mean").attend(frames(1, 2, 3))
    for kind in POOLS:
        pool = Pool(kind, 5)
        for x, lengths in [
            (torch.zeros(2, 3, 4), None),
            (torch.zeros(2, 0, 5), None),
            (torch.zeros(2, 3, 5), torch.tensor([3, 0])),
            (torch.zeros(2, 3, 5), torch.tensor([4, 1])),
            (torch.full((2, 3, 5), torch.nan), None),
        ]:
            with pytest.raises(InputError):
                pool(x, lengths)


# --- one-to-many --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_unroll_feeds_its_own_output_back(cell):
    module = Unroll(3, Recurrent(4, 6, cell, layers=2)).double()
    vector = frames(2, 3)
    outputs = module(vector, 5)
    assert outputs.shape == (2, 5, 4)
    state, x = module.bridge(vector), torch.zeros(2, 4, dtype=torch.double)
    for t in range(5):
        hidden, state = module.network.step(x, state)
        x = module.output(hidden)
        close(outputs[:, t], x)
    close(module.teach(vector, outputs), outputs)  # taught with its own outputs it gives them again


def test_unroll_is_padded_as_alone():
    module = Unroll(3, Recurrent(4, 6, "gru")).double()
    vector, targets = frames(3, 3), frames(3, 9, 4)
    free, taught = module(vector, LENGTHS), module.teach(vector, targets, LENGTHS)
    assert free.shape == taught.shape == (3, 9, 4)
    for row, length in enumerate(LENGTHS):
        one = slice(row, row + 1)
        close(free[one, :length], module(vector[one], int(length)))
        close(taught[one, :length], module.teach(vector[one], targets[one, :length]))
        assert not free[row, length:].any()
        assert not taught[row, length:].any()


def test_teaching_sees_only_what_came_before():
    module = Unroll(3, Recurrent(4, 6, "gru")).double()
    targets = frames(1, 6, 4).requires_grad_()
    (grad,) = torch.autograd.grad(module.teach(frames(1, 3), targets)[0, 3].sum(), targets)
    assert grad[0, :3].any()
    assert not grad[0, 3:].any()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_bridge_is_an_affine_tanh(cell):
    network = Recurrent(4, 6, cell, layers=2)
    bridge = Bridge(3, network).double()
    vector = frames(2, 3)
    state = bridge(vector)
    flat = state if cell == "gru" else [t for pair in state for t in pair]
    close(torch.cat(tuple(flat), 1), torch.tanh(vector @ bridge.linear.weight.T + bridge.linear.bias))
    network.double()(frames(2, 5, 4), state)  # and fits the network


def test_bad_one_to_many():
    module = Unroll(3, Recurrent(4, 6, "gru"))
    with pytest.raises(InputError, match=r"\(2, 4\); \(batch, 3\)"):
        module(torch.zeros(2, 4), 5)
    with pytest.raises(InputError, match="NaN"):
        module(torch.full((2, 3), torch.nan), 5)
    for steps in (0, torch.tensor([3, 0]), torch.tensor([3])):
        with pytest.raises(InputError, match="steps"):
            module(torch.zeros(2, 3), steps)
    with pytest.raises(InputError, match="targets"):
        module.teach(torch.zeros(2, 3), torch.zeros(2, 5, 3))
    with pytest.raises(InputError, match="bidirectional"):
        Unroll(3, Recurrent(4, 6, "gru", bidirectional=True))


# --- encoder-decoder ----------------------------------------------------------------------------------------------

ATTENTIONS = {
    "none": lambda: None,
    "dot": lambda: DotAttention(8),
    "additive": lambda: AdditiveAttention(8, 8, 5),
    "location": lambda: LocationAwareAttention(8, 8, 5, filters=2, kernel=3),
}


def model(attention="additive", cell="lstm", bidirectional=True, layers=2) -> EncoderDecoder:
    encoder = Recurrent(3, 4 if bidirectional else 8, cell, layers, bidirectional)
    attend = ATTENTIONS[attention]()
    network = Recurrent(5 + (8 if attend else 0), 8, cell, layers)
    return EncoderDecoder(encoder, TokenDecoder(VOCABULARY, network, 8, attend)).double()


def batch():
    return frames(3, 9, 3), torch.randint(VOCABULARY, (3, 6))


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("cell", ["gru", "lstm", "lstm_peephole"])
def test_step_by_step_equals_teacher_forcing(attention, cell):
    network = model(attention, cell)
    x, tokens = batch()
    logits, weights = network(x, tokens, LENGTHS)
    state, memory = network.start(x, LENGTHS)
    for t in range(6):
        log_probs, state = network.decode_step(tokens[:, t], state, memory)
        close(log_probs, logits[:, t].log_softmax(-1))
        if weights is not None:
            close(weights[:, t], state[2])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_encoder_decoder_equals_the_equations_on_torch_modules(bidirectional, cell):
    network = model("additive", cell, bidirectional, layers=1)
    decoder, attention = network.decoder, network.decoder.attention
    kind, one = (nn.GRU, nn.GRUCell) if cell == "gru" else (nn.LSTM, nn.LSTMCell)
    encoder = kind(3, network.encoder.hidden_size, batch_first=True, bidirectional=bidirectional).double()
    step = one(13, 8).double()
    for ours, theirs in ((network.encoder, encoder), (decoder.network, step)):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            b.data.copy_(a.data)
    x, tokens = batch()
    logits, weights = network(x, tokens)
    memory, final = encoder(x)
    last = final if cell == "gru" else final[0]
    start = torch.tanh(decoder.bridge.linear(torch.cat(list(last), -1)))
    state = start if cell == "gru" else (start[:, :8], start[:, 8:])
    context = torch.zeros(3, 8, dtype=torch.double)
    for t in range(6):
        state = step(torch.cat((decoder.embedding.weight[tokens[:, t]], context), -1), state)
        h = state if cell == "gru" else state[0]
        scores = attention.score(torch.tanh(attention.query(h)[:, None] + attention.key(memory)))[..., 0]
        alpha = scores.exp() / scores.exp().sum(1, keepdim=True)
        context = (alpha[..., None] * memory).sum(1)
        close(weights[:, t], alpha)
        close(logits[:, t], decoder.output(torch.tanh(decoder.join(torch.cat((h, context), -1)))))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_encoder_decoder_padded_equals_alone(attention):
    network = model(attention)
    x, tokens = batch()
    for row, length in enumerate(LENGTHS):
        x[row, length:] = 1e300
    x.requires_grad_()
    logits, weights = network(x, tokens, LENGTHS, TOKEN_LENGTHS)
    parameters = list(network.parameters())
    unused = torch.autograd.grad((logits**2).sum(), [x, *parameters], retain_graph=True)
    summed = [torch.zeros_like(p) for p in parameters]
    for row, (n, m) in enumerate(zip(LENGTHS, TOKEN_LENGTHS, strict=True)):
        alone, w = network(x[row : row + 1, :n], tokens[row : row + 1, :m])
        close(logits[row, :m], alone[0])
        assert not logits[row, m:].any()
        if weights is not None:
            close(weights[row, :m, :n], w[0])
            assert not weights[row, m:].any()
            assert not weights[row, :, n:].any()
        summed = [a + b for a, b in zip(summed, torch.autograd.grad((alone**2).sum(), parameters), strict=True)]
        assert not unused[0][row, n:].any()
    for a, b in zip(unused[1:], summed, strict=True):
        close(a, b, atol=1e-10)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_search_may_choose_among_the_rows(attention):
    network = model(attention)
    x, tokens = batch()
    rows = torch.tensor([2, 0, 0, 1])
    state, memory = network.start(x, LENGTHS)
    _, state = network.decode_step(tokens[:, 0], state, memory)
    expected, _ = network.decode_step(tokens[:, 1], state, memory)
    chosen, _ = network.decode_step(tokens[rows, 1], choose(state, rows), memory and choose(memory, rows))
    close(chosen, expected[rows])


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_hypotheses_of_a_sequence_share_its_memory(attention):
    network = model(attention)
    x, tokens = batch()
    state, memory = network.start(x, LENGTHS)
    _, state = network.decode_step(tokens[:, 0], state, memory)
    rows = torch.arange(3).repeat_interleave(4)  # four hypotheses each, sequence by sequence
    fed = torch.arange(12) % VOCABULARY
    shared, _ = network.decode_step(fed, choose(state, rows), memory)
    copied, _ = network.decode_step(fed, choose(state, rows), memory and choose(memory, rows))
    close(shared, copied)


def fed_tokens(network, monkeypatch, *args, **options):
    """What the decoder was fed, step by step ``(batch, time)``, and the logits."""
    fed, step = [], network.decoder._step
    monkeypatch.setattr(network.decoder, "_step", lambda tokens, *more: (fed.append(tokens), step(tokens, *more))[1])
    logits, _ = network(*args, **options)
    return torch.stack(fed, 1), logits


@pytest.mark.parametrize("attention", ["none", "additive"])
def test_scheduled_sampling_feeds_the_models_own_symbols(attention, monkeypatch):
    network = model(attention)
    x = frames(200, 2, 3)
    tokens = torch.zeros(200, 8, dtype=torch.long)
    with torch.no_grad():
        network.decoder.output.bias.copy_(torch.tensor([-50.0, 0, 0, 0, 0, 0, 0]))  # never draws symbol 0
    for sampling in (0.25, 1.0):
        generator = torch.Generator().manual_seed(3)
        fed, logits = fed_tokens(network, monkeypatch, x, tokens, sampling=sampling, generator=generator)
        assert not fed[:, 0].any()  # the start symbol stays
        own = (fed[:, 1:] != 0).double().mean().item()
        assert abs(own - sampling) < 0.05 if sampling < 1 else own == 1
        close(network(x, fed)[0], logits)  # the logits are those of what was fed
        again = network(x, tokens, sampling=sampling, generator=torch.Generator().manual_seed(3))[0]
        assert torch.equal(again, logits)


def test_scheduled_sampling_draws_from_the_last_distribution(monkeypatch):
    network = model("none")
    x = frames(1, 2, 3).expand(4000, -1, -1)
    tokens = torch.zeros(4000, 2, dtype=torch.long)
    with torch.no_grad():
        network.decoder.output.bias.copy_(torch.linspace(-1, 2, VOCABULARY))
    generator = torch.Generator().manual_seed(0)
    fed, logits = fed_tokens(network, monkeypatch, x, tokens, sampling=1.0, generator=generator)
    frequencies = torch.bincount(fed[:, 1], minlength=VOCABULARY) / 4000
    probabilities = logits[0, 0].softmax(-1)
    assert probabilities.max() > 2 / VOCABULARY  # not just uniform
    close(frequencies.double(), probabilities, atol=0.03)


def test_gradients_of_the_encoder_decoder_by_finite_differences():
    network = model("additive", "gru", layers=1)
    x, tokens = frames(2, 4, 3).requires_grad_(), torch.randint(VOCABULARY, (2, 3))
    names = [name for name, _ in network.named_parameters()]

    def run(x, *parameters):
        values = dict(zip(names, parameters, strict=True))
        arguments = (x, tokens, torch.tensor([4, 2]), torch.tensor([1, 3]))
        return torch.func.functional_call(network, values, arguments)[0]

    assert torch.autograd.gradcheck(run, (x, *network.parameters()), fast_mode=True)


def test_decoder_learns_to_reverse():
    """The whole shape at work: a few symbols in, the same in reverse out."""
    encoder = Recurrent(6, 24, "gru", bidirectional=True)
    attention = AdditiveAttention(48, 48, 24)
    network = EncoderDecoder(encoder, TokenDecoder(6, Recurrent(16 + 48, 48, "gru"), 48, attention))
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(250):
        symbols = torch.randint(1, 6, (32, 5))
        fed = torch.cat((torch.zeros(32, 1, dtype=torch.long), symbols.flip(1)[:, :-1]), 1)
        logits, _ = network(nn.functional.one_hot(symbols, 6).float(), fed)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), symbols.flip(1).flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    symbols = torch.randint(1, 6, (50, 5))
    state, memory = network.start(nn.functional.one_hot(symbols, 6).float())
    last, out = torch.zeros(50, dtype=torch.long), []
    for _ in range(5):
        log_probs, state = network.decode_step(last, state, memory)
        last = log_probs.argmax(-1)
        out.append(last)
    assert (torch.stack(out, 1) == symbols.flip(1)).float().mean() > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": torch.full((3, 6), VOCABULARY)}, "tokens holds 7"),
        ({"tokens": torch.full((3, 6), -1)}, "tokens holds -1"),
        ({"tokens": torch.zeros(3, 0, dtype=torch.long)}, "at least one row and one token"),
        ({"frames": torch.zeros(3, 9, 2, dtype=torch.double)}, r"\(3, 9, 2\)"),
        ({"frames": torch.zeros(3, 0, 3, dtype=torch.double)}, "at least one row and one frame"),
        ({"frames": torch.full((3, 9, 3), torch.nan, dtype=torch.double)}, "NaN"),
        ({"lengths": torch.tensor([9, 9, 10])}, r"lengths\[2\] is 10"),
        ({"token_lengths": torch.tensor([6, 0, 6])}, r"lengths\[1\] is 0"),
        ({"sampling": 1.5}, "sampling is 1.5"),
    ],
)
@pytest.mark.parametrize("attention", ["none", "additive"])
def test_bad_input_of_the_encoder_decoder(attention, options, message):
    x, tokens = batch()
    with pytest.raises(InputError, match=message):
        model(attention)(**({"frames": x, "tokens": tokens} | options))


def test_sizes_that_do_not_fit():
    with pytest.raises(InputError, match="queries of 5; the network gives 8"):
        TokenDecoder(VOCABULARY, Recurrent(13, 8), 8, AdditiveAttention(5, 8, 4))
    with pytest.raises(InputError, match="input_size is 8; more than the context's 8"):
        TokenDecoder(VOCABULARY, Recurrent(8, 8), 8, DotAttention(8))
    with pytest.raises(InputError, match="bidirectional"):
        TokenDecoder(VOCABULARY, Recurrent(5, 8, bidirectional=True), 8)
    with pytest.raises(InputError, match="starts from 8 features; the encoder gives 6"):
        EncoderDecoder(Recurrent(3, 6), TokenDecoder(VOCABULARY, Recurrent(5, 8), 8))
    with pytest.raises(InputError, match="keys of 4; the encoder gives 6"):
        EncoderDecoder(Recurrent(3, 6), TokenDecoder(VOCABULARY, Recurrent(9, 8), 6, AdditiveAttention(8, 4, 4)))
    decoder = TokenDecoder(VOCABULARY, Recurrent(13, 8), 3, DotAttention(8))
    with pytest.raises(InputError, match="attention and memory go together"):
        decoder.start(torch.zeros(2, 3))
    with pytest.raises(InputError, match="attention and memory go together"):
        TokenDecoder(VOCABULARY, Recurrent(5, 8), 3).start(torch.zeros(2, 3), torch.zeros(2, 4, 8))


@pytest.mark.parametrize("vocabulary", [0, -1])
def test_a_decoder_has_symbols(vocabulary):
    with pytest.raises(InputError, match=f"vocabulary is {vocabulary}; at least 1 was wanted"):
        TokenDecoder(vocabulary, Recurrent(5, 8), 3)
    with pytest.raises(InputError, match="inputs is 0; at least 1 was wanted"):
        TokenDecoder(3, Recurrent(5, 8), 0)


def test_shapes_of_another_dtype():
    with pytest.raises(InputError, match=r"vector has dtype torch.float64; torch.float32 was wanted"):
        Unroll(3, Recurrent(4, 5))(torch.zeros(2, 3).double(), 2)
    with pytest.raises(InputError, match="vector is a list"):
        Unroll(3, Recurrent(4, 5))([[0.0] * 3], 2)
    with pytest.raises(InputError, match=r"targets has dtype torch.float64; torch.float32 was wanted"):
        Unroll(3, Recurrent(4, 5)).teach(torch.zeros(2, 3), torch.zeros(2, 6, 4).double())
    with pytest.raises(InputError, match=r"frames has dtype torch.float64; torch.float32 was wanted"):
        Pool("attention", 4)(torch.zeros(2, 3, 4).double())
    assert Pool("mean", 4)(torch.ones(2, 3, 4).double()).dtype == torch.double
    decoder = TokenDecoder(VOCABULARY, Recurrent(13, 8), 3, DotAttention(8))
    with pytest.raises(InputError, match=r"memory has dtype torch.float64; torch.float32 was wanted"):
        decoder.start(torch.zeros(2, 3), torch.zeros(2, 4, 8).double())


def test_memory_and_summary_have_the_same_rows():
    decoder = TokenDecoder(VOCABULARY, Recurrent(13, 8), 3, DotAttention(8))
    with pytest.raises(InputError, match="memory has 1 rows and summary 2"):
        decoder.start(torch.zeros(2, 3), torch.zeros(1, 4, 8))


@pytest.mark.parametrize("steps", [0, 2.5, torch.tensor([2, 0]), torch.tensor([2]), torch.tensor([2.0, 1.0]), [2, 1]])
def test_steps_are_whole_numbers(steps):
    with pytest.raises(InputError, match="steps"):
        Unroll(3, Recurrent(4, 5))(torch.zeros(2, 3), steps)
