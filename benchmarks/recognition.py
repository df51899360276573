"""Acoustic models on the development speakers of Harper Valley, by every decoder; and how fast they train.

    python benchmarks/recognition.py BUNDLE... [--note TEXT] [--section TITLE]    WER by decoder, on new sentences, live
    python benchmarks/recognition.py --speed [--json]           training against a plain torch loop

Both write RESULTS.md. Nobody of the development set was trained on; two or three weights of the searches were chosen on
it (``benchmarks/ship_recogniser.py`` says what that is worth). Intervals: bootstrap over speakers.
"""

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import table, write_section
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import voiceseq
from voiceseq.audio.features import Features
from voiceseq.audio.files import read_clip
from voiceseq.bundles import load_bundle
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.evaluation.speech import Heard, rate_interval
from voiceseq.inference.recogniser import AcousticRecogniser
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Hypothesis
from voiceseq.inference.transcriber import Transcriber
from voiceseq.inference.whisper import WhisperRecogniser
from voiceseq.models.acoustic import AcousticConfig
from voiceseq.text.normalise import normalise

SPEECH = Path(__file__).resolve().parent.parent / "../shared/data/speech"
Recogniser = AcousticRecogniser | WhisperRecogniser
SECTION = "Harper Valley, development speakers, by decoder"
CHUNK = 1_600  # samples that a live stream is fed


def clips_of(part: str) -> list[Clip]:
    """``train`` as conf/data/harper-valley.yaml has it, or ``dev``."""
    names = ("dev",) if part == "dev" else ("train", "extra")
    return [clip for name in names for clip in read_manifest(SPEECH / f"harpervalley/manifest-{name}.jsonl")]


def read(clip: Clip) -> np.ndarray:
    return read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE)


class Outputs:
    """A network's outputs on clips, made once and read by every decoder."""

    def __init__(self, recogniser: Recogniser, clips: Sequence[Clip], at_once: int = 16) -> None:
        self.recogniser = recogniser
        self.clips = sorted(clips, key=lambda clip: clip.duration)
        groups = [self.clips[i : i + at_once] for i in range(0, len(self.clips), at_once)]
        started = time.process_time()
        self.heard = [recogniser.hear([read(clip) for clip in group]) for group in groups]
        self.cpu_s = time.process_time() - started

    def decode(self, decoding: Decoding) -> tuple[list[Heard], float]:
        """What was heard, and the processor seconds of the search."""
        reader, started = self.recogniser.reader(decoding), time.process_time()
        best = [found[0] for heard in self.heard for found in self.recogniser.answers(heard, reader)]
        return judged(self.clips, best), time.process_time() - started


def judged(clips: Sequence[Clip], best: Sequence[Hypothesis]) -> list[Heard]:
    pairs = zip(clips, best, strict=True)
    return [Heard(clip, normalise(clip.text or ""), one.text, one) for clip, one in pairs]


def percent(heard: Sequence[Heard], unit: str = "words") -> str:
    found = rate_interval(heard, unit)
    return "" if found is None else f"{100 * found['rate']:.1f} ({100 * found['low']:.1f} to {100 * found['high']:.1f})"


def row_of(name: str, decoder: str, heard: Sequence[Heard], seen: set[str], cpu_s: float) -> dict[str, Any]:
    new = [one for one in heard if one.reference not in seen]
    seconds = sum(one.clip.duration for one in heard)
    return {
        "model": name,
        "decoder": decoder,
        "WER % (95 %)": percent(heard),
        "CER %": percent(heard, "characters").split(" ")[0],
        "WER %, sentences not in training": percent(new),
        "processor s per s of sound": round(cpu_s / seconds, 4),
    }


