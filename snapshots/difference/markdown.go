package difference

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

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
