package push

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// storages are the storages of the API in the order of uploads. A file comes after the files that it may name.
var storages = []struct {
	kind    bind.FileKind
	storage dataplane.Storage
}{
	{bind.CertificateFile, dataplane.Certificates},
	{bind.GeneralFile, dataplane.General},
	{bind.MapFile, dataplane.Maps},
}

// CertificateHashes holds the SHA-256 of the certificates on the instance, by path, as far as it is known. The API does not show
// the content of certificates.
type CertificateHashes map[string][32]byte

// reading says whether HAProxy will read all files again.
type reading bool

const (
	keepsFiles reading = false
	readsFiles reading = true
)

// upload writes the files that are missing on the instance's disk or have another content there. The running worker
// does not notice. If HAProxy will read the files, upload also checks the certificates that are known to be there,
// since somebody may have replaced one. It always checks a certificate that nobody knows. If the API describes that
// certificate as it should be, upload leaves it, and it stays unknown until the worker says what it serves.
func (i Instance) upload(ctx context.Context, files []bind.File, known CertificateHashes, then reading) error {
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
			_, ok := there[f.Name]
			switch {
			case ok && f.Held:
			case ok:
				err = i.replace(ctx, s.storage, f, known, then)
			default:
				err = i.create(ctx, s.storage, f, known)
			}
			if err != nil {
				return fmt.Errorf("upload %s: %w", f.Name, err)
			}
		}
		if empty { // now that there is a file, the API shows where it keeps files
			if _, err := i.list(ctx, s.storage); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns the files of a storage, by name. It returns an error if they are not in the expected directory.
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

// create writes a file that the storage does not list. The file may exist nevertheless: the answer to an earlier upload
// may have been lost, and the API does not list a certificate that it cannot parse.
func (i Instance) create(ctx context.Context, s dataplane.Storage, f bind.File, known CertificateHashes) error {
	err := i.API.CreateFile(ctx, s, f.Name, f.Content)
	if errors.Is(err, dataplane.ErrConflict) {
		err = i.API.ReplaceFile(ctx, s, f.Name, f.Content)
	}
	return known.note(s, f, err)
}

// replace writes a file that exists, unless it already has the content.
func (i Instance) replace(ctx context.Context, s dataplane.Storage, f bind.File, known CertificateHashes, then reading) error {
	same, err := i.same(ctx, s, f, known, then)
	switch {
	case errors.Is(err, dataplane.ErrNotFound):
		return i.create(ctx, s, f, known)
	case err != nil || same:
		return err
	}
	err = i.API.ReplaceFile(ctx, s, f.Name, f.Content)
	if errors.Is(err, dataplane.ErrNotFound) { // somebody removed it meanwhile
		return i.create(ctx, s, f, known)
	}
	return known.note(s, f, err)
}

// same reports whether a listed file is known to have the content of f.
func (i Instance) same(ctx context.Context, s dataplane.Storage, f bind.File, known CertificateHashes, then reading) (bool, error) {
	if s != dataplane.Certificates {
		content, err := i.API.ReadFile(ctx, s, f.Name)
		return bytes.Equal(content, f.Content), err
	}
	if have, ok := known[f.Path]; ok && (have != sum(f.Content) || then == keepsFiles) {
		return have == sum(f.Content), nil
	}
	return i.looksTheSame(ctx, f)
}

// looksTheSame compares a certificate on disk with the wanted one, by what the API says about it: its size, its dates,
// and usually a serial number. If the API cannot read the certificate, it is damaged.
func (i Instance) looksTheSame(ctx context.Context, f bind.File) (bool, error) {
	found, err := i.API.Certificate(ctx, f.Name)
	if e, ok := errors.AsType[*dataplane.Error](err); ok && e.Status == http.StatusInternalServerError {
		return false, nil
	}
	var from, until time.Time
	var serials []string
	for _, c := range certificatesIn(f.Content) {
		serials = append(serials, c.SerialNumber.String())
		if c.NotBefore.After(from) {
			from = c.NotBefore
		}
		if until.IsZero() || c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return err == nil &&
		(found.Size == 0 || found.Size == int64(len(f.Content))) &&
		(found.NotBefore.IsZero() || found.NotBefore.Equal(from)) &&
		(found.NotAfter.IsZero() || found.NotAfter.Equal(until)) &&
		(found.Serial == "" || slices.Contains(serials, found.Serial)), err
}

// note remembers a certificate that was written. If the API refuses a certificate, the live
// data is at fault, not the snapshot.
func (k CertificateHashes) note(s dataplane.Storage, f bind.File, err error) error {
	switch {
	case s == dataplane.Certificates && err == nil:
		k.remember(f)
	case s == dataplane.Certificates:
		delete(k, f.Path) // the answer may have been lost
	}
	if s != dataplane.Certificates && errors.Is(err, dataplane.ErrRejected) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

func (k CertificateHashes) remember(f bind.File) { k[f.Path] = sum(f.Content) }

// certificatesIn returns the certificates of a file: first the one that HAProxy shows, then its chain.
func certificatesIn(data []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			out = append(out, c)
		}
	}
	return out
}

// Hashes returns the hashes of the certificates of a bound snapshot, as they are known once the snapshot is on an
// instance. It leaves out held certificates, for which the instance may have another version.
func Hashes(b bind.Bound) CertificateHashes {
	out := make(CertificateHashes)
	for _, f := range b.Files {
		if f.Kind == bind.CertificateFile && !f.Held {
			out.remember(f)
		}
	}
	return out
}

// In reports whether all certificates in k are known to be there, with the same content.
func (k CertificateHashes) In(there CertificateHashes) bool {
	for path, hash := range k {
		if have, ok := there[path]; !ok || have != hash {
			return false
		}
	}
	return true
}

// rotatesFor is how long an update goes on to replace certificates. The worker gets changed servers with the next update.
const rotatesFor = 2 * time.Second

// rotate replaces the certificates whose content changed. If one cannot be replaced, it goes on with the others. After
// [rotatesFor] it leaves the rest to the next update, unless one failed: what follows an error waits for longer.
func (i Instance) rotate(ctx context.Context, want bind.Bound, have Running) (Running, error) {
	have.Certificates = maps.Clone(have.Certificates)
	if have.Certificates == nil {
		have.Certificates = make(CertificateHashes)
	}
	began := time.Now()
	var failed []error
	var large []bind.File
	for _, f := range want.Files {
		hash, known := have.Certificates[f.Path]
		if f.Kind != bind.CertificateFile || f.Held || (known && hash == sum(f.Content)) {
			continue
		}
		if len(failed) == 0 && time.Since(began) >= rotatesFor {
			return have, nil
		}
		if !known && i.mayServe(ctx, f) {
			have.Certificates.remember(f)
			continue
		}
		if len(f.Content) > mostAtRunTime {
			large = append(large, f)
			continue
		}
		if have.Unrotated[f.Path] == sum(f.Content) {
			failed = append(failed, fmt.Errorf("rotate %s: %w, after a reload", f.Name, errNotServed))
			continue
		}
		info, err := i.rotateOne(ctx, f, have.Info)
		reloaded := info.PID != have.Info.PID
		if reloaded {
			have.Info, have.Servers, have.Maps, have.Reloaded = info, nil, "", true
		}
		if reloaded && errors.Is(err, errNotServed) {
			unrotated := CertificateHashes{}
			maps.Copy(unrotated, have.Unrotated)
			unrotated.remember(f)
			have.Unrotated = unrotated
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("rotate %s: %w", f.Name, err))
			continue
		}
		have.Certificates.remember(f)
	}
	if len(large) > 0 {
		var err error
		have, err = i.rotateByReload(ctx, want, large, have)
		failed = append(failed, err)
	}
	return have, errors.Join(failed...)
}

