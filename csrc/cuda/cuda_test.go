package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/gpu"
)

// compiler returns Go's C or C++ compiler, with its flags.
func compiler(t *testing.T, variable string) []string {
	t.Helper()
	out, err := exec.Command("go", "env", variable).Output()
	require.NoError(t, err)
	command := strings.Fields(string(out))
	if _, err := exec.LookPath(command[0]); err != nil {
		t.Skipf("no %s: %v", variable, err)
	}
	return command
}

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	require.NoError(t, err, "%s\n%s", strings.Join(command, " "), out)
	return string(out)
}

// TestKernelsOnTheHost compiles the kernels for the emulator and runs every check of them (emulator/check_*.cc), each
// in a process of its own. Without fused multiplication and addition, which a compiler may use or not: sums of one
// order are compared to the bit.
func TestKernelsOnTheHost(t *testing.T) {
	cc, cxx := compiler(t, "CC"), compiler(t, "CXX")
	dir := t.TempDir()
	sources, err := filepath.Glob("emulator/*.cc")
	require.NoError(t, err)
	objects := []string{filepath.Join(dir, "plan.o")}
	run(t, append(cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I../include", "-c", "plan.c", "-o", objects[0])...)
	var all sync.WaitGroup
	for _, source := range sources {
		if filepath.Base(source) == "driver.cc" {
			continue
		}
		object := filepath.Join(dir, filepath.Base(source)+".o")
		objects = append(objects, object)
		all.Go(func() {
			command := append(append([]string{}, cxx...), "-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wextra",
				"-Werror", "-I../include", "-c", source, "-o", object)
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			assert.NoError(t, err, string(out))
		})
	}
	all.Wait()
	checks := filepath.Join(dir, "checks")
	run(t, append(append(cxx, "-o", checks), objects...)...)
	for _, name := range strings.Fields(run(t, checks)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, checks, name)
		})
	}
}

// TestMachineCode compiles the kernels for a device, where nvcc is there (`make cuda` installs it): every kernel that a
// plan may name is there, takes the struct of its size, and keeps to its registers.
func TestMachineCode(t *testing.T) {
	nvcc, err := filepath.Abs("../../build/cuda/nvidia/cu13/bin/nvcc")
	require.NoError(t, err)
	if _, err := os.Stat(nvcc); err != nil {
		t.Skip("no nvcc: `make cuda` installs it")
	}
	ptx := filepath.Join(t.TempDir(), "kernels.ptx")
	run(t, nvcc, "-std=c++17", "-ptx", "-arch=compute_90", "-o", ptx, "kernels.cu")
	code, err := os.ReadFile(ptx)
	require.NoError(t, err)

	sizes := map[string]int{}
	entry := regexp.MustCompile(`\.visible \.entry (\w+)\(\s*\.param \.align 8 \.b8 \w+\[(\d+)\]`)
	for _, m := range entry.FindAllSubmatch(code, -1) {
		sizes[string(m[1])], err = strconv.Atoi(string(m[2]))
		require.NoError(t, err)
	}
	want := kernels(t)
	assert.Equal(t, want, sizes)
	assert.NotContains(t, string(code), ".local .align", "an array is indexed at run time and left registers")
}

// kernels returns the kernels of instances.h with the sizes of their arguments, as the C compiler sees both.
func kernels(t *testing.T) map[string]int {
	t.Helper()
	cc, dir := compiler(t, "CC"), t.TempDir()
	program := "#include <stdio.h>\n#include \"args.h\"\n" +
		"#define FGC_KERNEL(name, arguments, body) printf(\"%s %zu\\n\", #name, sizeof(arguments));\n" +
		"int main(void) {\n#include \"instances.h\"\nreturn 0; }\n"
	source, binary := filepath.Join(dir, "kernels.c"), filepath.Join(dir, "kernels")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	run(t, append(cc, "-I.", source, "-o", binary)...)
	sizes := map[string]int{}
	for line := range strings.Lines(run(t, binary)) {
		var name string
		var size int
		_, err := fmt.Sscan(line, &name, &size)
		require.NoError(t, err)
		sizes[name] = size
	}
	require.NotEmpty(t, sizes)
	return sizes
}

// driver.c declares what it passes on by itself, with void* for every handle. Here each of those declarations calls the
// function as the driver's header has it: another number of arguments, or an integer where a pointer or a shorter
// integer is wanted, does not compile.
func TestDriverIsDeclaredAsInItsHeader(t *testing.T) {
	cc := compiler(t, "CC")
	include, err := filepath.Abs("../../build/cuda/include")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(include, "cuda.h")); err != nil {
		t.Skip("no cuda.h: `make cuda` installs it")
	}
	text, err := os.ReadFile("driver/driver.c")
	require.NoError(t, err)
	program := "#include <cuda.h>\n#include <stddef.h>\n"
	found := regexp.MustCompile(`(?s)\nPASS_ON\((\w+),\s*(\([^()]*\)),\s*(\([^()]*\))\)`).FindAllSubmatch(text, -1)
	require.Len(t, found, strings.Count(string(text), "\nPASS_ON("))
	for i, m := range found {
		program += fmt.Sprintf("CUresult pass%d%s { return %s%s; }\n", i, m[2], strings.TrimSuffix(string(m[1]), "_v2"), m[3])
	}
	source := filepath.Join(t.TempDir(), "driver.c")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	run(t, append(cc, "-I"+include, "-Wno-incompatible-pointer-types", "-Werror=int-conversion", "-Werror=conversion",
		"-fsyntax-only", source)...)
}

func TestWithoutTheTagThereIsNoCUDA(t *testing.T) {
	if Image() != nil {
		t.Skip("built with it")
	}
	_, refused := RegisterHost(nil, 1)
	for _, err := range []error{Ready(), refused, UnregisterHost(nil), gpu.In(0, func() error {
		return nil
	}), gpu.Queue(0, nil, 0, nil)} {
		require.ErrorIs(t, err, gpu.ErrUnavailable)
	}
}