def live(transcriber: Transcriber, clips: Sequence[Clip]) -> tuple[list[Heard], dict[str, Any], float]:
    """The clips fed as they would be spoken, and a second of silence: the finals, how late last words are, how stable.

    A last word is late by what passes from where the sound dies away to the first partial that has as many words as
    the last one (or to the final, where no partial came).
    """
    texts, late, changed, shown = [], [], 0, 0
    started = time.process_time()
    for clip in clips:
        samples, stream = read(clip), transcriber.stream()
        samples = np.concatenate((samples, np.zeros(SAMPLE_RATE, np.float32)))
        said, partial, appeared, count = [], "", None, 0
        for start in range(0, len(samples), CHUNK):
            for event in stream.feed(samples[start : start + CHUNK]):
                words = len(" ".join((*said, event.text)).split())
                if words > count:
                    appeared, count = (start + CHUNK) / SAMPLE_RATE, words
                if event.kind == "final":
                    said.append(event.text)
                    partial = ""
                    continue
                shown += 1
                changed += not event.text.startswith(partial.rsplit(" ", 1)[0])
                partial = event.text
        said += [event.text for event in stream.finish()]
        texts.append(Hypothesis(" ".join(said), 0.0, ()))
        late += [] if appeared is None else [appeared - dies_away(samples)]
    cpu_s = time.process_time() - started
    facts = {
        "median s from the end of the sound to the last word": round(float(np.median(late)), 2) if late else None,
        "95th percentile": round(float(np.quantile(late, 0.95)), 2) if late else None,
        "partials that change an earlier word": f"{100 * changed / max(1, shown):.1f} %",
    }
    return judged(clips, texts), facts, cpu_s


def dies_away(samples: np.ndarray) -> float:
    """The second after which no 10 ms are within 30 dB of the loudest."""
    frames = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    power = (frames**2).mean(1)
    return float(np.flatnonzero(power > 1e-3 * power.max())[-1] + 1) / 100


def evaluate(names: Sequence[str], note: str, section: str) -> int:
    seen = {normalise(clip.text or "") for clip in clips_of("train")}
    rows, notes = [], [note] if note else []
    for name in names:
        bundle = load_bundle(name)
        transcriber = voiceseq.load(name)
        recogniser = transcriber.recogniser
        outputs = Outputs(recogniser, clips_of("dev"))
        for decoder in sorted(recogniser.decoders):
            heard, cpu_s = outputs.decode(Decoding(decoder))
            rows.append(row_of(bundle.name or name, decoder, heard, seen, outputs.cpu_s + cpu_s))
            print(table(rows[-1:]), file=sys.stderr)
            if decoder == "beam" and recogniser.lm is not None:
                heard, cpu_s = outputs.decode(Decoding(decoder, lm_weight=0.0))
                rows.append(row_of(bundle.name or name, "beam, no LM", heard, seen, outputs.cpu_s + cpu_s))
        size = sum(math.prod(shape) for shape in bundle.shapes.values())
        notes.append(f"{bundle.name or name}: {size / 1e6:.2f} million weights, {encoder_of(recogniser)}.")
        heard, facts, cpu_s = live(transcriber, clips_of("dev"))
        rows.append(row_of(bundle.name or name, "live", heard, seen, cpu_s))
        notes.append(f"Live, {bundle.name}: " + "; ".join(f"{key} {value}" for key, value in facts.items()) + ".")
    command = f"python benchmarks/recognition.py {shlex.join(names)}"
    command += "" if section == SECTION else f" --section {shlex.quote(section)}"
    write_section(section, command, rows, "\n\n".join(notes))
    print(table(rows))
    return 0


def encoder_of(recogniser: Recogniser) -> str:
    return recogniser.network.config.encoder if isinstance(recogniser, AcousticRecogniser) else "Whisper, whole"


