"""``voiceseq wakeword bank``: make the bank of negatives that ships with a backbone."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from voiceseq.models.backbone import Backbone

HOURS = {"speech": 8.4, "noise": 3.0, "music": 3.2}
CHUNK_S = 30  # how much the backbone hears at once; its state goes on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the bank goes (.zip packs it)")
    parser.add_argument("--backbone", required=True, metavar="BUNDLE", help="whose frames they are: a name or a path")
    for kind, wanted in HOURS.items():
        parser.add_argument(
            f"--{kind}", type=Path, nargs="+", default=[], metavar="M.jsonl", help=f"manifests of {kind}"
        )
        parser.add_argument(
            f"--{kind}-hours", type=float, default=wanted, metavar="H", help=f"at most (default: {wanted:g})"
        )
    parser.add_argument(
        "--licence", action="append", default=[], metavar="NAME=LICENCE",
        help="of a corpus whose rows do not state it; NAME is the manifest's folder (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--licence-class", action="append", default=[], metavar="CLASS",
        help="of rows that state a licence_class, only these: permissive, share-alike, gpl (default: all)",
    )  # fmt: skip
    parser.add_argument("--held-out", type=float, default=0.22, help="share of speakers kept for tests (%(default)s)")
    parser.add_argument("--augmented", type=float, default=0.85, help="share of the speech made harder (%(default)s)")
    parser.add_argument("--most-mb", type=float, default=40, metavar="MB", help="its size (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all chance (default: %(default)s)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from voiceseq.bundles import load_bundle
    from voiceseq.datasets.bank import Bank, weights_sha256
    from voiceseq.datasets.bank_streams import build_bank, gather
    from voiceseq.models.backbone import Backbone, BackboneConfig

    manifests = {kind: getattr(args, kind) for kind in HOURS if getattr(args, kind)}
    if not manifests:
        raise ConfigError("no manifests came; give --speech, --noise or --music M.jsonl")
    bundle = load_bundle(args.backbone)
    backbone = bundle.network(Backbone, BackboneConfig)
    sources = gather(manifests, licences(args.licence), args.held_out, args.licence_class)
    path = build_bank(
        sources,
        lambda samples: listen(backbone, samples),
        weights_sha256(bundle),
        args.out,
        frame_s=backbone.frame_s,
        hours={kind: getattr(args, f"{kind}_hours") for kind in manifests},
        augment=everyday(),
        share=args.augmented,
        seed=args.seed,
        most=round(args.most_mb * 1e6),
        told=lambda text: print(text, file=sys.stderr),
    )
    tell(Bank.load(path), args.json)
    return 0


def listen(backbone: "Backbone", samples: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """The bottleneck ``(time, size)`` of a whole stream ``(n,)``, heard in pieces with the state carried on."""
    import torch

    size = CHUNK_S * backbone.config.features.sample_rate
    state: Any = None
    heard = []
    with torch.inference_mode():
        for chunk in torch.from_numpy(samples).split(size):
            output, state = backbone(chunk[None], state)
            heard.append(output.bottleneck[0])
    return torch.cat(heard).numpy()


def everyday() -> Any:
    """What speech goes through on its way to a microphone at home: rooms, noise, levels, now and then a telephone.

    And other voices: the backbone may have learned from these very recordings, and must not know them again.
    """
    from voiceseq.audio import augment

    return augment.AugmentConfig(
        speed=augment.Speed(0.5, (0.85, 1.15)),
        tempo=augment.Tempo(0.3, (0.8, 1.25)),
        pitch=augment.Pitch(0.5, (-4.0, 4.0)),
        room=augment.RoomEffect(0.5),
        noise=augment.Noise(0.6, (0.0, 25.0)),
        equaliser=augment.Equaliser(0.3),
        gain=augment.Gain(0.8),
        clip=augment.Clip(0.05),
        codec=augment.Codec(0.1),
        telephone=augment.Telephone(0.25),
    )


def licences(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, licence = pair.partition("=")
        if not (name and equals and licence):
            raise ConfigError(f"--licence {pair!r} came; NAME=LICENCE was wanted, librispeech='CC BY 4.0'")
        found[name] = licence
    return found


def tell(bank: Any, as_json: bool) -> None:
    """What was made: hours by kind, levels, bytes."""
    size = sum(entry.size for entry in bank.bundle.files.values())
    hours = {kind: round(time, 2) for kind, time in bank.hours.items()}
    found = {"path": str(bank.bundle.path), "hours": hours, "levels": bank.config.levels, "bytes": size}
    if as_json:
        print_json(found)
    else:
        listed = ", ".join(f"{time:.1f} h of {kind}" for kind, time in hours.items())
        print(f"{bank.bundle.path}: {listed}; {bank.config.levels} levels, {size / 1e6:.1f} MB")
