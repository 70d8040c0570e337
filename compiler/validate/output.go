package validate

import (
	"regexp"
	"strconv"
	"strings"
)

// message is one message of haproxy -c. File and Line are the place that it
// names, or zero.
type message struct {
	Level string // ALERT, WARNING or NOTICE
	File  string
	Line  int
	Text  string
}

var (
	// The forms that HAProxy 2.6 to 3.4 use: "config : parsing [f:1] : text",
	// "config : parsing [f:1]: text", "config : Parsing [f:1]: text",
	// "config : [f:1] : text", "config : text", "text".
	messageForm = regexp.MustCompile(`^\[(ALERT|WARNING|NOTICE)\]\s+\(\d+\) : (?:config : )?(?:[Pp]arsing )?(?:\[([^\]:]+):(\d+)\]\s*)?:?\s*(.*)$`)
	// What a message says of a file that the configuration names.
	innerForm = regexp.MustCompile(`parsing \[([^\]:]+):(\d+)\]\s*:?\s*`)
	// Where a message about a bind line has its place, at its end.
	endForm = regexp.MustCompile(` at \[([^\]:]+):(\d+)\]\.?$`)
	atForm  = regexp.MustCompile(` at line (\d+) of file '([^']+)'`)
	// What follows every error and says nothing.
	summaryForm = regexp.MustCompile(`^(Error\(s\) found in configuration file|Fatal errors found in configuration)`)
	// What HAProxy 3.1 and later say of every script, unless a setting that older ones do
	// not know names its default. The scripts hold no value that it is about.
	scriptForm = regexp.MustCompile(`^hlua: please set "tune\.lua\.bool-sample-conversion"`)
)

// parseOutput reads what haproxy -c wrote to stderr. A message that goes on over
// several lines shows the line at fault there, which users see anyway: only
// its first line is kept.
func parseOutput(stderr string) []message {
	var out []message
	for line := range strings.Lines(stderr) {
		m := messageForm.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || m[1] == "NOTICE" || summaryForm.MatchString(m[4]) || scriptForm.MatchString(m[4]) {
			continue
		}
		number, _ := strconv.Atoi(m[3])
		out = append(out, message{Level: m[1], File: m[2], Line: number, Text: tidy(m[4])}.inner())
	}
	return out
}

// inner moves to the place in a map or a crt-list, if the message names one.
func (m message) inner() message {
	if at := atForm.FindStringSubmatch(m.Text); at != nil {
		m.Line, _ = strconv.Atoi(at[1])
		m.File, m.Text = at[2], tidy(strings.Replace(m.Text, at[0], "", 1))
	} else if end := endForm.FindStringSubmatch(m.Text); end != nil && m.File == "" {
		m.Line, _ = strconv.Atoi(end[2])
		m.File, m.Text = end[1], tidy(strings.Replace(m.Text, end[0], "", 1))
	} else if in := innerForm.FindStringSubmatch(m.Text); in != nil {
		m.Line, _ = strconv.Atoi(in[2])
		m.File, m.Text = in[1], tidy(strings.Replace(m.Text, in[0], "", 1))
	}
	return m
}

// tidy takes the punctuation off the end of a message.
func tidy(text string) string { return strings.TrimRight(strings.TrimSpace(text), ".: ") }
