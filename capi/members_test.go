package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
)

func TestMembersBecomeFields(t *testing.T) {
	numbers, word := []int64{3, 1}, []byte("word\x00")
	type fields struct {
		On, Off     bool     `option:"one"`
		Byte        uint8    `option:"two"`
		Count       int      `option:"many"`
		Given       string   `option:"text,missing"`
		Missing     string   `option:"null,missing"`
		List, Short []int64  `option:"list"`
		Part        []int64  `option:"list,one"`
		None        []uint64 `option:"none"`
		Other       func()
	}
	in := struct {
		one, two, num_none int32
		many, num_list     int64
		text, null         *byte
		list, none         *int64
	}{one: 1, two: 300, many: -5, num_list: 2, text: &word[0], list: &numbers[0]}
	var out fields
	var take taker
	take.members(&out, &in)
	require.NoError(t, take.err)
	assert.Equal(t, fields{
		On: true, Off: true, Byte: 255, Count: -5, Given: "word", Missing: "missing", List: numbers, Short: numbers,
		Part: numbers[:1],
	}, out)
	assert.Same(t, unsafe.SliceData(numbers), unsafe.SliceData(out.List), "it stays where it is")
	in.two = -1
	take.members(&out, &in)
	assert.EqualValues(t, 255, out.Byte)
	in.num_none = 1
	take.members(&out, &in)
	require.ErrorIs(t, take.err, errArgument)
	require.ErrorContains(t, take.err, "1 none at")
	type other struct {
		No int64 `option:"nowhere"`
	}
	assert.PanicsWithValue(t, `struct { one int64 } has no member "nowhere"`, func() {
		new(taker).members(&other{}, &struct{ one int64 }{})
	})
}

// TestEveryMemberIsTaken: an option that is in the header and nowhere else would do nothing.
func TestEveryMemberIsTaken(t *testing.T) {
	for _, of := range []struct {
		header, name string
		options      any
		byHand       []string // in options.go
	}{
		{"loader_options", "fg_loader_options", draw.Options{}, []string{
			"num_hops", "num_relations", "fanouts", "walks", "metapaths", "sampler", "sampler_options",
			"all_nodes", "history", "links", "lock_memory", "weight_attrs",
			"tables", "num_tables",
		}},
		{"loader_options", "fg_links", links.Options{}, nil},
		{"history", "fg_history_options", draw.HistoryOptions{}, []string{
			"t_stale", "t_stale_epochs", "start", "start_epochs",
		}},
	} {
		text, err := os.ReadFile("../csrc/include/freshgo/" + of.header + ".h")
		require.NoError(t, err)
		text = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAll(text, nil)
		body := regexp.MustCompile(`(?s)typedef struct ` + of.name + ` \{(.*?)\}`).FindSubmatch(text)
		require.NotNil(t, body, of.name)
		taken := append([]string{"struct_size", "reserved", "reserved2"}, of.byHand...)
		for i := range reflect.TypeOf(of.options).NumField() {
			name, more, _ := strings.Cut(reflect.TypeOf(of.options).Field(i).Tag.Get("option"), ",")
			taken = append(taken, name, more, "num_"+name)
		}
		for _, m := range regexp.MustCompile(`(\w+);`).FindAllSubmatch(body[1], -1) {
			assert.True(t, slices.Contains(taken, string(m[1])), "%s.%s", of.name, m[1])
		}
	}
}
