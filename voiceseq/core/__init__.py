"""The sequence core: tensors in, tensors out. It knows nothing of sound, text, Lightning or Hydra."""
