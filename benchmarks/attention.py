"""Is the fast path of attention as fast as torch's own module?

    python benchmarks/attention.py [--json]

Ours and ``torch.nn`` take turns in one process on one thread. The ratio is the median over the rounds of ours / torch.
Rows called ``train`` run in training mode with dropout 0 (forward and backward), so that torch's inference-only fused
kernel is not what is compared; it shows in the ``eval`` rows, which have no target.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from voiceseq.core.attention import MultiHeadAttention
from voiceseq.core.masks import lengths_mask
from voiceseq.core.transformer import EncoderBlock, TransformerConfig

BATCH, TIME, SIZE, HEADS, FEED_FORWARD = 16, 200, 256, 4, 1024
TARGET = 1.05
Call = Callable[[Tensor], Tensor]


def attention_pair(mask: Tensor | None) -> tuple[nn.Module, Call, nn.Module, Call]:
    """Ours and torch's multi-head self-attention."""
    ours = MultiHeadAttention(SIZE, HEADS)
    theirs = nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
    our_mask, their_mask = (None, None) if mask is None else (mask[:, None], ~mask)
    return (
        ours,
        lambda x: ours(x, x, x, our_mask)[0],
        theirs,
        lambda x: theirs(x, x, x, key_padding_mask=their_mask, need_weights=False)[0],
    )


def block_pair(mask: Tensor | None) -> tuple[nn.Module, Call, nn.Module, Call]:
    """Ours and torch's encoder block (pre-norm, GELU)."""
    config = TransformerConfig(
        SIZE, HEADS, 1, FEED_FORWARD, dropout=0.0, positions="none", norm="pre", activation="gelu"
    )
    ours = EncoderBlock(config)
    theirs = nn.TransformerEncoderLayer(SIZE, HEADS, FEED_FORWARD, 0.0, "gelu", batch_first=True, norm_first=True)
    our_mask, their_mask = (None, None) if mask is None else (mask[:, None], ~mask)
    return ours, lambda x: ours(x, our_mask), theirs, lambda x: theirs(x, src_key_padding_mask=their_mask)


def seconds(call: Call, frames: Tensor, train: bool) -> float:
    """The time of one forward (and, in training, backward) pass."""
    with torch.set_grad_enabled(train):
        start = time.perf_counter()
        output = call(frames)
        if train:
            output.backward(frames.detach())
        return time.perf_counter() - start


def compare(ours: Call, theirs: Call, train: bool, rounds: int) -> dict[str, Any]:
    """Alternate the two; who goes first alternates too."""
    frames = torch.randn(BATCH, TIME, SIZE, requires_grad=train)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 2):
        pair = ((0, ours), (1, theirs)) if turn % 2 else ((1, theirs), (0, ours))
        measured = {side: seconds(call, frames, train) for side, call in pair}
        if turn >= 2:
            times[0].append(measured[0])
            times[1].append(measured[1])
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    return {"ours_s": statistics.median(times[0]), "reference_s": statistics.median(times[1]), "ratio": ratio}


def measure(rounds: int = 30) -> dict[str, Any]:
    """All rows as ``{"benchmark": ..., "rows": [...]}``."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    mask = lengths_mask(torch.randint(TIME // 2, TIME + 1, (BATCH,)), TIME)
    rows: list[dict[str, Any]] = []
    for name, build in (("MultiHeadAttention", attention_pair), ("EncoderBlock", block_pair)):
        for padding, chosen in (("full", None), ("padded", mask)):
            for train in (True, False):
                ours, our_call, theirs, their_call = build(chosen)
                ours.train(train)
                theirs.train(train)
                gc.collect()
                figures = compare(our_call, their_call, train, rounds)
                target = TARGET if train else None
                met = None if target is None else figures["ratio"] <= target
                case = f"{name} {BATCH}x{TIME}x{SIZE} {padding} {'train' if train else 'eval'}"
                rows.append({"case": case, **figures, "target": target, "met": met})
    return {"benchmark": "attention", "rows": rows}


def main() -> None:
    """Print the table, or one JSON line."""
    parser = argparse.ArgumentParser(description="attention against torch.nn", epilog="python benchmarks/attention.py")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    result = measure(arguments.rounds)
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{'case':<46}{'ours':>10}{'torch.nn':>10}{'ratio':>8}{'target':>8}  met")
    for row in result["rows"]:
        target, met = ("", "") if row["target"] is None else (f"{row['target']:.2f}", "yes" if row["met"] else "NO")
        ours, reference = f"{row['ours_s'] * 1e3:.2f} ms", f"{row['reference_s'] * 1e3:.2f} ms"
        print(f"{row['case']:<46}{ours:>10}{reference:>10}{row['ratio']:>8.3f}{target:>8}  {met}")


if __name__ == "__main__":
    main()
