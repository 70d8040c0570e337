package compiler

import (
	"context"
	"time"

	"github.com/hapsnap/hapsnap/compiler/explain"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// Explain compiles the files as [Source.Once] does, and says where a line of
// what came of them is from. The error is that of Once, or a usage error if there
// is no such line.
func (s Source) Explain(ctx context.Context, check *validate.Checker, now time.Time, place explain.Place) (explain.Explanation, Result, error) {
	r, objects, err := s.compile(ctx, check, now, "explain")
	if err != nil {
		return explain.Explanation{}, r, err
	}
	e, err := explain.Explain(place, r.Draft.Files, r.Artifact, objects)
	return e, r, err
}
