package controller

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/templates"
)

// size counts what a snapshot could lose: backends with servers, and hosts. If a Service is gone, its backend has no
// servers. If an Ingress is gone, its hosts are too; several Ingresses may share a backend. Only the numbers count, so
// that a new name is no loss.
type size struct {
	backends, hosts int
}

// sizeOf measures the files of a snapshot or a draft.
func sizeOf(files []snapshots.File) size {
	var s size
	count(files, func(_ string, _ int, one size) { s = s.with(one) })
	return s
}

// count calls note for each backend and each host, with the line that it begins at.
func count(files []snapshots.File, note func(file string, line int, one size)) {
	for _, f := range files {
		switch path := f.Path; {
		case path == snapshots.ConfigFile:
			for section := range haproxycfg.Sections(f.Content) {
				if section.Keyword == "backend" && section.Name != templates.ReadyBackend && slices.ContainsFunc(section.Lines, isServers) {
					note(path, section.Head.Number, size{backends: 1})
				}
			}
		case path == "maps/host.map", strings.HasPrefix(path, "maps/sni_"):
			number := 0
			for line := range bytes.Lines(f.Content) {
				if number++; isEntry(line) {
					note(path, number, size{hosts: 1})
				}
			}
		}
	}
}

// isServers reports whether a line gives a backend servers.
func isServers(line haproxycfg.Line) bool {
	switch line.First() {
	case "server", "server-template":
		return true
	case "":
		directive, _ := bind.DirectiveText(line.Text)
		words := strings.Fields(directive)
		return len(words) > 0 && words[0] == "servers"
	}
	return false
}

