"""A process that listens: models, and the streams and files that the server sends it.

The server only passes bytes on, so that nothing it does takes long; a decoder that hangs or dies in here takes nobody
else's with it, and can be killed. One worker has one role: ``listeners`` (wake words), ``speakers`` (live
transcription), ``files`` or ``texts``, which opens its models when they are first asked for.
"""

import importlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from voiceseq.apps.serve.link import Message, Wire
from voiceseq.apps.serve.orders import Order, Pcm
from voiceseq.apps.serve.turns import SpeechStream, Turn, Turns

from voiceseq.errors import AudioError, InputError, VoiceseqError

if TYPE_CHECKING:
    from voiceseq.inference.detector import Detector
    from voiceseq.inference.speech import Decoding, Hypothesis, Recogniser, Samples
    from voiceseq.inference.transcriber import Progress, Transcriber

DETECTORS = 16  # sets of words that are kept ready
TELL_S = 0.5  # between two messages of how far a file is


@dataclass(frozen=True)
class Spec:
    """What a worker needs to begin: ``paths`` of its models by name, ``opener`` the ``module:function`` that opens one.

    A plain object of plain values, so that any way of starting a process can carry it.
    """

    role: str
    paths: Mapping[str, str]
    opener: str = "voiceseq:load"
    threads: int = 1


class Cancelled(Exception):
    """Nobody waits for this file any more."""


