package validate

import (
	"bytes"
	"regexp"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// plainHead matches the head of a backend that HAProxy takes without a look at its name.
var plainHead = regexp.MustCompile(`^backend [A-Za-z0-9._:-]+( from [A-Za-z0-9._:-]+)?$`)

// wordForm matches whatever could be the name of a backend.
var wordForm = regexp.MustCompile(`[A-Za-z0-9._:-]+`)

// onePerText returns a haproxy.cfg with one backend of each text, and empty lines in place of the others, so that
// all other lines keep their numbers. HAProxy says of those what it says of the one, see [alike], and
// takes a fraction of the time.
//
// A backend stays if HAProxy may say something of it alone: it has an id, which no other may have; another one has
// its name; the head has other characters than those that are safe; or something else has its name, as
// use_backend has, and track. Where lines are conditional all stay.
func onePerText(config []byte) []byte {
	names, used := map[string]int{}, map[string]bool{}
	var backends []haproxycfg.Section
	for s := range haproxycfg.Sections(config) {
		for _, line := range s.Lines {
			if bytes.HasPrefix(bytes.TrimSpace(line.Text), []byte(".")) {
				return config
			}
		}
		if s.Keyword == "backend" {
			names[s.Name]++
			backends = append(backends, s)
			continue
		}
		names[s.Name]++ // a listen section is a backend too
		use(used, s)
	}
	known, others := map[string]bool{}, backends[:0]
	for _, s := range backends {
		text := textOf(s)
		if known[text] && names[s.Name] == 1 && plainHead.Match(s.Head.Text) && !hasID(s) {
			others = append(others, s)
			continue
		}
		known[text] = true
		use(used, s)
	}
	lines := bytes.SplitAfter(config, []byte("\n"))
	for _, s := range others {
		if used[s.Name] {
			continue
		}
		lines[s.Head.Number-1] = []byte("\n")
		for _, line := range s.Lines {
			lines[line.Number-1] = []byte("\n")
		}
	}
	return bytes.Join(lines, nil)
}

// use takes the words of a section's lines, any of which may be the name of a backend.
func use(used map[string]bool, s haproxycfg.Section) {
	for _, line := range s.Lines {
		if text := bytes.TrimSpace(line.Text); !bytes.HasPrefix(text, []byte("#")) {
			for _, word := range wordForm.FindAll(text, -1) {
				used[string(word)] = true
			}
		}
	}
}

// hasID reports whether a line of a section gives something a number or a name that only one may have.
func hasID(s haproxycfg.Section) bool {
	for _, line := range s.Lines {
		for _, word := range bytes.Fields(line.Text) {
			if string(word) == "id" || string(word) == "guid" {
				return true
			}
		}
	}
	return false
}