// rotateOne makes the worker serve a certificate, and checks that it does.
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
	return info, i.served(ctx, f)
}

// served returns [errNotServed] if the worker has another certificate. If the worker reports no fingerprint, it returns
// nil.
func (i Instance) served(ctx context.Context, f bind.File) error {
	found, err := i.API.RuntimeCertificate(ctx, f.Path)
	if errors.Is(err, dataplane.ErrNotFound) || err == nil && found.Fingerprint != "" && !isOf(found, f) {
		return errNotServed
	}
	return err
}

const (
	// mostAtRunTime is the largest size in bytes of a certificate, with its chain and key, that is given to a running
	// worker. The certificate and the command have to fit into a buffer of HAProxy, which has 16 KiB. If they do not
	// fit, HAProxy 3.2.0 ends with all of its workers, and other versions refuse the certificate.
	mostAtRunTime = 15000
	// betweenRotations is the shortest time between two reloads of an instance for such certificates, however often
	// their owner changes them.
	betweenRotations = 10 * time.Minute
)

// errRotatesLater is the error of a certificate that needs a reload and has to wait for it.
var errRotatesLater = fmt.Errorf("it is larger than %d bytes, so that it takes a reload, and the last one for such a certificate was less than %s ago", mostAtRunTime, betweenRotations)

