package validate

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// A checker remembers what HAProxy has accepted as a whole, without a warning: haproxy.cfg, and all files but maps.
//
// If only the content of maps differs from that, HAProxy need not read all of haproxy.cfg again. It reads maps entry by
// entry, each with the converters of the lines that name the map, and no line of haproxy.cfg means anything else for what a
// map contains. Each text that names a map is in haproxy.cfg as [onePerText] leaves it. Nor do the checks of lines and the
// Dataplane API's parser find anything else than before: names of files have the same length. See docs/adr/028-maps-alone.md.

// acceptedKey names what HAProxy reads of a bound configuration, but for the content of maps, whose hashes are in their names,
// and for the folder, which a check may have for itself. It names the executable as well. It returns false if that cannot be seen.
// Config is the key of the haproxy.cfg that was bound.
func acceptedKey(haproxy string, config textKey, bound bind.Bound, folder string) (textKey, bool) {
	h, seen := hashWith(haproxy, config)
	if !seen {
		return textKey{}, false
	}
	for _, f := range bound.Files {
		fmt.Fprintln(h, "\x00", f.Kind, f.Source)
		if f.Kind != bind.MapFile {
			writeElsewhere(h, f.Content, folder)
		}
	}
	return textKey(h.Sum(nil)), true
}

// hashWith begins a key of what an executable reads with a haproxy.cfg. Apart from names of files and folders, that is bound
// to the same data whenever it is the same.
func hashWith(haproxy string, config textKey) (hash.Hash, bool) {
	info, err := os.Stat(haproxy)
	if err != nil {
		return nil, false
	}
	h := sha256.New()
	fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano())
	h.Write(config[:])
	return h, true
}

// shortForm remembers what HAProxy was asked about last in short. If only maps differ since, it is asked about the same with
// other maps, and nothing is bound: it reads the same lines, under the names that the maps had then.
type shortForm struct {
	mu     sync.Mutex
	key    textKey // see unboundKey
	folder string
	shortened
	made int // how often it was bound
}

// shortened is a configuration as HAProxy is asked about it, and what it takes from Secrets.
type shortened struct {
	bind.Bound
	needs []bind.Need
}

// put remembers what HAProxy accepted in a folder, without a warning. It keeps what is needed to ask again.
func (s *shortForm) put(key textKey, folder string, asked bind.Bound, needs []bind.Need) {
	files := slices.Clone(asked.Files)
	for i, f := range files {
		if f.Kind == bind.MapFile {
			files[i].Content = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key, s.folder, s.shortened = key, folder, shortened{bind.Bound{Config: asked.Config, Files: files}, needs}
	s.made++
}

// of returns that with the maps of an artifact, in a folder. It returns false if anything else may differ.
func (s *shortForm) of(key textKey, a render.Artifact, folder string) (out shortened, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == 0 || s.key != key {
		return shortened{}, false
	}
	moved := func(text []byte) []byte {
		if s.folder == folder {
			return text
		}
		return bytes.ReplaceAll(text, []byte(s.folder), []byte(folder))
	}
	out = shortened{bind.Bound{Config: moved(s.Config), Files: slices.Clone(s.Files)}, s.needs}
	for i, f := range out.Files {
		out.Files[i].Path = string(moved([]byte(f.Path)))
		if f.Kind == bind.MapFile {
			out.Files[i].Content, _ = fileOf(a, f.Source)
		} else {
			out.Files[i].Content = moved(f.Content)
		}
	}
	return out, true
}

// unboundKey names everything that an input is bound to, and what HAProxy reads of it, but for the content of maps: with the same
// key, acceptedKey is the same. Config is the key of the haproxy.cfg.
func unboundKey(haproxy string, config textKey, in Input) (textKey, bool) {
	h, seen := hashWith(haproxy, config)
	if !seen {
		return textKey{}, false
	}
	for _, f := range in.Artifact.Files {
		fmt.Fprintf(h, "\x00%q\n", f.Path)
		if f.Path != snapshots.ConfigFile && !strings.HasPrefix(f.Path, snapshots.MapsFolder) {
			fmt.Fprintln(h, len(f.Content))
			h.Write(f.Content)
		}
	}
	for _, c := range in.Artifact.Certificates {
		fmt.Fprintf(h, "\x00%q %q %q %q %q %q %q\n", c.File, c.Secret.Namespace, c.Secret.Name, c.Use, c.Mode, c.Version, in.Keys[c.Secret])
	}
	return textKey(h.Sum(nil)), true
}

// writeElsewhere writes a text without the name of the folder.
func writeElsewhere(h hash.Hash, text []byte, folder string) {
	for {
		before, after, found := bytes.Cut(text, []byte(folder))
		h.Write(before)
		if !found {
			return
		}
		text = after
	}
}
