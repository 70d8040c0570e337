package push

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// storages are where the files go, in the order in which they are uploaded: a
// file comes after those that it may name.
var storages = []struct {
	kind    bind.FileKind
	storage dataplane.Storage
}{
	{bind.CertificateFile, dataplane.Certificates},
	{bind.GeneralFile, dataplane.General},
	{bind.MapFile, dataplane.Maps},
}

// Known holds the SHA-256 of the certificates that are on the instance, by path,
// as far as it is known; the API does not show their contents.
type Known map[string][32]byte

// upload puts the files on the instance's disk that are not there yet, or not
// with this content. The running worker notices nothing.
func (i Instance) upload(ctx context.Context, files []bind.File, known Known) error {
	for _, s := range storages {
		mine := slices.DeleteFunc(slices.Clone(files), func(f bind.File) bool { return f.Kind != s.kind })
		if len(mine) == 0 {
			continue
		}
		there, err := i.list(ctx, s.storage)
		if err != nil {
			return err
		}
		empty := len(there) == 0
		for _, f := range mine {
			found, ok := there[f.Name]
			if ok {
				err = i.replace(ctx, s.storage, f, found, known)
			} else {
				err = i.create(ctx, s.storage, f, known)
			}
			if err != nil {
				return fmt.Errorf("upload %s: %w", f.Name, err)
			}
		}
		if empty { // where it keeps files is only seen now
			if _, err := i.list(ctx, s.storage); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns the files of a storage, by name, if they are where they should be.
func (i Instance) list(ctx context.Context, s dataplane.Storage) (map[string]dataplane.File, error) {
	files, err := i.API.Files(ctx, s)
	if err == nil && i.Layout != (bind.Layout{}) {
		err = CheckDirectory(s, i.Layout, files)
	}
	if err != nil {
		return nil, err
	}
	out := make(map[string]dataplane.File, len(files))
	for _, f := range files {
		out[f.Name] = f
	}
	return out, nil
}

// create writes a file that the storage does not list. It may be there all the
// same: an upload whose answer was lost, or a certificate that does not parse.
func (i Instance) create(ctx context.Context, s dataplane.Storage, f bind.File, known Known) error {
	err := i.API.CreateFile(ctx, s, f.Name, f.Content)
	if errors.Is(err, dataplane.ErrConflict) {
		err = i.API.ReplaceFile(ctx, s, f.Name, f.Content)
	}
	return known.note(s, f, err)
}

// replace writes a file that is there, unless it has the content already.
func (i Instance) replace(ctx context.Context, s dataplane.Storage, f bind.File, found dataplane.File, known Known) error {
	same, err := i.same(ctx, s, f, found, known)
	switch {
	case errors.Is(err, dataplane.ErrNotFound):
		return i.API.CreateFile(ctx, s, f.Name, f.Content)
	case err != nil:
		return err
	case same && s == dataplane.Certificates:
		known.remember(f)
		return nil
	case same:
		return nil
	}
	return known.note(s, f, i.API.ReplaceFile(ctx, s, f.Name, f.Content))
}

// same reports whether a file that the storage lists has the content of f.
func (i Instance) same(ctx context.Context, s dataplane.Storage, f bind.File, found dataplane.File, known Known) (bool, error) {
	if s == dataplane.Certificates {
		return known.same(f, found), nil
	}
	content, err := i.API.ReadFile(ctx, s, f.Name)
	return bytes.Equal(content, f.Content), err
}

// note remembers a certificate that was written. A certificate that the API refuses is a
// matter of live data, and not a fault of the snapshot.
func (k Known) note(s dataplane.Storage, f bind.File, err error) error {
	if s == dataplane.Certificates && err == nil {
		k.remember(f)
	}
	if s != dataplane.Certificates && errors.Is(err, dataplane.ErrRejected) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

func (k Known) remember(f bind.File) { k[f.Path] = sum(f.Content) }

// same reports whether the certificate on the instance is f. Where this is not
// known, a file of the same size whose leaf has the same serial number is.
func (k Known) same(f bind.File, found dataplane.File) bool {
	if have, ok := k[f.Path]; ok && have != sum(f.Content) {
		return false
	}
	return found.Serial == serial(f.Content) && cmp.Or(found.Size, int64(len(f.Content))) == int64(len(f.Content))
}

// serial returns the serial number of the leaf in decimal, or "".
func serial(data []byte) string {
	if c := leaf(data); c != nil {
		return c.SerialNumber.String()
	}
	return ""
}

func leaf(data []byte) *x509.Certificate {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil
		}
		if block.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil
			}
			return c
		}
		data = rest
	}
}

// Hashes returns the certificates of a bound snapshot as they are known once they
// are on an instance.
func Hashes(b bind.Bound) Known {
	out := make(Known)
	for _, f := range b.Files {
		if f.Kind == bind.CertificateFile {
			out.remember(f)
		}
	}
	return out
}

// In reports whether the certificates in k are known to be there too, with the
// same contents.
func (k Known) In(there Known) bool {
	for path, hash := range k {
		if have, ok := there[path]; !ok || have != hash {
			return false
		}
	}
	return true
}
