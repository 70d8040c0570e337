package difference

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// decidingLine returns the verdict on sides whose files differ, and its line: a reload for the first
// line by which their shapes differ, otherwise a change at run time for the first line that differs.
func (c *comparison) decidingLine() (v Verdict, decides Line, why string, err error) {
	if decides, why, err = c.needsReload(); err != nil || why != "" || decides.File != "" {
		return Reload, decides, why, err
	}
	for _, path := range c.paths() {
		if at, differ := first(c.old[path], c.new[path]); differ {
			return Runtime, c.lineAt(path, at), "", nil
		}
	}
	return Runtime, Line{}, "", nil
}

// needsReload returns the first line by which the shapes of the sides differ, and whether they differ.
func (c *comparison) needsReload() (decides Line, why string, err error) {
	before, err := shapeText(c.old[snapshots.ConfigFile])
	if err != nil {
		return Line{}, "", fmt.Errorf("%s: %w", c.a.Name, err)
	}
	after, err := shapeText(c.new[snapshots.ConfigFile])
	if err != nil {
		return Line{}, "", fmt.Errorf("%s: %w", c.b.Name, err)
	}
	if at, differ := first(before, after); differ {
		return c.lineAt(snapshots.ConfigFile, at), "", nil
	}
	for _, path := range c.paths() {
		_, before := c.old[path]
		_, after := c.new[path]
		if path == snapshots.ConfigFile || path == snapshots.EndpointsFile || c.changeable(path) {
			continue
		}
		if at, differ := first(c.old[path], c.new[path]); differ {
			return c.lineAt(path, at), "", nil
		}
		if before != after {
			return Line{}, whyFile, nil // without a line
		}
	}
	grown, err := c.grownAsCompared()
	if err != nil || grown.File != "" {
		return grown, whyGrow, err
	}
	return c.otherSlots()
}

// changeable reports whether a file is a map on both sides, and what differs of its entries can be changed at
// run time.
func (c *comparison) changeable(path string) bool {
	before, was := c.old[path]
	after, is := c.new[path]
	return was && is && bind.ChangeableMap(path,
		[2][]byte{[]byte(c.old[snapshots.ConfigFile]), []byte(before)},
		[2][]byte{[]byte(c.new[snapshots.ConfigFile]), []byte(after)})
}

// otherSlots returns the first line of recorded endpoints that differs, if the sides need different numbers of
// slots. It also returns it if only one side has recorded endpoints: then the number of slots is not known.
func (c *comparison) otherSlots() (Line, string, error) {
	at, differ := first(c.old[snapshots.EndpointsFile], c.new[snapshots.EndpointsFile])
	if !differ {
		return Line{}, "", nil
	}
	var groups [2]bind.Slots
	for i, side := range []map[string]string{c.old, c.new} {
		directives, err := bind.Directives([]byte(side[snapshots.ConfigFile]))
		if err != nil {
			return Line{}, "", err
		}
		endpoints := map[snapshots.ServicePort][]snapshots.Endpoint(nil)
		if text := side[snapshots.EndpointsFile]; text != "" {
			if endpoints, err = snapshots.ParseEndpoints([]byte(text)); err != nil {
				return Line{}, "", err
			}
		}
		groups[i], _ = bind.AssignSlots(nil, directives, endpoints, time.Time{}, 0)
	}
	one := c.old[snapshots.EndpointsFile] == "" || c.new[snapshots.EndpointsFile] == ""
	if one || !maps.EqualFunc(groups[0], groups[1], func(x, y []bind.Slot) bool { return len(x) == len(y) }) {
		return c.lineAt(snapshots.EndpointsFile, at), whySlots, nil
	}
	return Line{}, "", nil
}

// lineAt returns the line at which a file differs.
func (c *comparison) lineAt(path string, at change) Line {
	side := c.new
	if at.old {
		side = c.old
	}
	lines := strings.Split(side[path], "\n")
	out := Line{Old: at.old, File: path, Line: at.line}
	if at.line >= 1 && at.line <= len(lines) {
		out.Text = lines[at.line-1]
	}
	return out
}

