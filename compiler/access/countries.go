package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// mostCountryNetworks bounds what a list costs HAProxy, which takes about 200 bytes for each.
const mostCountryNetworks = 1_000_000

// mostBadLines is how many lines of one text are reported one by one.
const mostBadLines = 20

// CountryMemo remembers the last list that was read, so that one which did not change is not read
// again. It may be used by several goroutines: reviews translate beside the loop.
type CountryMemo struct {
	mu      sync.Mutex
	sources []countrySource
	list    *routing.CountryList
	found   []diag.Diagnostic
}

// countrySource is one text of a list, under a key of a ConfigMap or, without one, in a file.
type countrySource struct {
	origin routing.Origin
	key    string
	text   string
}

// CountryFile is a file of the list of countries. Wrong says why it cannot be used, "" if it can.
type CountryFile struct {
	Path, Text, Wrong string
}

// finding says what is wrong with a line of the text, or with the whole text if the line is 0. It quotes nothing from a
// file: the path may lead to the wrong file, with secrets in it.
func (s countrySource) finding(line int, message, hint string) diag.Diagnostic {
	if s.key == "" {
		at := s.origin
		at.Position.Line = line
		return countryDiagnostic(at, message, hint)
	}
	place := "key " + s.key
	if line > 0 {
		place += fmt.Sprintf(", line %d", line)
	}
	return countryDiagnostic(s.origin, place+": "+message, hint)
}

// wrongLine is the message for a line that cannot be read.
func (s countrySource) wrongLine(message string) string {
	if s.key == "" {
		return "this is not a network and a code"
	}
	return message
}

// at names a line of the text for people.
func (s countrySource) at(line int) string {
	if s.key == "" {
		return fmt.Sprintf("line %d of %s", line, s.origin.Position.File)
	}
	return fmt.Sprintf("line %d of key %s", line, s.key)
}

// countries is what a translation knows of the list.
type countries struct {
	add        func(...diag.Diagnostic)
	cfg        Config
	configMaps inputs.Lookup[corev1.ConfigMap]

	asked bool
	read  *routing.CountryList // nil if it is not to be had
	why   string               // it is not
	hint  string
}

// list returns the list of countries, or says why there is none.
func (c *countries) list() (list *routing.CountryList, why, hint string) {
	if c.asked {
		return c.read, c.why, c.hint
	}
	c.asked = true
	if len(c.cfg.Countries)+len(c.cfg.CountryFiles) == 0 {
		c.why, c.hint = "the configuration names no list of countries", "the administrator provides one with countries.configMaps or countries.files"
		return nil, c.why, c.hint
	}
	var sources []countrySource
	missing := false
	for _, text := range slices.Sorted(slices.Values(c.cfg.Countries)) {
		namespace, name, _ := strings.Cut(text, "/")
		full := types.NamespacedName{Namespace: namespace, Name: name}
		configMap, exists := c.configMaps.Find(full)
		switch {
		case !exists:
			why, hint := c.configMaps.Missing(full)
			c.reportCountries(routing.Origin{Object: diag.Object{Kind: "ConfigMap", Namespace: namespace, Name: name}}, why, hint+" in countries.configMaps of the configuration")
			missing = true
		case len(configMap.Value.Data) == 0:
			c.reportCountries(originOf(configMap), "has no text with networks", "write lines such as 192.0.2.0/24 DE below data")
			missing = true
		}
		sources = append(sources, countrySources(configMap)...)
	}
	for _, file := range c.cfg.CountryFiles {
		at := routing.Origin{Position: diag.Position{File: file.Path}}
		if file.Wrong != "" {
			c.reportCountries(at, file.Wrong, "mount it where countries.files of the configuration says, and see to it that the compiler may read it")
			missing = true
		}
		sources = append(sources, countrySource{origin: at, text: file.Text})
	}
	if !missing {
		var found []diag.Diagnostic
		c.read, found = c.cfg.CountryMemo.read(slices.Compact(sources))
		c.add(found...)
	}
	if c.read == nil {
		parts := slices.Clone(c.cfg.Countries)
		for _, file := range c.cfg.CountryFiles {
			parts = append(parts, file.Path)
		}
		c.why, c.hint = "the list of countries cannot be used", "the administrator sees why with its parts: "+strings.Join(parts, ", ")
	}
	return c.read, c.why, c.hint
}

func (c *countries) reportCountries(at routing.Origin, message, hint string) {
	c.add(countryDiagnostic(at, message, hint))
}

