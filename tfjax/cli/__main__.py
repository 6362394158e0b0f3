"""`python -m tfjax.cli`: the command `tfjax`."""

import sys

from . import main


sys.exit(main())
