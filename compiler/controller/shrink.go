package controller

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// size is what of a snapshot could get lost: backends that have servers, and
// hosts. A Service that is gone leaves its backend without servers, an Ingress
// that is gone takes its hosts along, and they may share a backend. Only their
// numbers count, so that what gets another name is not lost.
type size struct {
	backends, hosts int
}

// sizeOf measures the files of a snapshot or a draft.
func sizeOf(files []snapshots.File) size {
	var s size
	for _, f := range files {
		switch path := f.Path; {
		case path == snapshots.ConfigFile:
			serving := 0
			for section := range haproxycfg.Sections(f.Content) {
				if section.Keyword == "backend" && section.Name != templates.ReadyBackend && slices.ContainsFunc(section.Lines, isServers) {
					serving++
				}
			}
			s.backends = serving
		case path == "maps/host.map", strings.HasPrefix(path, "maps/sni_"):
			s.hosts += entries(f.Content)
		}
	}
	return s
}

// isServers reports whether a line gives a backend servers.
func isServers(line haproxycfg.Line) bool {
	switch line.First() {
	case "server", "server-template":
		return true
	case "":
		words := bytes.Fields(line.Text)
		return len(words) > 1 && string(words[0]) == "#hapsnap" && string(words[1]) == "servers"
	}
	return false
}

// entries counts the entries of a map.
func entries(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			n++
		}
	}
	return n
}

// losses says what is gone on the way from one size to another, as far as the
// guard calls it a mass loss, such as "600 of 1000 backends gone"; "" is none.
func losses(before, after size, g config.ShrinkGuard) string {
	var out []string
	for _, c := range []struct {
		what          string
		before, after int
	}{{"backends", before.backends, after.backends}, {"hosts", before.hosts, after.hosts}} {
		lost := c.before - c.after
		if g.LostPercent > 0 && lost >= max(g.MinLost, 1) && 100*lost >= g.LostPercent*c.before {
			out = append(out, fmt.Sprintf("%d of %d %s gone", lost, c.before, c.what))
		}
	}
	return strings.Join(out, ", ")
}

// ShrinkError is a draft that lost so much against the newest snapshot of its
// store that somebody must approve it.
type ShrinkError struct {
	Head   snapshots.ID
	Digest snapshots.Digest
	Lost   string // such as "600 of 1000 backends gone"
}

// Error says what is gone, and since when.
func (e *ShrinkError) Error() string {
	return fmt.Sprintf("%s since %s: %s waits for approval", e.Lost, e.Head, e.Digest.Short())
}

// Approval says how to approve the draft in the configuration.
func (e *ShrinkError) Approval() string {
	return fmt.Sprintf("if it is meant, set spec.shrinkGuard.approve of the configuration to %s", e.Digest.Short())
}

// guard returns a [*ShrinkError] for a draft that is to wait, or nil. The zero
// Snapshot is that of an empty store.
func guard(head snapshots.Snapshot, d snapshots.Draft, g config.ShrinkGuard) error {
	lost := losses(sizeOf(head.Files), sizeOf(d.Files), g)
	digest := d.Digest()
	if lost == "" || g.Approves(string(digest)) {
		return nil
	}
	return &ShrinkError{Head: head.ID(), Digest: digest, Lost: lost}
}
