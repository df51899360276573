"""The shapes a sequence task can have, made of recurrent networks.

- aligned many-to-many: ``Recurrent`` itself, one output for each frame;
- many-to-one: ``Recurrent``, then ``Pool``;
- one-to-many: ``Unroll`` (vectors, each fed back as the next input) or ``TokenDecoder`` (symbols, e.g. a caption);
- many-to-many of another length: ``EncoderDecoder``, with or without attention.
"""

from typing import Any

import torch
from torch import Tensor, nn

from voiceseq.core.attention import QueryAttention
from voiceseq.core.masks import (
    check_dtype,
    check_finite,
    check_frames,
    check_sizes,
    check_tensor,
    check_tokens,
    lengths_mask,
    masked_mean,
    masked_softmax,
    parameter_dtype,
    zero_padding,
)
from voiceseq.core.recurrent import Recurrent
from voiceseq.core.recurrent import State as NetworkState
from voiceseq.errors import InputError

DecoderState = tuple[Any, ...]
"""The network's state; with attention also the last context and weights."""
Memory = tuple[Tensor, Tensor, Tensor]
"""What attention looks at, one row a sequence, never changed: prepared keys, frames, mask."""

POOLS = ("last", "mean", "max", "attention")


class Pool(nn.Module):
    """Many-to-one: ``(batch, time, features)`` -> ``(batch, features)`` over the valid frames.

    ``last`` takes the last valid frame, ``mean`` and ``max`` go over all of them, and ``attention`` takes the mean that
    a learned query weights: ``softmax_t(query . tanh(W frame_t + b))``. It alone needs the number of ``features``.

    Raises:
        InputError: an unknown kind, or attention without features.
    """

    def __init__(self, kind: str = "mean", features: int | None = None) -> None:
        super().__init__()
        if kind not in POOLS:
            raise InputError(f"there is no pooling {kind!r}; choose from {', '.join(POOLS)}")
        self.kind, self.features = kind, features
        if kind == "attention":
            if features is None or features < 1:
                raise InputError(f"attention pooling came with features={features}; give the size of a frame")
            self.key = nn.Linear(features, features)
            self.query = nn.Parameter(torch.randn(features) * features**-0.5)

    def forward(self, frames: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``frames (batch, time, features)``, ``lengths (batch,)`` -> ``(batch, features)``.

        Raises:
            InputError: a wrong shape, no frames, lengths longer than the data, NaN.
        """
        lengths = check_frames(frames, lengths, self.features, dtype=parameter_dtype(self))
        if self.kind == "last":
            return frames[torch.arange(len(lengths), device=frames.device), lengths - 1]
        if self.kind == "mean":
            return masked_mean(frames, lengths)
        if self.kind == "max":
            return frames.masked_fill(~lengths_mask(lengths, frames.shape[1])[..., None], -torch.inf).amax(1)
        return self._attend(frames, lengths)[0]

    def attend(self, frames: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attention pooling with its weights: ``(batch, features)`` and ``(batch, time)``, zero in the padding.

        Raises:
            InputError: as of ``forward``, or the pooling is of another kind.
        """
        if self.kind != "attention":
            raise InputError(f"{self.kind!r} pooling has no weights; make it Pool('attention', features)")
        return self._attend(frames, check_frames(frames, lengths, self.features, dtype=parameter_dtype(self)))

    def _attend(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        mask = lengths_mask(lengths, frames.shape[1])
        frames = frames.masked_fill(~mask[..., None], 0.0)
        weights = masked_softmax(torch.tanh(self.key(frames)) @ self.query, mask)
        return (weights[..., None] * frames).sum(1), weights


class Bridge(nn.Module):
    """From a vector ``(batch, inputs)`` to the first state of a network: ``tanh(W vector + b)`` for each tensor."""

    def __init__(self, inputs: int, network: Recurrent) -> None:
        super().__init__()
        if network.bidirectional:
            raise InputError("the decoder's network is bidirectional; what makes its own inputs can only go forward")
        check_sizes(inputs=inputs)
        self.inputs = inputs
        self.parts = (network.layers, network.state_tensors, network.hidden_size)
        self.linear = nn.Linear(inputs, network.layers * network.state_tensors * network.hidden_size)

    def forward(self, vector: Tensor) -> NetworkState:
        """``(batch, inputs)`` -> one ``h`` or ``(h, c)`` for each layer.

        Raises:
            InputError: a vector of another shape or dtype, or with NaN.
        """
        check_tensor(vector, "vector")
        if vector.dim() != 2 or vector.shape[1] != self.inputs:
            raise InputError(f"vector has shape {tuple(vector.shape)}; (batch, {self.inputs}) was wanted")
        check_dtype(vector, parameter_dtype(self), "vector")
        check_finite(vector, "vector")
        layers = torch.tanh(self.linear(vector)).unflatten(1, self.parts).unbind(1)
        return tuple(layer.unbind(1) if layer.shape[1] == 2 else layer[:, 0] for layer in layers)


class Unroll(nn.Module):
    """One-to-many: a vector ``(batch, inputs)`` starts a network that is fed its own last output, zeros at first.

    An output has the network's ``input_size``.

    Raises:
        InputError: a bidirectional network.
    """

    def __init__(self, inputs: int, network: Recurrent) -> None:
        super().__init__()
        self.bridge = Bridge(inputs, network)
        self.network = network
        self.output = nn.Linear(network.output_size, network.input_size)

    def start(self, vector: Tensor) -> tuple[Tensor, NetworkState]:
        """The state before the first output: the output to be fed back (none yet: zeros) and the network's state."""
        inner = self.bridge(vector)
        return vector.new_zeros(vector.shape[0], self.network.input_size), inner

    def step(self, state: tuple[Tensor, NetworkState]) -> tuple[Tensor, tuple[Tensor, NetworkState]]:
        """The next output ``(batch, network.input_size)`` and state."""
        hidden, inner = self.network.step(*state)
        output = self.output(hidden)
        return output, (output, inner)

    def forward(self, vector: Tensor, steps: int | Tensor) -> Tensor:
        """``(batch, inputs)`` -> ``(batch, steps, network.input_size)``; ``steps (batch,)`` gives each row its own.

        Raises:
            InputError: a vector of another shape, with NaN; fewer than 1 step.
        """
        state, outputs = self.start(vector), []
        if not isinstance(steps, Tensor):
            check_sizes(steps=steps)
        rows = steps if isinstance(steps, Tensor) else torch.full((len(vector),), steps, device=vector.device)
        if rows.shape != vector.shape[:1] or rows.is_floating_point() or not bool((rows > 0).all()):
            raise InputError(f"steps is {rows.tolist()}; whole numbers of at least 1 were wanted, one for each row")
        longest = int(rows.max())
        for _ in range(longest):
            output, state = self.step(state)
            outputs.append(output)
        return zero_padding(torch.stack(outputs, 1), rows)

    def teach(self, vector: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Teacher forcing: output t where the ``targets (batch, time, network.input_size)`` before t were fed back.

        Raises:
            InputError: wrong shapes, no targets, lengths longer than the targets, NaN.
        """
        checked = check_frames(targets, lengths, self.network.input_size, "targets", parameter_dtype(self))
        previous, inner = self.start(vector)
        hidden, _ = self.network(torch.cat((previous[:, None], targets[:, :-1]), 1), inner, lengths)
        return zero_padding(self.output(hidden), checked)


class TokenDecoder(nn.Module):
    """A network that writes symbols: each step sees the last symbol and, with attention, the last context.

    ::

        h_t       = network([embedding(y_{t-1}), context_{t-1}], state)
        context_t = attention(query=h_t, memory)
        logits_t  = W tanh(V [h_t, context_t])          (without attention: W h_t)

    The embedding has what ``network.input_size`` leaves beside the context.

    Args:
        vocabulary: number of symbols.
        network: unidirectional.
        summary: size of the vector that the decoder starts from.
        attention: over a memory of ``attention.key_size`` features, with queries of ``network.output_size``; or None.

    Raises:
        InputError: sizes that do not fit, no symbols, or a bidirectional network.
    """

    def __init__(
        self, vocabulary: int, network: Recurrent, summary: int, attention: QueryAttention | None = None
    ) -> None:
        super().__init__()
        check_sizes(vocabulary=vocabulary)
        context = attention.key_size if attention else 0
        if attention and attention.query_size != network.output_size:
            raise InputError(
                f"attention takes queries of {attention.query_size}; the network gives {network.output_size}"
            )
        if network.input_size <= context:
            raise InputError(
                f"network.input_size is {network.input_size}; more than the context's {context} was wanted"
            )
        self.vocabulary = vocabulary
        self.bridge = Bridge(summary, network)
        self.embedding = nn.Embedding(vocabulary, network.input_size - context)
        self.network = network
        self.attention = attention
        self.join = nn.Linear(network.output_size + context, network.output_size) if attention else None
        self.output = nn.Linear(network.output_size, vocabulary)

    def start(
        self, summary: Tensor, memory: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[DecoderState, Memory | None]:
        """The state before the first symbol, and what attention will look at.

        Args:
            summary: ``(batch, summary)``, e.g. the encoder's last state, or the picture of a caption.
            memory: ``(batch, time, attention.key_size)`` with its ``lengths (batch,)``; for attention alone.

        Returns:
            State and memory, nested tuples of tensors with the batch first: a search chooses among the rows of the
            state, and all hypotheses of a sequence share its row of the memory. Without attention there is no memory.

        Raises:
            InputError: wrong shapes, NaN, or a memory where there is no attention and the other way round.
        """
        inner = self.bridge(summary)
        if self.attention is None or memory is None:
            if self.attention is None and memory is None:
                return (inner,), None
            raise InputError("attention and memory go together; give the decoder both or neither")
        lengths = check_frames(memory, lengths, self.attention.key_size, "memory", parameter_dtype(self))
        if len(memory) != len(summary):
            raise InputError(f"memory has {len(memory)} rows and summary {len(summary)}; give both the same")
        mask = lengths_mask(lengths, memory.shape[1])
        nothing, nowhere = memory.new_zeros(memory[:, 0].shape), memory.new_zeros(memory[..., 0].shape)
        return (inner, nothing, nowhere), (self.attention.prepare(memory), memory, mask)

    def decode_step(
        self, tokens: Tensor, state: DecoderState, memory: Memory | None = None
    ) -> tuple[Tensor, DecoderState]:
        """The last symbols ``(rows,)`` -> ``log_probs (rows, vocabulary)`` of the next, and the next state.

        ``tokens`` and ``state`` have a row for each sequence of the memory or, grouped, equally many: a scorer is
        ``StepScorer(decoder.decode_step, *decoder.start(...))``.
        """
        logits, state = self._step(tokens, state, memory)
        return logits.log_softmax(-1), state

    def forward(
        self,
        tokens: Tensor,
        start: tuple[DecoderState, Memory | None],
        lengths: Tensor | None = None,
        sampling: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Teacher forcing, or with ``sampling`` > 0 scheduled sampling.

        Args:
            tokens: ``(batch, time)``, what is fed in: the start symbol and the targets without the last one.
            start: what ``start`` gave.
            lengths: ``(batch,)`` of the tokens.
            sampling: the probability that a step is fed a draw from the model's own last distribution instead of the
                true symbol (never for the first symbol); ``generator`` makes the draws repeatable.

        Returns:
            Logits ``(batch, time, vocabulary)`` and the attention weights ``(batch, time, memory time)`` or None, both
            zero in the padding.

        Raises:
            InputError: symbols outside the vocabulary, wrong shapes or lengths, sampling outside 0..1.
        """
        checked = check_tokens(tokens, lengths, self.vocabulary)
        if not 0.0 <= sampling <= 1.0:
            raise InputError(f"sampling is {sampling}; a probability from 0 to 1 was wanted")
        if self.attention is None and not sampling:
            hidden, _ = self.network(self.embedding(tokens), start[0][0], lengths)
            return zero_padding(self.output(hidden), checked), None
        logits, weights = self._unroll(tokens, *start, sampling, generator)
        return zero_padding(logits, checked), None if weights is None else zero_padding(weights, checked)

    def _unroll(
        self,
        tokens: Tensor,
        state: DecoderState,
        memory: Memory | None,
        sampling: float,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Step by step: logits ``(batch, time, vocabulary)``, weights ``(batch, time, memory time)`` or None."""
        logits: list[Tensor] = []
        weights: list[Tensor] = []
        for true in tokens.unbind(1):
            fed = _sometimes_own(true, logits[-1], sampling, generator) if logits and sampling else true
            output, state = self._step(fed, state, memory)
            logits.append(output)
            weights += state[2:3]
        return torch.stack(logits, 1), torch.stack(weights, 1) if weights else None

    def _step(self, tokens: Tensor, state: DecoderState, memory: Memory | None) -> tuple[Tensor, DecoderState]:
        x = self.embedding(tokens)
        if self.attention is None or self.join is None or memory is None:
            hidden, inner = self.network.step(x, state[0])
            return self.output(hidden), (inner,)
        inner, context, weights = state
        hidden, inner = self.network.step(torch.cat((x, context), -1), inner)
        context, weights = self.attention.attend(hidden, *memory, weights)
        joined = torch.tanh(self.join(torch.cat((hidden, context), -1)))
        return self.output(joined), (inner, context, weights)


class EncoderDecoder(nn.Module):
    """A sequence in, another one out: the encoder's last state starts the decoder, its outputs are the memory.

    The decoder is made for ``summary = encoder.output_size``, its attention for keys of that size.

    Raises:
        InputError: sizes that do not fit.
    """

    def __init__(self, encoder: Recurrent, decoder: TokenDecoder) -> None:
        super().__init__()
        size = encoder.output_size
        if decoder.bridge.inputs != size:
            raise InputError(f"the decoder starts from {decoder.bridge.inputs} features; the encoder gives {size}")
        if decoder.attention is not None and decoder.attention.key_size != size:
            raise InputError(f"attention takes keys of {decoder.attention.key_size}; the encoder gives {size}")
        self.encoder, self.decoder = encoder, decoder

    def start(self, frames: Tensor, lengths: Tensor | None = None) -> tuple[DecoderState, Memory | None]:
        """Encode ``frames (batch, time, encoder.input_size)``: the decoder's state before the first symbol, and memory.

        Raises:
            InputError: a wrong shape, no frames, lengths longer than the data, NaN.
        """
        memory, state = self.encoder(frames, lengths=lengths)
        top = state[-self.encoder.directions :]
        summary = torch.cat([part[0] if self.encoder.state_tensors == 2 else part for part in top], -1)
        if self.decoder.attention is None:
            return self.decoder.start(summary)
        return self.decoder.start(summary, memory, lengths)

    def decode_step(
        self, tokens: Tensor, state: DecoderState, memory: Memory | None = None
    ) -> tuple[Tensor, DecoderState]:
        """As of ``TokenDecoder``."""
        return self.decoder.decode_step(tokens, state, memory)

    def forward(
        self,
        frames: Tensor,
        tokens: Tensor,
        lengths: Tensor | None = None,
        token_lengths: Tensor | None = None,
        sampling: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits ``(batch, token time, vocabulary)`` and weights as of ``TokenDecoder.forward``, for training."""
        return self.decoder(tokens, self.start(frames, lengths), token_lengths, sampling, generator)


def _sometimes_own(true: Tensor, logits: Tensor, sampling: float, generator: torch.Generator | None) -> Tensor:
    """``true (batch,)``, each with probability ``sampling`` replaced by a draw from ``logits (batch, vocabulary)``."""
    own = torch.multinomial(logits.detach().softmax(-1), 1, generator=generator)[:, 0]
    coin = torch.rand(len(true), generator=generator, device=true.device)
    return torch.where(coin < sampling, own, true)
