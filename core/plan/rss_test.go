package plan

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

const (
	rssFile    = "FRESHGO_TEST_PLAN_FILE" // what tells the process that plans
	rssRows    = 4_000_000
	rssWidth   = 20_000
	rssBatches = 300
)

// TestStoredPlansTakeLittleOfTheProcess measures what the kernel gives a process that plans six million accesses, with
// all that is not counted in a budget: 12 bytes for each row, what the widest batch takes, and 64 MiB.
func TestStoredPlansTakeLittleOfTheProcess(t *testing.T) {
	if underRace {
		t.Skip("the race detector takes several times the memory")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc/self/status: ", err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestPlanningInAProcess$", "-test.v")
	child.Env = append(os.Environ(), rssFile+"="+filepath.Join(t.TempDir(), "records"))
	said, err := child.CombinedOutput()
	require.NoError(t, err, "%s", said)
	var grown int64
	_, after, found := strings.Cut(string(said), "KiB more: ")
	require.True(t, found, "%s", said)
	_, err = fmt.Sscan(after, &grown)
	require.NoError(t, err)
	t.Logf("%d KiB", grown)
	require.Less(t, grown<<10, int64(12*rssRows+100*rssWidth+64<<20), "%s", said)
}

func TestPlanningInAProcess(t *testing.T) {
	path := os.Getenv(rssFile)
	if path == "" {
		t.Skip("it is run by TestStoredPlansTakeLittleOfTheProcess")
	}
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	budget := mem.NewBudget(0)
	rows := make([]Rows, rssBatches)
	for i := range rows {
		rows[i] = drawn{budget, uint32(i)}
	}
	c := testConfig(rssRows, rssRows/10, "auto")
	c.PackMemory, c.PackFile, c.Storage = 0, 1<<40, &fileStorage{budget: budget, file: file}
	before := kibibytes(t, "VmRSS")
	p, err := New(budget, c)
	require.NoError(t, err)
	s, err := p.Plan(context.Background(), 0, rows[:rssBatches/2], rows[rssBatches/2:])
	require.NoError(t, err)
	require.Contains(t, s.Choice.Chosen, "pack", "%+v", s.Choice)
	s.Release()
	p.Close()
	t.Logf("KiB more: %d", kibibytes(t, "VmHWM")-before)
}

// kibibytes reads a line of the process's status.
func kibibytes(t *testing.T, name string) (n int64) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(status), name+":")
	require.True(t, found)
	_, err = fmt.Sscan(after, &n)
	require.NoError(t, err)
	return n
}

// drawn is a batch whose rows are made when they are loaded.
type drawn struct {
	budget *mem.Budget
	number uint32
}

func (drawn) Len() int { return rssWidth }

func (d drawn) Load(context.Context) (Batch, func(), error) {
	block, err := d.budget.Alloc(mem.Trace, 4*rssWidth)
	if err != nil {
		return nil, nil, err
	}
	rows := mem.Slice[uint32](block)
	for i := range rows { // distinct, and others in each batch
		rows[i] = (uint32(i)*199 + mix(d.number)%rssRows) % rssRows
	}
	return rows, block.Free, nil
}

// fileStorage keeps records in a file.
type fileStorage struct {
	budget *mem.Budget
	file   *os.File
	end    int64
}

type fileRecord struct {
	*fileStorage
	at, size int64
}

func (f *fileStorage) Put(pieces ...[]byte) (Record, error) {
	r := fileRecord{f, f.end, 0}
	for _, piece := range pieces {
		if _, err := f.file.WriteAt(piece, r.at+r.size); err != nil {
			return nil, err
		}
		r.size += int64(len(piece))
	}
	f.end += r.size
	return r, nil
}

func (r fileRecord) Load(context.Context) ([]byte, func(), error) {
	block, err := r.budget.Alloc(mem.Trace, r.size)
	if err != nil {
		return nil, nil, err
	}
	if _, err := r.file.ReadAt(block.Bytes(), r.at); err != nil {
		block.Free()
		return nil, nil, err
	}
	return block.Bytes(), block.Free, nil
}

func (fileRecord) Free() {}
