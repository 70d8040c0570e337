package options

import (
	"fmt"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// SnippetOption is the name of the option that adds lines.
const SnippetOption = "snippet"

// snippetOptions add lines of haproxy.cfg.
func snippetOptions() []Option {
	return []Option{
		define(Option{
			Name: SnippetOption, Group: Snippets, On: OnIngress, Closes: true, most: mostText,
			Value:   "lines of a backend section of haproxy.cfg, 100 at most",
			Example: "http-request deny if { path_beg /internal }",
			Summary: "Lines that the backends of the Ingress get, behind what protects them and before what changes requests. Off unless the administrator allows the namespace in `snippets`. HAProxy judges the lines; since they may deny requests, the routes answer 503 if one of them cannot be used. They cannot begin a section or add servers. Comments are left out.",
		}, snippet, func(s *Settings, v []policy.Line) { s.Snippet = v }),
	}
}

// mostLines is how many lines a snippet may have.
const mostLines = 100

// snippet reads lines. Empty ones and comments are left out.
func snippet(text string) ([]policy.Line, error) {
	var out []policy.Line
	number := 0
	for text := range strings.SplitSeq(text, "\n") {
		number++
		text = strings.Trim(text, " \t")
		if text == "" || (strings.HasPrefix(text, "#") && !strings.HasPrefix(text, "#hapsnap")) {
			continue
		}
		line, err := policy.NewLine(text)
		if err != nil {
			return nil, faultOf(text, fmt.Sprintf("in line %d %s", number, err), "use lines of a backend section")
		}
		out = append(out, line)
	}
	switch {
	case len(out) == 0:
		return nil, fault("holds no line", "write one, or remove the annotation")
	case len(out) > mostLines:
		return nil, fault(fmt.Sprintf("has %d lines", len(out)), fmt.Sprintf("it may have %d", mostLines))
	}
	return out, nil
}
