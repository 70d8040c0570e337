package assert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/difference"
)

// fault says why an assertion fails. Detail is more lines for people.
type fault struct {
	message string
	detail  string
}

// textOf returns the text of a file, or of a section of haproxy.cfg.
func textOf(files []snapshots.File, in string) (string, *fault) {
	words := strings.Fields(in)
	if len(words) == 0 {
		words = []string{snapshots.ConfigFile}
	}
	if haproxycfg.BeginsSection(words[0]) {
		config := snapshots.Snapshot{Files: files}.Config()
		return section(string(config), words)
	}
	var names []string
	for _, f := range files {
		if f.Path == strings.Join(words, " ") {
			return string(f.Content), nil
		}
		names = append(names, f.Path)
	}
	return "", &fault{message: fmt.Sprintf("there is no file %s", in), detail: "the files are " + strings.Join(names, ", ")}
}

// section returns the section whose first line begins with the words, without
// empty lines at its end.
func section(config string, words []string) (string, *fault) {
	var lines, like []string
	in := false
	for line := range haproxycfg.Lines([]byte(config)) {
		if s, begins := haproxycfg.BeginSection(line); begins {
			if in {
				break
			}
			head := line.Texts()
			in = len(head) >= len(words) && slices.Equal(head[:len(words)], words)
			if s.Keyword == words[0] {
				like = append(like, strings.TrimSpace(s.Keyword+" "+s.Name))
			}
		}
		if in {
			lines = append(lines, string(line.Text))
		}
	}
	if lines == nil {
		f := &fault{message: "there is no section " + strings.Join(words, " ")}
		if len(like) > 0 {
			f.detail = "there is " + strings.Join(like[:min(len(like), maxNames)], ", ")
		}
		return "", f
	}
	return strings.TrimRight(strings.Join(lines, "\n"), " \t\n") + "\n", nil
}

// maxNames is how many sections a message names.
const maxNames = 20

// trimmed returns the lines of a text without indentation and without the empty
// ones at its ends.
func trimmed(text string) []string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}

// indexOf returns the place where lines follow upon one another in others, or -1.
func indexOf(lines, wanted []string) int {
	for i := 0; i+len(wanted) <= len(lines); i++ {
		if slices.Equal(lines[i:i+len(wanted)], wanted) {
			return i
		}
	}
	return -1
}

// contains says why a text does not contain lines, or nil.
func contains(text, wanted, in string) *fault {
	lines, want := trimmed(text), trimmed(wanted)
	if indexOf(lines, want) >= 0 {
		return nil
	}
	missing := slices.IndexFunc(want, func(line string) bool { return !slices.Contains(lines, line) })
	if missing < 0 {
		return &fault{in + " has these lines, but not one after the other", quoted("", want)}
	}
	f := &fault{fmt.Sprintf("%s does not have the line %q", in, want[missing]), ""}
	if i := nearest(lines, want[missing]); i >= 0 {
		f.detail = fmt.Sprintf("the nearest is line %d: %s", i+1, lines[i])
	}
	return f
}

// notContains says why a text does contain lines, or nil.
func notContains(text, unwanted, in string) *fault {
	lines, bad := trimmed(text), trimmed(unwanted)
	i := indexOf(lines, bad)
	if i < 0 {
		return nil
	}
	return &fault{fmt.Sprintf("%s has the line that it should not have, in line %d", in, i+1), quoted("", bad)}
}

// equals says why a text is not another, or nil. Blanks at the ends of lines and
// empty lines at the end of the text do not count.
func equals(text, wanted, in string) *fault {
	got, want := tidied(text), tidied(wanted)
	if got == want {
		return nil
	}
	return &fault{in + " differs from the expected text", strings.TrimRight(difference.Unified("want", want, "got", got), "\n")}
}

func tidied(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\r")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// nearest returns the line that has most words in common with another, the first of several, or -1 if
// no line has any.
func nearest(lines []string, line string) int {
	words := strings.Fields(line)
	best, most := -1, 0
	for i, l := range lines {
		common := 0
		for _, word := range strings.Fields(l) {
			if slices.Contains(words, word) {
				common++
			}
		}
		if common > most {
			best, most = i, common
		}
	}
	return best
}

// quoted puts something before each line.
func quoted(before string, lines []string) string {
	return before + strings.Join(lines, "\n"+before)
}
