package gitstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/hapsnap/hapsnap/internal/process"
)

// words are what a server says to people during a push, which git shows after "remote:". Only they have the reason
// why a hook declines, or that the disk there is full.
type words struct{ text []byte }

// mostWords bounds what is kept of them, in bytes.
const mostWords = 1000

// Write keeps the beginning of the words.
func (w *words) Write(p []byte) (int, error) {
	w.text = append(w.text, p[:min(len(p), mostWords-len(w.text))]...)
	return len(p), nil
}

// ErrDeclined means that a hook or a rule of the server, such as a protected branch, does not let the push pass. The
// same push would be declined again.
var ErrDeclined = errors.New("the server declines the push")

// explain adds the words to the error of a push, and says whether it was declined.
func (w *words) explain(err error, report *packp.ReportStatus) error {
	if err == nil {
		return nil
	}
	if said := w.line(); said != "" {
		err = fmt.Errorf("%w; the server says: %s", err, said)
	}
	if report != nil {
		for _, s := range report.CommandStatuses {
			if strings.HasSuffix(s.Status, "hook declined") {
				return process.WithHint(fmt.Errorf("%w: %w", ErrDeclined, err),
					"let the account of this program push to the branch and its tags: look at the server's hooks, protected branches and protected tags")
			}
		}
	}
	return err
}

// line is the words as one printable line.
func (w *words) line() string {
	var lines []string
	for line := range strings.Lines(string(w.text)) {
		if line = printable(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " / ")
}
