"""The library with CUDA over a driver that emulates a device, against the operators of the CPU.

csrc/cuda/cuda_test.go checks the kernels one by one. This goes the whole way: C API, plans, gorgonia.org/cu, the launch
of a kernel with its arguments. Needs `make cuda` and a C++ compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import machines
import pytest

import freshgo

SITE = Path(freshgo.__file__).parent
LIBRARY = SITE / "libfreshgo_cuda.so"

PRELUDE = f"""
import ctypes, sys
import torch
from ctypes import POINTER, byref, c_int32, c_int64, c_void_p, sizeof
sys.path.insert(0, {str(SITE.parent)!r})
from freshgo._native import header as abi
from freshgo._native import cuda
library = ctypes.CDLL({str(LIBRARY)!r})
torch.manual_seed(0)
status = torch.zeros(1, dtype=torch.int64)

def call(name, *args, want=0):
    function, error = getattr(library, name), abi.Error()
    function.argtypes = abi.SIGNATURES[name] + (POINTER(abi.Error),)
    code = function(*args, byref(error))
    assert code == want, (name, code, error.message)
    return error.message.decode()

def queue(stream=0, device=0):
    on = abi.CudaQueue(struct_size=sizeof(abi.CudaQueue), device=device, stream=stream, status=status.data_ptr())
    return byref(on)

def pointers(tensors):
    return {{k: v.data_ptr() if isinstance(v, torch.Tensor) else v for k, v in tensors.items()}}

