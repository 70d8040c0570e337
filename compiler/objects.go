package compiler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Objects is where the Kubernetes objects of a compile come from: [Files], or a
// cluster. Its name, for people, is its String.
type Objects interface {
	fmt.Stringer
	// Read returns the objects that the configuration asks for, as they are now. The
	// error wraps [inputs.ErrIncomplete] while not all of them are known yet; with
	// any error nothing is known of the objects, not that there are none.
	Read(ctx context.Context, c config.Config) (inputs.Gathered, error)
	// Complete is told the names that a compile met, and says whether all of those
	// objects were known to Read, or known not to be there. If not, nothing may be
	// made of the compile: [Objects.Changes] tells when they are known.
	Complete(named routing.Asked) bool
	// Changes sends when the objects may be others than at the last Read: once for any
	// number of changes that nobody has taken from the channel yet. It ends with ctx.
	Changes(ctx context.Context, log *slog.Logger) <-chan struct{}
}

// Files are the objects in a directory of manifests, or in one file.
type Files string

// String returns the path.
func (f Files) String() string { return string(f) }

// Read reads the files. Whatever cannot be read as a whole is an error, and so is a
// directory without any object: [ErrNothing].
func (f Files) Read(ctx context.Context, c config.Config) (inputs.Gathered, error) {
	set, err := manifests.Read(string(f))
	if err != nil {
		return inputs.Gathered{}, err
	}
	return Given{string(f), set}.Read(ctx, c)
}

// Complete returns true: files are read as a whole.
func (Files) Complete(routing.Asked) bool { return true }

// Changes watches the files.
func (f Files) Changes(ctx context.Context, log *slog.Logger) <-chan struct{} {
	return manifests.Watch(ctx, []string{string(f)}, log)
}

// counts returns such as "apps/v1 Deployment: 3".
func counts(ignored map[manifests.GVK]int) string {
	var parts []string
	for _, kind := range slices.SortedFunc(maps.Keys(ignored), manifests.GVK.Compare) {
		parts = append(parts, fmt.Sprintf("%s: %d", kind, ignored[kind]))
	}
	return strings.Join(parts, ", ")
}