// rotateByReload writes the certificates that are too large for a running worker. One reload makes HAProxy read them.
func (i Instance) rotateByReload(ctx context.Context, want bind.Bound, large []bind.File, have Running) (Running, error) {
	if time.Since(have.RotatedByReload) < betweenRotations {
		return have, fmt.Errorf("rotate %s: %w", large[0].Name, errRotatesLater)
	}
	for _, f := range large {
		if err := i.create(ctx, dataplane.Certificates, f, CertificateHashes{}); err != nil {
			return have, fmt.Errorf("rotate %s: %w", f.Name, err)
		}
	}
	raw, err := i.API.Raw(ctx)
	if err != nil {
		return have, err
	}
	have.Persisted, have.Written, have.Disk, have.RotatedByReload = false, nil, Digest{}, time.Now()
	posted, err := i.API.PostRaw(ctx, want.Config, dataplane.PostOptions{Version: raw.Version, ForceReload: true})
	if err != nil {
		return have, fmt.Errorf("reload for %s: %w", large[0].Name, err)
	}
	info, err := i.WorkerInfo(ctx)
	if err != nil {
		return have, err
	}
	have.Info, have.Servers, have.Maps, have.Disk, have.Reloaded = info, nil, "", digestOf(posted.Config), info.PID != have.Info.PID
	var failed []error
	for _, f := range large {
		if err := i.served(ctx, f); err != nil {
			failed = append(failed, fmt.Errorf("rotate %s: %w", f.Name, err))
			continue
		}
		have.Certificates.remember(f)
	}
	return have, errors.Join(failed...)
}

// errNotServed is the error of a worker that has another certificate than it was given.
var errNotServed = errors.New("the worker still has another certificate")

// mayServe reports whether the worker has this certificate, judged by the fingerprint. HAProxy reports no fingerprint
// of a certificate with some hundred names, because the description does not fit into its buffer. For such a
// certificate mayServe looks at the disk, where the pusher writes it together with the worker's. Giving it to the
// worker again would take a reload, since the certificate does not fit into the buffer either.
func (i Instance) mayServe(ctx context.Context, f bind.File) bool {
	found, err := i.API.RuntimeCertificate(ctx, f.Path)
	if err == nil && found.Fingerprint == "" {
		same, err := i.looksTheSame(ctx, f)
		return same && err == nil
	}
	return err == nil && isOf(found, f)
}

// isOf reports whether the fingerprint that the worker reports is the one of this certificate.
func isOf(found dataplane.File, f bind.File) bool {
	list := certificatesIn(f.Content)
	if len(list) == 0 {
		return false
	}
	old, now := sha1.Sum(list[0].Raw), sum(list[0].Raw)
	fingerprint := strings.ToLower(strings.ReplaceAll(found.Fingerprint, ":", ""))
	return fingerprint == hex.EncodeToString(old[:]) || fingerprint == hex.EncodeToString(now[:])
}

