package validate

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"

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
	info, err := os.Stat(haproxy)
	if err != nil {
		return textKey{}, false
	}
	h := sha256.New()
	fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano())
	// Apart from these names, it is bound to the same data whenever it is the same.
	h.Write(config[:])
	for _, f := range bound.Files {
		fmt.Fprintln(h, "\x00", f.Kind, f.Source)
		if f.Kind != bind.MapFile {
			writeElsewhere(h, f.Content, folder)
		}
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
