package render

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// verbatim returns a line that somebody wrote who may, as it is. It takes no text:
// only a [policy.Line] has been checked for what would end the line or the section,
// and templates can make none.
func verbatim(line any) (Text, error) {
	l, ok := line.(policy.Line)
	if !ok || l.Text() == "" {
		return "", fmt.Errorf("verbatim: a value of type %T is no line of a snippet", line)
	}
	return Text(l.Text()), nil
}
