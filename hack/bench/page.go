package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/hapsnap/hapsnap/compiler/validate"
)

// Figures are what one run measured. They are kept beside the page that is made of them.
type Figures struct {
	Machine Machine                 `json:"machine"`
	Load    string                  `json:"load,omitempty"` // what else the machine did
	Sizes   []int                   `json:"sizes"`
	Cells   map[string]map[int]Cell `json:"cells"` // by name of the row, and size
}

// Machine is what was measured on, and with what.
type Machine struct {
	Date    string `json:"date"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	Memory  int    `json:"memoryGiB"`
	Kernel  string `json:"kernel"`
	HAProxy string `json:"haproxy"`
	Go      string `json:"go"`
	Commit  string `json:"commit"`
}

// Cell is a row at a size: the medians of both sides, in seconds or bytes.
type Cell struct {
	Limit float64 `json:"limit"`
	Work  float64 `json:"work"`
	Turns int     `json:"turns"`
	// When it was measured, and at which commit; empty if that was not kept.
	Date   string `json:"date,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// Ratio is how many times the limit it takes.
func (c Cell) Ratio() float64 { return c.Work / c.Limit }

// text is a cell as it stands in the table, in bold if it reaches the goal.
func (c Cell) text(r row) string {
	if r.unit == requests {
		text := fmt.Sprintf("%.0f of %s", c.Work, digits(int(c.Limit)))
		if c.Work == 0 {
			text = "**" + text + "**"
		}
		return text
	}
	ratio := fmt.Sprintf("%.2f", c.Ratio())
	if c.Ratio() >= 10 {
		ratio = fmt.Sprintf("%.0f", c.Ratio())
	}
	if r.goal > 0 && c.Ratio() <= r.goal {
		ratio = "**" + ratio + "**"
	}
	return ratio + " (" + amount(c.Work, r.unit) + ")"
}

func amount(x float64, u unit) string {
	switch {
	case u == bytes && x >= 1e6:
		return fmt.Sprintf("%.0f MB", x/1e6)
	case u == bytes:
		return fmt.Sprintf("%.1f kB", x/1e3)
	case x >= 1:
		return fmt.Sprintf("%.1f s", x)
	}
	if x < 1e-3 {
		return fmt.Sprintf("%.1f µs", x*1e6)
	}
	return fmt.Sprintf("%.0f ms", x*1e3)
}

// digits writes a number with a comma between thousands.
func digits(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Earlier lists the cells that were not measured at the commit of the page, as a list in Markdown: one line for each commit, the
// newest first.
func (f Figures) Earlier() string {
	at := map[string][]string{}
	for _, r := range rows {
		sizes := map[string][]string{}
		for _, size := range slices.Sorted(maps.Keys(f.Cells[r.name])) {
			c := f.Cells[r.name][size]
			if when := strings.TrimSpace(c.Date + " " + c.Commit); c.Commit != f.Machine.Commit {
				sizes[when] = append(sizes[when], digits(size))
			}
		}
		for when, list := range sizes {
			at[when] = append(at[when], "`"+r.name+"` ("+strings.Join(list, "; ")+")")
		}
	}
	var b strings.Builder
	for _, when := range slices.Backward(slices.Sorted(maps.Keys(at))) {
		fmt.Fprintf(&b, "- %s: %s\n", cmp.Or(when, "at earlier commits"), strings.Join(at[when], ", "))
	}
	return b.String()
}

// table is the table in Markdown.
func (f Figures) table() string {
	var b strings.Builder
	b.WriteString("| what | its limit | goal |")
	for _, size := range f.Sizes {
		b.WriteString(" " + digits(size) + " |")
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(f.Sizes)) + "\n")
	for _, r := range rows {
		cells := f.Cells[r.name]
		if cells == nil {
			continue
		}
		goal := ""
		if r.goal > 0 {
			goal = fmt.Sprint(r.goal)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", r.what, r.limit, goal)
		for _, size := range f.Sizes {
			text := ""
			if c, ok := cells[size]; ok {
				text = c.text(r)
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

//go:embed page.md.tmpl
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"digits": digits}).Parse(pageText))

// Table is the table for the page.
func (f Figures) Table() string { return strings.TrimSpace(f.table()) }

// readFigures reads those that a folder has, if it has any.
func readFigures(dir string) (Figures, error) {
	var f Figures
	data, err := os.ReadFile(filepath.Join(dir, figuresFile)) //nolint:gosec // the caller names the folder
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	return f, err
}

// over returns the figures with those of an earlier run, as far as they were not measured again.
func (f Figures) over(before Figures) Figures {
	for name, cells := range before.Cells {
		for size, c := range cells {
			if f.Cells[name] == nil {
				f.Cells[name] = map[int]Cell{}
			}
			if _, again := f.Cells[name][size]; !again {
				f.Cells[name][size] = c
			}
		}
	}
	f.Sizes = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(f.Sizes), before.Sizes...))))
	return f
}

