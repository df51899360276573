"""``voiceseq voices``: the synthesiser voices on this machine, and how to get more."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voiceseq.audio.files import write_audio
from voiceseq.cli.options import add_json, print_json, print_table
from voiceseq.datasets.voices import ENGINES, Sentence, Voice, find_voices, plan, utter
from voiceseq.datasets.voices.speaking import voice_folders
from voiceseq.errors import ConfigError, VoiceseqError

FEW = 50  # speakers below which a wake word from a typed phrase suffers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--voices", metavar="FOLDER", help="a folder of model files (default: $VOICESEQ_VOICES)")
    parser.add_argument("--say", metavar="TEXT", help="let some of the voices say this; needs --out")
    parser.add_argument("--out", metavar="DIR", help="where --say writes its wav files")
    parser.add_argument("--count", type=int, default=10, help="how many takes --say makes (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="which takes (default 0)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 when there is no voice, or some of those asked to speak did not."""
    if bool(args.say) != bool(args.out):
        raise ConfigError("--say and --out belong together: --say TEXT --out DIR")
    if args.count < 1:
        raise ConfigError(f"--count {args.count}: give 1 or more")
    voices = find_voices(args.voices)
    if args.say:
        return say(args, voices)
    rows = engine_rows(voices)
    if args.json:
        folders = [str(path) for path in voice_folders(args.voices)]
        print_json({"speakers": len(voices), "folders": folders, "engines": rows})
    else:
        show(rows, voices, voice_folders(args.voices))
    return 0 if voices else 1


def engine_rows(voices: Sequence[Voice]) -> list[dict[str, Any]]:
    """One row an engine: how many speakers, under which licences, or how to install it."""
    rows = []
    for name, engine in ENGINES.items():
        own = [voice for voice in voices if voice.engine == name]
        models = {voice.name: 0 for voice in own}
        for voice in own:
            models[voice.name] += 1
        rows.append(
            {
                "engine": name,
                "kind": engine.kind,
                "speakers": len(own),
                "voices": models,
                "licences": sorted({voice.licence for voice in own}) or [engine.licence],
                "ships": bool(own) and all(voice.ships for voice in own),
                "install": engine.install,
            }
        )
    return rows


def show(rows: list[dict[str, Any]], voices: Sequence[Voice], folders: Sequence[Path]) -> None:
    there = [row for row in rows if row["speakers"]]
    if there:
        header = ("engine", "kind", "speakers", "licence", "voices")
        print_table(
            [
                header,
                *(
                    (row["engine"], row["kind"], str(row["speakers"]), "; ".join(row["licences"]), names(row))
                    for row in there
                ),
            ]
        )
        print(f"\n{len(voices)} speakers in all")
    else:
        print("no synthesiser voice found: a wake word from a typed phrase cannot be trained")
    neural = sum(row["speakers"] for row in there if row["kind"] == "neural")
    if neural < FEW:
        print(
            f"\n{neural} neural speakers are few: a wake word wants hundreds. Piper's libritts_r voice alone has 904."
        )
    missing = [row for row in rows if not row["speakers"]]
    if missing:
        print("\nto get more (FOLDER is " + " or ".join(map(str, folders)) + ")")
        print_table([(f"  {row['engine']}", row["install"]) for row in missing])


def names(row: dict[str, Any]) -> str:
    found = list(row["voices"])
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def say(args: argparse.Namespace, voices: Sequence[Voice]) -> int:
    """Write takes of a text as 16 kHz wav files with a line each: file, voice and manner."""
    out, failed = Path(args.out), 0
    takes = plan([Sentence(args.say)] if len(args.say.split()) > 4 else args.say, args.count, args.seed, voices)
    out.mkdir(parents=True, exist_ok=True)
    for place, take in enumerate(takes):
        try:
            said = utter(take.sentence, take.voice, take.manner)
        except VoiceseqError as error:
            failed += 1
            print(f"voiceseq: {take.voice.label}: {error}", file=sys.stderr)
            continue
        path = write_audio(
            out / f"{place:03d}-{take.voice.label.replace('/', '-')}.wav", said.samples, said.sample_rate
        )
        row = {
            "file": str(path),
            "voice": take.voice.label,
            "start": said.speech[0],
            "end": said.speech[1],
            **take.manner.told(),
        }
        print(json.dumps(row, ensure_ascii=False) if args.json else f"{path}  {take.voice.label}")
    return 1 if failed else 0
