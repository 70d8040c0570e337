package snapshots

import (
	"bytes"
	"fmt"
)

// rewriteList returns a crt-list with absolute paths. A line whose certificate is
// missing is left out, so that its hosts get the default certificate, unless it
// asks for client certificates: its hosts would then be open to everybody.
func (b *boundFiles) rewriteList(content []byte) ([]byte, error) {
	out := make([]byte, 0, len(content)+len(content)/4)
	for number, line := range numberedLines(content) {
		file, options := cutListLine(line)
		if _, missing := b.missing[string(file)]; missing && !asksForClients(options) {
			continue
		}
		if len(file) > 0 {
			if err := b.standInAll(line); err != nil {
				return nil, fmt.Errorf("%d: %w", number, err)
			}
		}
		out = append(b.appendRewritten(out, line), '\n')
	}
	return out, nil
}

// cutListLine returns the certificate of a line of a crt-list and what follows
// it; nothing for a comment.
func cutListLine(line []byte) (file, rest []byte) {
	file, rest = firstWord(line)
	if name, options, ok := bytes.Cut(file, []byte{'['}); ok {
		return name, append(append([]byte{'['}, options...), rest...)
	}
	return file, rest
}

// clientOptions are the words of a crt-list that say which client certificates
// are asked for.
var clientOptions = map[string]bool{
	"verify": true, "ca-file": true, "ca-verify-file": true, "crl-file": true,
}

func asksForClients(options []byte) bool {
	_, inside, _ := bytes.Cut(options, []byte{'['})
	inside, _, _ = bytes.Cut(inside, []byte{']'})
	for _, word := range bytes.Fields(inside) {
		if clientOptions[string(word)] {
			return true
		}
	}
	return false
}