# --- training speed --------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """The network of conf/model/bilstm_ctc.yaml as one would write it with torch.nn."""

    def __init__(self, config: AcousticConfig, packed: bool) -> None:
        super().__init__()
        size, kernel = config.size, config.kernel
        self.features, self.packed, self.stride = Features(config.features), packed, config.stride
        self.first = nn.Conv1d(config.features.mels, config.channels, kernel, padding=kernel // 2)
        self.second = nn.Conv1d(config.channels, size, kernel, stride=config.stride, padding=kernel // 2)
        self.norms = nn.ModuleList([nn.LayerNorm(config.channels), nn.LayerNorm(size)])
        self.lstm = nn.LSTM(size, size, config.layers, batch_first=True, bidirectional=True, dropout=config.dropout)
        self.output = nn.Linear(2 * size, config.symbols)

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        frames, _ = self.features(samples, None, lengths)
        x = self.norms[0](self.first(frames.transpose(1, 2)).transpose(1, 2)).relu()
        x = self.norms[1](self.second(x.transpose(1, 2)).transpose(1, 2)).relu()
        lengths = (self.features.output_lengths(lengths) + self.stride - 1) // self.stride
        if self.packed:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            x, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        else:
            x, _ = self.lstm(x)
        return self.output(x).log_softmax(-1), lengths


def measure(steps: int = 6) -> dict[str, Any]:
    """Steps of training with the project's data path, and a plain loop over ready batches, in turn."""
    from voiceseq.training.config import compose_config
    from voiceseq.training.run import build

    torch.set_num_threads(1)
    config = compose_config(["experiment=harper-valley", "data.train=[harpervalley/manifest-extra.jsonl]"])
    data = build(config, "data")
    task = build(config, "task", data=data)
    task.log = lambda *_, **__: None
    plain = {packed: Plain(task.network.config, packed) for packed in (True, False)}
    optimisers = {key: torch.optim.AdamW(net.parameters(), 1e-3) for key, net in {**plain, "ours": task}.items()}
    times: dict[Any, list[float]] = {key: [] for key in optimisers}
    numbers = range(config.data.hard_from, config.data.hard_from + steps)
    for number in numbers:  # what is decoded stays in memory
        data.batches(number)

    def ours(number: int) -> None:
        task.loss(data.batches(number))[0].backward()

    def theirs(packed: bool) -> Callable[[int], None]:
        ready = {number: data.batches(number) for number in numbers}

        def step(number: int) -> None:
            batch = ready[number]
            log_probs, lengths = plain[packed](batch.samples, batch.lengths)
            arguments = (log_probs.transpose(0, 1), batch.targets, lengths, batch.target_lengths)
            functional.ctc_loss(*arguments, zero_infinity=True).backward()

        return step

    contenders = {"ours": ours, True: theirs(True), False: theirs(False)}
    for number in numbers:
        for key, step in contenders.items():
            started = time.process_time()
            step(number)
            optimisers[key].step()
            optimisers[key].zero_grad()
            times[key].append(time.process_time() - started)
    seconds = float(np.mean([float(data.batches(number).lengths.sum()) / SAMPLE_RATE for number in numbers]))
    rows = []
    for packed, name in ((True, "packed, the same answers"), (False, "padded, answers that depend on the batch")):
        mine, other = float(np.median(times["ours"])), float(np.median(times[packed]))
        row = {"case": f"plain torch loop, {name}", "ours_s": mine, "reference_s": other, "ratio": other / mine}
        rows.append(
            row | {"ours, s of sound a s": seconds / mine, "target": 1.0 if packed else None, "met": other >= mine}
        )
    return {"benchmark": "recognition", "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*")
    parser.add_argument("--note", default="")
    parser.add_argument("--section", default=SECTION)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not arguments.speed:
        return evaluate(arguments.bundles, arguments.note, arguments.section)
    found = measure()
    if arguments.json:
        print(json.dumps(found))
        return 0
    title = "Speed: training an acoustic model against a plain torch loop"
    write_section(title, "python benchmarks/recognition.py --speed", found["rows"], SPEED_NOTE)
    print(table(found["rows"]))
    return 0


SPEED_NOTE = """A step of `experiment=harper-valley` with its whole data path (decoded speech in memory, augmentation,
masks) against the same layers in torch.nn on batches that are ready; 32 bits, one thread, processor seconds, in turn;
ratio is theirs / ours."""

if __name__ == "__main__":
    sys.exit(main())
