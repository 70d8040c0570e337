package push

import (
	"errors"
	"regexp"
	"strings"
)

// The bounds of what is kept of a message, in bytes: of one in which nothing stands out,
// and of what HAProxy says was wrong.
const (
	maxGist = 400
	maxSaid = 2000
)

// alert is a line of HAProxy that says why it did not start, and finding one of
// those that the API quotes when HAProxy refused a configuration.
var (
	alert   = regexp.MustCompile(`\[ALERT\]\s*(?:\(\d+\))?\s*:\s*(?:config : )?(.*)`)
	finding = regexp.MustCompile(`msg="((?:[^"\\]|\\.)*)"`)
	// noise is what HAProxy also says as an alert when something else went wrong, when its
	// processes part, or of what it merely warns of.
	noise = regexp.MustCompile(`(?i)error\(s\) found in|fatal errors found in|failed to start their listeners|cannot transfer the fd|` +
		`sockpair|exit-on-failure|current worker .*exited|former worker .*exited|all workers exited|process exited with code|loading failure|failed to load worker|don't mix both usage`)
)

// Gist returns what a person needs to know of an error, on one line: of the many
// that HAProxy writes when it does not start, those that say why.
func Gist(err error) string {
	text := err.Error()
	said, prefix, hint := findings(text), ErrRefused.Error(), ""
	if fault, ok := errors.AsType[*instanceError](err); ok {
		said, prefix, hint = findings(fault.cause.Error()), ErrInstance.Error(), "; "+fault.hint
	}
	if len(said) > 0 {
		return shortened(prefix+": "+strings.Join(said, "; "), maxSaid) + hint
	}
	if hint == "" && (alert.MatchString(text) || finding.MatchString(text)) {
		return prefix + ": HAProxy did not start with it, and did not say why"
	}
	return shortened(strings.Join(strings.Fields(text), " "), maxGist) // with the hint
}

// findings returns the lines of HAProxy that say why, of all that it wrote.
func findings(text string) []string {
	var said []string
	for _, form := range []*regexp.Regexp{alert, finding} {
		for _, match := range form.FindAllStringSubmatch(text, -1) {
			if line := strings.TrimSpace(match[1]); line != "" && !noise.MatchString(line) {
				said = append(said, strings.ReplaceAll(line, `\"`, `"`))
			}
		}
	}
	return said
}

// shortened returns the text, of no more than so many bytes.
func shortened(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
