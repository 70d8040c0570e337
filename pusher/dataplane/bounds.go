package dataplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// The bounds of what is read of one answer, in bytes. What is longer is no answer of the
// API, and the rest of it is not read.
const (
	// LargestAnswer is of a haproxy.cfg, a file, a list or statistics.
	LargestAnswer = 64 << 20
	// LargestSmallAnswer is of the questions that every address is asked which is said to
	// be an instance, whatever answers there: they are short.
	LargestSmallAnswer = 1 << 20
	// LargestError is of an answer that says why something failed. It is cut there.
	LargestError = 64 << 10
	// largestHeader is of the header of an answer.
	largestHeader = 256 << 10
)

// The bounds of what an answer may unfold to: of a list of 64 MiB, "[{},{},..." has 22
// million objects, and each takes a hundred bytes or more when it is decoded.
const (
	largestList = 1 << 20 // elements of all lists of an answer together
	deepest     = 100     // lists and objects in each other
)

// read returns the body of an answer: a success whole or not at all, anything else as far
// as it is read.
func (k call) read(body io.Reader, success bool) (data []byte, cut bool, err error) {
	limit := int64(LargestAnswer)
	switch {
	case !success:
		limit = LargestError
	case k.small:
		limit = LargestSmallAnswer
	}
	data, err = io.ReadAll(io.LimitReader(body, limit+1))
	if int64(len(data)) <= limit {
		return data, false, err
	}
	if success {
		return nil, false, fmt.Errorf("the answer has more than %d KiB, which no answer of this API to this has", limit>>10)
	}
	return data[:limit], true, nil
}

// unfolds returns an error for JSON that takes far more room when it is decoded than
// it has now.
func unfolds(data []byte) error {
	elements, quoted, escaped := 0, false, false
	lists := make([]bool, 0, deepest) // of what is open: whether it is a list
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '[' || c == '{':
			if len(lists) == deepest {
				return fmt.Errorf("it has more than %d lists or objects in each other", deepest)
			}
			lists = append(lists, c == '[')
		case c == ']' || c == '}':
			lists = lists[:max(0, len(lists)-1)]
		case c == ',' && len(lists) > 0 && lists[len(lists)-1]:
			if elements++; elements >= largestList {
				return fmt.Errorf("it lists more than %d things", largestList)
			}
		}
	}
	return nil
}

// complete ends the JSON of an error that was cut within its message.
func complete(data []byte) []byte {
	// What is cut may be an escape, of six bytes at most.
	if at := bytes.LastIndexByte(data, '\\'); at >= len(data)-6 {
		if whole := append(bytes.Clone(data), `"}`...); json.Valid(whole) {
			return whole
		}
		data = data[:at]
	}
	return append(bytes.Clone(data), `"}`...)
}
