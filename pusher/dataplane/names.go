package dataplane

import (
	"path"
	"strings"
)

// SanitizeFilename returns the name that a storage gives to a file. What follows
// the last dot is the extension; in it and in the rest, each run of characters
// other than A-Z, a-z, 0-9, "_", "-" and "\" becomes one "_". Two names can become
// one; haproxy.cfg must use the sanitised one.
func SanitizeFilename(name string) string {
	stem, ext, dotted := cutLast(name)
	if stem != "" {
		stem = replaceRuns(path.Clean(stem))
	}
	switch {
	case !dotted:
		return stem
	case stem == "":
		return "_" + replaceRuns(ext)
	default:
		return stem + "." + replaceRuns(ext)
	}
}

// cutLast splits at the last dot of the last path element.
func cutLast(name string) (stem, ext string, dotted bool) {
	i := strings.LastIndexAny(name, "./")
	if i < 0 || name[i] == '/' {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

func replaceRuns(s string) string {
	var b strings.Builder
	inRun := false
	for _, r := range s {
		if keptInName(r) {
			b.WriteRune(r)
			inRun = false
		} else if !inRun {
			b.WriteByte('_')
			inRun = true
		}
	}
	return b.String()
}

func keptInName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r == '_' || r == '-' || r == '\\'
}
