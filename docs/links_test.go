// Package docs_test checks the pages of this folder, and those beside README.md: their links lead somewhere,
// every page can be reached from the index, and the commands on them run.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository is the root of the repository, seen from this package.
const repository = ".."

// pages returns the text of all pages by their paths in the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found[strings.TrimPrefix(file, repository+"/")] = string(text)
		}
	}
	return found
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	noLabel = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages := pages(t)
	for page, text := range pages {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, label, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(repository, to)); err != nil {
				t.Errorf("%s: link to %s: there is no %s", page, found[1], to)
			} else if label != "" && !labels(pages[to])[label] {
				t.Errorf("%s: link to %s: %s has no heading of that name", page, found[1], to)
			}
		}
	}
}

// labels returns the anchors that GitHub makes from the headings of a page.
func labels(page string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		found[strings.ReplaceAll(noLabel.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return found
}

func TestIndexNamesEveryPage(t *testing.T) {
	t.Parallel()
	pages := pages(t)
	index := map[string]bool{}
	for _, folder := range []string{"docs", "docs/adr", "docs/how-to/runbooks"} {
		for _, found := range link.FindAllStringSubmatch(pages[folder+"/README.md"], -1) {
			target, _, _ := strings.Cut(found[1], "#")
			index[filepath.Join(folder, target)] = true
		}
	}
	for page := range pages {
		if strings.HasPrefix(page, "docs/") && page != "docs/README.md" && !index[page] {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
}