// ErrDirectory is the error of an instance whose API keeps files in another directory than the Fleet says. HAProxy
// would not find the files of any snapshot, so the instance is at fault.
var ErrDirectory = errors.New("the API keeps files in another directory")

// DirectoryError says where the API keeps the files of a storage, and where the pusher
// expected them. It is an [ErrDirectory].
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

// CheckDirectory compares the directory of a storage with the paths that the API lists. Paths in haproxy.cfg are made
// from that directory. An empty list shows no path, so the caller uploads a file first. The error is a
// [DirectoryError].
func CheckDirectory(s dataplane.Storage, layout bind.Layout, listed []dataplane.File) error {
	field, want := directory(s, layout)
	for _, f := range listed {
		if actual := filepath.Dir(f.Path); f.Path != "" && actual != filepath.Clean(want) {
			return &DirectoryError{Field: field, Want: want, Actual: actual}
		}
	}
	return nil
}

// directory returns the field of the Fleet that sets the directory of a storage, and its value.
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

// Stored names a file in a storage of an instance.
type Stored struct {
	Kind bind.FileKind `json:"kind"`
	Name string        `json:"name"`
}

// Remove deletes files that nothing needs any more, and returns those that are gone. The caller has to know that
// nothing needs them: the API itself only protects files that haproxy.cfg names by their path, not those that a
// crt-list names. Remove leaves protected files where they are, without an error. It also leaves the certificates that
// the running worker has, or that the file on disk names.
func (i Instance) Remove(ctx context.Context, files []Stored) (removed []Stored, err error) {
	var inUse func(name string) bool
	for _, f := range files {
		if f.Kind == bind.CertificateFile && inUse == nil {
			if inUse, err = i.certificatesInUse(ctx); err != nil {
				return removed, err
			}
		}
		if f.Kind == bind.CertificateFile && inUse(f.Name) {
			continue
		}
		for _, s := range storages {
			if s.kind != f.Kind {
				continue
			}
			err := i.API.DeleteFile(ctx, s.storage, f.Name)
			switch {
			case errors.Is(err, dataplane.ErrConflict):
			case err != nil && !errors.Is(err, dataplane.ErrNotFound):
				return removed, err
			default:
				removed = append(removed, f)
			}
		}
	}
	return removed, nil
}

// certificatesInUse returns a function that reports whether a certificate is in use on the instance, by its name. It is
// in use if the running worker has loaded it, or if haproxy.cfg on disk, or a crt-list there, names it or its
// directory. certificatesInUse returns an error if it cannot find out.
func (i Instance) certificatesInUse(ctx context.Context) (func(name string) bool, error) {
	loaded, err := i.API.RuntimeCertificates(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := i.API.Raw(ctx)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, file := range loaded {
		used[path.Base(file)] = true
	}
	words := append(wordsOf(raw.Config.Head), wordsOf(raw.Config.Body)...)
	for n, word := range words {
		if used[path.Base(word)] = true; word == "crt-list" && n+1 < len(words) {
			list, err := i.API.ReadFile(ctx, dataplane.General, path.Base(words[n+1]))
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", words[n+1], err)
			}
			for _, entry := range wordsOf(list) {
				used[path.Base(entry)] = true
			}
		}
	}
	all := i.Layout.Certificates != "" && namesDirectory(words, i.Layout.Certificates)
	return func(name string) bool { return all || used[name] }, nil
}

// wordsOf returns the words of a configuration or list, including quoted words and
// comments.
func wordsOf(text []byte) []string {
	return strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'[]", r) })
}

// namesDirectory reports whether one of the words is the directory. HAProxy then loads all files in it.
func namesDirectory(words []string, dir string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return path.Clean(word) == path.Clean(dir) })
}
