#!/usr/bin/env bash
# The device path proven on this machine: its tests, the operators and whole epochs on the GPU, with figures.
#
#   bash bench/gpu/run.sh OUT [--wheels DIR] [--only tests|ops|epochs|beyond]
#
# Without --wheels everything is built, which takes a network, a C compiler and minutes. With it nothing is: DIR is what
# `make wheelhouse` filled elsewhere, and Python has a PyTorch of 2.4 or newer ($PYTHON names another Python). OUT gets
# results.json, report.html, and a log and a journal of each part. A part ends within 9 minutes by itself.
set -euo pipefail
usage() { sed -n '2,8s/^# \?//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
out='' wheels='' only=()
while [ $# -gt 0 ]; do
  case $1 in
    --wheels) [ $# -gt 1 ] || usage; wheels=$2; shift 2 ;;
    --only) [ $# -gt 1 ] || usage; only+=(--only "$2"); shift 2 ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$1; shift ;;
  esac
done
[ -n "$out" ] || usage
mkdir -p "$out"
out=$(cd "$out" && pwd)

if [ -z "$wheels" ]; then
  make -C "$root" cuda
  python=$root/.venv/bin/python
else
  wheels=$(cd "$wheels" && pwd)
  parent=${PYTHON:-python3}
  "$parent" "$root/bench/gpu/wheelhouse.py" --check "$wheels"
  env=$root/build/gpu/env
  # The wheels that the environment was made of, and beside which Python.
  stamp="$("$parent" -c 'import sys; print(sys.executable, sys.version)') $(cd "$wheels" && cksum -- *.whl)"
  if [ "$stamp" != "$(cat "$env/stamp" 2>/dev/null)" ]; then
    rm -rf "$env"
    "$parent" -m venv --without-pip "$env"
    site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # Whatever the parent sees beside Python itself.
    "$parent" -c 'import sys, sysconfig
own = sysconfig.get_path("stdlib")
print(*(p for p in sys.path[1:] if p not in (own, own + "/lib-dynload") and not p.endswith(".zip")), sep="\n")' \
      > "$site/parent.pth"
    "$env/bin/python" "$root/bench/gpu/wheelhouse.py" --missing "$wheels" | tr '\n' '\0' |
      xargs -0 "$env/bin/python" "$(echo "$wheels"/pip-*.whl)/pip" install --quiet --no-index --no-deps \
        --force-reinstall --no-warn-script-location --disable-pip-version-check
    echo "$stamp" > "$env/stamp"
  fi
  python=$env/bin/python
  [ ! -f "$wheels/libcuda.so.1" ] || export FRESHGO_EMULATED_DRIVER="$wheels/libcuda.so.1"
fi
exec "$python" "$root/bench/gpu/run.py" "$out" "${only[@]}"
