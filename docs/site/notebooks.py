"""Runs the notebooks of examples/ and stores what they print and draw, so that a forge and the site show it.

    python docs/site/notebooks.py [NAME.ipynb ...]     all of them without a name

Stored are printed lines, figures and tables; warnings, times of execution and whatever names this machine are not. The
code that the outputs belong to is noted by a digest, which python/tests/project/test_notebook.py compares.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHOWN = ("image/png", "text/html", "text/plain")
"""The kinds of outputs, the best first; one of them is kept."""


def digest(notebook: Any) -> str:
    """Of the code of a notebook, in its order."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def tidy(text: str) -> str:
    """Leave out where the temporary directory of a notebook was."""
    return re.sub(r"/\S*/freshgo-[a-z]+-\w+/", "", text)


def smaller(picture: str) -> str:
    """Return a figure in PNG, base64, with a palette of 128 colours: a third of its size."""
    from PIL import Image

    reduced = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").quantize(128)
    out = io.BytesIO()
    reduced.save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def stored(output: Any) -> Any | None:
    """Return of an output what is stored, or None."""
    if output.output_type == "stream":
        output.text = tidy(output.text)
        return output if output.name == "stdout" else None
    kind = next(kind for kind in SHOWN if kind in output.data)
    output.data = {kind: (tidy if kind.startswith("text") else smaller)(output.data[kind])}
    output.metadata = {}
    return output


def execute(path: Path) -> Any:
    """Run a notebook from its first cell to its last, and return it with its outputs."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    client.coalesce_streams = True
    return client.execute()


def main() -> None:
    """Run and store."""
    import nbformat

    for path in map(Path, sys.argv[1:]) if len(sys.argv) > 1 else sorted(EXAMPLES.glob("*.ipynb")):
        notebook = execute(path)
        for cell in notebook.cells:
            cell.metadata = {}
            if cell.cell_type == "code":
                cell.outputs = [kept for output in cell.outputs if (kept := stored(output)) is not None]
        python = {"display_name": "Python 3", "language": "python", "name": "python3"}
        notebook.metadata = {"kernelspec": python, "language_info": {"name": "python"}, "outputs_of": digest(notebook)}
        nbformat.validate(notebook)
        path.write_text(nbformat.writes(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