// shapeText returns the parts of a haproxy.cfg that only a reload changes. Of a directive for servers that is
// everything except the weight, which [bind.Bind] keeps out of the shape unless it cannot be changed at run
// time. Bind also keeps the Service out, but only live endpoints tell whether another Service fits into the
// slots.
func shapeText(config string) (string, error) {
	directives, err := bind.Directives([]byte(config))
	if err != nil || len(directives) == 0 {
		return config, err
	}
	static := bind.StaticBackends([]byte(config), directives)
	lines := strings.Split(config, "\n")
	for _, d := range directives {
		lines[d.Line-1] = fmt.Sprintf("#hapsnap servers %s slots=%d %s", d.Service, d.Slots, d.Options)
		if static[d.Backend] {
			lines[d.Line-1] += fmt.Sprintf(" weight=%d", d.Weight)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// liveEndpoints compares the endpoints that both sides would be joined with, for the Services that both have.
// It returns nil if they are equal or not known.
func (c *comparison) liveEndpoints() (*File, error) {
	if c.a.Endpoints == nil || c.b.Endpoints == nil || c.old[snapshots.EndpointsFile] != "" || c.new[snapshots.EndpointsFile] != "" {
		return nil, nil
	}
	before, after := common(c.a.Endpoints, c.b.Endpoints), common(c.b.Endpoints, c.a.Endpoints)
	if maps.EqualFunc(before, after, slices.Equal) {
		return nil, nil // usually; the text of many endpoints takes longer than all the rest
	}
	x, err := endpointsText(before)
	if err != nil {
		return nil, err
	}
	y, err := endpointsText(after)
	if err != nil {
		return nil, err
	}
	c.old[snapshots.EndpointsFile], c.new[snapshots.EndpointsFile] = x, y
	f, differ := c.file(snapshots.EndpointsFile, c.old, c.new)
	if !differ {
		return nil, nil
	}
	f.Live = true
	return &f, nil
}

// common returns the endpoints of the Services that the other side has too.
func common(endpoints, others map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
	both := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for service, list := range endpoints {
		if _, ok := others[service]; ok {
			both[service] = list
		}
	}
	return both
}

// endpointsText returns endpoints as a snapshot would record them.
func endpointsText(endpoints map[snapshots.ServicePort][]snapshots.Endpoint) (string, error) {
	text, err := snapshots.MarshalEndpoints(endpoints)
	return string(text), err
}

// judgeEndpoints returns the verdict on sides that differ only in live endpoints, or not at all.
func (c *comparison) judgeEndpoints(live *File) (Verdict, Line, string, error) {
	if live == nil {
		return Nothing, Line{}, "", nil
	}
	grown, err := c.grown(c.a.Endpoints, c.b.Endpoints)
	if err != nil || grown.File != "" {
		return Reload, grown, whyGrow, err
	}
	at, _ := first(c.old[snapshots.EndpointsFile], c.new[snapshots.EndpointsFile])
	return Runtime, c.lineAt(snapshots.EndpointsFile, at), "", nil
}

// grownAsCompared is grown for the compared endpoints, if there are any.
func (c *comparison) grownAsCompared() (Line, error) {
	var endpoints [2]map[snapshots.ServicePort][]snapshots.Endpoint
	for i, text := range []string{c.old[snapshots.EndpointsFile], c.new[snapshots.EndpointsFile]} {
		if text == "" {
			return Line{}, nil
		}
		var err error
		if endpoints[i], err = snapshots.ParseEndpoints([]byte(text)); err != nil {
			return Line{}, err
		}
	}
	return c.grown(endpoints[0], endpoints[1])
}

// grown returns the directive of the first backend whose new endpoints do not fit into the slots of the
// old ones, among the backends that both sides have. It returns the zero Line if all fit.
func (c *comparison) grown(before, after map[snapshots.ServicePort][]snapshots.Endpoint) (Line, error) {
	directives, err := bind.Directives([]byte(c.new[snapshots.ConfigFile]))
	if err != nil {
		return Line{}, err
	}
	table, _ := bind.AssignSlots(nil, directives, before, time.Time{}, 0)
	_, keys := bind.AssignSlots(table, directives, after, time.Time{}, 0)
	i := slices.IndexFunc(directives, func(d bind.Directive) bool { return slices.Contains(keys, d.Key()) })
	if i < 0 {
		return Line{}, nil
	}
	return c.lineAt(snapshots.ConfigFile, change{line: directives[i].Line}), nil
}
