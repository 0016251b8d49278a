"""Runs the parts of the proof one after the other, each in processes that end in time, and writes what they found.

    python bench/gpu/run.py OUT [--only PART]...

Every figure is in OUT/PART.jsonl as soon as it is there; results.json and report.html are written again after each
process, from the journals of all parts that OUT has. Exits with 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TESTS = ROOT / "python" / "tests" / "gpu"
# What the sanitizer, which slows kernels down 10 to 100 times, gets to see: every kernel once.
SAMPLE = "(test_as_on_the_cpu and float32 and alone) or (test_long_rows and 30) or test_odd_widths and 33 and bfloat16"
SAMPLE += " or (test_transpose and 1025) or (test_numbers and 1025) or (test_rows_from and 24)"


SCRIPTS = {"ops": {"operators": 460}, "epochs": {"epochs": 180, "levers": 290}, "beyond": {"beyond": 480}}
"""The scripts of each part beside the tests, and how many seconds each gets."""


@dataclass(frozen=True)
class Step:
    """A process of a part, and how many seconds it gets."""

    name: str
    command: list[str]
    seconds: int


def pytest(*more: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS), *more]


def steps(part: str, gpu: bool) -> list[Step]:
    if part != "tests":
        return [
            Step(name, [sys.executable, str(HERE / f"{name}.py")], seconds) for name, seconds in SCRIPTS[part].items()
        ]
    found = [Step("tests", pytest(), 280 if gpu else 420)]
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if gpu and sanitizer is not None:
        for tool in ("memcheck", "racecheck"):
            check = [sanitizer, "--tool", tool, "--kernel-name", "kns=fg_", "--error-exitcode", "86"]
            found.append(Step(tool, [*check, *pytest("-x", "-k", SAMPLE)], 90))
    return found


def run(step: Step, part: str, out: Path, gpu: bool) -> dict[str, Any]:
    """Run a step, at most as long as it may take; what it wrote by then is kept."""
    env = {**os.environ, "FRESHGO_JOURNAL": str(out / f"{part}.jsonl"), "FRESHGO_SECONDS": str(step.seconds - 20)}
    if step.name == "tests":
        env["FRESHGO_TEST_JOURNAL"] = env["FRESHGO_JOURNAL"]
    env["FRESHGO_TEST_GPU"] = "gpu" if gpu else "emulator"
    begin = time.monotonic()
    with (out / f"{part}.log").open("a") as log:
        print(f"\n==== {step.name}: {' '.join(step.command)}", file=log, flush=True)
        process = subprocess.Popen(step.command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            code: int | None = process.wait(step.seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            for how, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
                if process.poll() is None:
                    os.killpg(process.pid, how)
                    try:
                        process.wait(patience)
                    except subprocess.TimeoutExpired:
                        continue
    return {"step": step.name, "code": code, "seconds": round(time.monotonic() - begin, 1), "at_most": step.seconds}


def told(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine() -> dict[str, Any]:
    """Asked in a process of its own: this one must not hold the GPU."""
    ask = "import freshgo; print(freshgo.library())"
    gpu = "import torch; p = torch.cuda.get_device_properties(0); print(p.name, f'{p.total_memory / 2**30:.0f} GiB', "
    gpu += "f'sm_{p.major}{p.minor}', p.multi_processor_count, 'multiprocessors')"
    return {
        "gpu": told(sys.executable, "-c", gpu),
        "driver": told(
            "nvidia-smi", "--query-gpu=driver_version,pcie.link.gen.max,pcie.link.width.max", "--format=csv"
        ),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "freshgo": told(sys.executable, "-W", "ignore", "-c", ask),
        "commit": told("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }


def obstacle() -> str | None:
    """Why there is no GPU to run on, in one sentence; None where there is one."""
    ask = "import torch; torch.zeros(1, device='cuda')"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    if answer.returncode == 0:
        return None
    return answer.stderr.strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", action="append", choices=report.PARTS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    why = obstacle()
    if why is not None:
        print(f"There is no GPU to run on ({why}): the tests run on the emulator of the kernels, and the benchmarks are "
              "rehearsed on the CPU, where their figures mean nothing.", flush=True)  # fmt: skip
    found = machine() | {"rehearsal": why}
    results: list[dict[str, Any]] = []
    for part in args.only or report.PARTS:
        for suffix in ("jsonl", "log"):
            (args.out / f"{part}.{suffix}").unlink(missing_ok=True)
        for step in steps(part, why is None):
            result = run(step, part, args.out, why is None)
            with (args.out / f"{part}.jsonl").open("a") as journal:
                journal.write(json.dumps(result) + "\n")
            results.append(result)
            print(f"{step.name}: exit code {result['code']} after {result['seconds']} s", flush=True)
            report.write(args.out, found)
    print(report.summary(args.out), f"{args.out / 'report.html'} has the figures.", sep="\n")
    return int(any(result["code"] != 0 for result in results))


if __name__ == "__main__":
    sys.exit(main())
