package metricsdoc

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// Section returns what a page has between the comments "<!-- name -->" and
// "<!-- end of name -->".
func Section(page, name string) (string, error) {
	from, to := marks(name)
	_, rest, begins := strings.Cut(page, from)
	section, _, ends := strings.Cut(rest, to)
	if !begins || !ends {
		return "", fmt.Errorf("the page has no section %q", name)
	}
	return section, nil
}

func marks(name string) (from, to string) {
	return "<!-- " + name + " -->\n", "<!-- end of " + name + " -->\n"
}

// Replace writes a section of the page in a file. The tests of several packages
// may do so at the same time.
func Replace(file, name, section string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", file, err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	old, err := Section(string(page), name)
	if err != nil {
		return err
	}
	from, to := marks(name)
	return os.WriteFile(file, []byte(strings.Replace(string(page), from+old+to, from+section+to, 1)), 0o644)
}

// Unknown returns the metrics with a prefix that a page speaks of and that are not
// in the registry. A histogram's series are.
func Unknown(page, prefix string, r *prometheus.Registry) ([]string, error) {
	families, err := r.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			known[f.GetName()+suffix] = f.GetType().String() == "HISTOGRAM"
		}
	}
	var unknown []string
	for _, name := range regexp.MustCompile(regexp.QuoteMeta(prefix)+`[a-z_]+`).FindAllString(page, -1) {
		if !known[name] && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown, nil
}
