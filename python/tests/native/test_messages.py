"""What the library writes, in the words of a user of Python."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from freshgo import errors
from freshgo._args.hints import did_you_mean
from freshgo._args.size import format_size, least_size, parse_size
from freshgo._native.messages import of_budget, spoken


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("store: not found: ssd: stat nope: no such file or directory", "no such file or directory"),
        ("sample: seed out of range: input_nodes[2] is 500, expected [0, 9)", "input_nodes[2] is 500, expected [0, 9)"),
        ("loader: invalid option: prefetch is 0", "prefetch is 0"),
        ("store: a tensor needs a name: invalid input", "a tensor needs a name"),
        ("store: /p/g: already exists; overwrite replaces it", f"/p/g {errors.OVERWRITE}"),
        (
            'store: /p has the tensor "x": already exists; overwrite replaces it',
            "/p has the tensor 'x' already; pass overwrite=True to replace it",
        ),
        (
            'loader: invalid option: weight_attr "wieght" is no edge tensor, the edge tensors are ["x" "weight"]',
            "weight_attr 'wieght' is no edge tensor, the edge tensors are 'x', 'weight'; did you mean 'weight'?",
        ),
        (
            'store: weights are of "w", the tensors are []: invalid input',
            "weights are of 'w', the tensors are none at all",
        ),
        ('memory="24MiB" is too small for "a\\"b"', 'memory="24MiB" is too small for \'a"b\''),
        (
            "store: x has shape [200 0], expected rows of 1 to 268435456 bytes: invalid input",
            "x has shape [200, 0], expected rows of 1 to 256 MiB",
        ),
        (
            "store: there is no directory /a to write a store in, create it first: not found: ssd: stat /a: no such "
            "file or directory",
            "there is no directory /a to write a store in, create it first",
        ),
        ("store: p.npy has 1000001 bytes, expected 1000008", "p.npy has 1000001 bytes, expected 1000008"),
        (
            "store: /p is in the way and no directory: already exists",
            "/p is in the way and no directory: already exists",
        ),
        ("ssd: write /p/x.bin: no space left on device", "write /p/x.bin: no space left on device"),
        ("store: /p/store: x: y", "/p/store: x: y"),
        ("freshgo: invalid argument", "invalid argument"),
    ],
)
def test_packages_and_classes_of_errors_are_left_out(written: str, said: str) -> None:
    assert spoken(written) == said


def test_every_package_that_writes_messages_is_left_out() -> None:
    core = Path(__file__).resolve().parents[3] / "core"
    names = {path.name for path in core.iterdir()}
    written = {
        found[1]
        for path in core.glob("*/*.go")
        for found in re.finditer(r'(?:Errorf|errors\.New)\("(\w+): ', path.read_text())
        if not path.name.endswith("_test.go") and found[1] in names
    }
    assert len(written) > 10
    assert {name for name in written if spoken(f"{name}: x") != "x"} == set()


def test_a_budget_is_said_as_it_is_given() -> None:
    tail = "mem: batch needs 30404475 bytes, 25165824 of the budget's 25165824 are left: memory budget exceeded"
    assert of_budget(tail) == 'memory="24MiB" is too small: a batch needs 29 MiB, 24.0 MiB are left'
    more = "mem: staging needs 8388608 bytes, 320 of the budget's 1024 are left: give memory of at least 8389312"
    small = 'memory="1KiB" is too small: reading from disk needs 8 MiB, give at least 8.1 MiB'
    assert of_budget(f"{more} bytes: memory budget exceeded") == small
    relayout = f"store: this relayout needs a memory budget of at least 524288 bytes: {tail}"
    assert of_budget(relayout) == 'memory="24MiB" is too small: this relayout needs at least 512 KiB'
    assert of_budget("mem: trace needs 12 bytes") == "trace needs 12 bytes"


def test_a_size_that_is_named_works() -> None:
    for n_bytes in (1, 1023, 1024, 1025, 30404475, 10 * 1024 - 1, 996245, 2**30 - 1, 2**30 + 1, 3 * 2**40 + 7, 2**60):
        said = least_size(n_bytes)
        assert n_bytes <= parse_size("memory", said) <= n_bytes * 1.1 + 1, said
    assert least_size(30404475) == "29 MiB" and format_size(30404475) == "29.0 MiB"


def test_errors_of_files_say_the_path_and_no_number() -> None:
    missing = errors.StoreNotFoundError(2, "no such file or directory", "g.freshgo")
    exists = errors.StoreExistsError(17, errors.OVERWRITE, "g.freshgo")
    assert str(missing) == "g.freshgo: no such file or directory"
    assert str(exists) == "g.freshgo already exists; pass overwrite=True to replace it"
    assert str(errors.ReadError(5, "read g.freshgo/x.bin at offset 0: I/O error", "g.freshgo/x.bin")).startswith("read")
    assert str(errors.BusyError(16, "another process writes")) == "another process writes"
    assert str(errors.WriteError("full")) == "full"
    for error in (missing, exists):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.errno, again.filename) == (str(error), error.errno, "g.freshgo")


def test_the_nearest_word_is_suggested() -> None:
    assert did_you_mean("Trian", ["train", "val"]) == "; did you mean 'train'?"
    assert did_you_mean("zzz", ["train"]) == did_you_mean(("a", "b"), ["train"]) == did_you_mean(3, ["train"]) == ""
    types = ["paper", ("author", "writes", "paper"), ("paper", "cites", "paper")]
    assert did_you_mean(("author", "wrote", "paper"), types) == "; did you mean ('author', 'writes', 'paper')?"
    assert did_you_mean("papr", types) == "; did you mean 'paper'?"
