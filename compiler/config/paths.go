package config

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Paths says how the paths of requests are compared with those of routes.
type Paths struct {
	// Normalize compares paths in a form in which /admin, //admin, /x/../admin and
	// /%61dmin are one path. Servers get the path as it came. It needs a HAProxy with
	// Lua. Without it, paths are compared byte for byte, and what protects /admin does
	// not protect /%61dmin.
	Normalize bool `json:"normalize"`
	// Unsafe says what becomes of requests whose path servers read in different ways,
	// such as /admin%2f, on hosts with a path that something protects: with reject they
	// are answered 400, with pass they are routed as if the path meant what it says.
	// Hosts without protection serve them in any case.
	Unsafe UnsafePaths `json:"unsafe"`
	// Parameters says what ";" in a path means: to some servers, the rest of the segment
	// is then no part of the path, so that /admin;x=1 is /admin. With reject, such
	// requests are unsafe ones; with ignore, they are compared without their parameters;
	// with match, ";" is a character like others.
	Parameters PathParameters `json:"parameters"`
}

// UnsafePaths says what becomes of requests whose path servers read in different ways.
type UnsafePaths string

// The answers.
const (
	RejectUnsafe UnsafePaths = "reject"
	PassUnsafe   UnsafePaths = "pass"
)

// PathParameters says what ";" in a path means.
type PathParameters string

// The meanings.
const (
	RejectParameters PathParameters = "reject"
	IgnoreParameters PathParameters = "ignore"
	MatchParameters  PathParameters = "match"
)

func defaultPaths() Paths {
	return Paths{Normalize: true, Unsafe: RejectUnsafe, Parameters: RejectParameters}
}

func (p Paths) check(f field.Errors) {
	if p.Unsafe != RejectUnsafe && p.Unsafe != PassUnsafe {
		f.At("unsafe").Add(fmt.Sprintf("%q is neither reject nor pass", string(p.Unsafe)), "use reject or pass")
	}
	if p.Parameters != RejectParameters && p.Parameters != IgnoreParameters && p.Parameters != MatchParameters {
		f.At("parameters").Add(fmt.Sprintf("%q is not possible", string(p.Parameters)), "use reject, ignore or match")
	}
}
