"""Recognisers of speech with random weights: they say nonsense, but always the same, and quickly."""

import dataclasses
from pathlib import Path

import torch
from echo import VOCABULARY

from voiceseq.audio.features import FeatureConfig
from voiceseq.bundles import save_bundle
from voiceseq.models.acoustic import AcousticConfig, AcousticNetwork
from voiceseq.models.whisper_stream import build_acoustic

FEATURES = FeatureConfig(mels=10)


def small_config(**more: object) -> AcousticConfig:
    settings = {"features": FEATURES, "channels": 6, "size": 8, "layers": 2, "heads": 2, "conformer_kernel": 5}
    return AcousticConfig(symbols=len(VOCABULARY), **settings | more)  # type: ignore[arg-type]


def small_network(seed: int = 1, **more: object) -> AcousticNetwork:
    """Of a network whose weights are large enough that it says something."""
    torch.manual_seed(seed)
    network = build_acoustic(small_config(**more)).eval()
    with torch.no_grad():
        network.output.weight.mul_(8.0)
    return network


def small_bundle(path: Path, seed: int = 1, **more: object) -> Path:
    network = small_network(seed, **more)
    config, weights = dataclasses.asdict(network.config), network.state_dict()
    vocabularies = {"text": VOCABULARY.to_json()}
    return save_bundle(
        path, kind="recogniser", name="small", config=config, weights=weights, vocabularies=vocabularies,
        decoding={"decoder": "greedy"}, licence="Apache-2.0",
    )  # fmt: skip
