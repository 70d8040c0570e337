package inputs

import (
	"errors"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// ErrIncomplete means that not all objects are known yet. What is said of those that
// are must not be taken for all there is to say.
var ErrIncomplete = errors.New("not all objects are known yet")

// Gathered is what was read for one compile.
type Gathered struct {
	Objects Inputs
	Found   []diag.Diagnostic // when the objects were read
	Ignored string            // how many objects of which kinds are not read, for people
}
