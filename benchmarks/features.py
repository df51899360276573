"""Are the features as fast as torchaudio's, and what does a stream of them cost?

    python benchmarks/features.py [--json]

Batches against ``torchaudio.transforms.MelSpectrogram`` with the same settings, its logarithm included (target 1.0x).
A stream in chunks of 80 ms on one thread, in CPU seconds for an hour of audio (target 3 for log-mel): ``advance``, as a
live loop calls it. For information: the same with all checks, PCEN, chunks of 10 ms, the exported graph in ONNX Runtime
where that is installed, and resampling.
"""

import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from voiceseq.audio.backend import torchaudio
from voiceseq.audio.features import FeatureConfig, Features
from voiceseq.audio.resample import StreamResampler

RATE, STREAMED_S, REPEATS = 16_000, 20, 5


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def batch_row(batch: int, length_s: float, mels: int, repeats: int) -> dict[str, Any]:
    """Ours and torchaudio's in turns; the median of the pairs' ratios."""
    c = FeatureConfig(mels=mels)
    ours = Features(c)
    theirs = torchaudio.transforms.MelSpectrogram(RATE, c.fft, c.window, c.hop, c.low_hz, n_mels=mels, center=False)
    samples = 0.1 * torch.randn(batch, round(length_s * RATE))

    def reference() -> Tensor:
        return theirs(samples).clamp(min=c.floor).log()

    def run() -> Tensor:
        return ours(samples)[0]

    run(), reference()  # warm
    pairs = [(seconds(run), seconds(reference)) for _ in range(repeats)]
    ratio = statistics.median(a / b for a, b in pairs)
    return {
        "case": f"batch of {batch} x {length_s:g} s, {mels} mels",
        "ours_s": statistics.median(a for a, _ in pairs),
        "reference_s": statistics.median(b for _, b in pairs),
        "ratio": round(ratio, 3),
        "target": 1.0,
        "met": ratio <= 1.0,
    }


def stream_row(case: str, feed: Callable[[Any], object], chunks: list[Any], target: float | None) -> dict[str, Any]:
    """CPU seconds for an hour of audio fed in ``chunks``; the best of a few runs, since others may be at work here."""
    spent = []
    for _ in range(REPEATS):
        start = time.process_time()
        for chunk in chunks:
            feed(chunk)
        spent.append(time.process_time() - start)
    per_hour = min(spent) * 3600 / STREAMED_S
    met = target is None or per_hour <= target
    return {"case": case, "cpu_s_per_hour": round(per_hour, 2), "target": target, "met": met}


def torch_feed(kind: str, checked: bool = False) -> Callable[[Tensor], object]:
    features, held = Features(FeatureConfig(kind=kind)), [None]
    run = features if checked else features.advance

    def feed(chunk: Tensor) -> None:
        _, held[0] = run(chunk, held[0])

    return feed


class Exported(nn.Module):
    """The streaming call with its state as a plain input."""

    def __init__(self) -> None:
        super().__init__()
        self.features = Features()

    def forward(self, samples: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        frames, (state,) = self.features(samples, (state,))
        return frames, state


def onnx_feed() -> Callable[[np.ndarray], object]:
    import onnxruntime

    names, buffer = ["samples", "state", "frames", "next"], io.BytesIO()
    torch.onnx.export(
        Exported(), (torch.zeros(1, 1280), torch.zeros(1, 320)), buffer, dynamo=False, opset_version=17,
        input_names=names[:2], output_names=names[2:], dynamic_axes={name: {1: name + "_time"} for name in names},
    )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(buffer.getvalue(), options, providers=["CPUExecutionProvider"])
    held = [np.zeros((1, 0), np.float32)]

    def feed(chunk: np.ndarray) -> None:
        _, held[0] = session.run(None, {"samples": chunk, "state": held[0]})

    return feed


def stream_rows() -> list[dict[str, Any]]:
    samples = 0.1 * torch.randn(1, STREAMED_S * RATE)
    chunks, small = list(samples.split(1280, 1)), list(samples.split(160, 1))
    with torch.inference_mode():
        rows = [
            stream_row("stream, 80 ms, log-mel", torch_feed("log_mel"), chunks, 3.0),
            stream_row("stream, 80 ms, log-mel, checked", torch_feed("log_mel", checked=True), chunks, None),
            stream_row("stream, 80 ms, PCEN", torch_feed("pcen"), chunks, None),
            stream_row("stream, 10 ms, log-mel", torch_feed("log_mel"), small, None),
        ]
    try:
        feed = onnx_feed()
    except ImportError:
        return rows
    rows.append(stream_row("stream, 80 ms, log-mel, ONNX Runtime", feed, [c.numpy() for c in chunks], None))
    wide = np.random.default_rng(0).standard_normal(STREAMED_S * 48_000).astype(np.float32)
    pieces = np.split(wide, STREAMED_S * 48_000 // 3840)
    return [*rows, stream_row("resampling 48 to 16 kHz, 80 ms", StreamResampler(48_000, RATE).feed, pieces, None)]


def measure() -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.inference_mode():
        rows = [batch_row(16, 10, 80, 7), batch_row(16, 10, 40, 7), batch_row(1, 10, 80, 15), batch_row(1, 1, 64, 41)]
    return {"benchmark": "features", "rows": rows + stream_rows()}


def main() -> None:
    result = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(result))
        return
    print(f"{'case':40} {'ours ms':>9} {'torchaudio':>10} {'ratio':>6} {'CPU s/h':>8} {'target':>6}")
    for r in result["rows"]:
        if "ratio" in r:
            figures = f"{r['ours_s'] * 1e3:9.2f} {r['reference_s'] * 1e3:10.2f} {r['ratio']:6.2f} {'':8}"
        else:
            figures = f"{'':27} {r['cpu_s_per_hour']:8.2f}"
        print(f"{r['case']:40} {figures} {r['target'] or '':>6} {'' if r['met'] else 'MISSED'}")


if __name__ == "__main__":
    main()