// The files that a run writes.
const (
	figuresFile = "performance.json"
	pageFile    = "performance.md"
	chartFile   = "performance.svg"
)

// write writes the figures into a folder, with the page and the chart that are made of them.
func (f Figures) write(dir string) error {
	data, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	text, err := f.page()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, figuresFile), append(data, '\n'), 0o644), //nolint:gosec // a page for everybody
		os.WriteFile(filepath.Join(dir, pageFile), []byte(text), 0o644),          //nolint:gosec // likewise
		os.WriteFile(filepath.Join(dir, chartFile), []byte(f.chart()), 0o644),    //nolint:gosec // likewise
	)
}

func (f Figures) page() (string, error) {
	var b strings.Builder
	err := page.Execute(&b, f)
	return b.String(), err
}

// machine describes the machine.
func machine(ctx context.Context, check *validate.Checker) Machine {
	m := Machine{Date: time.Now().UTC().Format(time.DateOnly), CPUs: runtime.NumCPU(), HAProxy: check.Version, Go: runtime.Version()}
	field := func(path, name string) string {
		text, _ := os.ReadFile(path) //nolint:gosec // two files of the kernel
		_, after, _ := strings.Cut(string(text), name)
		line, _, _ := strings.Cut(after, "\n")
		return strings.Trim(line, "\t :")
	}
	m.CPU = field("/proc/cpuinfo", "model name")
	var kB int
	_, _ = fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kB)
	m.Memory = (kB + 1<<19) >> 20
	if out, err := exec.CommandContext(ctx, "uname", "-sr").Output(); err == nil {
		m.Kernel = strings.TrimSpace(string(out))
	}
	if out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	return m
}

// curve is a line of the chart.
type curve struct {
	row   string
	label string
	limit bool // it is the limit of the row
}

// curves are the lines of the chart, each with a colour of its own.
var curves = []curve{
	{"compile", "full compile", false}, {"host", "a host more, published", false}, {"change", "one change, published", false}, {"compile", "haproxy -c", true},
}

// The chart: its size, and the place of the axes in it.
const (
	width, height             = 760, 420
	left, right, top, bottom  = 70, 560, 30, 370
	leastSeconds, mostSeconds = 0.01, 100.0
)

const chartHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text { font: 13px sans-serif; fill: #333 }
.grid { stroke: #ddd } .line { fill: none; stroke-width: 2.5 }
.c0 { stroke: #b3402a } .c1 { stroke: #b8860b } .c2 { stroke: #2a6db3 } .c3 { stroke: #777; stroke-dasharray: 6 4 }
@media (prefers-color-scheme: dark) {
text { fill: #ddd } .grid { stroke: #444 }
.c0 { stroke: #ff8a70 } .c1 { stroke: #f0c040 } .c2 { stroke: #7ab8ff } .c3 { stroke: #aaa }
}
</style>
`

// chart draws how the times grow with the number of Ingresses, both on logarithmic scales: what grows as
// its input does has the slope of the grid's diagonal.
func (f Figures) chart() string {
	var b strings.Builder
	fmt.Fprintf(&b, chartHead, width, height, "Seconds by number of Ingresses")
	first, last := float64(f.Sizes[0]), float64(f.Sizes[len(f.Sizes)-1])
	x := func(n float64) float64 {
		if first == last {
			return left
		}
		return left + (right-left)*math.Log(n/first)/math.Log(last/first)
	}
	y := func(s float64) float64 {
		return bottom - (bottom-top)*math.Log(s/leastSeconds)/math.Log(mostSeconds/leastSeconds)
	}
	for s := leastSeconds; s <= mostSeconds*1.01; s *= 10 {
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g s</text>\n", left, y(s), right, left-8, y(s)+4, math.Round(s*100)/100)
	}
	for _, n := range f.Sizes {
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x(float64(n)), top, bottom, x(float64(n)), bottom+20, digits(n))
	}
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">Ingresses</text>\n", (left+right)/2, height-8)
	var labels []float64 // where there is one already
	for i, c := range curves {
		var path strings.Builder
		end := 0.0
		for _, n := range f.Sizes {
			cell, ok := f.Cells[c.row][n]
			if !ok {
				continue
			}
			s := cell.Work
			if c.limit {
				s = cell.Limit
			}
			end = y(min(max(s, leastSeconds), mostSeconds))
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[path.Len() == 0], x(float64(n)), end)
		}
		if path.Len() == 0 {
			continue
		}
		for _, taken := range labels {
			if math.Abs(taken-end) < 18 {
				end = taken + 18
			}
		}
		labels = append(labels, end)
		fmt.Fprintf(&b, "<path class=\"line c%d\" d=\"%s\"/><path class=\"line c%d\" d=\"M%d %.1fh18\"/><text x=\"%d\" y=\"%.1f\">%s</text>\n", i, path.String(), i, right+8, end, right+32, end+4, c.label)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// row is a row of the table: something that takes time, bytes or memory, and what it is compared with.
type row struct {
	name, what, limit string
	goal              float64 // the ratio to reach; 0: there is none
	unit              unit
	long              bool // it takes many minutes, whatever the size, and is measured once, if it is asked for
	once              bool // it does not depend on the size, and is measured once
	cluster           bool // it takes an API server
	most              int  // the largest size at which it is measured; 0: all
	measure           func(context.Context, *world) (Cell, error)
}

// unit is what the two sides of a row are measured in.
type unit string

const (
	seconds unit = "s"
	bytes   unit = "bytes"
	// requests are a count of those that failed, and of all.
	requests unit = "requests"
)

const (
	haproxyCheck = "`haproxy -c` on the same bound configuration"
	wholeCheck   = "one full check: bind, our own checks and `haproxy -c`"
	oneSecond    = "one second"
	readingYAML  = "a process that reads the same YAML into a tree of nodes"
)

// rows are all of them, in the order of the table.
var rows = slices.Concat(compileRows, storeRows, programRows, endpointRows, pushRows, fleetRows, requestRows, clusterRows, routeRows, historyRows, manyRows)

// showing are cells that were measured together, by the names of their rows.
type showing map[string]Cell

// shown measures a row together with others, unless that was done for another of them.
func shown(name string, measure func(context.Context, *world) (showing, error)) func(context.Context, *world) (Cell, error) {
	return func(ctx context.Context, w *world) (Cell, error) {
		if c, ok := w.showing[name]; ok {
			return c, nil
		}
		cells, err := measure(ctx, w)
		if w.showing == nil {
			w.showing = showing{}
		}
		maps.Copy(w.showing, cells)
		return w.showing[name], err
	}
}

func inDirectory(w *world) string { return "dir:" + filepath.Join(w.dir, fmt.Sprint("hosts-", w.n)) }

func inConfigMaps(*world) string { return "configmap:default/edge" }
