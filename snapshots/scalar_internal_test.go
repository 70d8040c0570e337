package snapshots

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// Our own code agrees with these expressions, also for texts that are one character off.
func TestScalarForms(t *testing.T) {
	t.Parallel()
	plain := regexp.MustCompile(`^[A-Za-z](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?$`)
	forms := map[string]struct {
		is   func(string) bool
		want func(string) bool
	}{
		"plain":  {isPlainText, func(s string) bool { return plain.MatchString(s) && !notStrings.MatchString(s) }},
		"uuid":   {isUUID, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`).MatchString},
		"number": {isNumber, regexp.MustCompile(`^[1-9][0-9]*$`).MatchString},
	}
	texts := []string{
		"", "y", "No", "FALSE", "falsey", "null", "a", "a-", "-a", "a.b/c_d-e9", "7", "07", "1234567", "12a", "é", "aé", "a\n", "1\n", "z9",
		"0f0e0d0c-0001-4002-8000-00000000000a", "0f0e0d0c-0001-4002-8000-00000000000A", "0f0e0d0c-0001-4002-80000-0000000000a", "g0000000-0000-0000-0000-000000000000",
	}
	random := rand.New(rand.NewPCG(1, 2))
	const letters = "aZfg09-._/ :\n*\x00é"
	for _, s := range texts[:len(texts):len(texts)] {
		for range 200 {
			at := random.IntN(len(s) + 1)
			texts = append(texts, s[:at]+string(letters[random.IntN(len(letters))])+strings.TrimPrefix(s[at:], "0"))
		}
	}
	for name, form := range forms {
		yes := 0
		for _, s := range texts {
			if got := form.is(s); got != form.want(s) {
				t.Errorf("%q is %s: %t", s, name, got)
			} else if got {
				yes++
			}
		}
		if yes < 2 {
			t.Errorf("%s: %d of %d texts", name, yes, len(texts))
		}
	}
}
