package tracingtest

import (
	"fmt"
	"slices"
	"strings"
)

// shown are the attributes that a tree shows: those that are the same each time.
var shown = []string{"trigger", "result", "publish", "quarantined", "wave", "members", "instance", "why", "kind"}

// Tree writes each trace as a tree, with what differs from time to time left out.
// Siblings are sorted, and those that are the same are counted. There is an empty
// line between two traces.
func Tree(spans []Span) string {
	children, known := map[string][]Span{}, map[string]bool{}
	for _, s := range spans {
		known[s.ID] = true
	}
	var roots []Span
	for _, s := range spans {
		if known[s.Parent] {
			children[s.Parent] = append(children[s.Parent], s)
		} else {
			roots = append(roots, s)
		}
	}
	var trees []string
	for _, group := range byTrace(roots) {
		trees = append(trees, "trace\n"+strings.Join(branches(group, children, "  "), ""))
	}
	slices.Sort(trees)
	return strings.Join(trees, "\n")
}

// byTrace returns the roots of each trace. There is more than one where the parent
// is not among the spans.
func byTrace(roots []Span) map[string][]Span {
	out := map[string][]Span{}
	for _, s := range roots {
		out[s.Trace] = append(out[s.Trace], s)
	}
	return out
}

func branches(siblings []Span, children map[string][]Span, indent string) []string {
	var out []string
	for _, s := range siblings {
		out = append(out, indent+line(s)+"\n"+strings.Join(branches(children[s.ID], children, indent+"  "), ""))
	}
	slices.Sort(out)
	return counted(out)
}

// counted joins branches that are the same.
func counted(sorted []string) []string {
	var out []string
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0] {
			n++
		}
		branch := sorted[0]
		if n > 1 {
			branch = strings.Replace(branch, "\n", fmt.Sprintf(" x%d\n", n), 1)
		}
		out, sorted = append(out, branch), sorted[n:]
	}
	return out
}

func line(s Span) string {
	words := []string{strings.TrimPrefix(s.Service, "hapsnap-"), s.Name}
	for _, name := range shown {
		if value, ok := s.Attributes["hapsnap."+name]; ok {
			words = append(words, name+"="+value)
		}
	}
	if len(s.Links) > 0 {
		words = append(words, "linked")
	}
	if s.Error != "" {
		words = append(words, fmt.Sprintf("error=%q", s.Error))
	}
	return strings.Join(words, " ")
}
