package store

import (
	"fmt"
	"strings"
	"time"

	"freshgo/core/manifest"
)

// generator names the program that writes manifests, with its version.
const generator = "freshgo 0.1.0"

// historyOf returns the history of a store, which its manifest leaves out where there is a conversion alone.
func historyOf(m *manifest.Manifest) []*manifest.Change {
	if len(m.GetHistory()) > 0 {
		return m.GetHistory()
	}
	return []*manifest.Change{{Action: "convert", UnixNs: m.GetCreatedUnixNs(), Generator: m.GetGenerator()}}
}

// addConversion begins the history of a store with details of its conversion.
func addConversion(m *manifest.Manifest, details string) {
	first := historyOf(m)
	first[0].Details = details
	m.History = first
}

// addVersion notes in the manifest of a store what is done to it.
func addVersion(m *manifest.Manifest, action, details string) {
	m.History = append(historyOf(m),
		&manifest.Change{Action: action, Details: details, UnixNs: time.Now().UnixNano(), Generator: generator})
}

// renew turns the manifest of a store into the manifest of its next version.
func renew(m *manifest.Manifest, action, details string) error {
	addVersion(m, action, details)
	return reissue(m)
}

// reissue gives a manifest a uuid of its own and says who wrote it and when.
func reissue(m *manifest.Manifest) (err error) {
	m.Uuid, err = newUUID()
	m.CreatedUnixNs, m.Generator = time.Now().UnixNano(), generator
	return err
}

// String says in a line what changes.
func (c Changes) String() string {
	var wrote, left []string
	add := func(label string, tensors []NamedSource, dropped ...string) {
		for _, t := range tensors {
			wrote = append(wrote, label+t.Name)
		}
		for _, name := range dropped {
			left = append(left, label+name)
		}
	}
	for _, n := range c.Nodes {
		add(nodeLabel(n.Name), n.Tensors, n.Drop...)
		add("split "+nodeLabel(n.Name), namedSplits(n.Splits), n.Undo...)
	}
	for _, e := range c.Edges {
		add(edgeLabel(e.Source, e.Relation, e.Target), e.Tensors, e.Drop...)
	}
	add("", c.Attachments, c.Detach...)
	var parts []string
	if len(wrote) > 0 {
		parts = append(parts, "wrote "+strings.Join(wrote, ", "))
	}
	if len(left) > 0 {
		parts = append(parts, "left out "+strings.Join(left, ", "))
	}
	return strings.Join(parts, "; ")
}

// counted returns a number of things, in words.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
