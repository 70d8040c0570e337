package push

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// rotate replaces the certificates whose content changed. A certificate that cannot be
// replaced does not keep the others from it.
func (i Instance) rotate(ctx context.Context, want bind.Bound, have Running) (Running, error) {
	have.Certificates = maps.Clone(have.Certificates)
	if have.Certificates == nil {
		have.Certificates = make(Known)
	}
	var failed []error
	for _, f := range want.Files {
		hash, known := have.Certificates[f.Path]
		if f.Kind != bind.CertificateFile || (known && hash == sum(f.Content)) {
			continue
		}
		if !known && i.serves(ctx, f) {
			have.Certificates.remember(f)
			continue
		}
		info, err := i.rotateOne(ctx, f, have.Info)
		if info.PID != have.Info.PID {
			have.Info, have.Servers, have.Maps, have.Reloaded = info, nil, "", true
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("rotate %s: %w", f.Name, err))
			continue
		}
		have.Certificates.remember(f)
	}
	return have, errors.Join(failed...)
}

// rotateOne makes the worker serve a certificate, and has it prove that.
func (i Instance) rotateOne(ctx context.Context, f bind.File, info dataplane.RuntimeInfo) (dataplane.RuntimeInfo, error) {
	live, reload, err := i.API.RotateCertificate(ctx, f.Name, f.Content)
	if err != nil {
		return info, err
	}
	if !live {
		if err := i.await(ctx, reload); err != nil {
			return info, err
		}
		if info, err = i.RuntimeInfo(ctx); err != nil {
			return info, err
		}
	}
	if !i.serves(ctx, f) {
		return info, errors.New("the worker still has another certificate")
	}
	return info, nil
}

// serves reports whether the worker has this certificate, by its fingerprint.
func (i Instance) serves(ctx context.Context, f bind.File) bool {
	c := leaf(f.Content)
	found, err := i.API.RuntimeCertificate(ctx, f.Path)
	if err != nil || c == nil {
		return false
	}
	old, now := sha1.Sum(c.Raw), sum(c.Raw)
	fingerprint := strings.ToLower(strings.ReplaceAll(found.Fingerprint, ":", ""))
	return fingerprint == hex.EncodeToString(old[:]) || fingerprint == hex.EncodeToString(now[:])
}
