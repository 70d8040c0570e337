package push

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// ErrDirectory is the error of an instance whose API keeps files elsewhere than its
// entry in the Fleet says. HAProxy would not find them, whatever the snapshot is: the
// instance is at fault, and never the snapshot.
var ErrDirectory = errors.New("the API keeps files in another directory")

// DirectoryError says where the API keeps the files of a storage, and where the
// pusher would have looked for them. It is an [ErrDirectory].
type DirectoryError struct {
	Field  string // of directories in the Fleet
	Want   string // what the Fleet says, or the default
	Actual string // what the API's listing says
}

func (e *DirectoryError) Error() string {
	return fmt.Sprintf("the API keeps %s in %s, and the Fleet says %s; set directories: {%s: %s} for this instance",
		e.Field, e.Actual, e.Want, e.Field, e.Actual)
}

func (e *DirectoryError) Unwrap() error { return ErrDirectory }

// CheckDirectory compares the directory of a storage, as paths in haproxy.cfg are
// composed from it, with the paths that the API lists. A listing without files says
// nothing: upload one first. The error is a [DirectoryError].
func CheckDirectory(s dataplane.Storage, layout bind.Layout, listed []dataplane.File) error {
	field, want := directory(s, layout)
	for _, f := range listed {
		if actual := filepath.Dir(f.Path); f.Path != "" && actual != filepath.Clean(want) {
			return &DirectoryError{Field: field, Want: want, Actual: actual}
		}
	}
	return nil
}

// directory returns the field of the Fleet for a storage, and its value.
func directory(s dataplane.Storage, layout bind.Layout) (field, path string) {
	switch s {
	case dataplane.Maps:
		return "maps", layout.Maps
	case dataplane.Certificates:
		return "certificates", layout.Certificates
	default:
		return "general", layout.General
	}
}
