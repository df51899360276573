from pathlib import Path

import numpy as np
import pytest
import torch

import voiceseq
from voiceseq.errors import InputError
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.text.vocabulary import Vocabulary


def test_a_bundle_hears_phones_at_any_rate(tmp_path: Path) -> None:
    torch.manual_seed(1)
    vocabulary = Vocabulary(("<blank>", "AA", "K"), "word", ("blank",))
    network = Backbone(BackboneConfig(3, channels=8, size=12, layers=1, bottleneck=6))
    torch.nn.init.normal_(network.output.weight)
    path = voiceseq.save_bundle(
        tmp_path / "b",
        kind="backbone",
        config=network.config,
        weights=network.state_dict(),
        vocabularies={"phones": vocabulary.to_json()},
    )
    model = voiceseq.load(path)
    noise = np.random.default_rng(1).standard_normal(32_000).astype(np.float32) * 0.1
    found = model.phones(noise, 16_000)
    assert found
    assert {phone for phone, _, _ in found} <= {"AA", "K"}
    assert all(0 <= start < end <= 2.0 for _, start, end in found)
    assert max(end for _, _, end in model.phones(noise, 8_000)) > 2.0  # the same samples last twice as long
    noise[100] = np.nan
    assert model.phones(noise, 16_000)  # one bad sample is replaced
    assert model.phones(noise[:10], 16_000) == []
    with pytest.raises(InputError, match="one channel"):
        model.phones(noise.reshape(2, -1), 16_000)
