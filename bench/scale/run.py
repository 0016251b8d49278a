"""A generated graph of the size of real ones, from its conversion to its second epoch, beside what the disk needs and beside rivals.

    python bench/scale/run.py DIRECTORY --shape papers --fraction 0.2 --memory 1200MiB [--memory 600MiB] [--batches 128] [--unsorted]
    python bench/scale/run.py DIRECTORY --shape mag --fraction 0.1 --memory 4GiB --rival-batches 32 [--json FILE]

The shapes are papers100M's (papers.py: 111M nodes, 0.8G edges) and MAG240M's (mag.py: 244M nodes, 3.5G edges both ways, rows of 1,536
bytes). Edges begin at nodes that are drawn with very different frequencies and lie anywhere, and rows are float16. DIRECTORY takes the
arrays and the store at once, 40 GB for the whole papers and 410 GB for the whole mag; the arrays go when the store is there, which is kept
for further runs, and a scratch file of up to four times the features comes then.

Conversion, and then the loader with each --memory, run in processes of their own whose memory the kernel limits, pages that it caches
included, after the store has been dropped from its cache. Every batch is checked: some of its rows and of its edges. Each stage has its
seconds, the bytes that it read and wrote, the loader's requests, peak resident memory and processor time. Beside them stands its floor,
at the disk's rates of this run: for conversion, reading the arrays and writing the store; for opening, reading what is kept; for the
first batch, a random read of each row; for an epoch, one scan of the features with each cold row written and read once, or a random read
of each cold row, where that is fewer bytes.

--rival-batches N runs the rivals (rivals.py) for the first N batches, each in a process of its own with the same memory. --json FILE has
all figures, and FILE with the ending svg their picture (picture.py).

--stages propagate,infer,... runs what is done to a store of the papers as a whole (jobs.py), and other draws (draws.py), on the store that
is kept, each in a process of its own with --job-memory. 8 columns make a store of 6 GB, which relayout and append write once more.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import picture
from draws import DRAWS
from epochs import Task, epochs
from jobs import JOBS
from mag import Mag
from papers import Papers
from picture import results
from rivals import RIVALS, graph_of, others, write_graphbolt
from shape import Shape
from stages import BESIDE, Runner, Stages, size

from freshgo import convert
from freshgo._args.size import parse_size

SHAPES = {"papers": Papers, "mag": Mag}
STAGES = JOBS | DRAWS
CONVERSION = "1GiB"


def converted(task: Task) -> None:
    shape, stages = task.shape, Stages()
    stages.begin()
    given = shape.given(task.folder)
    convert(given, task.store, memory=CONVERSION, edge_ids=shape.edge_ids, progress=False).close()
    stages.end("convert", {"read": sum(map(size, shape.files(task.folder))), "written": size(task.store)})


PARTS = {"convert": converted, "epochs": epochs, **RIVALS}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="papers")
    parser.add_argument("--fraction", type=float, default=0.2)
    parser.add_argument("--columns", type=int, help="of the features; else 64 of papers and 768 of mag")
    parser.add_argument("--unsorted", action="store_true", help="edges in no order, of papers")
    parser.add_argument("--memory", action="append", default=[], help="of the loader; may be given several times")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument(
        "--batches", type=int, help="of an epoch; else as many as the split train makes, by the fraction"
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rival-batches", type=int, default=0, help="of each rival; 0 runs none")
    parser.add_argument("--stages", default="", help=f"further ones, of papers: {','.join(STAGES)}")
    parser.add_argument("--job-memory", default="4GiB", help="of these")
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    others.add_option(parser)
    args = parser.parse_args()
    asked = [stage for stage in args.stages.split(",") if stage]
    if args.shape != "papers" and (args.unsorted or asked):
        parser.error(f"--unsorted and --stages are of --shape papers, got --shape {args.shape}")
    if unknown := set(asked) - set(STAGES):
        parser.error(f"--stages {unknown.pop()}: expected one of {', '.join(STAGES)}")
    return args


def task_of(args: argparse.Namespace, memory: str, graphbolt: str = "") -> Task:
    more = {"in_order": False} if args.unsorted else {}
    shape: Shape = SHAPES[args.shape](args.fraction, args.columns or SHAPES[args.shape].columns_whole, **more)
    batches = args.batches or max(1, int(shape.input_whole * args.fraction) // args.batch_size)
    rest = (batches, args.batch_size, args.epochs, args.rival_batches, graphbolt)
    return Task(shape, args.directory, memory, *rest)


def run_rivals(runner: Runner, args: argparse.Namespace, memory: str, limit: int) -> None:
    runner.run(f"map={memory}", limit)
    runner.run(f"policies={memory}", None)
    if python := others.installed(args.others, ("graphbolt",)):
        task = task_of(args, memory)
        write_graphbolt(task)
        runner.run(f"graphbolt={memory}={python['graphbolt']}", limit)
        shutil.rmtree(graph_of(task))


def main() -> None:
    args = parsed()
    if args.part in STAGES:
        task = task_of(args, args.job_memory)
        STAGES[args.part](task.shape, task.store, task.memory)
        return
    if args.part:
        name, *rest = args.part.split("=", 2)
        PARTS[name](task_of(args, *rest))
        return
    args.directory.mkdir(parents=True, exist_ok=True)
    runner, task = Runner(args.directory, __file__, sys.argv[1:]), task_of(args, CONVERSION)
    if not task.store.exists():
        task.shape.write(args.directory)
        runner.run(f"convert={CONVERSION}", parse_size("memory", CONVERSION) + BESIDE)
        for file in task.shape.files(args.directory):
            file.unlink()
    runner.measure(task.store)
    for line in runner.lines:
        runner.show(line)
    for memory in args.memory:
        limit = parse_size("memory", memory) + BESIDE
        runner.run(f"epochs={memory}", limit)
        if args.rival_batches:
            run_rivals(runner, args, memory, limit)
    for stage in filter(None, args.stages.split(",")):
        runner.run(stage, parse_size("memory", args.job_memory) + BESIDE)
    if args.json:
        named = {str(args.directory): "DIR", str(args.json): "FILE"}
        command = shlex.join(["python", "bench/scale/run.py", *(named.get(word, word) for word in sys.argv[1:])])
        about = {**results.machine(), "load": f"{os.getloadavg()[0]:.1f}", "command": command}
        figures = {**about, "shape": task.shape.name, "rates": runner.rates, "lines": runner.lines}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
        if args.memory:
            picture.draw(figures, args.json.with_suffix(".svg"))
    if runner.failed:
        sys.exit("; ".join(runner.failed))


if __name__ == "__main__":
    main()
