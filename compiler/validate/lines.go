package validate

import (
	"bytes"
	"fmt"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// The limits of a line of haproxy.cfg. The Dataplane API drops a longer line
// and everything after it; HAProxy reads no more words.
const (
	maxLine  = 65535
	maxWords = haproxycfg.MaxWords
)

// conditionals are the directives that the Dataplane API tears apart when it
// sorts lines.
var conditionals = map[string]bool{
	".if": true, ".elif": true, ".else": true, ".endif": true,
	".diag": true, ".notice": true, ".warning": true, ".alert": true,
}

// lineChecker makes our own checks of haproxy.cfg.
type lineChecker struct {
	seen   map[string]int // the line of each section
	faults []fault
}

// fault is a place in a file that is wrong.
type fault struct {
	line          int // from 1; 0 is the whole
	message, hint string
}

// checkLines returns what is wrong with the text of haproxy.cfg, whatever
// HAProxy thinks of it.
func checkLines(config []byte) []fault {
	c := lineChecker{seen: map[string]int{}}
	number := 0
	for line := range bytes.Lines(config) {
		number++
		c.check(number, bytes.TrimSuffix(line, []byte("\n")))
	}
	if len(config) == 0 || config[len(config)-1] != '\n' {
		c.add(number, "is the last line and has no line break", "")
	}
	return c.faults
}

func (c *lineChecker) add(line int, message, hint string) {
	c.faults = append(c.faults, fault{line, message, hint})
}

func (c *lineChecker) check(number int, line []byte) {
	if len(line) > maxLine {
		c.add(number, fmt.Sprintf("is %d bytes long: the Dataplane API drops a line of more than %d, and all after it", len(line), maxLine),
			"put lists into a map or a file")
		return
	}
	first := haproxycfg.FirstWord(line)
	switch {
	case conditionals[first]:
		c.add(number, first+" is not possible: the Dataplane API sorts lines, and would tear it apart", "use the templates' own if")
	case haproxycfg.BeginsSection(first):
		c.section(number, line)
	}
	if n := haproxycfg.CountWords(line); n > maxWords {
		c.add(number, fmt.Sprintf("has %d words: HAProxy reads %d of a line", n, maxWords), "use several lines, a map or a file")
	}
}

// section takes note of a section. The Dataplane API keeps one of each name.
func (c *lineChecker) section(number int, line []byte) {
	section, _ := haproxycfg.BeginSection(haproxycfg.Line{Number: number, Text: line})
	kind, name := section.Keyword, section.Name
	key := kind + " " + name
	if kind == "global" {
		key = kind
	}
	if first, ok := c.seen[key]; ok {
		c.add(number, fmt.Sprintf("the section %q is there already, in line %d: the Dataplane API would keep one of them", key, first), "give it a name of its own")
		return
	}
	c.seen[key] = number
}
