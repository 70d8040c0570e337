package validate

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"

	parser "github.com/haproxytech/client-native/v6/config-parser"
	"github.com/haproxytech/client-native/v6/config-parser/options"
)

// parserTurn is held while the parser is used: it keeps the name of the last
// defaults section in a variable of its package.
var parserTurn sync.Mutex

// rewritten returns haproxy.cfg as the Dataplane API would write it.
func rewritten(config []byte) (string, error) {
	parserTurn.Lock()
	defer parserTurn.Unlock()
	p, err := parser.New(options.String(string(config)))
	if err != nil {
		return "", fmt.Errorf("read haproxy.cfg as the Dataplane API does: %w", err)
	}
	return p.String(), nil
}

// checkRoundTrip reads haproxy.cfg and writes it as the Dataplane API does, and
// reports the lines that do not come back. It is no check of what HAProxy
// thinks of them.
func checkRoundTrip(config []byte) ([]fault, error) {
	text, err := rewritten(config)
	if err != nil {
		return nil, err
	}
	back := map[string]int{}
	for line := range strings.Lines(text) {
		back[normal([]byte(line))]++
	}
	var faults []fault
	number := 0
	for line := range bytes.Lines(config) {
		number++
		text := normal(line)
		if text == "" {
			continue
		}
		if back[text] == 0 {
			faults = append(faults, fault{number, "the Dataplane API would not keep this line as it is", "write it in another way, or report it if it is valid"})
			continue
		}
		back[text]--
	}
	return faults, nil
}

// fromForm matches what the Dataplane API adds to, or takes from, the head of
// a section.
var fromForm = regexp.MustCompile(`^((?:frontend|backend|listen|defaults)(?: \S+)?) from \S+$`)

// normal returns a line with one space between words and none around them.
func normal(line []byte) string {
	text := strings.Join(strings.Fields(string(line)), " ")
	return fromForm.ReplaceAllString(text, "$1")
}
