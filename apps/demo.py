"""``make demo``: train a small model in about a minute, look at what it writes and at what it looked at."""

import subprocess
import sys
from pathlib import Path

import voiceseq
from voiceseq.evaluation.plots import plot_attention

FOLDER = Path("runs/demo")
SHORT = ("trainer.max_epochs=4", "data.steps_per_epoch=100", "data.validation=512")  # a tenth of the whole recipe
DATES = ("July 20th 1969", "23 April, 1564", "Tuesday, 17 November 2026", "the 1st of may 2001", "9.3.1932")


def main() -> int:
    print("1. Training an encoder-decoder with attention to read dates (about a minute):\n", flush=True)
    command = [sys.executable, "-m", "voiceseq", "train", "experiment=dates", f"runs={FOLDER}", *SHORT]
    if code := subprocess.run(command).returncode:
        return code
    bundle = max(FOLDER.glob("dates/*/bundle"), key=lambda path: path.stat().st_mtime)
    model = voiceseq.load(bundle)
    print("\n2. What it writes, by beam search:\n")
    for text, (best, second) in zip(DATES, model.candidates(DATES, nbest=2), strict=True):
        print(
            f"   {text:28} {best.text}   log p {best.score:6.3f}   (next: {second.text or 'none'} {second.score:6.2f})"
        )
    text = DATES[0]
    output = model.convert([text])[0]
    picture = plot_attention(model.attention(text, output), text, [*output, "end"], FOLDER / "attention.png")
    print(f"\n3. What it looked at while writing: {picture}")
    print(f"\nThe model is the folder {bundle}: voiceseq.load({str(bundle)!r}).convert(['3 May 1999'])")
    return 0


if __name__ == "__main__":
    sys.exit(main())
