"""Making a wake word: from a typed phrase or recordings to a bundle that listens. The door is ``making.make``."""
