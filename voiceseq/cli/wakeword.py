"""``voiceseq wakeword new|record|retrain|tune|bank``: make a wake word, and make it better."""

import argparse
import importlib

from voiceseq.cli.options import add_verbose

# a sub-command is a module with add_arguments and run, imported when it is asked for
ACTIONS = {
    "new": ("voiceseq.cli.wakeword_new", "make a wake word from a typed phrase", 'voiceseq wakeword new "hey luna"'),
    "record": (
        "voiceseq.cli.wakeword_record",
        "record people saying the phrase, with prompts, a level check and playback",
        'voiceseq wakeword record "hey luna" --out recordings',
    ),
    "retrain": (
        "voiceseq.cli.wakeword_retrain",
        "make a wake word again with what the listening app saved",
        "voiceseq wakeword retrain hey-luna --saved saved",
    ),
    "tune": (
        "voiceseq.cli.wakeword_tune",
        "set the thresholds of a wake word for a rate of false alarms, on hours of sound without it",
        "voiceseq wakeword tune runs/computer/TIME/bundle --negatives evenings.jsonl --out computer",
    ),
    "bank": (
        "voiceseq.cli.wakeword_bank",
        "for maintainers: make the bank of negatives that ships with a backbone",
        "voiceseq wakeword bank --backbone backbone --speech M.jsonl --noise N.jsonl --out negatives",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (module, help_text, example) in ACTIONS.items():
        one = actions.add_parser(name, help=help_text, description=help_text, epilog=f"example: {example}")
        importlib.import_module(module).add_arguments(one)
        add_verbose(one)


def run(args: argparse.Namespace) -> int:
    return int(importlib.import_module(ACTIONS[args.action][0]).run(args))
