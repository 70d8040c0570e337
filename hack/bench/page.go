package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