def work(end: socket.socket, spec: Spec) -> None:
    """The whole life of a worker; it ends when the server closes its end, or is gone."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server decides
    os.environ.setdefault("OMP_NUM_THREADS", str(spec.threads))
    wire = Wire(end)
    try:
        try:
            worker = Worker(wire, spec)
        except VoiceseqError as error:
            wire.send({"say": "failed", "message": str(error)})
            return
        worker.run()
    except EOFError:
        pass
    except (BrokenPipeError, ConnectionError):
        pass


class Worker:
    """``run`` answers messages, one after the other, until the server is gone. Raises BundleError."""

    def __init__(self, wire: Wire, spec: Spec) -> None:
        self.wire, self.spec = wire, spec
        module, _, name = spec.opener.partition(":")
        self._open: Callable[[str], Any] = getattr(importlib.import_module(module), name)
        self.models = {} if spec.role == "texts" else {name: self._open(path) for name, path in spec.paths.items()}
        self.detectors: OrderedDict[tuple[str, ...], Detector] = OrderedDict()
        self.streams: dict[int, WakeStream | SpeechStream] = {}
        self.turns = Turns()
        self.calls: dict[str, Callable[[int, Message, bytes], Message]] = {
            "open": self._begin,
            "feed": lambda number, message, data: self.streams[number].feed(data),
            "finish": lambda number, message, data: self.streams[number].finish(),
            "thresholds": lambda number, message, data: self.streams[number].change(message["thresholds"]),
            "transcribe": self._transcribe,
            "inspect": self._inspect,
            "text": self._text,
        }
        self._warm_up()

    def _warm_up(self) -> None:
        """Compile and touch everything once, so that the first client waits no longer than the others."""
        if self.spec.role == "listeners":
            for name in self.models:
                self.models[name].detect(np.zeros(16_000, np.float32))

    def run(self) -> None:
        known = dict.fromkeys(self.spec.paths, "")
        for name, one in self.models.items():
            known[name] = getattr(getattr(one, "recogniser", None), "language", "en")
        self.wire.send({"say": "up", "languages": known})
        while True:
            while not self.turns.waiting or self.wire.waiting():
                self._take(*self.wire.receive())
            for turn in self.turns.next(len(self.streams)):
                self.wire.send({"id": turn.number, **self._answer(turn.number, turn.answer)})

    def _take(self, message: Message, data: bytes) -> None:
        number, do = message["id"], message["do"]
        stream = self.streams.get(number)
        if do == "close":
            self.streams.pop(number, None)
        elif do in ("feed", "finish") and isinstance(stream, SpeechStream) and stream.utterances is not None:
            self.turns.add(Turn(number, stream, data if do == "feed" else None))
        elif do != "cancel":  # a cancel that comes too late has nothing to cancel
            answer = self._answer(number, lambda: self.calls[do](number, message, data))
            self.wire.send({"id": number, **answer})

    def _answer(self, number: int, answer: Callable[[], Message]) -> Message:
        try:
            return {"say": "answer", **answer()}
        except Cancelled:
            return {"say": "error", "kind": "cancelled", "message": "nobody waits for it"}
        except VoiceseqError as error:
            return {"say": "error", "kind": type(error).__name__, "message": str(error)}
        except Exception as error:  # a bug: this client's own trouble, the others go on
            traceback.print_exc(file=sys.stderr)
            self.streams.pop(number, None)
            return {"say": "error", "kind": "bug", "message": f"unexpected {type(error).__name__}"}

    def _begin(self, number: int, message: Message, data: bytes) -> Message:
        order = Order(**message["order"])
        if self.spec.role == "listeners":
            self.streams[number] = WakeStream(self._detector(order.models), message["words"], order)
        else:
            self.streams[number] = SpeechStream(self.models[order.models[0]], order)
        return self.streams[number].about()

    def _detector(self, names: Sequence[str]) -> "Detector":
        """Words that are asked for together share one pass through their backbone."""
        key = tuple(names)
        if len(key) == 1:
            return self.models[key[0]]
        if key not in self.detectors:
            self.detectors[key] = type(self.models[key[0]]).of([self.models[name] for name in key])
            if len(self.detectors) > DETECTORS:
                self.detectors.popitem(last=False)
        self.detectors.move_to_end(key)
        return self.detectors[key]

    def _transcribe(self, number: int, message: Message, data: bytes) -> Message:
        """A whole file. While it is at work, pieces of text (if asked for) and how far it is are told."""
        from voiceseq.inference.formats import FORMATS
        from voiceseq.inference.transcriber import Failure, make_settings

        transcriber: Transcriber = self.models[message["model"]]
        settings = make_settings(hotwords=tuple(message["hotwords"]))
        if message["pieces"]:
            told = Told(
                transcriber.recogniser, lambda text: self.wire.send({"id": number, "say": "piece", "text": text})
            )
            transcriber = type(transcriber)(told)
            settings = make_settings(hotwords=tuple(message["hotwords"]), batch_s=0.0)  # in the order of time
        watch = Watch(self.wire, number, message["duration_s"])
        (result,) = transcriber.transcribe_files([message["path"]], settings, watch)
        if isinstance(result, Failure):
            kind = "bug" if ": unexpected " in result.reason else "AudioError"
            return {"say": "error", "kind": kind, "message": result.reason.replace(message["path"], message["name"])}
        result = replace(result, file=message["name"])
        return {"transcript": result.to_json(), "drawn": {name: FORMATS[name](result) for name in message["drawn"]}}

    def _inspect(self, number: int, message: Message, data: bytes) -> Message:
        """One utterance of a file, and all that its recogniser shows of it."""
        from voiceseq.audio.files import read_audio
        from voiceseq.inference.inside import look_inside
        from voiceseq.inference.speech import SAMPLE_RATE

        recogniser = self.models[message["model"]].recogniser
        try:
            sound = read_audio(message["path"], sample_rate=SAMPLE_RATE, duration_s=recogniser.longest_s + 1)
        except AudioError as error:
            raise AudioError(str(error).replace(message["path"], message["name"])) from error
        inside = look_inside(recogniser, sound.samples, message["beam"])
        return {"inside": {"duration": round(sound.duration_s, 3), **inside.to_json()}}

    def _text(self, number: int, message: Message, data: bytes) -> Message:
        from voiceseq.apps.serve.text_tasks import TASKS

        name = message["model"]
        if name not in self.models:
            self.models[name] = self._open(self.spec.paths[name])
        return {"result": TASKS[message["task"]](self.models[name], message)}


class Watch:
    """Hears how far a file is, tells the server, and stops what is too long or no longer wanted."""

    def __init__(self, wire: Wire, number: int, duration_s: float) -> None:
        self.wire, self.number, self.duration_s, self.told = wire, number, duration_s, 0.0

    def __call__(self, progress: "Progress") -> None:
        if progress.read_s > self.duration_s:
            raise InputError(f"the file is longer than {self.duration_s:g} s, which is the most that is taken here")
        while self.wire.waiting():
            message, _ = self.wire.receive()
            if message["do"] == "cancel":
                raise Cancelled
        if time.monotonic() - self.told > TELL_S:
            self.told = time.monotonic()
            self.wire.send({"id": self.number, "say": "progress", "read_s": round(progress.read_s, 1)})


class Told:
    """A recogniser that also says what it hears, piece by piece."""

    def __init__(self, recogniser: "Recogniser", tell: Callable[[str], None]) -> None:
        self.name, self.language, self.longest_s = recogniser.name, recogniser.language, recogniser.longest_s
        self.decoders, self._recogniser, self._tell = recogniser.decoders, recogniser, tell

    def recognise(self, pieces: "Sequence[Samples]", decoding: "Decoding") -> "list[list[Hypothesis]]":
        found = self._recogniser.recognise(pieces, decoding)
        for hypotheses in found:
            if hypotheses and hypotheses[0].text:
                self._tell(hypotheses[0].text)
        return found


class WakeStream:
    """One listener for words; ``models`` says which model each word is of."""

    def __init__(self, detector: "Detector", models: Mapping[str, str], order: Order) -> None:
        self.detector, self.models, self.order = detector, models, order
        self.stream, self.pcm = detector.stream(order.rate), Pcm(order)
        self.change(order.thresholds)

    def about(self) -> Message:
        words, values = self.detector.words, self.stream.thresholds.tolist()
        about = {"words": list(words), "thresholds": dict(zip(words, values, strict=True))}
        return about | {"models": dict(self.models), "frame_s": self.detector.frame_s}

    def change(self, thresholds: Mapping[str, float]) -> Message:
        """Raises InputError for a word that is not listened for."""
        values = self.stream.thresholds.copy()
        for word, value in thresholds.items():
            self.detector.threshold(word)
            values[self.detector.words.index(word)] = value
        self.stream.thresholds = values
        return {}

    def feed(self, data: bytes) -> Message:
        return self._told(self.stream.feed(self.pcm.feed(data)))

    def finish(self) -> Message:
        return self._told(self.stream.finish()) | {"replaced": self.stream.replaced}

    def _told(self, events: Sequence[Any]) -> Message:
        found = [
            {"type": "detection", "word": one.word, "time": round(one.time, 3), "score": round(one.score, 4)}
            | {"model": self.models[one.word]}
            for one in events
        ]
        told: Message = {"events": found, "time": self.stream.time}
        if self.order.scores:
            told["scores"] = np.round(self.stream.scores, 4).tolist()
        return told
