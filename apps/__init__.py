"""Programs that people run: users of voiceseq's public API."""
