package main

import (
	"fmt"
	"math"
	"strings"
)

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
