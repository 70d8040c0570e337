package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// FastCGI says which script of an application a path is for.
type FastCGI struct {
	// Root is the directory of the scripts where the application runs.
	Root string
	// Index is the script for paths that end in a slash.
	Index string
	// PathInfo is a regular expression that divides a decoded path into the
	// script and, if it has a second group, what follows as PATH_INFO; "" takes
	// all of it for the script.
	PathInfo string
	// Params are what the application is told besides, or in place of what HAProxy would tell
	// it: names and values, by turns.
	Params []string
}

// Param is one of the Params.
type Param struct{ Name, Value string }

// ParamList returns the Params one by one.
func (f FastCGI) ParamList() []Param {
	var out []Param
	for i := 0; i+1 < len(f.Params); i += 2 {
		out = append(out, Param{f.Params[i], f.Params[i+1]})
	}
	return out
}

// Name returns a name for the settings, which equal ones share.
func (f FastCGI) Name() string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{f.Root, f.Index, f.PathInfo}, f.Params...), "\x00")))
	return "hapsnap_" + hex.EncodeToString(sum[:8])
}
