package snapshots

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// WorkersKey is the key, in the ConfigMap with the status of a fleet, under which the pusher writes
// [Workers], for the compiler to read.
const WorkersKey = "workers"

// Workers says how many workers of a fleet run each snapshot. The zero ID counts those of which it is
// not known.
type Workers map[ID]int

// unknownWorkers stands for the zero ID.
const unknownWorkers = "unknown"

// String lists them: "r000011-4f2a90c1de=2 unknown=1".
func (w Workers) String() string {
	var words []string
	for id, n := range w {
		name := id.String()
		if id.IsZero() {
			name = unknownWorkers
		}
		words = append(words, name+"="+strconv.Itoa(n))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// ParseWorkers reads what String made.
func ParseWorkers(text string) (Workers, error) {
	out := Workers{}
	for word := range strings.FieldsSeq(text) {
		name, count, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("workers %q: %q is not a number of them", text, count)
		}
		var id ID
		if name != unknownWorkers {
			if id, err = ParseID(name); err != nil {
				return nil, fmt.Errorf("workers %q: %w", text, err)
			}
		}
		out[id] += n
	}
	return out, nil
}
