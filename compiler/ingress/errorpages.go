package ingress

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// maxErrorPage is the most bytes of a page. HAProxy keeps an answer in a buffer
// of 16 KiB together with its headers, and gives 500 for one that does not fit.
const maxErrorPage = 12 << 10

// pageStatuses are the statuses that HAProxy, or a rule of ours, answers with an
// error page.
var pageStatuses = []int{400, 401, 403, 404, 405, 407, 408, 410, 411, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504}

// pageTypes are the content types by the end of a key.
var pageTypes = map[string]string{
	"html": "text/html; charset=utf-8", "txt": "text/plain; charset=utf-8", "json": "application/json", "xml": "application/xml",
}

var pageForm = regexp.MustCompile(`^([1-5][0-9]{2})(?:\.(html|txt|json|xml))?$`)

// errorPages reads the ConfigMap of the error pages. A page that cannot be used
// is reported, and harms no other.
func errorPages(of string, configMaps inputs.Lookup[corev1.ConfigMap], f *findings) []routing.ErrorPage {
	namespace, name, named := strings.Cut(of, "/")
	if !named {
		return nil
	}
	pages, exists := configMaps.Find(types.NamespacedName{Namespace: namespace, Name: name})
	if !exists {
		f.add(diag.Diagnostic{
			Severity: diag.Error, Object: diag.Object{Kind: "ConfigMap", Namespace: namespace, Name: name},
			Message: "does not exist: error pages are HAProxy's own", Hint: "create it, or correct errorPages of the configuration",
		})
		return nil
	}
	byStatus, keys := map[int]routing.ErrorPage{}, map[int]string{}
	for _, key := range slices.Sorted(maps.Keys(pages.Value.Data)) {
		page, message, hint := readErrorPage(key, pages.Value.Data[key])
		if other, twice := keys[page.Status]; twice && message == "" {
			message, hint = "has the same status as "+printable.Quoted(other), "remove one of the two"
		}
		if message != "" {
			f.reportPage(pages, "data", key, message, hint)
			continue
		}
		page.Origin = originOf(pages, "data", key)
		byStatus[page.Status], keys[page.Status] = page, key
	}
	for _, key := range slices.Sorted(maps.Keys(pages.Value.BinaryData)) {
		f.reportPage(pages, "binaryData", key, "is binary", "use text below data")
	}
	return slices.SortedFunc(maps.Values(byStatus), func(a, b routing.ErrorPage) int { return a.Status - b.Status })
}

func (f *findings) reportPage(pages inputs.Object[corev1.ConfigMap], field, key, message, hint string) {
	f.add(diag.Diagnostic{
		Severity: diag.Error, Position: pages.Position(field, key), Object: pages.Ref, Hint: hint,
		Message: "error page " + printable.Quoted(key) + " " + message + "; it is not used",
	})
}

// readErrorPage reads one key of the ConfigMap, or says what is wrong with it.
func readErrorPage(key, body string) (page routing.ErrorPage, message, hint string) {
	m := pageForm.FindStringSubmatch(key)
	if m == nil {
		return page, "is not named for a status", "use one such as 503, 503.html, 503.txt, 503.json or 503.xml"
	}
	page = routing.ErrorPage{Body: body, Suffix: m[2]}
	page.Status, _ = strconv.Atoi(m[1])
	switch {
	case !slices.Contains(pageStatuses, page.Status):
		return page, "has a status that HAProxy answers nothing with", "use one of " + statusList()
	case strings.TrimSpace(body) == "":
		return page, "is empty", "write a page, or remove the key"
	case len(body) > maxErrorPage:
		return page, fmt.Sprintf("has %d bytes", len(body)), fmt.Sprintf("it may have %d; put pictures and styles elsewhere", maxErrorPage)
	}
	if page.Suffix == "" {
		page.Suffix = sniff(body)
	}
	page.ContentType = pageTypes[page.Suffix]
	return page, "", ""
}

// sniff tells JSON from HTML.
func sniff(body string) string {
	if strings.HasPrefix(strings.TrimSpace(body), "{") && json.Valid([]byte(body)) {
		return "json"
	}
	return "html"
}

func statusList() string {
	var out []string
	for _, status := range pageStatuses {
		out = append(out, strconv.Itoa(status))
	}
	return strings.Join(out, ", ")
}
