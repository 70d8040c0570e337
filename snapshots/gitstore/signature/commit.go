package signature

import (
	"bytes"
	"errors"
)

// header begins the signature among the headers of a commit. Each further line
// of it begins with a space.
const header = "gpgsig"

// errTwice is returned for a commit of which nobody can say who signed it.
var errTwice = errors.New("it has more than one signature")

// Split takes the text of a commit apart: what is signed, and the signature, ""
// for none.
func Split(commit []byte) (payload []byte, armored string, err error) {
	var signature bytes.Buffer
	headers, message, _ := bytes.Cut(commit, []byte("\n\n"))
	inside := false
	for line := range bytes.Lines(headers) {
		name, value, _ := bytes.Cut(line, []byte(" "))
		switch {
		case inside && len(name) == 0:
			signature.Write(value)
		case bytes.HasPrefix(name, []byte(header)):
			if string(name) != header || signature.Len() > 0 {
				return nil, "", errTwice
			}
			inside = true
			signature.Write(value)
		default:
			inside = false
			payload = append(payload, line...)
		}
	}
	if end := len(payload); end > 0 && payload[end-1] != '\n' {
		payload = append(payload, '\n')
	}
	payload = append(append(payload, '\n'), message...)
	return payload, signature.String(), nil
}