def with_scratch(name, raw):
    n = c_int64()
    call(name, byref(raw), None, byref(n), queue())
    scratch = torch.empty(n.value + 16, dtype=torch.uint8)
    call(name, byref(raw), (scratch.data_ptr() + 15) // 16 * 16, byref(n), queue())
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a libcuda.so.1 that emulates a device."""
    if not LIBRARY.exists():
        pytest.skip("this installation has no library with CUDA: 'make cuda' builds it")
    driver = machines.emulated_driver(tmp_path_factory.mktemp("driver"))
    if driver is None:
        pytest.skip("no C++ compiler")
    return driver.parent


def run(script: str, driver: Path | None = None, **environment: str) -> str:
    env = {**os.environ, **environment}
    if driver is not None:
        env["LD_LIBRARY_PATH"] = str(driver)
    answer = subprocess.run([sys.executable, "-c", PRELUDE + script], env=env, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


PROBE = """
n, version, free, total = c_int32(-1), c_int32(-1), c_int64(), c_int64()
"""


def test_the_driver_is_found_when_it_is_asked_for(driver: Path) -> None:
    run(
        PROBE
        + """
call("fg_cuda_probe", byref(n), byref(version))
assert (n.value, version.value) == (2, 13000)
call("fg_cuda_memory", 1, byref(free), byref(total))
assert (free.value, total.value) == (5 << 30, 8 << 30)
assert "device is 2" in call("fg_cuda_memory", 2, byref(free), byref(total), want=10)
call("fg_cuda_memory", -1, byref(free), byref(total), want=10)
""",
        driver,
        FRESHGO_EMULATED_DEVICES="2",
    )


def test_loading_it_loads_no_driver(driver: Path) -> None:
    """Without torch, which may load the driver itself."""
    script = f"""
import ctypes
library = ctypes.CDLL({str(LIBRARY)!r})
assert "libcuda.so" not in open("/proc/self/maps").read()
number = ctypes.byref(ctypes.c_int32())
assert library.fg_cuda_probe(number, number, None) == 0
assert "libcuda.so" in open("/proc/self/maps").read()
"""
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver)}
    subprocess.run([sys.executable, "-c", script], env=env, check=True)


def test_without_a_device_or_a_driver_one_line_says_so(driver: Path, tmp_path: Path) -> None:
    ask = PROBE + "print(call('fg_cuda_probe', byref(n), byref(version), want=25))"
    none = run(ask, driver, FRESHGO_EMULATED_DEVICES="0")
    assert "no CUDA-capable device" in none
    assert "CUDA_VISIBLE_DEVICES must name a device that `nvidia-smi -L` lists, with MIG an instance" in none
    hidden = tmp_path / "libcuda.so.1"  # found before any other, and no library
    hidden.write_text("")
    message = run(ask, tmp_path)
    assert "no CUDA driver" in message
    assert message.count("\n") == 1
    assert "CUDA_VISIBLE_DEVICES" not in message
    without = ask.replace("print", f"library = ctypes.CDLL({str(SITE / 'libfreshgo.so')!r})\nprint")
    assert "this build has no CUDA" in run(without, driver)


TOO_OLD = """
import warnings
import freshgo
from freshgo import errors
print(call("fg_cuda_memory", 0, byref(c_int64()), byref(c_int64()), want=25))
torch.version.cuda = "13.0"

class OnCuda(torch.Tensor):
    device, is_cuda = torch.device("cuda", 0), True

x, index, ptr = torch.ones(3, 2), torch.tensor([0, 1, 2]), torch.tensor([0, 3])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        try:
            freshgo.ops.aggregate(*(t.as_subclass(OnCuda) for t in (x, index, ptr)))
        except errors.InvalidArgumentError as error:
            print(error)
print(*[w.message for w in caught if "freshgo" in str(w.message)], sep="\\n")
assert freshgo.library().cuda
assert freshgo.ops.aggregate(x, index, ptr).tolist() == [[3, 3]]  # the CPU works meanwhile
"""


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"FRESHGO_EMULATED_VERSION": "12080"}, "it supports CUDA 12.8 and the kernels need 13.0: install driver 580"),
        ({"FRESHGO_EMULATED_CAPABILITY": "75"}, "device 0 has compute capability 7.5 and the kernels need 8.0: choose"),
    ],
)
def test_a_driver_or_a_device_that_is_too_old_is_told_once(driver: Path, setting: dict[str, str], words: str) -> None:
    lines = [line for line in run(TOO_OLD, driver, **setting).splitlines() if line]
    assert len(lines) == 4, lines
    assert all(words in line for line in lines)
    assert lines[1].startswith("index is on cuda:0, where the operators do not run: ")
    assert lines[1] == lines[2]
    assert lines[3].startswith("freshgo's operators do not run on cuda:0, accelerated layers are PyG's there: ")


OPERATORS = """
rows, sources, columns, heads = 40, 60, 24, 4
lengths = torch.randint(0, 9, (rows,))
lengths[3], lengths[5] = 1500, 0
ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
edges = int(ptr[-1])
index = torch.randint(0, sources, (edges,), dtype=torch.int32)
plain = dict(threads=1, index_bytes=4, ptr=ptr, rows=rows, index=index, num_index=edges)
"""


def test_operators_equal_those_of_the_cpu(driver: Path) -> None:
    run(
        OPERATORS
        + """
dtypes = ((torch.float32, 2, 32), (torch.float64, 2, 64), (torch.float16, 2, 16), (torch.bfloat16, 4, 16))
for dtype, code, bits in dtypes:
    real = torch.float64 if bits == 64 else torch.float32
    x, y, own = (torch.randn(n, columns).to(dtype) for n in (sources, sources, rows))
    x = (x * 2).round() / 2  # values that tie
    own = (own * 2).round() / 2
    weight, self_weight = (torch.rand(n, heads, dtype=real) for n in (edges, rows))
    row, col = (torch.rand(n, dtype=real) for n in (rows, sources))
    for kind in range(5):
        results = []
        for name in ("fg_aggregate", "fg_cuda_aggregate"):
            out = torch.full((rows, columns), 7, dtype=dtype)
            if kind == 4:
                out = torch.full((edges, heads), 7, dtype=real)
            count = torch.full((rows, columns), 7, dtype=real)
            more = dict(weight=weight, num_weights=edges, row_scale=row, col_scale=col, self_weight=self_weight,
                        self_rows=rows, self_heads=heads) if kind == 0 else dict(self_heads=1)
            raw = abi.Aggregation(**pointers(dict(plain, struct_size=sizeof(abi.Aggregation), kind=kind, cut=-1,
                dtype=abi.DataType(code, bits, 1), columns=columns, heads=heads if kind in (0, 4) else 1, x=x, y=y,
                x_rows=sources, x_stride=columns, own=own, own_stride=columns, out=out, count=count, **more)))
            (with_scratch if "cuda" in name else lambda name, raw: call(name, byref(raw)))(name, raw)
            results.append((out, count))
        (a, n), (b, m) = results
        tolerance = {64: 1e-12, 32: 1e-4, 16: 2e-2}[bits]
        assert torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance), (dtype, kind)
        if kind in (1, 2):
            assert torch.equal(a, b) and torch.equal(n, m)

for real in (torch.float32, torch.float64):
    src, dst, logit = (torch.randn(n, heads, dtype=real) for n in (sources, rows, edges))
    grad, grad_self = torch.randn(edges, heads, dtype=real), torch.randn(rows, heads, dtype=real)
    results = []
    for name in ("fg_attention_", "fg_cuda_attention_"):
        new = lambda n: torch.full((n, heads), 7, dtype=real)
        t = dict(src=src, dst=dst, edge=logit, alpha=new(edges), alpha_self=new(rows), grad=grad, grad_self=grad_self,
                 grad_edge=new(edges), grad_edge_self=new(rows), grad_dst=new(rows))
        raw = abi.Attention(**pointers(dict(plain, struct_size=sizeof(abi.Attention), is_double=real == torch.float64,
            heads=heads, src_rows=sources, self_rows=rows, slope=0.2, **t)))
        for way in ("forward", "back"):
            call(name + way, byref(raw), *([queue(stream=2)] if "cuda" in name else []))
        results.append(t)
    for k, v in results[0].items():
        assert torch.allclose(v, results[1][k], rtol=1e-4, atol=1e-5), k

