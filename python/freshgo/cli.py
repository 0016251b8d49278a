"""The ``freshgo`` command."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence

from freshgo._cli.arguments import UsageError
from freshgo._cli.parser import make_parser
from freshgo.errors import FreshgoError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, 1 after an error, 2 after wrong arguments, 130 after Ctrl-C."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        text, data = options.run(options)
        if options.json and not options.quiet:
            print(json.dumps(data, indent=2))
        elif text and not options.quiet:
            print(text)
        sys.stdout.flush()  # a full disk shows now, not while the interpreter exits
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _forget_output()
        return 1
    except UsageError as error:
        _trace(options.traceback)
        print(f"freshgo {options.command}: {error}", file=sys.stderr)
        return 2
    except (FreshgoError, OSError) as error:
        _trace(options.traceback)
        print(f"freshgo: {str(error).replace('overwrite=True', '--overwrite')}", file=sys.stderr)
        if isinstance(error, OSError) and error.filename is None:
            _forget_output()
        return 1
    except KeyboardInterrupt:
        print("freshgo: interrupted", file=sys.stderr)
        return 130
    return 0


def _trace(wanted: bool) -> None:
    if wanted:
        import traceback  # slow to import

        traceback.print_exc()


def _forget_output() -> None:
    """Point standard output elsewhere: the interpreter flushes it once more at exit, and would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
