"""``python -m voiceseq``: the command without its script."""

import sys

from voiceseq.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
