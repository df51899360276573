"""Captions at work: a picture of digits in, words out; and the class of a clip of frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from voiceseq.bundles import Bundle
from voiceseq.datasets.corpora.dna import FEATURES as DNA
from voiceseq.datasets.corpora.dna import frames_of
from voiceseq.datasets.digits import CANVAS, HEIGHT, columns
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.opening import open_vocabulary
from voiceseq.inference.transduce import Decoding, Transducer, has_ends
from voiceseq.models.frames import FrameConfig, FrameNetwork, FramesToText
from voiceseq.models.seq2seq import Seq2SeqConfig

WIDEST = 400  # columns after the picture is made 8 pixels high
LARGEST = 50_000_000  # pixels of a file
Images = Sequence[np.ndarray]


class Captioner(Transducer):
    """``voiceseq.load("digit-captions")``: ``caption([image])``; an image is ``(height, width)`` of ink, 0 to 1."""

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or vocabularies that do not make a captioner."""
        network = bundle.network(FramesToText, Seq2SeqConfig)
        if network.config.source != 3 * HEIGHT:
            raise BundleError(f"{bundle.path} reads {network.config.source} features; {3 * HEIGHT} were wanted")
        target = open_vocabulary(bundle, "target", network.config.target, check=has_ends)
        return cls(network, target, target, bundle.decoding_as(Decoding))

    def caption(self, images: Images, beam: int | None = None) -> list[str]:
        """What is on each image. Raises InputError for an image that is none, or a beam below 1."""
        if not images:
            return []
        return [found[0].text for found in self.search(*self.frames(images), beam, nbest=1)]

    @torch.no_grad()
    def looks(self, image: np.ndarray, text: str) -> Tensor:
        """``(words + end, columns)``: where it looked while it wrote. Raises InputError without attention."""
        frames, lengths = self.frames([image])
        weights = self.network.weights(frames, torch.tensor([[self.bos, *self.target.encode(text)]]), lengths)
        if weights is None:
            raise InputError("this model has no attention; train one with model.attention=additive")
        return weights[0]

    def frames(self, images: Images) -> tuple[Tensor, Tensor]:
        rows = [torch.from_numpy(columns(check_image(image))) for image in images]
        return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


@dataclass(frozen=True)
class Activity:
    """What happens, and how probable each class is."""

    label: str
    probabilities: dict[str, float]


class FrameClassifier:
    """``voiceseq.load("activity")``: ``classify([frames])``, each ``(time, features)``."""

    def __init__(self, network: FrameNetwork, classes: tuple[str, ...]) -> None:
        self.network, self.classes = network.eval(), classes

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> Self:
        """Raises BundleError for settings, weights or classes that do not belong together."""
        network = bundle.network(FrameNetwork, FrameConfig)
        return cls(network, open_vocabulary(bundle, "classes", network.config.outputs).symbols)

    @torch.no_grad()
    def classify(self, clips: Images) -> list[Activity]:
        """Raises InputError for a clip without frames, with NaN, or with frames of another size."""
        found = []
        for clip in clips:
            logits, _ = self.network(torch.as_tensor(clip, dtype=torch.float32)[None])
            shares = dict(zip(self.classes, logits[0].softmax(-1).tolist(), strict=True))
            found.append(Activity(max(shares, key=shares.__getitem__), shares))
        return found


def read_clip(model: FrameClassifier, text: str) -> np.ndarray:
    """``(time, features)`` of a file of pictures or, where the network reads DNA, of the bases that ``text`` holds.

    Raises InputError for a file that is no picture, or letters that are no bases.
    """
    if model.network.config.features == DNA:
        return frames_of(text.strip().lower())
    return np.stack([resized(frame, CANVAS, CANVAS).ravel() for frame in read_frames(text)])


def check_image(image: np.ndarray) -> np.ndarray:
    """The image, 8 pixels high. Raises InputError for one that is empty, too wide, not finite or not 0 to 1."""
    image = np.asarray(image, np.float32)
    if image.ndim != 2 or not image.size or not np.isfinite(image).all() or image.min() < 0 or image.max() > 1:
        raise InputError(f"an image of shape {image.shape} came; (height, width) of numbers from 0 to 1 was wanted")
    if image.shape[0] != HEIGHT:
        image = resized(image, HEIGHT, max(1, round(image.shape[1] * HEIGHT / image.shape[0])))
    if image.shape[1] > WIDEST:
        raise InputError(f"the image is {image.shape[1]} columns wide; at most {WIDEST} were wanted")
    return image


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """The mean over what each new pixel covers: bilinear where it grows."""
    tensor = torch.as_tensor(image, dtype=torch.float32)[None, None]
    mode = "area" if height <= image.shape[0] and width <= image.shape[1] else "bilinear"
    return torch.nn.functional.interpolate(tensor, (height, width), mode=mode)[0, 0].numpy()


def read_frames(path: str | Path) -> list[np.ndarray]:
    """The pictures of a file, one or (GIF) several, as ink of 0 to 1: what the border is not. Raises InputError."""
    from PIL import Image, ImageSequence  # comes with matplotlib

    try:
        with Image.open(path) as file:
            if file.width * file.height > LARGEST:
                raise InputError(f"{path} has {file.width} x {file.height} pixels; at most {LARGEST} were wanted")
            frames = [np.asarray(frame.convert("L"), np.float32) / 255 for frame in ImageSequence.Iterator(file)]
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as a picture ({error}); give a PNG, JPEG or GIF") from error
    border = np.concatenate([frames[0][0], frames[0][-1], frames[0][:, 0], frames[0][:, -1]]).mean()
    return [1 - frame if border > 0.5 else frame for frame in frames]
