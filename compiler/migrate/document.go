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

    compiler migrate -f DIR                          # what would be done, and what is left to you
    compiler migrate -f DIR -o DIR                   # adds our annotations to the files
    compiler migrate -f DIR -o DIR --class hapsnap   # and moves the Ingresses that are done

Annotations with an equivalent are written anew under our prefix; comments and
everything else in the files stay. The others are listed by object, with what to
do instead; then the exit code is 3.

The annotations of the other controller stay beside ours while it serves the
object, so that nothing of what they protect is lost on the way. With ` + "`--class`" + `, an
Ingress of which everything could be translated gets our class, and loses the old
annotations; one of which something is left keeps its class. ` + "`--remove`" + ` takes the
translated annotations out whatever the class: for those who have hapsnap serve
the old class.

In the tables, *equal* behaves here as it did there; *differs* does but for what the
note says, which is also said for the object where it depends on the value; *said* is
removed, with a warning that says what holds instead; *refused* stays, with an error, and
keeps the Ingress with its controller. A value that asks for nothing, such as ` + "`false`" + `, is removed
without a word.

Every annotation that is written has been read back by the compiler's own
options ([annotations.md](annotations.md)): what it would refuse is listed, not
written. Settings of the other controller's ConfigMap are not read: see
[configuration.md](configuration.md).

While hapsnap serves an Ingress, it reports each annotation of these controllers that no
option of ours beside it stands for. One that protects something closes the routes of its
Ingress with 503, so that a class that is changed by hand opens nothing.
The setting foreignAnnotations: ignore of the configuration turns that off.
`

// row returns the rule's row of its table.
func (r Rule) row() string {
	here := "–"
	switch {
	case r.Needless:
		here = "not needed"
	case len(r.To) > 0 && r.To[0] != "":
		here = "`" + strings.Join(r.To, "`, `") + "`"
	}
	note := strings.ReplaceAll(r.Note, "|", `\|`)
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", strings.Join(r.From, "`, `"), here, r.verdict(), note)
}
