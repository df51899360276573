"""A language model at work: sample a text that goes on from a prefix, or say how likely a text is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from voiceseq.bundles import Bundle
from voiceseq.core.search import StepScorer, sample
from voiceseq.errors import InputError
from voiceseq.models.language import LanguageConfig, LanguageNetwork
from voiceseq.text.vocabulary import Vocabulary
