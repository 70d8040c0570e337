package options

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// boolean reads "true" or "false".
func boolean(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fault("is neither true nor false", `write "true" or "false"`)
}

// number returns a reader of whole numbers of a range.
func number(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text {
			return 0, fault("is not a number", fmt.Sprintf("use a whole number from %d to %d", least, most))
		}
		if n < least || n > most {
			return 0, fault("is out of range", fmt.Sprintf("use %d to %d", least, most))
		}
		return n, nil
	}
}

// oneOf returns a reader of words that stand for values.
func oneOf[T any](values map[string]T) func(string) (T, error) {
	return func(text string) (T, error) {
		value, ok := values[text]
		if !ok {
			return value, fault("is not possible", "use "+alternatives(slices.Sorted(maps.Keys(values))))
		}
		return value, nil
	}
}

// alternatives writes "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

var durationForm = regexp.MustCompile(`^[1-9][0-9]{0,8}(us|ms|s|m|h|d)$`)

// longest is the longest time, for HAProxy keeps them as milliseconds in 31 bits.
const longest = 24 * 24 * 3600

// duration reads a time.
func duration(text string) (policy.Duration, error) {
	d := policy.Duration(text)
	switch {
	case !durationForm.MatchString(text):
		return "", fault("is not a time", "use a number and a unit: us, ms, s, m, h or d, such as 30s")
	case d.Seconds() > longest:
		return "", fault("is too long", "use 24d at most")
	}
	return d, nil
}

var sizeForm = regexp.MustCompile(`^([1-9][0-9]{0,11})([kmg]?)$`)

// size reads a number of bytes.
func size(text string) (int64, error) {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fault("is not a size", "use a number of bytes, or one with k, m or g, such as 8m")
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	n <<= map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[m[2]]
	if n > 1<<42 {
		return 0, fault("is too large", "use 4096g at most")
	}
	return n, nil
}

// fields splits a list at commas and white space.
func fields(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
}

// listOf returns a reader of lists whose elements are read by another.
func listOf[T any](read func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) ([]T, error) {
		var out []T
		for _, word := range fields(text) {
			value, err := read(word)
			if err != nil {
				message, hint := described(word, err)
				_, message, _ = strings.Cut(message, " ")
				return nil, faultOf(word, message, hint)
			}
			out = append(out, value)
		}
		if len(out) == 0 {
			return nil, fault("lists nothing", "list one or more, separated by commas")
		}
		return out, nil
	}
}

// hostName reads the name of a host.
func hostName(text string) (string, error) {
	if problems := validation.IsDNS1123Subdomain(text); len(problems) > 0 {
		return "", fault("is not the name of a host", "use a DNS name in lower case, such as shop.example")
	}
	return text, nil
}

// hostPort reads the name of a host, perhaps with a port.
func hostPort(text string) (string, error) {
	host, port, both := strings.Cut(text, ":")
	if n, err := strconv.Atoi(port); both && (err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port) {
		return "", fault("has no valid port", "use 1 to 65535")
	}
	_, err := hostName(host)
	return text, err
}

// namespaceName reads the name of a namespace, or "*".
func namespaceName(text string) (string, error) {
	if text != "*" && len(validation.IsDNS1123Label(text)) > 0 {
		return "", fault("is not the name of a namespace", "use names of namespaces, or * for all")
	}
	return text, nil
}

// alias reads a host, perhaps one with a wildcard.
func alias(text string) (string, error) {
	_, err := hostName(strings.TrimPrefix(text, "*."))
	return text, err
}

// tokenForm is a token of RFC 9110, section 5.6.2, without the characters that
// need quotes in haproxy.cfg.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9!*+.^_|~-]+$`)

// token reads the name of a header or of a method.
func token(text string) (string, error) {
	if !tokenForm.MatchString(text) || len(text) > 200 {
		return "", fault("is not the name of a header", "use letters, digits and -")
	}
	return text, nil
}

// methodName reads the name of a method.
func methodName(text string) (string, error) {
	if text != strings.ToUpper(text) || !tokenForm.MatchString(text) || len(text) > 40 {
		return "", fault("is not a method", "use names such as GET, POST")
	}
	return text, nil
}

// fallbackService reads the name of a Service and perhaps a port.
func fallbackService(text string) (policy.ServiceRef, error) {
	name, port, both := strings.Cut(text, ":")
	r := policy.ServiceRef{Name: name}
	if len(validation.IsDNS1035Label(name)) > 0 {
		return r, fault("is not the name of a Service", "use a name of the same namespace, such as sorry or sorry:8080")
	}
	if !both {
		return r, nil
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return r, fault("has no valid port", "use 1 to 65535")
	}
	r.Port = n
	return r, nil
}
