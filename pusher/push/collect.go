package push

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Stored names a file in a storage of an instance.
type Stored struct {
	Kind bind.FileKind `json:"kind"`
	Name string        `json:"name"`
}

// Remove deletes files that nothing needs any more, and returns those that are gone. That
// nothing does is for the caller to know: the API only keeps what haproxy.cfg names by its
// path (that stays, without an error), and not what a crt-list names. Certificates that the
// running worker has, or the file on disk names, stay as well.
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

// certificatesInUse returns a function that tells by its name whether a certificate is used
// on the instance: the running worker has loaded it, or haproxy.cfg on disk names it or its
// directory, or a crt-list there does. The error says that this cannot be known.
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
	words := wordsOf(raw.Config)
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

// wordsOf returns the words of a configuration or list, comments and quoted ones too.
func wordsOf(text []byte) []string {
	return strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'[]", r) })
}

// namesDirectory reports whether a directory is named, of which HAProxy loads all files.
func namesDirectory(words []string, dir string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return path.Clean(word) == path.Clean(dir) })
}
