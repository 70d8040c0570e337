package cli

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/preflight"
)

// An instance chooses how it names its version, and must not command the terminal of who checks it.
func TestCheckShowsWordsOfInstancesEscaped(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	report := preflight.Report{Instances: []preflight.Instance{
		{Name: "edge-1", API: "v3\x1b[2J\u202e"},
		{Name: "edge-2", URL: "http://edge-2", HAProxy: "2.6\x1b]0;x\a", Findings: []preflight.Finding{{Check: "reloads", Message: "failed:\n\x1b[1A", Hint: "look"}}},
	}}
	if err := printReport(&out, report); err != nil {
		t.Fatal(err)
	}
	want := `edge-1: ok (API v3\x1b[2J\u202e, HAProxy -)
edge-2: http://edge-2 (API -, HAProxy 2.6\x1b]0;x\a)
  error: reloads: failed:
    \x1b[1A
    hint: look
1 of 2 instances are ready for a push
`
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}
