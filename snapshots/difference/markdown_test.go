package difference_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/difference"
)

// blocks splits a text as CommonMark does: into the text within blocks of code and the text outside.
func blocks(text string) (inside, outside string) {
	fence := ""
	for line := range strings.Lines(text) {
		ticks := len(line) - len(strings.TrimLeft(line, "`"))
		switch {
		case fence == "" && ticks >= 3:
			fence = line[:ticks]
		case fence != "" && ticks >= len(fence) && strings.TrimSpace(line[ticks:]) == "":
			fence = ""
		case fence != "":
			inside += line
		default:
			outside += line
		}
	}
	if fence != "" {
		inside += "NOT CLOSED"
	}
	return inside, outside
}

// Text from objects stays within the blocks of code, whatever it is.
func TestMarkdownCannotBeLeft(t *testing.T) {
	t.Parallel()
	for name, evil := range map[string]string{
		"a fence":              "```\n# evil @everybody ![](https://evil.example)\n```",
		"a longer fence":       strings.Repeat("`", 40) + "\nevil\n" + strings.Repeat("`", 41),
		"a return":             "x\r```\revil",
		"the end of details":   "</details>\n\n```\nevil",
		"a fence of any size":  strings.Repeat("`", 60_000) + "\nevil",
		"no text":              "evil \xff\x1b[31m\u202eevil",
		"a separator of lines": "x\u2028```\u2028evil",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := difference.Report{
				A: "a", B: "b", Verdict: string(difference.Reload), Why: evil,
				Decides: &difference.DecidedLine{Side: "b", File: "haproxy.cfg", Line: 3, Text: evil, Objects: []string{evil}},
				Files:   []difference.FileReport{{Path: "haproxy.cfg", Added: 1, Diff: "+" + evil + "\n" + evil + "\n"}},
			}
			var b strings.Builder
			if err := r.Markdown(&b, []string{evil, evil}); err != nil {
				t.Fatal(err)
			}
			inside, outside := blocks(b.String())
			if strings.Contains(outside, "evil") || strings.Contains(inside, "NOT CLOSED") || !strings.Contains(outside, "### hapsnap: this needs a reload\n") {
				t.Errorf("outside of blocks stands\n%s", outside)
			}
			if strings.ContainsAny(b.String(), "\r\x1b\u202e") {
				t.Error("control characters are left")
			}
			if len(b.String()) > 65_536 {
				t.Errorf("%d bytes", len(b.String()))
			}
		})
	}
}

func TestMarkdownIsBounded(t *testing.T) {
	t.Parallel()
	var long strings.Builder
	for n := range 20_000 {
		fmt.Fprintf(&long, "+line %d é\n", n)
	}
	r := difference.Report{Verdict: string(difference.Runtime), Files: []difference.FileReport{{Path: "maps/host.map", Added: 20_000, Diff: long.String()}}}
	var b strings.Builder
	if err := r.Markdown(&b, strings.Split(long.String(), "\n")); err != nil {
		t.Fatal(err)
	}
	if len(b.String()) > 65_536 || strings.Count(b.String(), " more lines are not shown.\n") != 2 {
		t.Errorf("%d bytes", len(b.String()))
	}
	b.Reset()
	if err := (difference.Report{Verdict: string(difference.Nothing)}).Markdown(&b, nil); err != nil || b.String() != difference.Marker+"\n### hapsnap: nothing changes\n\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