// countryDiagnostic says what is wrong with a part of the list.
func countryDiagnostic(at routing.Origin, message, hint string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Error, Position: at.Position, Object: at.Object, Hint: hint,
		Message: message + ", so that there is no list of countries; routes with allow-countries or deny-countries answer 503",
	}
}

// countrySources returns the texts of a ConfigMap, by key.
func countrySources(configMap inputs.Object[corev1.ConfigMap]) []countrySource {
	if configMap.Value == nil {
		return nil
	}
	var out []countrySource
	for _, key := range slices.Sorted(maps.Keys(configMap.Value.Data)) {
		out = append(out, countrySource{originOf(configMap, "data", key), key, configMap.Value.Data[key]})
	}
	return out
}

// read returns the list of some texts, nil if anything of it is wrong, and says so.
func (m *CountryMemo) read(sources []countrySource) (*routing.CountryList, []diag.Diagnostic) {
	if m == nil {
		return readCountries(sources)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.sources, sources) { // texts that are the same one are not compared
		m.sources = sources
		m.list, m.found = readCountries(sources)
	}
	return m.list, m.found
}

func readCountries(sources []countrySource) (*routing.CountryList, []diag.Diagnostic) {
	list := &routing.CountryList{Codes: map[string]bool{}}
	var found []diag.Diagnostic
	for i, s := range sources {
		list.Origins = append(list.Origins, s.origin)
		lines, wrong := options.ParseCountries(s.text)
		for j, w := range wrong[:min(len(wrong), mostBadLines)] {
			more := ""
			if n := len(wrong) - mostBadLines; n > 0 && j == mostBadLines-1 {
				more = fmt.Sprintf(", and %d more lines are wrong", n)
			}
			found = append(found, s.finding(w.Line, s.wrongLine(w.Message)+more, w.Hint))
		}
		if s.key == "" && len(lines)+len(wrong) == 0 { // a download that failed looks like this
			found = append(found, s.finding(0, "has no line with a network", "write lines such as 192.0.2.0/24 DE"))
		}
		if len(list.Networks)+len(lines) > mostCountryNetworks {
			return nil, append(found, s.finding(0, fmt.Sprintf("with it the list has more than %d networks", mostCountryNetworks), "join neighbouring networks of one country"))
		}
		for _, l := range lines {
			list.Networks = append(list.Networks, routing.CountryNetwork{Network: l.Network, Code: l.Code, Source: i, Line: l.Line})
			list.Codes[l.Code] = true
		}
	}
	found = append(found, sortCountries(list, sources)...)
	switch {
	case len(found) > 0:
		return nil, found
	case len(list.Networks) == 0: // a volume or a pipeline that failed looks like this
		return nil, []diag.Diagnostic{countryDiagnostic(list.Origins[0], "has no line with a network", "write lines such as 192.0.2.0/24 DE")}
	}
	return list, nil
}

// sortCountries puts the networks in order, each once, and reports those of two countries.
func sortCountries(l *routing.CountryList, sources []countrySource) []diag.Diagnostic {
	slices.SortStableFunc(l.Networks, func(a, b routing.CountryNetwork) int { return comparePrefixes(a.Network, b.Network) })
	var found []diag.Diagnostic
	l.Networks = slices.CompactFunc(l.Networks, func(other, kept routing.CountryNetwork) bool {
		same := kept.Network == other.Network
		if same && kept.Code != other.Code && len(found) < mostBadLines {
			found = append(found, sources[other.Source].finding(other.Line,
				fmt.Sprintf("%s is of %s, and of %s in %s", other.Network, other.Code, kept.Code, sources[kept.Source].at(kept.Line)),
				"keep one of the two"))
		}
		return same
	})
	return found
}

// countryDemand is the countries that an option names.
type countryDemand struct {
	named policy.Countries
	spot  Spot
}

// take reports whether there is a list for options that name countries, if any are named, and
// warns of those that it does not have.
func (c *countries) take(demands []countryDemand) bool {
	ok := true
	for _, d := range demands {
		list, why, hint := c.list()
		if list == nil {
			c.add(d.spot.Closes(": "+why, hint))
			ok = false
			continue
		}
		for _, code := range d.named {
			if !list.Has(code) {
				c.add(d.spot.Finding(diag.Warning, fmt.Sprintf(": country %s is in no line of the list of countries", code), "correct the code, or have networks of it added to the list"))
			}
		}
	}
	return ok
}

// model returns the list of countries if anything asks for it.
func (c *countries) model() *routing.CountryList {
	if c.cfg.CountryHeader {
		c.list()
	}
	return c.read
}
