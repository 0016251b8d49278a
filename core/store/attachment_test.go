package store

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// attached is a store with attachments of rows that fill their pages, of padded and of packed ones, and their bytes.
func attached(t *testing.T) (*randomGraph, map[string][]byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(explore.Seed(t, 1), 5))
	g := newRandomGraph(1, 50, 200, map[string][]int64{"x": {3}}, manifest.DType_FLOAT32)
	data := map[string][]byte{}
	for name, a := range map[string]struct {
		dtype manifest.DType
		shape []int64
	}{
		"ids/ends": {manifest.DType_INT64, []int64{3000}}, "ids/text": {manifest.DType_UINT8, []int64{70_000}},
		"padded": {manifest.DType_UINT8, []int64{90, 1000}}, "packed": {manifest.DType_UINT8, []int64{40, 1500}},
		"large": {manifest.DType_UINT8, []int64{2100, 1000}}, // more than is read at a time, as the next
		"long":  {manifest.DType_UINT8, []int64{700, 1500}},
		"none":  {manifest.DType_INT64, []int64{0}},
	} {
		n := int64(a.dtype.Size())
		for _, d := range a.shape {
			n *= d
		}
		data[name] = randomBytes(rng, n)
		g.Attachments = append(g.Attachments, NamedSource{name, Dense(a.dtype, a.shape, data[name])})
	}
	return g, data
}

// requireAttached compares ranges of rows of all attachments with their bytes.
func requireAttached(t *testing.T, s *Store, data map[string][]byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(explore.Seed(t, 2), 6))
	budget := mem.NewBudget(0)
	require.Len(t, s.Attachments(), len(data))
	for _, a := range s.Attachments() {
		want, rowBytes := data[a.Name], int64(a.Layout.RowBytes)
		for range 50 {
			first := rng.Int64N(a.Rows + 1)
			n := rng.Int64N(a.Rows - first + 1)
			rows := make([]byte, n*rowBytes)
			require.NoError(t, a.ReadRows(context.Background(), first, rows, budget))
			require.True(t, bytes.Equal(want[first*rowBytes:(first+n)*rowBytes], rows), a.Name)
		}
		for _, bad := range [][2]int64{{-1, 1}, {0, -1}, {0, a.Rows + 1}, {a.Rows + 1, 0}, {a.Rows, 1}} {
			require.ErrorIs(t, a.CheckRows(bad[0], bad[1]), ErrInvalid)
		}
	}
	require.Zero(t, budget.Used())
	require.LessOrEqual(t, budget.Peak(), int64(scanBytes))
}

func TestAttachmentsStayWithTheStore(t *testing.T) {
	g, data := attached(t)
	s := mustConvert(t, g.Input, 8<<20)
	requireGraph(t, g, s)
	requireAttached(t, s, data)
	require.Len(t, s.Describe().Attachments, len(data))
	r := mustRelayout(t, s, RelayoutOptions{Order: Community})
	requireAttached(t, r, data)
}

// TestUpdateChangesAttachments: an update replaces, adds and leaves out attachments, and carries the others over.
func TestUpdateChangesAttachments(t *testing.T) {
	g, data := attached(t)
	path := t.TempDir() + "/g"
	require.NoError(t, Convert(t.Context(), ssd.OS, g.Input, path, ConvertOptions{}))
	update := func(c Changes) error {
		s := mustOpen(t, path)
		defer s.Close()
		return Update(t.Context(), s, path, c, ConvertOptions{Overwrite: true})
	}
	data["packed"], data["links/val"] = []byte{1, 2, 3}, []byte{4, 5}
	delete(data, "padded")
	require.NoError(t, update(Changes{Detach: []string{"padded"}, Attachments: []NamedSource{
		{"packed", Dense(manifest.DType_UINT8, []int64{3}, data["packed"])},
		{"links/val", Dense(manifest.DType_UINT8, []int64{1, 2}, data["links/val"])},
	}}))
	s := mustOpen(t, path)
	requireGraph(t, g, s)
	requireAttached(t, s, data)
	require.NoError(t, s.Verify(t.Context(), nil))
	require.Contains(t, s.Describe().History[1].Details, "wrote packed, links/val; left out padded")
	require.ErrorIs(t, update(Changes{Detach: []string{"padded"}}), ErrInvalid)
	twice := []NamedSource{g.Attachments[0], g.Attachments[0]}
	require.ErrorIs(t, update(Changes{Attachments: twice}), ErrInvalid)
}

func TestADamagedAttachmentIsNoticed(t *testing.T) {
	g, _ := attached(t)
	s := mustConvert(t, g.Input, 0)
	i := 0
	for s.Attachments()[i].Name != "ids/text" {
		i++
	}
	a := s.Attachments()[i]
	file, err := os.OpenFile(a.Path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte{1, 2, 3, 4}, 3*ssd.PageBytes+7)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	budget := mem.NewBudget(0)
	require.NoError(t, a.ReadRows(t.Context(), 0, make([]byte, 3*ssd.PageBytes), budget))
	require.ErrorIs(t, a.ReadRows(t.Context(), 3*ssd.PageBytes+100, make([]byte, 1), budget), ErrCorrupt)
	require.ErrorIs(t, s.Verify(t.Context(), nil), ErrCorrupt)
}

func TestAttachmentsAreChecked(t *testing.T) {
	g, _ := attached(t)
	g.Attachments = append(g.Attachments, g.Attachments[0])
	err := Convert(t.Context(), ssd.OS, g.Input, t.TempDir()+"/g", ConvertOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "given twice")
}
