package manifests

import (
	"bytes"
)

// chunk is one document of a YAML file, and how many lines come before it.
type chunk struct {
	text  []byte
	lines int
}

// splitYAML splits a stream into its documents before anything is parsed, so
// that one that is not YAML harms only itself. A line that starts with "---"
// or "..." bounds a document wherever it stands, even in a block of text (YAML
// 1.2, section 9.1.2). Chunks without content are left out.
func splitYAML(data []byte) []chunk {
	var chunks []chunk
	start, startLine, line := 0, 0, 0
	cut := func(end int) {
		if text := data[start:end]; hasContent(text) {
			chunks = append(chunks, chunk{text, startLine})
		}
		start, startLine = end, line
	}
	for offset := 0; offset < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
			end = offset + i + 1
		}
		switch {
		case isMarker(data[offset:end], "---"):
			cut(offset)
		case isMarker(data[offset:end], "..."):
			cut(offset)
			start, startLine = end, line+1
		}
		offset = end
	}
	cut(len(data))
	return chunks
}

// isMarker reports whether a line is the given document marker, which may be
// followed by white space and more.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// hasContent reports whether a chunk is more than blank lines, comments,
// directives and a bare marker.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if isMarker(line, "---") {
			line = line[len("---"):]
		} else if line[0] == '%' {
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}
