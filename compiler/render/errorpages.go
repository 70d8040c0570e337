package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// pageOf writes an error page. Each of its lines comes from the ConfigMap.
func pageOf(page routing.ErrorPage) *assembly {
	a := &assembly{text: []byte(page.Body)}
	for range bytes.Lines(a.text) {
		a.origins = append(a.origins, LineOrigin{Objects: []routing.Origin{page.Origin}})
	}
	return a
}

// answers says what rules answer with that give a status: the error page of the
// status, or a line of text.
type answers []routing.ErrorPage

// write returns the arguments of a return or deny rule for a status.
func (pages answers) write(status int, text string) (Text, error) {
	i := slices.IndexFunc(pages, func(p routing.ErrorPage) bool { return p.Status == status })
	if i >= 0 {
		return pageArguments(pages[i])
	}
	if err := checkPrintable(text); err != nil {
		return "", err
	}
	if strings.ContainsAny(text, `"\$`) {
		return "", &ValueError{text, "holds what HAProxy interprets within quotes", "use letters, digits and spaces"}
	}
	return Text(`content-type text/plain string "` + text + `"`), nil
}

// pageArguments are the arguments that answer with a page. Nothing in its body is
// expanded, and no cache is to keep it.
func pageArguments(page routing.ErrorPage) (Text, error) {
	contentType, err := quote(page.ContentType)
	return Text(fmt.Sprintf("content-type %s file %s hdr Cache-Control no-cache", contentType, page.File())), err
}
