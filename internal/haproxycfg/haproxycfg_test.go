package haproxycfg_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

func TestWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 65_535)
	for line, want := range map[string][]string{
		"":                                   nil,
		" \t ":                               nil,
		"# all of it":                        nil,
		"server a 10.0.0.1:80":               {"server", "a", "10.0.0.1:80"},
		"\t server\ta # b":                   {"server", "a"},
		"a#b c":                              {"a"},
		`a\#b c`:                             {"a#b", "c"},
		`acl x path "a b" 'c "d'`:            {"acl", "x", "path", "a b", `c "d`},
		`a\ b`:                               {"a b"},
		`"" ''`:                              {"", ""},
		`a""b`:                               {"ab"},
		`"a"\ "b"`:                           {"a b"},
		`'a\x41' \x41`:                       {`a\x41`, "A"},
		`"$A" ${B} "${C-d e}"`:               {"$A", "${B}", "${C-d e}"},
		"bind :80\r":                         {"bind", ":80"},
		"bind :80\r\n":                       {"bind", ":80"},
		"bind\rbehind":                       {"bind"},
		"bind \rbehind":                      {"bind", "behind"},
		"[scope]":                            nil,
		`\back`:                              {`\back`},
		long + " " + long + "\n and no more": {long, long},
	} {
		words, err := haproxycfg.Words([]byte(line))
		var got []string
		for _, w := range words {
			got = append(got, w.Text)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%.40q: %.80q, %v; want %.80q", line, got, err, want)
		}
	}
}

func TestWordsRefused(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`a "b`:          "byte 3: unmatched quote",
		"a \"b\r\"":     "byte 3: unmatched quote",
		`a \x4`:         "byte 3: truncated or invalid hexadecimal sequence",
		`a "$1"`:        "byte 4: forbidden first character in the name of an environment variable",
		`a "${B"`:       "byte 4: unmatched brace in the name of an environment variable",
		`a "${B[1]}" c`: "byte 4: truncated or invalid word expansion",
	} {
		words, err := haproxycfg.Words([]byte(line))
		if err == nil || err.Error() != want || len(words) != 1 || words[0].Text != "a" {
			t.Errorf("%q: %v, %v; want a, and %s", line, words, err, want)
		}
	}
}

func TestComment(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"# a": "# a", "a # b": "# b", "a#b": "#b", `a "#" # c`: "# c", `a \# b`: "", "a": "", `"#"`: "", `"# open`: "",
	} {
		got, there := haproxycfg.Comment([]byte(line))
		if string(got) != want || there != (want != "") {
			t.Errorf("%q: %q, %v; want %q", line, got, there, want)
		}
	}
}

func TestSections(t *testing.T) {
	t.Parallel()
	text := []byte("# head\nglobal\nmaxconn 10\n\nbackend \"b 1\" from d # x\nserver s 10.0.0.1:80\n'backend' b2\r\n\"un\ndefaults from d\n#hapsnap x\nlisten")
	type section struct {
		keyword, name, from string
		line, lines         int
	}
	want := []section{{"", "", "", 0, 1}, {"global", "", "", 2, 2}, {"backend", "b 1", "d", 5, 1}, {"backend", "b2", "", 7, 1}, {"defaults", "", "d", 9, 1}, {"listen", "", "", 11, 0}}
	var got []section
	for s := range haproxycfg.Sections(text) {
		got = append(got, section{s.Keyword, s.Name, s.From, s.Head.Number, len(s.Lines)})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for first := range haproxycfg.Sections(text) { // one may stop
		if first.Keyword != "" {
			t.Error("the first section has a keyword")
		}
		break
	}
}

func FuzzWords(f *testing.F) {
	for _, line := range []string{"server a b", `a "b c" 'd' \x41 # e`, "[x", "\"${A-b}\"", "a\rb", `"`, "\x00"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		words, err := haproxycfg.Words(line)
		first, end := "", 0
		if len(words) > 0 {
			first = words[0].Text
		}
		if got := haproxycfg.FirstWord(line); got != first {
			t.Errorf("%q: first word %q, want %q", line, got, first)
		}
		if got := haproxycfg.CountWords(line); got != len(words) {
			t.Errorf("%q: %d words, want %d", line, got, len(words))
		}
		for _, w := range words {
			if w.Start < end || w.End <= w.Start || w.End > len(line) {
				t.Errorf("%q: a word at %d to %d", line, w.Start, w.End)
			}
			if !w.Quoted && w.Text != string(line[w.Start:w.End]) {
				t.Errorf("%q: %q is not what is written", line, w.Text)
			}
			end = w.End
		}
		if comment, there := haproxycfg.Comment(line); there && (err != nil || !bytes.HasPrefix(comment, []byte("#"))) {
			t.Errorf("%q: comment %q, %v", line, comment, err)
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("global\n x\n\nbackend b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var lines, inSections [][]byte
		for line := range haproxycfg.Lines(text) {
			lines = append(lines, line.Text)
		}
		for s := range haproxycfg.Sections(text) {
			if s.Keyword != "" {
				inSections = append(inSections, s.Head.Text)
			}
			for _, line := range s.Lines {
				inSections = append(inSections, line.Text)
			}
		}
		if got := bytes.Join(lines, []byte("\n")); !bytes.Equal(got, bytes.TrimSuffix(text, []byte("\n"))) {
			t.Errorf("%q became %q", text, got)
		}
		if !slices.EqualFunc(lines, inSections, bytes.Equal) {
			t.Errorf("the sections of %q have other lines", text)
		}
	})
}

// A line that begins a section is read by its words, however it is written.
func TestBeginSectionReadsWords(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	named := 0
	for range 20_000 {
		text := []byte(randomLine(random)[:random.IntN(2)] + "backend" + randomLine(random) + "\n")
		switch random.IntN(3) {
		case 0:
			text = []byte("backend " + pieces[random.IntN(len(pieces))] + " from" + pieces[random.IntN(len(pieces))] + "d" + pieces[random.IntN(len(pieces))])
		case 1:
			text = []byte("defaults " + pieces[random.IntN(4)] + " " + []string{"", "from", "from a"}[random.IntN(3)])
		}
		words, _ := haproxycfg.Words(text)
		got, begins := haproxycfg.BeginSection(haproxycfg.Line{Number: 1, Text: text})
		if want := len(words) > 0 && slices.Contains(haproxycfg.SectionKeywords, words[0].Text); begins != want {
			t.Fatalf("%q begins a section: %t, want %t", text, begins, want)
		}
		if !begins {
			continue
		}
		want := haproxycfg.Section{Keyword: words[0].Text}
		if len(words) > 1 {
			want.Name = words[1].Text
			named++
		}
		for i, w := range words[1:] {
			if w.Text == "from" && i+2 < len(words) {
				want.From = words[i+2].Text
				if i == 0 && want.Keyword == "defaults" {
					want.Name = ""
				}
				break
			}
		}
		if got.Keyword != want.Keyword || got.Name != want.Name || got.From != want.From {
			t.Fatalf("%q is %s %q from %q, want %s %q from %q", text, got.Keyword, got.Name, got.From, want.Keyword, want.Name, want.From)
		}
	}
	if named < 1000 {
		t.Errorf("only %d have a name", named)
	}
}
