package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// FirstRule and LastRule are the ids that exclusions may name: those of the rules that inspect requests. Beside them
// are those that deny a body which cannot be read.
const (
	FirstRule = 911000
	LastRule  = 944999

	UnreadableBody      = 200002
	UnreadableMultipart = 200003
)

// InPolicies reports whether policies may name a rule.
func InPolicies(id int) bool {
	return id == UnreadableBody || id == UnreadableMultipart || id >= FirstRule && id <= LastRule
}

// collections are the parts of requests that rules look at, and whether a target of each may have a key.
var collections = map[string]bool{
	"ARGS": true, "ARGS_GET": true, "ARGS_POST": true,
	"ARGS_NAMES": true, "ARGS_GET_NAMES": true, "ARGS_POST_NAMES": true,
	"FILES": true, "FILES_NAMES": true,
	"MULTIPART_PART_HEADERS": true,
	"QUERY_STRING":           false,
	"REQUEST_BASENAME":       false, "REQUEST_BODY": false, "REQUEST_FILENAME": false, "REQUEST_LINE": false, "REQUEST_METHOD": false,
	"REQUEST_COOKIES": true, "REQUEST_COOKIES_NAMES": true,
	"REQUEST_HEADERS": true, "REQUEST_HEADERS_NAMES": true,
	"REQUEST_PROTOCOL": false, "REQUEST_URI": false, "REQUEST_URI_RAW": false,
	"XML": false,
}

var (
	tagSyntax = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9/_.-]{0,63}$`)
	// keySyntax is that of parameters, cookies and headers as applications name them: user[name], ctl00$Main,
	// json.items.0.id. A * at the end stands for anything.
	keySyntax = regexp.MustCompile(`^[A-Za-z0-9_.$\[\]-]{1,128}\*?$`)
)

// check returns what is wrong with an exclusion, beginning with the name of a field.
func (e Exclusion) check() error {
	if len(e.Rules) == 0 && len(e.Tags) == 0 {
		return errors.New("rules: an exclusion names rules, or tags of rules")
	}
	for _, field := range []struct {
		name  string
		items []string
		check func(string) error
	}{
		{"rules", e.Rules, func(s string) error { _, _, err := ParseRange(s); return err }},
		{"tags", e.Tags, checkTag},
		{"targets", e.Targets, func(s string) error { _, _, err := ParseTarget(s); return err }},
	} {
		if n := len(field.items); n > MaxNames {
			return fmt.Errorf("%s: there are %d, and the limit is %d", field.name, n, MaxNames)
		}
		for i, item := range field.items {
			if err := field.check(item); err != nil {
				return fmt.Errorf("%s[%d]: %w", field.name, i, err)
			}
		}
	}
	return nil
}

// ParseRange reads the id of a rule, or a range of ids with both ends.
func ParseRange(text string) (first, last int, err error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, err = ruleID(low)
	if err == nil {
		last, err = ruleID(high)
	}
	switch {
	case err != nil:
	case first > last:
		err = errors.New("it ends before it begins")
	case first < FirstRule && last >= FirstRule:
		err = errors.New("it begins and ends among different rules")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%.64q is no id of a rule, such as 942100, and no range, such as 942000-942999: %w", text, err)
	}
	return first, last, nil
}

// ruleID reads an id: six digits.
func ruleID(text string) (int, error) {
	id, err := strconv.Atoi(text)
	if err != nil || len(text) != 6 || text[0] < '1' {
		return 0, errors.New("an id has six digits")
	}
	if !InPolicies(id) {
		return 0, fmt.Errorf("rules that inspect requests have ids from %d to %d, %d and %d", FirstRule, LastRule, UnreadableBody, UnreadableMultipart)
	}
	return id, nil
}

func checkTag(text string) error {
	if !tagSyntax.MatchString(text) {
		return fmt.Errorf("%.64q is no tag: letters, digits and / _ . -, at most 64", text)
	}
	return nil
}

// ParseTarget reads a target: a collection such as REQUEST_BODY, and after a colon a key, such as ARGS:q. A key that
// ends in * stands for all that begin so.
func ParseTarget(text string) (collection, key string, err error) {
	collection, key, hasKey := strings.Cut(text, ":")
	keyed, known := collections[collection]
	switch {
	case !known:
		return "", "", fmt.Errorf("%.64q is no target: it begins with none of %s", text, strings.Join(Collections(), ", "))
	case hasKey && !keyed:
		return "", "", fmt.Errorf("%.64q is no target: %s takes no key", text, collection)
	case hasKey && !keySyntax.MatchString(key):
		return "", "", fmt.Errorf("%.64q is no target: a key has letters, digits and _ . $ [ ] -, at most 128, and may end in *", text)
	}
	return collection, key, nil
}

// Collections returns the names that targets begin with, sorted.
func Collections() []string {
	var names []string
	for name := range collections {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
