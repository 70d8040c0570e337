package expression

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// pieces are the parts of random expressions.
var pieces = []string{
	"a", "b", "/", ".", "[^/]", "[ab]", "[^a]", `\d`, `\w`, `\.`, "ab", "/b/", "$", "^", `\b`, "|", "(", ")", "(?:", "*", "+", "?",
	"{2}", "{0,3}", "{1,}", "*?", "(.*)", "[^/]+", "(/|$)", "(a|b/)", "(?:[^/]+/)*",
}

// accepted returns random valid expressions. The same seed gives the same ones.
func accepted(n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	var out []string
	for len(out) < n {
		text := []string{"", "^/"}[r.IntN(2)]
		for range 1 + r.IntN(9) {
			text += pieces[r.IntN(len(pieces))]
		}
		if _, err := Parse(text); err == nil {
			out = append(out, text)
		}
	}
	return out
}

// A backtracking matcher, like PCRE, takes about as many steps as computed, whatever the text. It finds the
// same as Go.
func TestStepsAreBounded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 2))
	most := 0.0
	for _, text := range append(accepted(300, 3), "^/(.*)/b(/.*)?$", "^/(?:[a-z]+/)*x$", "^/([^/]+)/([^/]+)/(.*)$", "/x(/|$)(.*)") {
		e, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		tree, _, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			path := worst(r)
			m := matcher{text: path}
			found := m.search(tree, isAnchored(tree))
			if m.steps > 5*e.Steps+100 {
				t.Errorf("%q takes %d steps on %.60q, %d were computed", text, m.steps, path, e.Steps)
				break
			}
			if want := regexp.MustCompile(text).MatchString(path); found != want {
				t.Errorf("%q on %.60q: found is %v, want %v", text, path, found, want)
				break
			}
			most = max(most, float64(m.steps)/float64(e.Steps+1))
		}
	}
	t.Logf("at the most %.2f times what was computed", most)
}

// worst returns a text of up to 8 KiB with a repeated part.
func worst(r *rand.Rand) string {
	unit := ""
	for range 1 + r.IntN(4) {
		unit += []string{"a", "b", "/", "ab", ".", "1"}[r.IntN(6)]
	}
	text := "/" + strings.Repeat(unit, longest/len(unit)+1)
	return text[:longest-1] + []string{"", "a", "x", "/"}[r.IntN(4)]
}

// matcher is a backtracking matcher that counts its steps.
type matcher struct {
	text  string
	steps int
}

// tooMany is where the matcher gives up.
const tooMany = 20 * maxSteps

func (m *matcher) search(n node, anchored bool) bool {
	for at := 0; at <= len(m.text) && m.steps < tooMany; at++ {
		if m.match(n, at, func(int) bool { return true }) {
			return true
		}
		if anchored {
			break
		}
	}
	return false
}

func (m *matcher) match(n node, at int, then func(int) bool) bool {
	if m.steps++; m.steps > tooMany {
		return false
	}
	switch n.kind {
	case character:
		return at < len(m.text) && n.set[m.text[at]] && then(at+1)
	case sequence:
		return m.all(n.parts, at, then)
	case choice:
		for _, part := range n.parts {
			if m.match(part, at, then) {
				return true
			}
		}
		return false
	case repeat:
		return m.times(n, n.least, n.most, at, then)
	case begin:
		return at == 0 && then(at)
	case end:
		return at == len(m.text) && then(at)
	default:
		before, after := at > 0 && isWord(m.text[at-1]), at < len(m.text) && isWord(m.text[at])
		return (before != after) != n.not && then(at)
	}
}

func (m *matcher) all(list []node, at int, then func(int) bool) bool {
	if len(list) == 0 {
		return then(at)
	}
	return m.match(list[0], at, func(at int) bool { return m.all(list[1:], at, then) })
}

func (m *matcher) times(n node, least, most, at int, then func(int) bool) bool {
	more := func() bool {
		return most != 0 && m.match(n.parts[0], at, func(next int) bool { return m.times(n, max(0, least-1), most-1, next, then) })
	}
	switch {
	case least > 0:
		return more()
	case n.lazy:
		return then(at) || more()
	}
	return more() || then(at)
}
