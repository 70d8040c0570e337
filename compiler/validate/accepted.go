package validate

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"sync"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// accepted remembers what HAProxy accepted last as a whole, without a warning: its own executable, haproxy.cfg, and all files
// but maps.
//
// If only the content of maps differs from that, HAProxy need not read all of haproxy.cfg again. It reads maps entry by
// entry, each with the converters of the lines that name the map, and no line of haproxy.cfg means anything else for what a
// map contains. Each text that names a map is in haproxy.cfg as [onePerText] leaves it. See docs/adr/028-maps-alone.md.
type accepted struct {
	mu   sync.Mutex
	last textKey // zero: nothing
}

func (a *accepted) is(key textKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return key == a.last && key != textKey{}
}

func (a *accepted) set(key textKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = key
}

// acceptedKey names what HAProxy reads of a bound configuration, but for the content of maps, whose hashes are in their names,
// and for the folder, which a check may have for itself. It is zero if the executable cannot be seen.
func acceptedKey(haproxy string, lines lineMap, folder string) textKey {
	info, err := os.Stat(haproxy)
	if err != nil {
		return textKey{}
	}
	h := sha256.New()
	fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano())
	// Apart from these names, it is bound to the same data whenever it is the same.
	config, _ := fileOf(lines.places.artifact, snapshots.ConfigFile)
	h.Write(config)
	for _, f := range lines.bound.Files {
		fmt.Fprintln(h, "\x00", f.Kind, f.Source)
		if f.Kind != bind.MapFile {
			writeElsewhere(h, f.Content, folder)
		}
	}
	return textKey(h.Sum(nil))
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
