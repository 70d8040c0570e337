package pusher

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/snapshots"
)

// companioned is a store that keeps certificates beside snapshots.
type companioned interface {
	Companions(ctx context.Context, id snapshots.ID) (map[string][]byte, error)
}

// companions returns the certificates beside a snapshot, by version.
func companions(ctx context.Context, store Store, id snapshots.ID) (map[string][]byte, error) {
	keeps, ok := store.(companioned)
	if !ok {
		return nil, fmt.Errorf("%s: %w", id, snapshots.ErrNoCompanions)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return keeps.Companions(ctx, id)
}

// newFallback returns what makes the fallback certificate.
func newFallback(now time.Time) func() ([]byte, error) {
	return func() ([]byte, error) {
		data, err := selfSigned(now)
		if err != nil {
			return nil, fmt.Errorf("make fallback certificate: %w", err)
		}
		return data, nil
	}
}

// selfSigned returns a certificate for ten years and its key.
func selfSigned(now time.Time) ([]byte, error) {
	certificate, key, err := credentials.SelfSigned(x509.Certificate{
		Subject:   pkix.Name{CommonName: "hapsnap fallback certificate"},
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.AddDate(10, 0, 0),
	})
	return slices.Concat(certificate, key), err
}
