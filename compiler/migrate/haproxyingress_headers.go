package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// ingressEdits translates edits of headers, which are done in the order set, add, remove. An
// alias counts where the first name is not there.
func ingressEdits(to, set, alias, add, remove string) Rule {
	from := slices.DeleteFunc([]string{set, alias, add, remove}, func(name string) bool { return name == "" })
	return Rule{From: from, To: []string{to}, convert: func(c *call) {
		replace := set
		if alias != "" && c.value(set) == "" {
			replace = alias
		}
		var lines []string
		for _, edit := range [][2]string{{replace, "set"}, {add, "add"}} {
			more, err := c.headerLines(edit[0], edit[1])
			if err != nil {
				c.keepAll(edit[0]+" "+err.Error(), "values are sent as they are written; see "+ours+to)
				return
			}
			lines = append(lines, more...)
		}
		for name := range strings.SplitSeq(c.value(remove), ",") {
			if name = strings.TrimSpace(name); name != "" {
				lines = append(lines, "remove "+name)
			}
		}
		c.setLines(to, lines)
	}}
}

// headerLines reads lines of a name and a value, with a colon, spaces or both in between.
func (c *call) headerLines(from, verb string) ([]string, error) {
	var out []string
	for line := range strings.Lines(c.value(from)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		i := strings.IndexAny(line, ": \t")
		if i < 1 {
			return nil, fmt.Errorf("has the line %q without a value", line)
		}
		value := strings.ReplaceAll(strings.TrimLeft(line[i:], ": \t"), "%[namespace]", c.object.namespace)
		if strings.Contains(value, "%") && strings.Contains(strings.ReplaceAll(value, "%%", ""), "%") {
			return nil, fmt.Errorf("holds a sample of HAProxy, %q", value)
		}
		value = strings.ReplaceAll(value, "%%", "%")
		if n := len(value) - 1; n > 0 && (value[0] == '"' || value[0] == '\'') && value[n] == value[0] {
			value = value[1:n] // it was a word of haproxy.cfg
		}
		if strings.ContainsAny(value, `"'\\`) {
			return nil, fmt.Errorf("holds a quote or a backslash, %q", value)
		}
		out = append(out, verb+" "+line[:i]+" "+value)
	}
	return out, nil
}

// ingressPathType translates what ImplementationSpecific means.
func ingressPathType() Rule {
	r := mapped("path-type", "path-type-default", map[string]string{"exact": "Exact", "prefix": "Prefix", "begin": "Prefix", "regex": "Regex"}).
		noted("`begin` compares bytes there, and path elements here; `regex` compares case there, and not here.")
	plain := r.convert
	r.convert = func(c *call) {
		plain(c)
		if strings.EqualFold(c.value("path-type"), "regex") {
			c.differs("path-type", "compares expressions without regard to case", "")
		}
	}
	return r
}
