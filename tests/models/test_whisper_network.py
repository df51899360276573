"""Whisper's network: alone = padded, step by step = at once, and equal to a plain implementation of the paper."""

import base64
import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.bundles import load_bundle
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.whisper import LogMel, WhisperConfig, WhisperNetwork
from voiceseq.models.whisper_weights import import_whisper, read_whisper
from voiceseq.text.pieces import Pieces

SMALL = WhisperConfig(
    symbols=50, characters=7, tail_s=0.1, size=16, heads=2, encoder_layers=2, decoder_layers=2, audio_positions=100,
    text_positions=12,
)  # fmt: skip


def network(config: WhisperConfig = SMALL) -> WhisperNetwork:
    torch.manual_seed(3)
    made = WhisperNetwork(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return made


def sounds(*counts: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    lengths = torch.tensor(counts)
    return torch.randn(len(counts), max(counts)) * 0.1, lengths


@torch.no_grad()
def test_a_recording_gets_the_same_answer_alone_and_padded() -> None:
    net = network()
    samples, lengths = sounds(9000, 4321, 700)
    tokens = torch.randint(50, (3, 5))
    frames, counts = net.listen(samples, lengths)
    logits = net(frames, counts, tokens)
    for row, length in enumerate(lengths.tolist()):
        alone, count = net.listen(samples[row : row + 1, :length])
        assert int(count) == int(counts[row])
        assert torch.allclose(frames[row, : int(count)], alone[0], atol=1e-5)
        assert not frames[row, int(count) :].any()
        assert torch.allclose(logits[row], net(alone, count, tokens[row : row + 1])[0], atol=1e-4)


@torch.no_grad()
def test_what_stands_in_the_padding_does_not_matter() -> None:
    net = network()
    samples, lengths = sounds(6000, 3000)
    frames, _ = net.listen(samples, lengths)
    samples[1, 3000:] = 1.0
    assert torch.equal(net.listen(samples, lengths)[0], frames)


@torch.no_grad()
def test_steps_write_what_is_written_at_once_whatever_the_number_of_rows_a_recording() -> None:
    net = network()
    frames, counts = net.listen(*sounds(8000, 5000))
    tokens = torch.randint(50, (6, 7))  # three texts for each recording
    at_once = net(frames.repeat_interleave(3, 0), counts.repeat_interleave(3), tokens).log_softmax(-1)
    memory, caches = net.start(frames, counts), None
    for place in range(7):
        log_probs, caches = net.step(tokens[:, place], caches, memory)
        assert torch.allclose(log_probs, at_once[:, place], atol=1e-5)


def test_windows_have_their_silence() -> None:
    net = network()
    samples, lengths = net.window(*sounds(8000, 5000))
    assert lengths.tolist() == [9600, 6600]
    assert samples.shape == (2, 9600)
    assert not samples[1, 5000:].any()
    whole = network(dataclasses.replace(SMALL, tail_s=None))
    assert whole.window(*sounds(8000, 5000))[1].tolist() == [32000, 32000]
    assert net.window(*sounds(31_500))[1].tolist() == [32000]  # what fits of it
    with pytest.raises(InputError, match="at most 2 s fit"):
        net.window(torch.zeros(1, 32_001))
    with pytest.raises(InputError, match="NaN"):
        net.window(torch.full((1, 800), torch.nan))
    with pytest.raises(InputError):
        net.window(torch.zeros(800))


@torch.no_grad()
def test_one_sample_is_heard() -> None:
    frames, counts = network().listen(torch.ones(1, 1))
    assert frames.shape[1] == int(counts) >= 1
    assert frames.isfinite().all()


def test_log_mel_is_that_of_the_makers() -> None:
    """By torch's own Fourier transform and librosa's triangles."""
    librosa = pytest.importorskip("librosa")
    samples, _ = sounds(16_000)
    samples[:, 8000:] = 0.0
    spectrum = torch.stft(samples, 400, 160, window=torch.hann_window(400), return_complex=True)[..., :-1].abs() ** 2
    levels = torch.from_numpy(librosa.filters.mel(sr=16_000, n_fft=400, n_mels=80)) @ spectrum
    levels = levels.clamp(min=1e-10).log10()
    expected = (torch.maximum(levels, levels.max() - 8.0) + 4.0) / 4.0
    frames, counts = LogMel(80)(samples, torch.tensor([16_000]))
    assert counts.tolist() == [100]
    assert torch.allclose(frames, expected.transpose(1, 2), atol=2e-5)


def test_the_loudest_spot_is_each_recordings_own() -> None:
    samples, lengths = sounds(8000, 8000)
    samples[0] *= 100
    frames, _ = LogMel(80)(samples, lengths)
    assert torch.allclose(frames[1], LogMel(80)(samples[1:], lengths[1:])[0][0], atol=1e-6)


def test_impossible_configs_are_refused_with_all_their_mistakes() -> None:
    with pytest.raises(ConfigError, match=r"mels is 0.*symbols is -1.*encoder_layers is 0.*tail_s is 31.*size is 3"):
        WhisperConfig(mels=0, symbols=-1, encoder_layers=0, tail_s=31.0, size=3)
    with pytest.raises(ConfigError, match="symbols is 0"):
        WhisperNetwork(WhisperConfig())
    with pytest.raises(ConfigError, match="heads"):
        WhisperNetwork(dataclasses.replace(SMALL, heads=3))
    with pytest.raises(InputError, match="no CTC head"):
        network(dataclasses.replace(SMALL, characters=0)).characters(torch.zeros(1, 3, 16))


# --- weights of others -----------------------------------------------------------------------------------------------

DIMS = {"n_mels": 80, "n_audio_ctx": 100, "n_audio_state": 16, "n_audio_head": 2, "n_audio_layer": 2, "n_vocab": 50}
DIMS |= {"n_text_ctx": 12, "n_text_state": 16, "n_text_head": 2, "n_text_layer": 2}


def their_weights(dims: dict[str, int]) -> dict[str, Tensor]:
    """A checkpoint of random numbers under the names of Whisper's makers."""
    torch.manual_seed(11)
    size, weights = dims["n_audio_state"], {}

    def linear(name: str, wide: int, high: int, bias: bool = True) -> None:
        weights[f"{name}.weight"] = torch.randn(high, wide) * 0.3
        if bias:
            weights[f"{name}.bias"] = torch.randn(high) * 0.3

    def norm(name: str) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = 1 + 0.1 * torch.randn(size), 0.1 * torch.randn(size)

    for number, wide in ((1, dims["n_mels"]), (2, size)):
        weights[f"encoder.conv{number}.weight"] = torch.randn(size, wide, 3) * 0.1
        weights[f"encoder.conv{number}.bias"] = torch.randn(size) * 0.1
    weights["encoder.positional_embedding"] = torch.zeros(dims["n_audio_ctx"], size)
    weights["decoder.positional_embedding"] = torch.randn(dims["n_text_ctx"], size) * 0.1
    weights["decoder.token_embedding.weight"] = torch.randn(dims["n_vocab"], size)
    norm("encoder.ln_post"), norm("decoder.ln")
    for side, layers in (("encoder", dims["n_audio_layer"]), ("decoder", dims["n_text_layer"])):
        for block in (f"{side}.blocks.{number}" for number in range(layers)):
            for attention in ("attn", "cross_attn") if side == "decoder" else ("attn",):
                for part in ("query", "key", "value", "out"):
                    linear(f"{block}.{attention}.{part}", size, size, bias=part != "key")
                norm(f"{block}.{attention}_ln")
            linear(f"{block}.mlp.0", size, 4 * size), linear(f"{block}.mlp.2", 4 * size, size)
            norm(f"{block}.mlp_ln")
    return weights


class Paper:
    """Whisper as its paper says, on the weights by name; one recording at a time."""

    def __init__(self, weights: dict[str, Tensor], heads: int) -> None:
        self.weights, self.heads = weights, heads

    def linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def attend(self, name: str, x: Tensor, source: Tensor, causal: bool = False) -> Tensor:
        size = x.shape[-1] // self.heads
        q, k, v = (
            self.linear(f"{name}.query", x),
            self.linear(f"{name}.key", source),
            self.linear(f"{name}.value", source),
        )
        contexts = []
        for head in range(self.heads):
            part = slice(head * size, (head + 1) * size)
            scores = q[:, part] @ k[:, part].T / size**0.5
            if causal:
                scores = scores + torch.full(scores.shape, -torch.inf).triu(1)
            contexts.append(scores.softmax(-1) @ v[:, part])
        return self.linear(f"{name}.out", torch.cat(contexts, 1))

    def block(self, name: str, x: Tensor, memory: Tensor | None) -> Tensor:
        normed = self.norm(f"{name}.attn_ln", x)
        x = x + self.attend(f"{name}.attn", normed, normed, causal=memory is not None)
        if memory is not None:
            x = x + self.attend(f"{name}.cross_attn", self.norm(f"{name}.cross_attn_ln", x), memory)
        inner = functional.gelu(self.linear(f"{name}.mlp.0", self.norm(f"{name}.mlp_ln", x)))
        return x + self.linear(f"{name}.mlp.2", inner)

    def encode(self, mels: Tensor, positions: Tensor) -> Tensor:
        x = mels.T[None]
        for number, stride in ((1, 1), (2, 2)):
            weight, bias = (self.weights[f"encoder.conv{number}.{part}"] for part in ("weight", "bias"))
            x = functional.gelu(functional.conv1d(x, weight, bias, stride, 1))
        x = x[0].T + positions
        for number in range(2):
            x = self.block(f"encoder.blocks.{number}", x, None)
        return self.norm("encoder.ln_post", x)

    def logits(self, tokens: Tensor, memory: Tensor) -> Tensor:
        table = self.weights["decoder.token_embedding.weight"]
        x = table[tokens] + self.weights["decoder.positional_embedding"][: len(tokens)]
        for number in range(2):
            x = self.block(f"decoder.blocks.{number}", x, memory)
        return self.norm("decoder.ln", x) @ table.T


@torch.no_grad()
def test_weights_of_others_give_what_the_paper_says(tmp_path: Path) -> None:
    weights = their_weights(DIMS)
    torch.save({"dims": DIMS, "model_state_dict": weights}, tmp_path / "small.pt")
    config, ours = read_whisper(tmp_path / "small.pt")
    net = WhisperNetwork(config).eval()
    net.load_state_dict(ours)
    mels, tokens = torch.randn(60, 80), torch.randint(50, (9,))
    paper = Paper(weights, heads=2)
    memory = paper.encode(mels, net.positions[:30])
    frames, lengths = net.encode(mels[None], torch.tensor([60]))
    assert torch.allclose(frames[0], memory, atol=1e-4)
    expected = paper.logits(tokens, memory)
    found = net(frames, lengths, tokens[None])[0]
    assert torch.allclose(found, expected, atol=1e-3)
    assert found.std() > 0.1


def test_a_bundle_keeps_the_pieces_that_a_text_uses(tmp_path: Path) -> None:
    dims = DIMS | {"n_vocab": 51_864}
    weights = their_weights(dims)
    torch.save({"dims": dims, "model_state_dict": weights}, tmp_path / "tiny.pt")
    symbols = [*(bytes([number]) for number in range(256)), b"th", b" th", b" the", b" a", b"in", b" i", b" it"]
    lines = [f"{base64.b64encode(symbol).decode()} {number}" for number, symbol in enumerate(symbols)]
    (tmp_path / "gpt2.tiktoken").write_text("\n".join(lines))  # found beside the weights
    (tmp_path / "words.txt").write_text("The the THE, 3 the!\nαβγ\n")
    (tmp_path / "manifest.jsonl").write_text(json.dumps({"id": "1", "text": "a it a"}) + "\n\n")
    texts = [tmp_path / "words.txt", tmp_path / "manifest.jsonl"]
    bundle = load_bundle(import_whisper(tmp_path / "tiny.pt", tmp_path / "out", texts=texts, pieces=2))
    pieces = Pieces.from_json(bundle.vocabularies["pieces"])
    assert set(pieces.symbols[256:]) == {b" the", b" th", b"th", b" a"}  # the two most used, and what they are made of
    assert bundle.config["symbols"] == len(pieces) == 256 + 4 + 4
    table, kept = bundle.weights["embedding.weight"].float(), weights["decoder.token_embedding.weight"]
    assert torch.allclose(table[pieces.encode(" the")[0]], kept[258], atol=2e-3)
    assert torch.allclose(table[pieces.specials["end"]], kept[50256], atol=2e-3)
    assert torch.allclose(table[pieces.specials["no_timestamps"]], kept[50362], atol=2e-3)
    whole = load_bundle(import_whisper(tmp_path / "tiny.pt", tmp_path / "whole"))
    assert whole.config["symbols"] == 51_864
    assert whole.network(WhisperNetwork, WhisperConfig).config.tail_s is None
    (tmp_path / "gpt2.tiktoken").unlink()
    with pytest.raises(InputError, match="--vocabulary"):
        import_whisper(tmp_path / "tiny.pt", tmp_path / "none")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/voiceseq-was-here",)


def test_files_that_are_no_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.pt"
    with pytest.raises(InputError, match="there is no file"):
        read_whisper(path)
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="no Whisper checkpoint"):
        read_whisper(path)
    torch.save({"dims": DIMS, "model_state_dict": {"x": Evil()}}, path)
    with pytest.raises(InputError, match="read safely"):
        read_whisper(path)
    torch.save({"weights": {}}, path)
    with pytest.raises(InputError, match="'dims'"):
        read_whisper(path)
    torch.save({"dims": DIMS | {"n_mels": "many"}, "model_state_dict": {}}, path)
    with pytest.raises(InputError, match="does not say n_mels"):
        read_whisper(path)
    torch.save({"dims": DIMS | {"n_text_state": 32}, "model_state_dict": {}}, path)
    with pytest.raises(InputError, match="differ in size"):
        read_whisper(path)
    torch.save({"dims": DIMS, "model_state_dict": their_weights(DIMS) | {"encoder.extra": torch.ones(1)}}, path)
    with pytest.raises(InputError, match=r"encoder\.extra"):
        read_whisper(path)
    torch.save({"dims": DIMS, "model_state_dict": their_weights(DIMS)}, path)
    with pytest.raises(InputError, match="English models"):
        import_whisper(path, tmp_path / "out")


@torch.no_grad()
def test_the_reference_gives_the_same_states_and_logits(shared: Path) -> None:
    """Real weights on real clips: $VOICESEQ_WHISPER is a folder with tiny.en.pt and ref/whisper (openai-whisper)."""
    folder = Path(os.environ.get("VOICESEQ_WHISPER", "/nowhere"))
    if not (folder / "tiny.en.pt").exists():
        pytest.skip("set VOICESEQ_WHISPER to a folder with tiny.en.pt and ref/ (openai-whisper, tiktoken)")
    sys.path.append(str(folder / "ref"))
    whisper = pytest.importorskip("whisper")
    from voiceseq.audio.files import read_clip
    from voiceseq.datasets.manifest import read_manifest

    config, weights = read_whisper(folder / "tiny.en.pt")
    net = WhisperNetwork(config).eval()
    net.load_state_dict(weights)
    reference: nn.Module = whisper.load_model(str(folder / "tiny.en.pt"), device="cpu").eval()
    for corpus in ("librispeech", "harpervalley"):
        clip = read_manifest(shared / "data" / "speech" / corpus / "manifest-dev.jsonl")[3]
        samples = torch.from_numpy(read_clip(clip.audio, clip.offset, clip.duration, 16_000))
        mels = whisper.log_mel_spectrogram(whisper.pad_or_trim(samples))[None]
        ours, _ = net.features(*net.window(samples[None]))
        assert (ours - mels.transpose(1, 2)).abs().max() < 1e-4
        states, (frames, lengths) = reference.encoder(mels), net.listen(samples[None])
        assert (frames - states).abs().max() < 2e-3
        tokens = torch.tensor([[50257, 50362, 383, 2068, 7586, 21831, 11, 262]])
        assert (net(frames, lengths, tokens) - reference.decoder(tokens, states)).abs().max() < 2e-3
