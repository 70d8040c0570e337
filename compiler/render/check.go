package render

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// checker returns how a value is written into a file, or why it must not be.
type checker func(value any) (string, error)

// ValueError is a value that must not be written.
type ValueError struct {
	Value   string
	Problem string // follows the value: "holds a space, which ends a word"
	Hint    string
}

// Error returns the value, shortened, and what is wrong with it.
func (e *ValueError) Error() string {
	return fmt.Sprintf("value %s %s", printable.Quoted(e.Value), e.Problem)
}

// checkConfig writes a value as one word of haproxy.cfg, or as a part of one.
func checkConfig(value any) (string, error) {
	if text, ok := value.(Text); ok {
		return string(text), nil
	}
	s, err := word(value)
	switch {
	case err == nil && strings.Contains(s, "$"):
		return "", &ValueError{s, "holds '$', which HAProxy expands within quotes", "leave it out, or use quote in the template"}
	case s == "{" || s == "}": // in a list it could end one condition and begin another
		return "", &ValueError{s, "is a brace, which is where a condition begins or ends", "leave it out"}
	}
	return s, err
}

// checkMap writes a value into a map, where nothing is quoted and a single quote is a
// character like any other.
func checkMap(value any) (string, error) {
	if _, ok := value.(Text); ok {
		return checkList(value)
	}
	return wordWithout(value, ` #"\`)
}

// checkList writes a value into a crt-list, where nothing is quoted.
func checkList(value any) (string, error) {
	if text, ok := value.(Text); ok && strings.ContainsAny(string(text), `'"\`) {
		return "", &ValueError{string(text), "is quoted, but maps and crt-lists have no quotes", "do not use quote here"}
	} else if ok {
		return string(text), notSecret(string(text))
	}
	return word(value)
}

// checkText writes a value into a file of any other form.
func checkText(value any) (string, error) {
	s, err := scalar(value)
	if err != nil {
		return "", err
	}
	return s, checkPrintable(s)
}

// word returns a value that is one word without quotes.
func word(value any) (string, error) { return wordWithout(value, ` #"'\`) }

// wordWithout returns a value that holds none of the given characters.
func wordWithout(value any, refused string) (string, error) {
	s, err := scalar(value)
	if err != nil {
		return "", err
	}
	if err := checkPrintable(s); err != nil {
		return "", err
	}
	if i := strings.IndexAny(s, refused); i >= 0 {
		name := map[byte]string{' ': "a space", '#': "'#'", '"': "a double quote", '\'': "a single quote", '\\': "a backslash"}[s[i]]
		return "", &ValueError{s, "holds " + name + ", which is not a part of a word", "leave it out, or use quote in the template"}
	}
	return s, nil
}

// checkPrintable refuses characters that could end a line, or that a reader would not see.
func checkPrintable(s string) error {
	if !utf8.ValidString(s) {
		return &ValueError{s, "is not valid UTF-8", "leave the bytes out"}
	}
	if err := notSecret(s); err != nil {
		return err
	}
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError { // JSON replaces bytes that are no text with it
			return &ValueError{s, fmt.Sprintf("holds the unprintable character %U", r), "leave it out"}
		}
	}
	return nil
}

// notSecret refuses the words that stand for values of Secrets: only a template can ask for one, and
// only as a word of haproxy.cfg.
func notSecret(s string) error {
	if strings.Contains(s, bind.SecretMark) {
		return &ValueError{s, "holds " + bind.SecretMark + ", which stands for the value of a Secret", "only templates can write one: with the function secret, in haproxy.cfg, without quotes"}
	}
	return nil
}

// errNotScalar is a mistake in a template: the text would depend on how Go prints the value.
var errNotScalar = errors.New("is not text, a number or a boolean")

// scalar returns the text of a value that has just one.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case Text:
		return string(v), nil
	case config.Duration:
		return string(v), nil
	case fmt.Stringer:
		return v.String(), nil
	}
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid():
		return "", fmt.Errorf("nothing %w", errNotScalar)
	case v.Kind() == reflect.String:
		return v.String(), nil
	case v.CanFloat():
		return decimal(v.Float()).String(), nil
	case v.Kind() == reflect.Bool || v.CanInt() || v.CanUint():
		return fmt.Sprint(value), nil
	}
	return "", fmt.Errorf("a value of type %T %w", value, errNotScalar)
}

// decimal is a number that is printed without an exponent, as people write it.
type decimal float64

// String returns such as 1000000 and 0.25.
func (d decimal) String() string { return strconv.FormatFloat(float64(d), 'f', -1, 64) }

// decimals returns values with decimals in the place of floating-point numbers.
func decimals(values []any) []any {
	out := slices.Clone(values)
	for i, value := range out {
		if v := reflect.ValueOf(value); v.IsValid() && v.CanFloat() {
			out[i] = decimal(v.Float())
		}
	}
	return out
}

// secretWord returns the word of haproxy.cfg that stands for a value of a Secret.
func secretWord(name, key string) (Text, error) {
	object, err := snapshots.ParseSecretName(name)
	if err != nil {
		return "", err
	}
	word, err := bind.SecretWord(bind.SecretKey{Secret: object, Key: key})
	return Text(word), err
}

// secret is secretWord as templates call it. It records what they asked for.
func (r *rendering) secret(name, key string) (Text, error) {
	word, err := secretWord(name, key)
	if err == nil {
		r.secretsOf = append(r.secretsOf, string(word))
		r.secrets[string(word)] = true
	}
	return word, err
}

// checkSecrets refuses words for values of Secrets that no template asked for: an object must not make
// the pusher write the value of any Secret it likes.
func (r *rendering) checkSecrets(config *assembly) {
	if !bytes.Contains(config.text, []byte(bind.SecretMark)) {
		return
	}
	number := 0
	for line := range bytes.Lines(config.text) {
		number++
		if bytes.Count(line, []byte(bind.SecretMark)) > r.asked(line) {
			r.faults = append(r.faults, faultOf{len(r.set.files), Fault{
				Message: fmt.Sprintf("the line holds %s, which stands for the value of a Secret", bind.SecretMark),
				Hint:    "only templates can write one, with the function secret", Origin: config.origins[number-1], Refused: true,
			}})
		}
	}
}

// asked counts the words of a line for values that templates asked for.
func (r *rendering) asked(line []byte) int {
	n := 0
	for word := range bytes.FieldsSeq(line) {
		if r.secrets[string(word)] {
			n++
		}
	}
	return n
}
