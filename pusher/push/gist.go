package push

import (
	"regexp"
	"strings"
)

// maxGist bounds what is kept of a message in which nothing stands out.
const maxGist = 400

// alert is a line of HAProxy that says why it did not start, and finding one of
// those that the API quotes when HAProxy refused a configuration.
var (
	alert   = regexp.MustCompile(`\[ALERT\]\s*(?:\(\d+\))?\s*:\s*(?:config : )?(.*)`)
	finding = regexp.MustCompile(`msg="((?:[^"\\]|\\.)*)"`)
	noise   = regexp.MustCompile(`(?i)error\(s\) found in|fatal errors found in|failed to start their listeners`)
)

// Gist returns what a person needs to know of an error, on one line: of the many
// that HAProxy writes when it does not start, those that say why.
func Gist(err error) string {
	text := err.Error()
	var said []string
	for _, form := range []*regexp.Regexp{alert, finding} {
		for _, match := range form.FindAllStringSubmatch(text, -1) {
			if line := strings.TrimSpace(match[1]); line != "" && !noise.MatchString(line) {
				said = append(said, strings.ReplaceAll(line, `\"`, `"`))
			}
		}
	}
	if len(said) > 0 {
		return ErrRefused.Error() + ": " + strings.Join(said, "; ")
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxGist {
		text = strings.ToValidUTF8(text[:maxGist], "") + "…"
	}
	return text
}
