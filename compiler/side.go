package compiler

import (
	"context"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots/difference"
)

// Side compiles the files as [Source.Once] does, into a side of a comparison that
// has their name. Where no EndpointSlice is among them, its endpoints are unknown.
func (s Source) Side(ctx context.Context, check *validate.Checker, now time.Time) (difference.Side, Result, error) {
	r, objects, err := s.compile(ctx, check, now, "diff")
	if err != nil {
		return difference.Side{}, r, err
	}
	side := difference.Side{Name: s.Objects.String(), Files: r.Draft.Files, Certificates: r.Draft.Certificates, Recipients: r.Draft.Recipients}
	if s.Config.Endpoints != config.Recorded && len(objects.EndpointSlices) > 0 {
		side.Endpoints, err = endpointsOf(r.Artifact, objects)
	}
	return side, r, err
}
