package options

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// satisfyOption says how many of the ways in a client must have.
const satisfyOption = "satisfy"

// waysIn are the options of which satisfy says whether one is enough.
var waysIn = []string{"allow-list", "auth-basic", "auth-url"}

func satisfyOptions() []Option {
	return []Option{
		define(Option{
			Name: satisfyOption, Group: Protecting, On: onBoth, Closes: true, Value: "`all` or `any`", Example: "any", Default: "`all`",
			Summary: "With `any`, one of `allow-list`, `auth-basic` and `auth-url` is enough: clients of `allow-list` are not asked who they are, others are asked for a password, and of those without one the service of `auth-url` is asked. All other protection holds for everybody. It is about the options of the object that it is on: an Ingress says nothing of those of its Service, nor the Service of those of the Ingress, nor either of those of the class.",
		}, oneOf(map[string]bool{"all": false, "any": true}), func(s *Settings, v bool) { s.satisfyAny = v }),
	}
}

// satisfy has one way in be enough, if all that are asked for are of the object that says so.
func (r *resolution) satisfy() {
	s := &r.settings
	if !s.satisfyAny {
		return
	}
	giver := Giver(satisfyOption, r.objects...)
	ways := 0
	for _, name := range waysIn {
		if !r.has(name) {
			continue
		}
		of := Giver(name, r.objects...)
		if ways++; of != giver || r.objects[of].Inherits(name) != r.objects[giver].Inherits(satisfyOption) {
			r.refuse(satisfyOption, "cannot have "+Prefix+name+" of another object be one of several ways in", "say both on the Ingress, both on the Service, or both for the class")
			return
		}
	}
	if ways < 2 {
		r.report(diag.Warning, satisfyOption, "has no effect with fewer than two of allow-list, auth-basic and auth-url", "")
		return
	}
	s.Protection.AllowSuffices = s.Protection.Allow.Any()
	if s.Basic != nil {
		s.Basic.Alternative, s.Basic.Others = true, s.External != nil
	}
	if s.External != nil {
		s.External.Alternative = true
		if s.Basic != nil {
			s.External.Realm = s.Basic.Realm
		}
	}
}

// errorStatuses reads statuses of answers that are errors.
func errorStatuses(text string) ([]int, error) {
	out, err := listOf(func(word string) (int, error) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 400 || n > 599 || strconv.Itoa(n) != word {
			return 0, fault("is not the status of an error", "use 400 to 599")
		}
		return n, nil
	})(text)
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > mostEdits {
		return nil, fault(fmt.Sprintf("lists %d statuses", len(out)), fmt.Sprintf("use %d at most", mostEdits))
	}
	return out, err
}
