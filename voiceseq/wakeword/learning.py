"""A head that learns its words: training clips through the backbone, rounds of training, false alarms mined between."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from voiceseq.audio.augment import (
    AugmentConfig,
    Augmenter,
    Band,
    Codec,
    Equaliser,
    Gain,
    Noise,
    RoomEffect,
    Speed,
    Telephone,
)
from voiceseq.audio.augment import Clip as Clipping
from voiceseq.audio.files import Audio
from voiceseq.audio.noises import made_noises
from voiceseq.datasets.manifest import Clip, held_out
from voiceseq.datasets.recordings import Recordings, Utterance
from voiceseq.datasets.synthesis import ClipSettings, TriggerClips
from voiceseq.models.trigger import HeadConfig, Spellings, TriggerConfig, TriggerNetwork
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.trigger import TriggerTask
from voiceseq.tasks.trigger_loss import TriggerLoss
from voiceseq.training.heads import fit_head
from voiceseq.wakeword.ground import Ground
from voiceseq.wakeword.mining import hard_spots, listen
from voiceseq.wakeword.windows import Example, Frames, Windows

Tell = Callable[[str], None]
DEV_VOICES = 0.12  # of the synthetic voices are kept for the report
# What clips go through: rooms, noise, lines and microphones; synthetic voices vary in speed and pitch by themselves.
AUGMENT = AugmentConfig(
    speed=Speed(probability=0.3, factor=(0.9, 1.12)),
    room=RoomEffect(probability=0.35),
    noise=Noise(probability=0.7, snr_db=(0.0, 25.0)),
    equaliser=Equaliser(probability=0.4),
    band=Band(probability=0.1),
    gain=Gain(probability=0.5, db=(-20.0, 6.0)),
    clip=Clipping(probability=0.08),
    codec=Codec(probability=0.12),
    telephone=Telephone(probability=0.45),
)
WITH_WORD = ClipSettings(seconds=4.5, triggers=(1, 2), others=(0, 2), hiss=0.8)
WITHOUT = ClipSettings(seconds=4.5, triggers=(0, 0), others=(2, 4), talk=0.1, broken_off=0.35)


@dataclass(frozen=True)
class Learning:
    """How a head is trained. ``rounds``: steps each; before all but the first the worst false alarms are looked for.

    ``real_share`` of the training clips are made of people's recordings, where there are any.
    """

    clips: int = 5000
    alike_clips: int = 800
    real_share: float = 0.5
    rounds: tuple[int, ...] = (1000, 800, 800)
    mined: int = 500
    head: HeadConfig = field(default_factory=HeadConfig)
    loss: TriggerLoss = field(default_factory=lambda: TriggerLoss("maxpool"))
    learning_rate: float = 3e-3
    seed: int = 1


@dataclass
class Lessons:
    """What there is to learn from.

    ``spoken`` by synthesisers and ``recorded`` by people have the words in them, ``others`` have not; ``negatives`` are
    whole recordings of what gave a false alarm; ``talk`` and ``noises`` lie under and around the words.
    """

    spoken: list[Utterance] = field(default_factory=list)
    recorded: list[Utterance] = field(default_factory=list)
    others: list[Utterance] = field(default_factory=list)
    negatives: list[Clip] = field(default_factory=list)
    talk: list[Clip] = field(default_factory=list)
    noises: Sequence[Audio] = ()

    def split(self) -> tuple[list[Utterance], list[Utterance]]:
        """The synthetic takes for training, and those whose voices are kept for the report."""
        kept = [one for one in self.spoken if not held_out(one.clip.speaker, DEV_VOICES)]
        return kept, [one for one in self.spoken if held_out(one.clip.speaker, DEV_VOICES)]


@dataclass(frozen=True)
class _About:
    """What a task asks of its data."""

    words: tuple[str, ...]
    seed: int
    sources: tuple[dict[str, str], ...] = ()
    masks: None = None


class Classroom:
    """Makes training clips of the lessons and hears them through the backbone."""

    def __init__(self, ground: Ground, lessons: Lessons, seed: int, augment: AugmentConfig = AUGMENT) -> None:
        self.ground, self.lessons, self.seed = ground, lessons, seed
        noises = list(lessons.noises) or made_noises(40, seed)
        self.augmenter = Augmenter(augment, [*noises, *Recordings(lessons.talk[:200], keep=True)])

    def clips(self, said: Sequence[Utterance], count: int, settings: ClipSettings, stage: int) -> list[Example]:
        """``count`` examples; those of another ``stage`` are others."""
        seed = 1000 * self.seed + stage
        made = TriggerClips(said, self.lessons.others, self.lessons.talk, [], settings, self.augmenter, seed)
        return self.ground.hear(made.make(number) for number in range(count))

    def examples(self, learning: Learning) -> list[Example]:
        kept, _ = self.lessons.split()
        real = round(learning.clips * learning.real_share) if kept else learning.clips
        found = self.clips(self.lessons.recorded, real, WITH_WORD, 1) if self.lessons.recorded else []
        found += self.clips(kept, learning.clips - len(found), WITH_WORD, 2) if kept else []
        return [one for one in found if one.ends]

    def alike(self, learning: Learning) -> list[Frames]:
        """Clips of what sounds like a word or breaks off before its end."""
        said = self.lessons.split()[0] or self.lessons.recorded
        return [one.frames for one in self.clips(said, learning.alike_clips, WITHOUT, 3)]


def learn(
    words: Sequence[str],
    spellings: Spellings,
    classroom: Classroom,
    streams: Sequence[Frames],
    learning: Learning,
    tell: Tell = lambda text: None,
) -> TriggerNetwork:
    """A network whose head knows the words; ``streams`` are hours of frames without them."""
    task = new_task(words, spellings, classroom.ground, learning)
    tell(f"{learning.clips} training clips")
    windows = Windows(classroom.examples(learning), streams, classroom.alike(learning))
    for number, steps in enumerate(learning.rounds):
        if number:
            windows.hard = hard_spots(listen(task.network.head, streams), learning.mined)
        windows.seed = 1000 * learning.seed + number
        tell(f"training, round {number + 1} of {len(learning.rounds)}")
        fit_head(task, windows, steps, windows.seed)
    network: TriggerNetwork = task.network.eval()
    return network


def new_task(words: Sequence[str], spellings: Spellings, ground: Ground, learning: Learning) -> TriggerTask:
    """A head that knows nothing yet, on the ground's backbone, which stays as it is."""
    model = TriggerConfig(tuple(words), ground.network.config, learning.head, spellings=spellings)
    optimiser = OptimiserConfig(learning_rate=learning.learning_rate)
    torch.manual_seed(learning.seed)
    task = TriggerTask(model, optimiser, _About(tuple(words), learning.seed), learning.loss)
    task.network.load_backbone(ground.network)
    task.network.front.requires_grad_(False)
    task.frozen = True
    return task