results = []
for name in ("fg_transpose", "fg_cuda_transpose"):
    t = dict(source_ptr=ptr.new_empty(sources + 1), target=torch.empty_like(index), edge=torch.empty_like(index))
    raw = abi.Transposition(**pointers(dict(plain, struct_size=sizeof(abi.Transposition), sources=sources, **t)))
    with_scratch(name, raw) if "cuda" in name else call(name, byref(raw))
    results.append(t)
assert all(torch.equal(results[0][k], results[1][k]) for k in results[0])
assert int(status) == 0
""",
        driver,
    )


def test_map_and_gather(driver: Path) -> None:
    run(
        """
ids = torch.randint(0, 300, (2000,))
node, local, count = torch.empty_like(ids), torch.empty_like(ids), torch.empty(1, dtype=torch.int64)
raw = abi.Mapping(**pointers(dict(struct_size=sizeof(abi.Mapping), index_bytes=8, id=ids, n=2000, node=node,
    local=local, count=count)))
with_scratch("fg_cuda_map", raw)
order = list(dict.fromkeys(ids.tolist()))
assert node[: int(count)].tolist() == order
assert local.tolist() == [order.index(i) for i in ids.tolist()]

table, cache = torch.randn(50, 7), torch.randn(9, 7)
address = c_void_p()
call("fg_cuda_register_host", 0, table.data_ptr(), table.nbytes, byref(address))
assert address.value == table.data_ptr()
call("fg_cuda_register_host", 0, table.data_ptr(), table.nbytes, byref(address), want=25)
index, slot = torch.randint(0, 50, (30,)), torch.randint(-5, 9, (30,), dtype=torch.int32)
out = torch.empty(30, 7)
raw = abi.Gathering(**pointers(dict(struct_size=sizeof(abi.Gathering), index_bytes=8, n=30, row_bytes=28,
    index=index, table=address.value, table_rows=50, table_stride=28, slot=slot, cache=cache, cache_rows=9,
    cache_stride=28, out=out)))
call("fg_cuda_gather", byref(raw), queue())
assert torch.equal(out, torch.where((slot >= 0)[:, None], cache[slot.clamp(min=0)], table[index]))
call("fg_cuda_unregister_host", 0, table.data_ptr())
call("fg_cuda_unregister_host", 0, table.data_ptr(), want=25)
assert int(status) == 0
index[3], slot[3] = 50, -1
call("fg_cuda_gather", byref(raw), queue())
assert int(status) >> 56 == 1 and (1 << 56) - 1 - (int(status) & (1 << 56) - 1) == 3
""",
        driver,
    )


def test_bad_calls_are_refused_and_leave_no_context(driver: Path) -> None:
    run(
        OPERATORS
        + """
fake = ctypes.CDLL("libcuda.so.1")
raw = abi.Attention(**pointers(dict(plain, struct_size=sizeof(abi.Attention), heads=1, src_rows=1)))
assert "device is 7" in call("fg_cuda_attention_forward", byref(raw), queue(device=7), want=10)
raw = abi.Aggregation(struct_size=sizeof(abi.Aggregation), dtype=abi.DataType(2, 32, 1), index_bytes=4, heads=1,
    self_heads=1, cut=-1)
with_scratch("fg_cuda_aggregate", raw)  # nothing to do
n = c_int64(100)
raw.dtype.bits = 8
assert "dtype" in call("fg_cuda_aggregate", byref(raw), None, byref(n), queue(), want=11)
raw.struct_size -= 8
assert "struct_size" in call("fg_cuda_aggregate", byref(raw), None, byref(n), queue(), want=10)
raw = abi.Aggregation(**pointers(dict(plain, struct_size=sizeof(abi.Aggregation), dtype=abi.DataType(2, 32, 1), heads=1,
    columns=4, x_rows=1, x_stride=4, self_heads=1, cut=-1)))
assert "scratch" in call("fg_cuda_aggregate", byref(raw), ptr.data_ptr(), byref(n), queue(), want=10)
raw = abi.Transposition(**pointers(dict(plain, struct_size=sizeof(abi.Transposition), sources=sources, target=index,
    edge=index, source_ptr=ptr)))
assert "scratch" in call("fg_cuda_transpose", byref(raw), ptr.data_ptr(), byref(n), queue(), want=10)
raw.num_index = 1 << 40
assert "edges" in call("fg_cuda_transpose", byref(raw), None, byref(n), queue(), want=10)
context = c_void_p()
assert fake.cuCtxGetCurrent(byref(context)) == 0 and context.value is None
""",
        driver,
    )
