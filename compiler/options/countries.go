package options

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// The options that ask for the country of a client.
const (
	AllowCountries = "allow-countries"
	DenyCountries  = "deny-countries"
)

const valueCountries = "codes such as `DE` and `US-CA`, separated by commas"

// countryForm is a country as in ISO 3166-1, or a region of one as in ISO 3166-2. Codes are the
// administrator's, so that any with this form will do.
var countryForm = regexp.MustCompile(`^[A-Z][A-Z0-9](-[A-Z0-9]{1,3})?$`)

// country reads the code of a country, in lower case or upper.
func country(text string) (string, error) {
	code := strings.ToUpper(text)
	if !countryForm.MatchString(code) || len(code) != len(text) {
		return "", fault("is not the code of a country", "use two letters such as DE, or with a region such as US-CA")
	}
	return code, nil
}

// mostCountries is more than there are countries.
const mostCountries = 500

func countries(text string) (policy.Countries, error) {
	out, err := listOf(country)(text)
	if len(out) > mostCountries {
		return nil, fault(fmt.Sprintf("lists %d codes", len(out)), fmt.Sprintf("use %d at most", mostCountries))
	}
	return out, err
}

// CountryLine is a line of a list of countries.
type CountryLine struct {
	Network netip.Prefix
	Code    string
	Line    int // from 1
}

// ParseCountries reads a list of countries: lines of a network and a code, with white space between
// them; a '#' and what follows it on its line is a comment.
func ParseCountries(text string) ([]CountryLine, []LineError) {
	out := make([]CountryLine, 0, strings.Count(text, "\n")+1)
	var wrong []LineError
	codes := map[string]string{} // as they are written, so that there is one text of each
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		first, rest := word(line)
		if first == "" {
			continue
		}
		second, rest := word(rest)
		prefix, code, failed := countryLine(first, second, rest, codes)
		if failed != nil {
			failed.Line = number
			wrong = append(wrong, *failed)
			continue
		}
		out = append(out, CountryLine{prefix, code, number})
	}
	return out, wrong
}

// countryLine reads the two words of a line, after which nothing may follow.
func countryLine(first, second, rest string, codes map[string]string) (netip.Prefix, string, *LineError) {
	fail := func(text string, err error) (netip.Prefix, string, *LineError) {
		message, hint := described(text, err)
		return netip.Prefix{}, "", &LineError{Message: message, Hint: hint}
	}
	prefix, err := network(first)
	if err == nil && prefix.Addr().Is4In6() {
		err = fault("is an IPv4 network in the form of IPv6", "write it as "+prefix.Addr().Unmap().String()+", with its own length")
	}
	if err != nil {
		return fail(first, err)
	}
	if second == "" || strings.TrimSpace(rest) != "" {
		return fail(first, fault("does not stand with one code on its line", "write NETWORK CODE, such as 192.0.2.0/24 DE"))
	}
	code, known := codes[second]
	if !known {
		if code, err = country(second); err != nil {
			return fail(second, err)
		}
		codes[strings.Clone(second)] = code
	}
	return prefix, code, nil
}

// word returns the first word of a line, and what follows it.
func word(line string) (first, rest string) {
	line = strings.TrimLeft(line, " \t\r\n")
	if end := strings.IndexAny(line, " \t\r\n"); end >= 0 {
		return line[:end], line[end:]
	}
	return line, ""
}
