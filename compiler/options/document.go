package options

import (
	"fmt"
	"strings"
)

// Document returns the document that lists all options, in Markdown.
func Document() string {
	var b strings.Builder
	fmt.Fprintf(&b, head, ownNames())
	for _, group := range Groups {
		fmt.Fprintf(&b, "\n## %s\n\n| annotation | on | value | default | what it does |\n|---|---|---|---|---|\n", group)
		for _, o := range All() {
			if o.Group == group {
				b.WriteString(o.row())
			}
		}
	}
	return b.String()
}

const head = `# Annotations

<!-- Generated from the code of compiler/options: change it there, and run
     go test ./compiler/options -update -->

All names begin with ` + "`" + Prefix + "`" + `. Values are strings: quote numbers and booleans in YAML.

- An option that may be on both kinds of objects may be on an Ingress, for its routes, or on a Service, for every route to it. The Service wins.
- An Ingress with options has HAProxy backends of its own, so that its options cost other routes nothing.
- A ConfigMap that ` + "`" + `spec.parameters` + "`" + ` of an IngressClass names (kind ` + "`" + `ConfigMap` + "`" + `, ` + "`" + `scope: Namespace` + "`" + `) holds defaults for the Ingresses of the class. Its keys are names of annotations that may be on an Ingress, without the prefix; %s cannot have a default. The Ingress wins over it, and the Service over both. What they name, such as a Secret, is of the Ingress's namespace. Parameters that cannot be had might protect something, so that the routes of the class answer 503.
- A wrong value is an error on its object, at its line. The option is then ignored, except where a lock (🔒) follows its name: such an option protects something, and if its value cannot be used, the routes answer 503 rather than let requests through.
- A name that is not known is ignored with a warning.
`

// ownNames lists the options that are about one Ingress.
func ownNames() string {
	var out []string
	for _, o := range All() {
		if o.Own {
			out = append(out, "`"+o.Name+"`")
		}
	}
	return strings.Join(out, ", ")
}

// row returns the option's row of its table.
func (o Option) row() string {
	name := "`" + o.Name + "`"
	if o.Closes {
		name += " 🔒"
	}
	summary := o.Summary
	if o.Needs != "" {
		summary += " Needs `" + o.Needs + "`."
	}
	summary += " Example: `" + strings.ReplaceAll(o.Example, "\n", "`, `") + "`."
	cells := []string{name, o.On.String(), o.Value, o.Default, summary}
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
