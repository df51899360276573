"""Attention: a query looks at keys, and takes the mean of their values weighted by how well they answer.

Single-query attentions serve step-by-step decoders::

    prepared = attention.prepare(keys)                       # once a sequence
    context, weights = attention.attend(query, prepared, values, mask, weights)   # once a step, the last weights go in
    context, weights = attention(query, keys, values, mask)  # both in one, checked

``MultiHeadAttention`` serves transformers. Masks are True where valid; nothing is remembered in a module.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceseq.core.masks import (
    check_dtype,
    check_finite,
    check_frames,
    check_sizes,
    check_state,
    check_tensor,
    masked_softmax,
    nest_shapes,
    parameter_dtype,
)
from voiceseq.core.positions import RelativePositions, RotaryPositions
from voiceseq.errors import ConfigError, InputError

Cache = tuple[Tensor, Tensor]
"""Keys and values, each ``(batch, head, time, head_size)``, already projected (and turned, for rotary positions)."""


class QueryAttention(nn.Module):
    """One query over many keys: ``weights = softmax(scores)``, ``context = sum_t weights_t values_t``.

    A child says how queries score keys (``scores``) and what of it can be done once a sequence (``prepare``). In a beam
    search the hypotheses of an utterance look at the same keys: ``attend`` takes several queries a sequence.
    """

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        check_sizes(query_size=query_size, key_size=key_size)
        self.query_size = query_size
        self.key_size = key_size

    def prepare(self, keys: Tensor) -> Tensor:
        """What depends on the ``keys (batch, time, key_size)`` alone."""
        return keys

    def scores(self, queries: Tensor, prepared: Tensor, previous: Tensor | None) -> Tensor:
        """``queries (batch, count, query_size)`` -> ``(batch, count, time)``, unnormalised."""
        raise NotImplementedError

    def attend(
        self,
        query: Tensor,
        prepared: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One step of decoding, unchecked: like ``forward`` but with ``prepared = prepare(keys)``.

        ``query (rows, query_size)`` and ``previous (rows, time)`` have one row a sequence or, sequence by sequence,
        equally many of them; so have the context and the weights that come out.
        """
        queries = query.view(prepared.shape[0], -1, self.query_size)
        weights = masked_softmax(self.scores(queries, prepared, previous), None if mask is None else mask[:, None])
        return torch.bmm(weights, values).flatten(0, 1), weights.flatten(0, 1)

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, previous: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``query (batch, query_size)``, ``keys (batch, time, key_size)``, ``values (batch, time, value)``,
        ``mask (batch, time)``, ``previous`` weights ``(batch, time)`` (used by the location-aware kind alone)
        -> context ``(batch, value)``, weights ``(batch, time)``. A row whose mask is False everywhere gives zeros.

        Raises ``InputError`` for shapes and dtypes that do not fit and for NaN or infinite values.
        """
        check_frames(keys, features=self.key_size, name="keys", dtype=parameter_dtype(self))
        check_frames(values, name="values", dtype=keys.dtype)
        batch, time = keys.shape[:2]
        _check_shape(query, (batch, self.query_size), "query")
        check_dtype(query, keys.dtype, "query")
        check_finite(query, "query")
        _check_shape(values, (batch, time, values.shape[2]), "values")
        if mask is not None:
            _check_mask(mask)
            _check_shape(mask, (batch, time), "mask")
        if previous is not None:
            _check_shape(previous, (batch, time), "previous")
            check_finite(previous, "previous")
        return self.attend(query, self.prepare(keys), values, mask, previous)


class DotAttention(QueryAttention):
    """``score_t = q . k_t``."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size)

    def scores(self, queries: Tensor, prepared: Tensor, previous: Tensor | None) -> Tensor:
        """``queries (batch, count, query_size)`` -> ``(batch, count, time)``, unnormalised."""
        return torch.bmm(queries, prepared.transpose(1, 2))


