"""``voiceseq wakeword tune``: thresholds for a stated rate of false alarms.

A run of ``voiceseq train experiment=computer`` ends with a network that does not know yet how sure it must be. Sound of
the rooms that it will listen in, without the word, says so.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.evaluate import read_negatives
from voiceseq.cli.options import print_json
from voiceseq.errors import BundleError, ConfigError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEW_HOURS = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", help="name or path of a wake word")
    parser.add_argument(
        "--negatives",
        metavar="[KIND=]N.jsonl",
        action="append",
        required=True,
        help="audio without the words, never learned from (may be repeated); KIND is speech, noise or music",
    )
    parser.add_argument("--alarms-per-hour", type=float, default=0.5, metavar="X", help="of each word (default: 0.5)")
    parser.add_argument("--smoothing", type=int, default=5, metavar="N", help="mean of so many frames (default: 5)")
    parser.add_argument(
        "--refractory", type=float, default=1.2, metavar="S", help="pause after an event (default: 1.2)"
    )
    parser.add_argument("--out", type=Path, required=True, help="where the bundle goes")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")


def run(args: argparse.Namespace) -> int:
    import dataclasses

    from voiceseq.bundles import load_bundle, save_bundle
    from voiceseq.inference.events import Decision
    from voiceseq.models.trigger import TriggerConfig, TriggerNetwork
    from voiceseq.wakeword.deciding import decide_from

    if not args.alarms_per_hour > 0:
        raise ConfigError(f"--alarms-per-hour is {args.alarms_per_hour:g}; more than 0 was wanted, such as 0.5")
    bundle = load_bundle(args.bundle)
    if bundle.kind != "trigger":
        raise BundleError(f"{args.bundle} is a {bundle.kind!r} and has no threshold; a wake word was wanted")
    network = bundle.network(TriggerNetwork, TriggerConfig)
    heard, kinds = hear_negatives(args)
    decision = Decision(smoothing=args.smoothing, refractory_s=args.refractory)
    decisions, report = decide_from(
        heard, kinds, network.head, network.words, args.alarms_per_hour, decision, network.frame_s
    )
    save_bundle(
        args.out,
        kind="trigger",
        name=args.out.name,
        config=network.config,
        weights=network.state_dict(),
        decoding={word: dataclasses.asdict(one) for word, one in decisions.items()},
        metrics=bundle.metrics,
        training=bundle.training | {"tuned": report},
        card=bundle.card,
        licence=bundle.licence,
    )
    if args.json:
        print_json({"bundle": str(args.out), "report": report})
        return 0
    for line in summary(network.words, report, args.alarms_per_hour):
        print(line)
    print(f"bundle  {args.out}")
    return 0


def hear_negatives(args: argparse.Namespace) -> "tuple[list[NDArray[np.float32]], list[str]]":
    """Logits ``(time, words)`` of streams without the words, and the kind of each. Raises InputError without any."""
    import numpy as np

    import voiceseq
    from voiceseq.evaluation.conditions import RATE
    from voiceseq.evaluation.streams import WORDS, sort_rows, streams

    detector = voiceseq.load(args.bundle)
    rows = [clip for given in args.negatives for clip in read_negatives(given)]
    _, by_kind = sort_rows(detector.words, (), rows)
    heard, kinds = [], []
    for kind, clips in by_kind.items():
        for stream in streams(kind, clips) if kind != WORDS else ():
            scores = np.clip(detector.scores(stream.read(), RATE)[1], 1e-7, 1 - 1e-7)
            heard.append(np.log(scores / (1 - scores)).astype(np.float32))
            kinds.append(kind)
    if not heard:
        raise InputError("no hours of sound are left: --negatives wants speech, noise or music without the words")
    return heard, kinds


def summary(words: tuple[str, ...], report: dict[str, Any], wanted: float) -> list[str]:
    lines = []
    for word in words:
        rate, found = report[word]["per hour"], report[word]["false alarms"]
        lines.append(
            f"{word}: threshold {report[word]['threshold']:.3f}, {sum(found.values())} false alarms in "
            f"{report['hours']:.1f} h, {rate['per_hour']:.2f} an hour (95 % {rate['low']:.2f} to {rate['high']:.2f})"
        )
    if report["hours"] < FEW_HOURS / wanted:
        lines.append(f"few hours for {wanted:g} an hour: ten and more, with noise and music among them, say much more")
    return lines
