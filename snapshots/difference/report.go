package difference

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"
)

// Report is a difference in the form in which programs print it, also as JSON.
type Report struct {
	A       string       `json:"a"`
	B       string       `json:"b"`
	Verdict string       `json:"verdict"`
	Decides *DecidedLine `json:"decides,omitempty"`
	Why     string       `json:"why,omitempty"`
	Files   []FileReport `json:"files"`
}

// DecidedLine is the line that decides, with the objects that it came from, if they are known.
type DecidedLine struct {
	Side    string   `json:"side"` // a or b
	File    string   `json:"file"`
	Line    int      `json:"line"`
	Text    string   `json:"text"`
	Objects []string `json:"objects,omitempty"`
}

// FileReport is one file that differs.
type FileReport struct {
	Path    string `json:"path"`
	Live    bool   `json:"live,omitempty"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Diff    string `json:"diff"`
}

// Report returns the difference between the sides with these names.
func (d Difference) Report(a, b string) Report {
	r := Report{A: a, B: b, Verdict: string(d.Verdict), Why: d.Why, Files: []FileReport{}}
	for _, f := range d.Files {
		r.Files = append(r.Files, FileReport{Path: f.Path, Live: f.Live, Added: f.Added, Removed: f.Removed, Diff: f.Diff})
	}
	if d.Decides.File == "" {
		return r
	}
	side := "b"
	if d.Decides.Old {
		side = "a"
	}
	r.Decides = &DecidedLine{Side: side, File: d.Decides.File, Line: d.Decides.Line, Text: d.Decides.Text}
	return r
}

// maxObjects is how many objects are printed for a line that comes from many.
const maxObjects = 3

// Print prints the differences, then the verdict on a line of its own. Set coloured for terminals.
func (r Report) Print(w io.Writer, coloured bool) error {
	for _, f := range r.Files {
		text := f.Diff
		if coloured {
			text = colour(text)
		}
		fmt.Fprint(w, text)
	}
	if r.Decides == nil {
		_, err := fmt.Fprintln(w, r.Verdict)
		return err
	}
	sign := "+"
	if r.Decides.Side == "a" {
		sign = "-"
	}
	fmt.Fprintf(w, "%s: %s:%d: %s%s\n", r.Verdict, r.Decides.File, r.Decides.Line, sign, r.Decides.Text)
	for i, object := range r.Decides.Objects {
		if i == maxObjects {
			fmt.Fprintf(w, "\tand %d more objects\n", len(r.Decides.Objects)-i)
			break
		}
		fmt.Fprintf(w, "\t%s\n", object)
	}
	if r.Why != "" {
		fmt.Fprintf(w, "\t%s\n", r.Why)
	}
	return nil
}

// The colours of git, as sequences of ECMA-48.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	cyan  = "\x1b[36m"
	plain = "\x1b[m"
)

// colour colours the lines of a unified diff of one file. It resets the colour on each line, so that a pager
// may begin at any line.
func colour(diff string) string {
	var out strings.Builder
	headers := 2
	for line := range strings.Lines(diff) {
		text, end := strings.CutSuffix(line, "\n")
		paint := ""
		switch {
		case headers > 0:
			paint = bold
		case text != "":
			paint = map[byte]string{'@': cyan, '-': red, '+': green}[text[0]]
		}
		headers--
		if paint != "" {
			text = paint + text + plain
		}
		out.WriteString(text)
		if end {
			out.WriteString("\n")
		}
	}
	return out.String()
}

// Unified returns a unified diff with these headers, or "" for equal texts. For an empty file that is added or
// removed it returns only the headers.
func Unified(from, x, to, y string) string {
	text := string(diff.Diff(from, []byte(x), to, []byte(y)))
	if text == "" {
		return fmt.Sprintf("--- %s\n+++ %s\n", from, to)
	}
	_, text, _ = strings.Cut(text, "\n") // a header with the command diff
	return text
}

// change is a line that a diff removes or adds, with its number on that side.
type change struct {
	old  bool
	line int
	run  int // consecutive changes have the same run
	// blank is set for an empty line, which means nothing to a reader.
	blank bool
}

// changes reads a unified diff. Consecutive changes have the same run.
func changes(text string) []change {
	var out []change
	x, y, run := 0, 0, 0
	_, text, _ = strings.Cut(text, "\n")
	_, text, _ = strings.Cut(text, "\n")
	for line := range strings.Lines(text) {
		blank := strings.TrimSpace(line[1:]) == ""
		switch line[0] {
		case '@':
			x, y = hunkStart(line)
			run++
		case '-':
			out = append(out, change{old: true, line: x, run: run, blank: blank})
			x++
		case '+':
			out = append(out, change{line: y, run: run, blank: blank})
			y++
		case ' ':
			x, y, run = x+1, y+1, run+1
		}
	}
	return out
}

// hunkStart reads "@@ -x,n +y,n @@".
func hunkStart(line string) (x, y int) {
	var n, m int
	_, _ = fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@", &x, &n, &y, &m)
	return x, y
}

// first returns the first line by which two texts differ. If lines were replaced, that is the first of the new
// ones. It returns false if the texts are equal.
func first(x, y string) (change, bool) {
	if x == y {
		return change{}, false
	}
	all := changes(Unified("a", x, "b", y))
	if said := slices.DeleteFunc(slices.Clone(all), func(c change) bool { return c.blank }); len(said) > 0 {
		all = said
	}
	for _, c := range all {
		if !c.old && c.run == all[0].run {
			return c, true
		}
	}
	if len(all) == 0 {
		return change{line: 1}, true
	}
	return all[0], true
}

// Marker begins what [Report.Markdown] writes, so that a pipeline finds its own comment again.
const Marker = "<!-- hapsnap-diff -->"

// The most bytes of the differences, of the findings and of the verdict, and the longest row of backticks that
// is kept. GitHub accepts comments of 65,536 characters.
const (
	mostOfDiff     = 50_000
	mostOfFindings = 8_000
	mostOfVerdict  = 4_000
	mostTicks      = 200
)

// Markdown writes the report for a pull request: the verdict, findings on the second side, and the differences.
// Text from objects stands in blocks of code that it cannot end, so that it is shown literally: it cannot
// become a link, a picture or a mention. The report is no longer than a comment may be.
func (r Report) Markdown(w io.Writer, findings []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n### hapsnap: %s\n\n", Marker, r.headline())
	if r.Decides != nil {
		var said strings.Builder
		verdict := r
		verdict.Files = nil
		if err := verdict.Print(&said, false); err != nil {
			return err
		}
		b.WriteString(fenced("text", said.String(), mostOfVerdict))
	}
	if len(findings) > 0 {
		fmt.Fprintf(&b, "\n**Findings: %d**\n\n", len(findings))
		b.WriteString(fenced("text", strings.Join(findings, "\n")+"\n", mostOfFindings))
	}
	if len(r.Files) > 0 {
		added, removed, text := 0, 0, ""
		for _, f := range r.Files {
			added, removed, text = added+f.Added, removed+f.Removed, text+f.Diff
		}
		fmt.Fprintf(&b, "\n<details><summary>%d files differ, +%d -%d lines</summary>\n\n%s\n</details>\n", len(r.Files), added, removed, fenced("diff", text, mostOfDiff))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) headline() string {
	switch Verdict(r.Verdict) {
	case Nothing:
		return "nothing changes"
	case Runtime:
		return "a change at run time, without a reload"
	}
	return "this needs a reload"
}

// fenced returns a text as a block of code, whose fence is longer than any fence in the text. It cuts a text
// that is too long after a line, and says so.
func fenced(language, text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
	rest := ""
	if len(text) > most {
		end := strings.LastIndexByte(text[:most], '\n') + 1
		if end == 0 { // a single line
			end = len(strings.ToValidUTF8(text[:most], ""))
		}
		text, rest = text[:end], text[end:]
	}
	longest, run := 0, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if longest > mostTicks { // a fence of that length would be too long itself
		text, longest = strings.ReplaceAll(text, "`", "'"), 0
	}
	fence := strings.Repeat("`", max(3, longest+1))
	out := fence + language + "\n" + text + fence + "\n"
	if rest != "" {
		out += fmt.Sprintf("\n%d more lines are not shown.\n", strings.Count(rest, "\n")+1)
	}
	return out
}
