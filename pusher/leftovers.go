package pusher

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// removeTemporaries removes what is left in a folder of files that were being written, see
// [replaceFile], when a pusher was killed. Those of another that may write there are
// younger than the age given.
func removeTemporaries(dir string, age time.Duration, names ...string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // there is none, or what comes next says what is wrong
	}
	for _, entry := range entries {
		for _, name := range names {
			if !isTemporary(entry.Name(), name) || !entry.Type().IsRegular() {
				continue
			}
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) >= age {
				_ = os.Remove(filepath.Join(dir, entry.Name()))
			}
		}
	}
}

// isTemporary reports whether a name is of a temporary file for one of a given name, of
// which "*" at the beginning stands for anything.
func isTemporary(name, of string) bool {
	rest, hidden := strings.CutPrefix(name, ".")
	dot := strings.LastIndexByte(rest, '.')
	if !hidden || dot < 0 || rest[dot+1:] == "" || strings.Trim(rest[dot+1:], "0123456789") != "" {
		return false
	}
	if end, anything := strings.CutPrefix(of, "*"); anything {
		return strings.HasSuffix(rest[:dot], end)
	}
	return rest[:dot] == of
}
