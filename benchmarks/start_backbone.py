"""A backbone to go on training from, made of a trained one: with more layers, or with a shorter memory.

    python benchmarks/start_backbone.py BUNDLE OUT [--layers 4] [--forget 2.0]
    voiceseq train experiment=backbone start_from=OUT ...

A new layer begins with a norm of gain 0, so that at first it adds nothing. ``--forget`` is taken from the biases of the
update gates: units that kept what they heard for minutes then keep it for a second or two (docs/experiments.md).
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.models.backbone import Backbone, BackboneConfig


def grown(network: Backbone, layers: int) -> Backbone:
    """The same network with so many layers; what it says stays the same."""
    torch.manual_seed(1)
    larger = Backbone(replace(network.config, layers=layers))
    larger.load_state_dict(network.state_dict(), strict=False)
    for norm in (larger.recurrent.norms or [])[network.config.layers :]:
        torch.nn.init.zeros_(norm.weight)
    return larger


def forgetful(network: Backbone, amount: float) -> Backbone:
    """Lower biases of the update gates, the second third of a GRU's."""
    for cell in network.recurrent.cells:
        gates = cell.bias_hh.detach().view(3, -1)
        gates[1] -= amount
    return network


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--forget", type=float, default=0.0)
    args = parser.parse_args()
    source = load_bundle(args.bundle)
    network = source.network(Backbone, BackboneConfig)
    network = forgetful(grown(network, args.layers or network.config.layers), args.forget)
    save_bundle(
        args.out,
        kind="backbone",
        name=args.out.name,
        config=network.config,
        weights=network.state_dict(),
        vocabularies=source.vocabularies,
        training=source.training,
        card=f"# A start for training, of {args.bundle}\n",
        licence="Apache-2.0",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
