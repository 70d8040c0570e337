package stores

import (
	"net/url"
	"slices"

	"github.com/hapsnap/hapsnap/snapshots/delivery"
)

// query is what follows ? in the URL of a git store.
type query struct {
	branch  string          // "": the usual one
	review  string          // "": the branch is written to
	deliver delivery.Target // zero: none
}

// parseQuery reads what follows ?. Reading a store is the same with and without a
// target to deliver to, so that both programs can be given the same URL.
func parseQuery(u *url.URL) (query, error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return query{}, usage("store %s: what follows ? cannot be parsed", u.Redacted())
	}
	for name, given := range values {
		if !slices.Contains([]string{"branch", "review", "deliver"}, name) || len(given) != 1 || given[0] == "" {
			return query{}, usage("store %s: only ?branch=NAME can be given, once, and review=NAME and deliver=NAMESPACE/NAME", u.Redacted())
		}
	}
	q := query{branch: values.Get("branch"), review: values.Get("review")}
	if text := values.Get("deliver"); text != "" {
		if q.deliver, err = delivery.ParseTarget(text); err != nil {
			return query{}, usage("store %s: deliver: %w", u.Redacted(), err)
		}
	}
	return q, nil
}
