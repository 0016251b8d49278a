"""Inferences in processes of their own, which are ended on the way."""

from __future__ import annotations

import os
import random
from pathlib import Path

import warm

CODE = """
import time, torch
from freshgo import infer
from freshgo._infer import run
import torch_geometric.nn as tg
run.SAVED_EVERY = 0.0
torch.manual_seed(5)
model = tg.{model}.eval()
left = {left}
def said(stage, done, total):
    global left
    print(stage, done, flush=True)
    left -= 1
    while left == 0:
        time.sleep(0.01)  # a read would go on sleeping if the signal came just before it
infer(model, {path!r}, {out!r}, memory={memory!r}, batch_size={batch_size}, progress=said)
"""


def said(
    path: Path, out: Path, lines: int, ended_by: int, *, model: str, memory: int | str, batch_size: int = 100
) -> list[tuple[str, int]]:
    """What a process that infers said until it was ended, after so many lines, or came to its end.

    ``model`` is an expression of ``torch_geometric.nn``, whose parameters come from the seed 5.
    """
    code = CODE.format(path=str(path), out=str(out), left=lines, model=model, memory=memory, batch_size=batch_size)
    process = warm.start(code)
    heard = [process.stdout.readline() for _ in range(lines)]
    if lines:
        os.kill(process.pid, ended_by)
    heard += process.stdout.readlines()
    _, errors = process.communicate()
    assert (process.returncode == 0) == (lines == 0), errors
    stages = [line.rsplit(" ", 1) for line in heard if line.startswith(("degrees", "layer"))]
    return [(stage, int(done)) for stage, done in stages]


class StopError(Exception):
    """Ends an inference from its progress."""


class Stops:
    """A progress that ends an inference after a number of calls that is drawn."""

    def __init__(self, draw: random.Random, most: int) -> None:
        self._left = draw.randrange(1, most)

    def __call__(self, stage: str, done: int, total: int) -> None:
        self._left -= 1
        if self._left == 0:
            raise StopError
