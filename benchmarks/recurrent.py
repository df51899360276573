"""Are the recurrent networks as fast as torch's own?

    python benchmarks/recurrent.py [--json]

Forward and backward of a batch against the plain ``torch.nn`` module (target 1.05x); one step of one frame against
``torch.nn.GRUCell`` (target 1.3x). For information: ragged lengths against the plain module, which ignores them, and
against the same module on packed sequences.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from voiceseq.core.recurrent import Recurrent

BATCH, FRAMES, FEATURES, HIDDEN = 16, 200, 80, 256
TORCH = {"gru": nn.GRU, "lstm": nn.LSTM}


def seconds(run: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def compare(
    ours: Callable[[], object], reference: Callable[[], object], repeats: int, times: int = 1
) -> dict[str, Any]:
    """Ours and the reference in turns (and first in turns); the fastest of each, which others disturb least."""
    ours(), reference()
    pairs = []
    for turn in range(repeats):
        if turn % 2:
            b, a = seconds(reference, times), seconds(ours, times)
        else:
            a, b = seconds(ours, times), seconds(reference, times)
        pairs.append((a, b))
    ours_s, reference_s = (min(times) for times in zip(*pairs, strict=True))
    return {"ours_s": ours_s, "reference_s": reference_s, "ratio": ours_s / reference_s}


def training_step(module: nn.Module, run: Callable[[], Tensor]) -> Callable[[], None]:
    def step() -> None:
        module.zero_grad()
        run().sum().backward()

    return step


def sequence_rows(cell: str, layers: int, bidirectional: bool) -> list[dict[str, Any]]:
    """One network: the full batch against the plain module; of one layer the ragged batch, too."""
    theirs = TORCH[cell](FEATURES, HIDDEN, layers, batch_first=True, bidirectional=bidirectional)
    ours = Recurrent(FEATURES, HIDDEN, cell, layers, bidirectional)
    frames = torch.randn(BATCH, FRAMES, FEATURES)
    lengths = torch.linspace(FRAMES // 2, FRAMES, BATCH).long()

    def packed() -> Tensor:
        batch = nn.utils.rnn.pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(theirs(batch)[0], batch_first=True)[0]

    plain = training_step(theirs, lambda: theirs(frames)[0])
    ragged = training_step(ours, lambda: ours(frames, lengths=lengths)[0])
    name = f"{cell} {'bi' if bidirectional else 'uni'}directional, {layers} layer{'s' * (layers > 1)}"
    rows = [row(name, compare(training_step(ours, lambda: ours(frames)[0]), plain, 13), 1.05)]
    if layers == 1:
        rows.append(row(f"{name}, lengths", compare(ragged, plain, 5), None))
        rows.append(row(f"{name}, lengths, torch packed", compare(ragged, training_step(theirs, packed), 3), None))
    return rows


def step_row(features: int, hidden: int) -> dict[str, Any]:
    theirs, ours = nn.GRUCell(features, hidden).eval(), Recurrent(features, hidden, "gru").eval()
    x, h = torch.randn(1, features), torch.randn(1, hidden)
    with torch.inference_mode():
        figures = compare(lambda: ours.step(x, (h,)), lambda: theirs(x, h), repeats=41, times=200)
    return row(f"one GRU step, {features} -> {hidden}", figures, 1.3)


def row(case: str, figures: dict[str, Any], target: float | None) -> dict[str, Any]:
    """A row of the table; without a target it is for information."""
    return {"case": case, **figures, "target": target, "met": target is None or figures["ratio"] <= target}


def measure() -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [step_row(features, hidden) for features, hidden in ((64, 128), (40, 64), (80, 256))]
    for cell in TORCH:
        for layers, bidirectional in ((1, False), (2, False), (1, True), (2, True)):
            rows += sequence_rows(cell, layers, bidirectional)
    return {"benchmark": "recurrent", "rows": rows}


def main() -> None:
    result = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(result))
        return
    print(f"{'case':52} {'ours ms':>9} {'torch ms':>9} {'ratio':>6} {'target':>6}")
    for r in result["rows"]:
        figures = f"{r['ours_s'] * 1e3:9.3f} {r['reference_s'] * 1e3:9.3f} {r['ratio']:6.2f}"
        print(f"{r['case']:52} {figures} {r['target'] or '':>6} {'' if r['met'] else 'MISSED'}")


if __name__ == "__main__":
    main()
