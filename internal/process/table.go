package process

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// Style says how text is shown to people. The zero style is that of a pipe or a file: any width, and no
// colours.
type Style struct {
	Width  int  // in columns, 0 for any
	Colour bool // and symbols
	Wide   bool // everything is shown, however long it is
}

// screen is a writer that knows how its text is shown.
type screen struct {
	io.Writer
	style Style
}

// On returns a writer into w for text that is finally shown on another writer, such as a terminal.
func On(w, shown io.Writer, wide bool) io.Writer {
	return &screen{w, Style{Width: width(shown), Colour: Coloured(shown), Wide: wide}}
}

// StyleOf returns how text that is written to w is shown.
func StyleOf(w io.Writer) Style {
	if s, ok := w.(*screen); ok {
		return s.style
	}
	return Style{}
}

// width returns the number of columns: the one in COLUMNS, else that of the terminal, else 0.
func width(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f := fileOf(w); f != nil && Terminal(w) {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// Mood is the meaning of a cell of a table, which its colour repeats.
type Mood int

// The moods.
const (
	Plain Mood = iota
	Good
	Waiting
	Bad
)

// moods are the colours and symbols of the moods.
var moods = map[Mood]struct{ colour, symbol string }{
	Good: {"\x1b[32m", "✔ "}, Waiting: {"\x1b[33m", "◎ "}, Bad: {"\x1b[31m", "✗ "},
}

// Paint returns a text in the colour of a mood, if there are colours.
func (s Style) Paint(text string, m Mood) string {
	if !s.Colour || m == Plain {
		return text
	}
	return moods[m].colour + text + "\x1b[0m"
}

// Column is a column of a table.
type Column struct {
	Title string
	// Cut columns are shortened if the table is wider than the terminal.
	Cut bool
	// Wide columns are shown only with -o wide, and Spare ones only if everything fits the terminal.
	Wide, Spare bool
	// Mood returns the mood of a cell; nil: none.
	Mood func(cell string) Mood
}

// leastCut is the least width of a column that is cut.
const leastCut = 10

// Table has rows for people.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write writes the table in the width of the terminal. It cuts columns that may be cut, the widest first.
func (t *Table) Write(w io.Writer) error {
	style := StyleOf(w)
	shown := t.shown(style)
	widths := t.widths(shown, style)
	var b strings.Builder
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i] = c.Title
	}
	for n, row := range append([][]string{header}, t.Rows...) {
		for at, i := range shown {
			cell, mood := t.cell(row, i, style), Plain
			if t.Columns[i].Mood != nil && n > 0 {
				mood = t.Columns[i].Mood(row[i])
				if style.Colour && mood != Plain {
					cell = moods[mood].symbol + cell
				}
			}
			cell = Shorten(cell, widths[i])
			pad := ""
			if at < len(shown)-1 {
				pad = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			}
			b.WriteString(style.Paint(cell, mood) + pad)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shown returns the numbers of the columns that are shown.
func (t *Table) shown(style Style) []int {
	var all, most []int
	for i, c := range t.Columns {
		if c.Wide && !style.Wide {
			continue
		}
		all = append(all, i)
		if !c.Spare {
			most = append(most, i)
		}
	}
	total := -2
	for _, w := range t.widths(all, Style{Colour: style.Colour, Wide: style.Wide}) {
		total += w + 2
	}
	if style.Width > 0 && !style.Wide && total > style.Width {
		return most
	}
	return all
}

// cell returns the text of a cell, on one line, and without characters that command a terminal.
func (t *Table) cell(row []string, i int, style Style) string {
	line, rest, _ := strings.Cut(row[i], "\n")
	switch {
	case rest != "" && style.Wide:
		line = strings.ReplaceAll(row[i], "\n", "; ")
	case rest != "":
		line += " …"
	}
	return printable.Text(line)
}

func (t *Table) widths(shown []int, style Style) map[int]int {
	widths, total := map[int]int{}, -2
	for _, i := range shown {
		widths[i] = utf8.RuneCountInString(t.Columns[i].Title)
		for _, row := range t.Rows {
			n := utf8.RuneCountInString(t.cell(row, i, style))
			if t.Columns[i].Mood != nil && style.Colour {
				n += 2 // of a symbol
			}
			widths[i] = max(widths[i], n)
		}
		total += widths[i] + 2
	}
	if style.Width == 0 || style.Wide {
		return widths
	}
	for ; total > style.Width; total-- {
		widest := -1
		for _, i := range shown {
			if t.Columns[i].Cut && widths[i] > leastCut && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// Shorten returns a text of at most the given number of characters. If it cut something, the last one is "…".
func Shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// labelled is the width of the names of labelled lines.
const labelled = 10

// Label writes a line with a name. Further lines of the text, and what does not fit the terminal, start below
// its beginning.
func Label(w io.Writer, name, format string, args ...any) {
	Hang(w, fmt.Sprintf("%-*s ", labelled-1, name), strings.Repeat(" ", labelled), strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Hang writes a text after a beginning. Another beginning is for further lines of the text, and for what does
// not fit the terminal.
func Hang(w io.Writer, first, others, text string) {
	most := cmp.Or(StyleOf(w).Width, math.MaxInt)
	if most <= 2*len(others) {
		most = math.MaxInt // whatever the code does to lines, nobody can read them there
	}
	for line := range strings.SplitSeq(text, "\n") {
		_, _ = io.WriteString(w, hanging(first, others, line, most)) // the caller notices at the end
		first = others
	}
}

// LabelCut is Label for one word that nobody copies, such as a digest: it shortens the word if it does not fit.
func LabelCut(w io.Writer, name, word string) {
	if style := StyleOf(w); style.Width > 2*labelled && !style.Wide {
		word = Shorten(word, style.Width-labelled)
	}
	Label(w, name, "%s", word)
}
