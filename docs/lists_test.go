package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// notAboutPaths are the options that protect something and leave paths that servers read in different ways alone: those of
// connections to servers, one that keeps nobody out, and one that means nothing alone.
var notAboutPaths = []string{
	"backend-verify", "backend-ca-secret", "backend-client-secret", "backend-tls-versions", "backend-tls-ciphers", "backend-sni", "max-body-size", "satisfy",
}

func TestPageAboutPathsNamesWhatProtects(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(pages(t)["docs/reference/paths.md"], "\nSomething is protected if ")
	list, _, found := strings.Cut(rest, ". ")
	if !found {
		t.Fatal("the page does not list what protects something")
	}
	for _, o := range options.All() {
		listed := strings.Contains(list, "`"+o.Name+"`")
		if want := o.Closes && o.Needs == "" && !slices.Contains(notAboutPaths, o.Name); listed != want {
			t.Errorf("%s is listed: %t, want %t", o.Name, listed, want)
		}
	}
}

// Alerts that somebody takes from the page about metrics have the names of those of the chart, and so a page each.
func TestAlertsOnThePageOfMetricsHaveRunbooks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	names := regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(all["docs/reference/metrics.md"], -1)
	if len(names) < 10 {
		t.Fatalf("%d alerts", len(names))
	}
	for _, name := range names {
		if page := "docs/how-to/runbooks/" + name[1] + ".md"; all[page] == "" {
			t.Errorf("there is no %s", page)
		}
	}
}