class ScaledDotAttention(DotAttention):
    """``score_t = q . k_t / sqrt(size)``: the variance of a score does not grow with the size."""

    def scores(self, queries: Tensor, prepared: Tensor, previous: Tensor | None) -> Tensor:
        """``queries (batch, count, query_size)`` -> ``(batch, count, time)``, unnormalised."""
        return super().scores(queries, prepared, previous) / math.sqrt(self.key_size)


class AdditiveAttention(QueryAttention):
    """``score_t = w . tanh(W q + U k_t + b)`` (Bahdanau)."""

    def __init__(self, query_size: int, key_size: int, size: int) -> None:
        super().__init__(query_size, key_size)
        check_sizes(size=size)
        self.query = nn.Linear(query_size, size)
        self.key = nn.Linear(key_size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False)

    def prepare(self, keys: Tensor) -> Tensor:
        """``U k``: ``(batch, time, size)``."""
        return self.key(keys)

    def scores(self, queries: Tensor, prepared: Tensor, previous: Tensor | None) -> Tensor:
        """``queries (batch, count, query_size)`` -> ``(batch, count, time)``, unnormalised."""
        return self._energies(queries, prepared[:, None])

    def _energies(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``keys (batch, count or 1, time, size)``: each query may have keys of its own."""
        return self.score(torch.tanh(self.query(queries)[:, :, None] + keys))[..., 0]


class LocationAwareAttention(AdditiveAttention):
    """``score_t = w . tanh(W q + U k_t + V f_t + b)`` with ``f = convolution(previous weights)`` (Chorowski).

    Where it looked a step ago goes in as ``previous`` and comes out as the weights; None means that it has looked
    nowhere yet. ``kernel`` is odd, so that the convolution looks equally far to both sides.
    """

    def __init__(self, query_size: int, key_size: int, size: int, filters: int = 10, kernel: int = 31) -> None:
        super().__init__(query_size, key_size, size)
        check_sizes(filters=filters)
        if kernel < 1 or kernel % 2 == 0:
            raise ConfigError(f"kernel is {kernel}; an odd number was wanted")
        self.convolution = nn.Conv1d(1, filters, kernel, padding=kernel // 2, bias=False)
        self.location = nn.Linear(filters, size, bias=False)

    def scores(self, queries: Tensor, prepared: Tensor, previous: Tensor | None) -> Tensor:
        """``queries (batch, count, query_size)`` -> ``(batch, count, time)``, unnormalised."""
        if previous is None:
            return super().scores(queries, prepared, previous)
        located = self.location(self.convolution(previous[:, None]).transpose(1, 2))
        return self._energies(queries, prepared[:, None] + located.view(*queries.shape[:2], *located.shape[1:]))


class MultiHeadAttention(nn.Module):
    """``softmax(Q K' / sqrt(head_size)) V`` in each of ``heads`` subspaces, joined by one more projection.

    ``key_size`` is the size of keys and values where it is not ``size`` (attention over another network's output).
    ``positions`` may be a ``RotaryPositions`` or ``RelativePositions`` of ``size / heads`` features.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        key_size: int | None = None,
        dropout: float = 0.0,
        positions: RotaryPositions | RelativePositions | None = None,
    ) -> None:
        super().__init__()
        if size < 1 or heads < 1 or size % heads:
            raise ConfigError(f"{heads} heads do not divide size {size}: choose size as a multiple of heads")
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout is {dropout}; 0 <= dropout < 1 was wanted")
        if positions is not None and positions.head_size != size // heads:
            raise ConfigError(f"positions of {positions.head_size} features came; {size // heads} were wanted")
        self.size, self.heads, self.dropout = size, heads, dropout
        self.key_size = size if key_size is None else key_size
        if self.key_size < 1:
            raise ConfigError(f"key_size is {key_size}; at least 1 was wanted")
        self.query = nn.Linear(size, size)
        self.key_value = nn.Linear(self.key_size, 2 * size)
        self.output = nn.Linear(size, size)
        self.rotary = positions if isinstance(positions, RotaryPositions) else None
        self.relative = positions if isinstance(positions, RelativePositions) else None
        for weight in (self.query.weight, *self.key_value.weight.chunk(2)):
            nn.init.xavier_uniform_(weight)
        for layer in (self.query, self.key_value, self.output):
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Cache]:
        """``query (batch, queries, size)``, ``key`` and ``value (batch, keys, key_size)`` -> output ``(batch, queries,
        size)``, weights ``(batch, head, queries, all keys)`` or None, and the cache that holds all keys and values.

        The keys come after those of ``cache``. ``mask`` is True where a query may look at a key, of shape
        ``(queries, all keys)``, ``(batch, 1 or queries, all keys)`` or ``(batch, 1 or head, 1 or queries, all keys)``;
        a query that may look nowhere gets the output of an all-zero context. ``positions (1 or batch, all keys)``
        matter to rotary and relative positions alone (None: 0, 1, 2, ...); the queries stand at the last of them.
        Raises ``InputError`` for shapes and dtypes that do not fit, no keys at all, NaN or infinite values.
        """
        self._check(query, key, value, cache, positions)
        check_finite(query, "query")
        if key is not query:
            check_finite(key, "key")
        if value is not key:
            check_finite(value, "value")
        return self.look(query, key, value, mask, cache, positions, need_weights)

    def look(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Cache]:
        """``forward`` unchecked, for the blocks of a stack that has checked its frames."""
        earlier = 0 if cache is None else cache[0].shape[2]
        if positions is None and (self.rotary is not None or self.relative is not None):
            positions = torch.arange(earlier + key.shape[1], device=key.device)[None]
        new = self.keys_values(key, value, None if positions is None else positions[:, earlier:])
        cache = new if cache is None else (torch.cat((cache[0], new[0]), 2), torch.cat((cache[1], new[1]), 2))
        queries_at = None if positions is None else positions[:, positions.shape[1] - query.shape[1] :]
        output, weights = self.attend(query, cache, mask, queries_at, positions, need_weights)
        return output, weights, cache

    def keys_values(self, key: Tensor, value: Tensor, positions: Tensor | None = None) -> Cache:
        """Project keys and values ``(batch, keys, key_size)`` once, to be attended to many times."""
        if value is key:
            keys, values = self.key_value(key).chunk(2, dim=-1)
        else:
            weights, biases = self.key_value.weight.chunk(2), self.key_value.bias.chunk(2)
            keys, values = F.linear(key, weights[0], biases[0]), F.linear(value, weights[1], biases[1])
        return self._turn(self._split(keys), positions), self._split(values)

    def attend(
        self,
        query: Tensor,
        cache: Cache,
        mask: Tensor | None = None,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """``query (batch, queries, size)`` over projected keys and values -> output and weights as in ``forward``."""
        keys, values = cache
        queries = self._turn(self._split(self.query(query)), query_positions)
        bias = self._bias(queries, query_positions, key_positions)
        if mask is not None:
            mask = mask_axes(mask, query.shape[0], self.heads, query.shape[1], keys.shape[2])
        if need_weights:
            context, weights = self._readable(queries, keys, values, bias, mask)
        else:
            context, weights = self._fast(queries, keys, values, bias, mask), None
        return self.output(context.transpose(1, 2).flatten(2)), weights

    def _readable(
        self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        weights = masked_softmax(scores if bias is None else scores + bias, mask)
        return F.dropout(weights, self.dropout, self.training) @ values, weights

    def _fast(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
        if queries.is_cpu and queries.dtype == torch.bfloat16:  # torch's fused kernel is slower there
            return self._readable(queries, keys, values, bias, mask)[0]
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout)

    def _split(self, frames: Tensor) -> Tensor:
        """``(batch, time, size)`` -> ``(batch, head, time, head_size)``."""
        return frames.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _turn(self, heads: Tensor, positions: Tensor | None) -> Tensor:
        return heads if self.rotary is None or positions is None else self.rotary(heads, positions)

    def _bias(self, queries: Tensor, query_positions: Tensor | None, key_positions: Tensor | None) -> Tensor | None:
        if self.relative is None or query_positions is None or key_positions is None:
            return None
        return self.relative(queries, query_positions, key_positions) / math.sqrt(queries.shape[-1])

    def _check(self, query: Tensor, key: Tensor, value: Tensor, cache: Cache | None, positions: Tensor | None) -> None:
        check_tensor(query, "query")
        if query.dim() != 3 or query.shape[2] != self.size:
            raise InputError(f"query has shape {tuple(query.shape)}; (batch, queries, {self.size}) was wanted")
        batch, dtype = query.shape[0], parameter_dtype(self)
        check_tensor(key, "key")
        if key.dim() != 3 or key.shape[0] != batch or key.shape[2] != self.key_size:
            raise InputError(f"key has shape {tuple(key.shape)}; ({batch}, keys, {self.key_size}) was wanted")
        _check_shape(value, tuple(key.shape), "value")
        for values, name in ((query, "query"), (key, "key"), (value, "value")):
            check_dtype(values, dtype, name)
        keys = key.shape[1]
        if cache is not None:
            self._check_cache(cache, batch, dtype)
            keys += cache[0].shape[2]
        if not keys:
            raise InputError("no key came; at least one key was wanted, new or in the cache")
        self._check_positions(positions, batch, query.shape[1], keys)

    def _check_cache(self, cache: Cache, batch: int, dtype: torch.dtype | None) -> None:
        one = (batch, self.heads, None, self.size // self.heads)
        check_state(cache, (one, one), dtype, "the cache")
        if cache[0].shape != cache[1].shape:
            raise InputError(f"the cache has shapes {nest_shapes(cache)}; as many keys and values were wanted")

    def _check_positions(self, positions: Tensor | None, batch: int, queries: int, keys: int) -> None:
        if queries > keys and (self.rotary is not None or self.relative is not None):
            raise InputError(f"{queries} queries came for {keys} keys; no more than keys were wanted: they stand last")
        if positions is None:
            return
        check_tensor(positions, "positions")
        if positions.is_floating_point() or positions.dtype == torch.bool:
            raise InputError(f"positions has dtype {positions.dtype}; whole numbers (torch.long) were wanted")
        if positions.dim() != 2 or positions.shape[0] not in (1, batch) or positions.shape[1] != keys:
            raise InputError(f"positions has shape {tuple(positions.shape)}; (1 or {batch}, {keys}) was wanted")


def mask_axes(mask: Tensor, batch: int, heads: int, queries: int, keys: int) -> Tensor:
    """Check a mask of 2, 3 or 4 axes and give it as ``(1 or batch, 1 or heads, 1 or queries, keys)``."""
    _check_mask(mask)
    four = mask[:, None] if mask.dim() == 3 else mask[None, None] if mask.dim() == 2 else mask
    wanted = ((1, batch), (1, heads), (1, queries), (keys,))
    if four.dim() != 4 or any(have not in fit for have, fit in zip(four.shape, wanted, strict=True)):
        raise InputError(
            f"mask has shape {tuple(mask.shape)}; ({queries}, {keys}), ({batch}, 1 or {queries}, {keys}) or "
            f"({batch}, 1 or {heads}, 1 or {queries}, {keys}) was wanted (padding: lengths_mask(...)[:, None])"
        )
    return four


def _check_mask(mask: Tensor) -> None:
    if mask.dtype != torch.bool:
        raise InputError(f"mask has dtype {mask.dtype}; torch.bool was wanted, True where valid")


def _check_shape(tensor: Tensor, wanted: tuple[int, ...], name: str) -> None:
    check_tensor(tensor, name)
    if tuple(tensor.shape) != wanted:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}; {wanted} was wanted")
