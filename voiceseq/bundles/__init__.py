"""Bundles: what training leaves behind and everything else opens. A bundle is data; nothing in it is ever executed.

``NAME/`` or one ``NAME.zip`` of it:

    bundle.json           kind, model config, front end, decoding, metrics, training data, sha256 and size of each file
    bundle.json.sha256    the seal of bundle.json itself, as ``sha256sum -c`` reads it
    weights.safetensors   the tensors
    vocabularies/*.json   symbols, one file a vocabulary
    README.md             the card
    ...                   further files that the kind wants, such as an n-gram model

Every listed file is checked against its sha256 at load. A file that is not listed is never opened: ``verify_bundle``
names it. Torch is imported only when weights are read or written.
"""

from voiceseq.bundles.reading import Bundle, BundleReport, load_bundle, shipped_bundles, verify_bundle
from voiceseq.bundles.stores import FORMAT_VERSION
from voiceseq.bundles.writing import change_decoding, export_bundle, save_bundle

__all__ = [
    "FORMAT_VERSION",
    "Bundle",
    "BundleReport",
    "change_decoding",
    "export_bundle",
    "load_bundle",
    "save_bundle",
    "shipped_bundles",
    "verify_bundle",
]
