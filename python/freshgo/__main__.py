"""``python -m freshgo`` is the ``freshgo`` command."""

from __future__ import annotations

import sys

from freshgo.cli import main

sys.exit(main())
