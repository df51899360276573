"""OpenAI's Whisper checkpoints as networks of voiceseq. Nothing in a file is executed: tensors and numbers alone."""

import importlib.util
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voiceseq.bundles import save_bundle
from voiceseq.errors import InputError
from voiceseq.models.whisper import WhisperConfig
from voiceseq.text.files import read_text
from voiceseq.text.normalise import normalise
from voiceseq.text.pieces import Pieces

# their name -> ours; what is joined (keys and values) comes below
NAMES = {
    r"encoder\.conv1\.(\w+)": r"first.\1",
    r"encoder\.conv2\.(\w+)": r"second.\1",
    r"encoder\.ln_post\.(\w+)": r"encoder.norm.\1",
    r"decoder\.ln\.(\w+)": r"decoder.norm.\1",
    r"decoder\.token_embedding\.weight": r"embedding.weight",
    r"decoder\.positional_embedding": r"decoder.positions.table.table",
    r"(\w+\.blocks\.\d+)\.attn\.query\.(\w+)": r"\1.attention.query.\2",
    r"(\w+\.blocks\.\d+)\.attn\.out\.(\w+)": r"\1.attention.output.\2",
    r"(\w+\.blocks\.\d+)\.attn_ln\.(\w+)": r"\1.around_attention.norm.\2",
    r"(\w+\.blocks\.\d+)\.cross_attn\.query\.(\w+)": r"\1.memory_attention.query.\2",
    r"(\w+\.blocks\.\d+)\.cross_attn\.out\.(\w+)": r"\1.memory_attention.output.\2",
    r"(\w+\.blocks\.\d+)\.cross_attn_ln\.(\w+)": r"\1.around_memory.norm.\2",
    r"(\w+\.blocks\.\d+)\.mlp\.0\.(\w+)": r"\1.feed_forward.0.\2",
    r"(\w+\.blocks\.\d+)\.mlp\.2\.(\w+)": r"\1.feed_forward.3.\2",
    r"(\w+\.blocks\.\d+)\.mlp_ln\.(\w+)": r"\1.around_feed_forward.norm.\2",
}
KEY = re.compile(r"(\w+\.blocks\.\d+)\.(attn|cross_attn)\.key\.weight")
OURS = {"attn": "attention", "cross_attn": "memory_attention"}
RANKS = "gpt2.tiktoken"
ROLES = {"end": 50256, "start": 50257, "no_speech": 50361, "no_timestamps": 50362}  # of the English models
ENGLISH = 51_864  # numbers of the English models' vocabulary
SOURCE = {"name": "OpenAI Whisper", "licence": "MIT", "source": "https://github.com/openai/whisper"}
DIMENSIONS = (
    *("n_mels", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_vocab", "n_text_ctx", "n_text_state", "n_text_head", "n_text_layer"),
)


def read_whisper(path: str | Path) -> tuple[WhisperConfig, dict[str, Tensor]]:
    """The config and the weights, in 32 bits, of a checkpoint as its makers publish it (``tiny.en.pt``).

    Raises InputError for a file that is none, and for a network that this package does not build.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}; give the path of Whisper's weights, e.g. tiny.en.pt") from error
    except Exception as error:  # torch has no common class for its unreadable files
        raise InputError(f"{path} is no Whisper checkpoint that can be read safely ({_first_line(error)})") from error
    if not isinstance(found, Mapping) or not {"dims", "model_state_dict"} <= set(found):
        raise InputError(f"{path} is no Whisper checkpoint: it has no 'dims' and 'model_state_dict'")
    weights = {name: tensor.float() for name, tensor in found["model_state_dict"].items()}
    return whisper_config(found["dims"], path), rename(weights, path)


def whisper_config(dims: Mapping[str, Any], path: str | Path) -> WhisperConfig:
    missing = [name for name in DIMENSIONS if not isinstance(dims.get(name), int)]
    if missing:
        raise InputError(f"{path} does not say {', '.join(missing)}: is it a Whisper checkpoint?")
    if dims["n_audio_state"] != dims["n_text_state"] or dims["n_audio_head"] != dims["n_text_head"]:
        raise InputError(f"{path}: encoder and decoder differ in size, which this package does not build")
    return WhisperConfig(
        symbols=dims["n_vocab"],
        mels=dims["n_mels"],
        size=dims["n_audio_state"],
        heads=dims["n_audio_head"],
        encoder_layers=dims["n_audio_layer"],
        decoder_layers=dims["n_text_layer"],
        audio_positions=dims["n_audio_ctx"],
        text_positions=dims["n_text_ctx"],
    )


def rename(weights: Mapping[str, Tensor], path: str | Path) -> dict[str, Tensor]:
    """By our names. Keys have no bias there; ours is zero (it would add the same to all scores of a query)."""
    ours: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if found := KEY.fullmatch(name):
            values = name.replace(".key.", ".value.")
            target = f"{found[1]}.{OURS[found[2]]}.key_value"
            ours[f"{target}.weight"] = torch.cat((tensor, weights[values]))
            bias = weights[values.replace(".weight", ".bias")]
            ours[f"{target}.bias"] = torch.cat((torch.zeros_like(bias), bias))
        elif ".value." in name or name == "encoder.positional_embedding":  # joined above; computed, not learnt
            continue
        elif pattern := next((p for p in NAMES if re.fullmatch(p, name)), None):
            ours[re.sub(pattern, NAMES[pattern], name)] = tensor
        else:
            raise InputError(f"{path} has a weight {name!r} that Whisper's network does not have")
    return ours


def import_whisper(
    weights: Path, out: Path, vocabulary: Path | None = None, texts: Sequence[Path] = (), pieces: int = 5000
) -> Path:
    """Make a bundle of a checkpoint; where ``texts`` are given, only with the ``pieces`` that they use most.

    Raises InputError for files that are not what they should be, BundleError where ``out`` cannot be written.
    """
    config, network = read_whisper(weights)
    if config.symbols != ENGLISH:
        raise InputError(f"{weights} has {config.symbols} pieces; the English models have {ENGLISH}: take tiny.en.pt")
    every = Pieces.from_ranks(vocabulary or find_ranks(weights), ROLES, ENGLISH)
    if texts:
        every, kept = every.cut(most_used(every, texts, pieces))
        network["embedding.weight"] = network["embedding.weight"][kept]
        config = replace(config, symbols=len(every))
    return save_bundle(
        out,
        kind="whisper",
        name=weights.stem,
        config=config,
        weights=network,
        vocabularies={"pieces": every.to_json()},
        training={"data": [SOURCE]},
        licence="MIT (weights by OpenAI)",
        dtype=torch.float16,
    )


def find_ranks(weights: Path) -> Path:
    """The list of pieces beside the weights, or in the installed package of their makers (which is not imported)."""
    package = importlib.util.find_spec("whisper")
    places = [weights.parent, *(Path(place) / "assets" for place in getattr(package, "submodule_search_locations", ()))]
    for place in places:
        if (place / RANKS).exists():
            return place / RANKS
    raise InputError(
        f"no {RANKS} is beside {weights}: give it with --vocabulary; the PyPI package openai-whisper carries it "
        "(pip download --no-deps openai-whisper, then look in whisper/assets)"
    )


def most_used(pieces: Pieces, texts: Sequence[Path], count: int) -> list[int]:
    """The pieces that the texts use most, normalised; each text counts the same, however long it is."""
    shares: Counter[int] = Counter()
    for path in texts:
        used = Counter(number for line in lines(path) for number in pieces.encode(f" {line}"))
        total = sum(used.values())
        for number, times in used.items():
            shares[number] += times / total  # type: ignore[assignment]
    return sorted(shares, key=lambda number: (-shares[number], number))[:count]


def lines(path: Path) -> Iterator[str]:
    """The lines of a text, or the texts of a manifest, in small letters; what cannot be spelt is left out."""
    for line in read_text(path).splitlines():
        if path.name.endswith((".jsonl", ".jsonl.gz")) and line.strip():
            line = str(json.loads(line).get("text") or "")
        try:
            yield normalise(line)
        except InputError:
            continue


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