// isEntry reports whether a line of a map is an entry.
func isEntry(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

// shrinkage says what is gone between two sizes, such as "600 of 1000 backends gone". It returns "" if the guard does not
// call that a mass loss.
func shrinkage(before, after size, g config.ShrinkGuard) string {
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

// unread counts the ConfigMaps that the newest snapshot was made of and that the API server does not let be read now. A
// compiler that runs keeps what it knows of them. One that starts would take lists of networks, error pages and policies of
// everybody for missing, where a role is missing. A namespace whose own role is missing harms only itself, so that there
// must be two. One that every namespace may name, such as a shared list of networks, is a mass loss alone. It returns 0 if
// that is no mass loss.
func unread(head []snapshots.Input, r *compiler.Result, g config.ShrinkGuard) (lost, of int) {
	if len(r.Unread) == 0 || g.LostPercent == 0 {
		return 0, 0 // nearly always
	}
	forbidden, namespaces, shared := inputs.ConfigMapsOf(r.Unread), map[string]bool{}, false
	for _, in := range head {
		if in.Kind != "ConfigMap" || in.APIVersion != "v1" {
			continue
		}
		name := types.NamespacedName{Namespace: in.Namespace, Name: in.Name}
		if of++; forbidden[name] {
			lost++
			namespaces[in.Namespace] = true
			shared = shared || slices.Contains(r.Shared, name)
		}
	}
	if shared {
		return lost, of
	}
	if len(namespaces) < 2 || lost < min(max(g.MinLost, 1), of) || 100*lost < g.LostPercent*of {
		return 0, of
	}
	return lost, of
}

// ShrinkError means that a draft lost so much compared with the newest snapshot of its store that a person must approve
// it.
type ShrinkError struct {
	Head   snapshots.ID
	Digest snapshots.Digest
	Lost   string // such as "600 of 1000 backends gone", or "3 of 3 ConfigMaps may not be read any more"
}

// Error says what is gone, and since when.
func (e *ShrinkError) Error() string {
	return fmt.Sprintf("%s since %s: %s waits for approval", e.Lost, e.Head, e.Digest.Short())
}

// Approval says how to approve the draft in the configuration.
func (e *ShrinkError) Approval() string {
	return fmt.Sprintf("if it is meant, set spec.shrinkGuard.approve of the configuration to %s", e.Digest.Short())
}

// shrinkGuard holds back drafts that lost too much since the newest snapshot. It remembers what it held back, and what each
// namespace has in that snapshot.
type shrinkGuard struct {
	newest snapshots.ID // what the rest is about
	size   size         // of it
	// owned is what each namespace has in the newest snapshot, if this process published it and sees every deletion; else
	// nil.
	owned     map[string]size
	templates snapshots.Digest // that it was made with
	held      []heldDraft
	// let are the namespaces whose losses the last check let pass, sorted, and letLost what they are.
	let     []string
	letLost string
}

// heldDraft is a draft that waits for approval, or waited before a later one took its place.
type heldDraft struct {
	digest snapshots.Digest
	size   size
	unread int // ConfigMaps
}

// mostHeld is how many held drafts are remembered.
const mostHeld = 1000

// check returns a [*ShrinkError] if a draft has to wait for approval, else nil. The head is zero if the store is empty.
//
// The losses of one namespace, or of a few among many, hold back nobody, if other namespaces have something to publish: otherwise
// tenants who delete what they published before stop the changes of all others. The compiler has to have seen the deletions: after a
// restart, a flag or a permission may have been forgotten.
func (g *shrinkGuard) check(head snapshots.Snapshot, r *compiler.Result, c config.ShrinkGuard) error {
	if g.newest != head.ID() {
		*g = shrinkGuard{newest: head.ID(), size: sizeOf(head.Files)}
	}
	g.let, g.letLost = nil, ""
	after := sizeOf(r.Draft.Files)
	lost := shrinkage(g.size, after, c)
	forbidden, of := unread(head.Manifest.Provenance.Inputs, r, c)
	if lost == "" && forbidden == 0 {
		return nil
	}
	digest := r.Draft.Digest()
	draft := heldDraft{digest, after, forbidden}
	if c.Approves(string(digest)) || g.approved(draft, c) {
		return nil
	}
	if forbidden > 0 {
		if lost != "" {
			lost += ", "
		}
		lost += fmt.Sprintf("%d of %d ConfigMaps may not be read any more", forbidden, of)
	} else if namespaces, ok := g.ofFew(after, *r, c); ok {
		g.let, g.letLost = namespaces, lost
		return nil
	}
	g.held = append(g.held[max(0, len(g.held)+1-mostHeld):], draft)
	return &ShrinkError{Head: head.ID(), Digest: digest, Lost: lost}
}

// approved reports whether an earlier draft was approved that had lost as much as this one, or more. Where others go on
// changing what they have, the draft that a person looked at is soon replaced by another.
func (g *shrinkGuard) approved(d heldDraft, c config.ShrinkGuard) bool {
	return slices.ContainsFunc(g.held, func(h heldDraft) bool {
		return c.Approves(string(h.digest)) && h.size.backends <= d.size.backends && h.size.hosts <= d.size.hosts && h.unread >= d.unread
	})
}

// ofFew returns the namespaces without which fewer are gone than c.MinLost, if the others have at least as many. They are one, or
// up to a quarter of all: a single tenant, or a few who agree on it, could stop everybody. Other templates may have dropped anything.
func (g *shrinkGuard) ofFew(after size, now compiler.Result, c config.ShrinkGuard) (namespaces []string, ok bool) {
	if g.owned == nil || g.templates != now.Draft.Provenance.TemplatesDigest {
		return nil, false
	}
	has, _ := owned(now.Artifact)
	lossOf := func(namespace string) int {
		lost := g.owned[namespace].without(has[namespace])
		return max(lost.backends, lost.hosts)
	}
	byLoss := slices.Sorted(maps.Keys(g.owned))
	slices.SortStableFunc(byLoss, func(a, b string) int { return cmp.Compare(lossOf(b), lossOf(a)) })
	few := max(c.MinLost, 1)
	others, left := g.size, after
	for n, namespace := range byLoss[:min(len(byLoss), max(1, len(byLoss)/4))] {
		others, left = others.without(g.owned[namespace]), left.without(has[namespace])
		lost := others.without(left)
		if max(others.backends, others.hosts) >= few && lost.backends < few && lost.hosts < few {
			return slices.Sorted(slices.Values(byLoss[:n+1])), true
		}
	}
	return nil, false
}

// leftOutOf returns how many objects of namespaces a draft leaves out.
func leftOutOf(d snapshots.Draft, namespaces []string) int {
	n := 0
	for _, q := range d.Quarantined {
		if slices.Contains(namespaces, q.Namespace) {
			n++
		}
	}
	return n
}

// published notes the snapshot that this process published.
func (g *shrinkGuard) published(id snapshots.ID, templates snapshots.Digest, made render.Artifact, seesDeletions bool) {
	of, all := owned(made)
	*g = shrinkGuard{newest: id, size: all, templates: templates}
	if seesDeletions {
		g.owned = of
	}
}

// reconfigured forgets what the namespaces have: a new configuration may drop much of it.
func (g *shrinkGuard) reconfigured() { g.owned = nil }

func (s size) without(o size) size { return size{s.backends - o.backends, s.hosts - o.hosts} }

func (s size) with(o size) size { return size{s.backends + o.backends, s.hosts + o.hosts} }

// owned counts what each namespace has in an artifact, and what there is at all.
func owned(a render.Artifact) (of map[string]size, all size) {
	of = map[string]size{}
	count(a.Files, func(file string, line int, one size) {
		all = all.with(one)
		if namespace := ownerOf(a.Origin(file, line).Objects); namespace != "" {
			of[namespace] = of[namespace].with(one)
		}
	})
	return of, all
}

// ownerOf returns the namespace of the first object that routes requests, of those whose values are on a line, or else of the first
// Service. Others, such as the parameters of an IngressClass or a Gateway with options, are on lines of everybody. It returns "" if
// no object has a namespace.
func ownerOf(objects []routing.Origin) string {
	service, other := "", ""
	for _, o := range objects {
		switch {
		case o.Routes():
			return o.Object.Namespace
		case o.Object.Kind == "Service":
			service = cmp.Or(service, o.Object.Namespace)
		default:
			other = cmp.Or(other, o.Object.Namespace)
		}
	}
	return cmp.Or(service, other)
}
