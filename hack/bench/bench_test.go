package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "make docs/performance.md and its chart again, from the figures")

const docs = "../../docs"

func stored(t *testing.T) Figures {
	t.Helper()
	f, err := readFigures(docs)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The page and the chart are generated from the figures of a run.
func TestPage(t *testing.T) {
	f := stored(t)
	if *update {
		if err := f.write(docs); err != nil {
			t.Fatal(err)
		}
	}
	page, err := f.page()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{pageFile: page, chartFile: f.chart()} {
		if got, err := os.ReadFile(filepath.Join(docs, name)); err != nil || string(got) != want {
			t.Errorf("docs/%s is not what docs/%s gives; run go test ./hack/bench -update (%v)", name, figuresFile, err)
		}
	}
}

func TestTable(t *testing.T) {
	f := Figures{Sizes: []int{100, 100_000}, Cells: map[string]map[int]Cell{
		"compile":   {100: {Limit: 0.05, Work: 0.08}, 100_000: {Limit: 2, Work: 5}},
		"git-bytes": {100_000: {Limit: 90_000, Work: 3_000_000}},
	}}
	got := f.table()
	for _, want := range []string{"| 100 | 100,000 |\n", "| 1.8 | **1.60** (80 ms) | 2.50 (5.0 s) |\n", "| 2 |  | 33 (3 MB) |\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for decoder := xml.NewDecoder(strings.NewReader(f.chart())); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Every kind of row can be measured, with few Ingresses.
func TestMeasure(t *testing.T) {
	b, err := newBench(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	f := Figures{Sizes: []int{20}, Cells: map[string]map[int]Cell{}}
	if _, err := chosen("compile,hosts"); err == nil || !strings.Contains(err.Error(), `"hosts"`) {
		t.Errorf("a row that is not there: %v", err)
	}
	measured, err := chosen("compile,host,webhook,git-bytes")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.measure(t.Context(), &f, measured); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"compile", "host", "webhook", "git-bytes"} {
		if c := f.Cells[name][20]; c.Limit <= 0 || c.Work <= 0 || c.Turns < 1 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// A new measurement replaces the former figures of its row, and the rest stays.
func TestFiguresOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	old := Figures{Sizes: []int{100, 1000}, Cells: map[string]map[int]Cell{"compile": {100: {Limit: 1, Work: 1}, 1000: {Limit: 2, Work: 2}}}}
	if err := old.write(dir); err != nil {
		t.Fatal(err)
	}
	before, err := readFigures(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := Figures{Sizes: []int{100, 50_000}, Cells: map[string]map[int]Cell{"compile": {100: {Limit: 1, Work: 3}}, "host": {50_000: {Limit: 1, Work: 4}}}}.over(before)
	got.Machine.Commit = "c3"
	got.Cells["compile"][100] = Cell{Date: "2026-11-28", Commit: "c3"}
	got.Cells["compile"][50_000] = Cell{Date: "2026-11-27", Commit: "c2"}
	got.Cells["host"][50_000] = Cell{Limit: 1, Work: 4, Date: "2026-11-27", Commit: "c2"}
	if earlier, want := got.Earlier(), "- 2026-11-27 c2: `compile` (50,000), `host` (50,000)\n- at earlier commits: `compile` (1,000)\n"; earlier != want {
		t.Errorf("Earlier is\n%swant\n%s", earlier, want)
	}
	got.Cells["compile"][100] = Cell{Limit: 1, Work: 3}
	if len(got.Sizes) != 3 || got.Cells["compile"][100].Work != 3 || got.Cells["compile"][1000].Work != 2 || got.Cells["host"][50_000].Work != 4 {
		t.Errorf("got %+v", got)
	}
}
