"""The live microphone screen: ``voiceseq listen``."""
