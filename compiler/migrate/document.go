package migrate

import (
	"fmt"
	"strings"
)

// Document returns the document of what becomes of which annotation, in
// Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString(head)
	for _, d := range Dialects() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\nPrefixes: `%s`.\n\n| annotation | here | | note |\n|---|---|---|---|\n", d.Name, d.Remarks, strings.Join(d.Prefixes, "`, `"))
		for _, r := range d.Rules {
			b.WriteString(r.row())
		}
	}
	return b.String()
}

const head = `# Migration from other ingress controllers

<!-- Generated from the code of compiler/migrate: change it there, and run
     go test ./compiler/migrate -update -->

[From ingress-nginx](../start/from-ingress-nginx.md) walks through a migration. This page says what
` + "`compiler migrate`" + ` does with each annotation.

It writes each annotation that has an equivalent under our prefix, and keeps comments and
everything else in the files. It lists the others by object, with what to do instead, and then
its exit code is 3.

The annotations of the other controller stay beside ours while it serves the object, so that no
route loses what protects it on the way. With ` + "`--class`" + `, an Ingress of which everything
could be translated gets our class and loses the old annotations. An Ingress of which something is
left keeps its class. ` + "`--remove`" + ` takes the translated annotations out whatever the
class is: for those who have hapsnap serve the old class.

The third column of the tables says how the two compare:

- *equal*: it behaves here as it did there.
- *differs*: it does, apart from what the note says. Where the difference depends on the value,
  ` + "`compiler migrate`" + ` says so for the object.
- *said*: it is removed, with a warning that says what holds instead.
- *refused*: it stays, with an error, and keeps the Ingress with its controller.

A value that asks for nothing, such as ` + "`false`" + `, is removed without a message.

The compiler's own [options](annotations.md) read back every annotation that is written. What they
would refuse is listed, not written. Settings of the other controller's ConfigMap are not read: see
[the configuration](configuration.md).

While hapsnap serves an Ingress, it reports each annotation of these controllers that no option of
ours beside it stands in for. One that protects something closes the routes of its Ingress with 503,
so that changing the class by hand opens nothing. The setting ` + "`foreignAnnotations: ignore`" + ` of
the configuration turns that off.
`

// row returns the rule's row of its table.
func (r Rule) row() string {
	here := "–"
	switch {
	case r.Needless:
		here = "not needed"
	case r.Removed:
		here = "removed"
	case len(r.To) > 0 && r.To[0] != "":
		here = "`" + strings.Join(r.To, "`, `") + "`"
	}
	note := strings.ReplaceAll(r.Note, "|", `\|`)
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", strings.Join(r.From, "`, `"), here, r.verdict(), note)
}
