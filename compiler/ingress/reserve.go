package ingress

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// clientsHeaders are those, in lower case, that clients send on their own account, and that
// endpoints do not believe as they are. Where a service that is asked for authentication answers
// with one, such as Authorization, it is still a client's on routes where none is asked.
var clientsHeaders = map[string]bool{
	"authorization": true, "cookie": true, "accept": true, "accept-encoding": true, "accept-language": true, "content-type": true,
	"origin": true, "referer": true, "user-agent": true, "x-requested-with": true, "x-request-id": true, "x-csrf-token": true, "x-xsrf-token": true,
}

// answerHeaders returns the names, in lower case, of the headers that filters take from the answer
// of a service that is asked for authentication.
func answerHeaders(filters []policy.Filter) map[string]bool {
	names := map[string]bool{}
	for _, f := range filters {
		if external, ok := f.(policy.ExternalAuth); ok {
			for _, name := range external.AnswerHeaders {
				names[strings.ToLower(name)] = true
			}
		}
	}
	return names
}

// reserveHeaders has requests lose, on all routes to a Service, the headers by which a service
// that is asked for authentication on some of them tells of the user. Endpoints do not see by
// which route a request came, and would believe what a client wrote.
func reserveHeaders(backends map[string]*routing.Backend, allow []string) {
	all := slices.Collect(maps.Values(backends))
	reserve(all, all, allow)
}

// ReserveHeaders does the same for backends that others than Ingresses bring, and that lead to Services of
// which backends of Ingresses say who asks.
func ReserveHeaders(backends, ofIngresses []routing.Backend, allow []string) {
	var to, from []*routing.Backend
	for i := range backends {
		to = append(to, &backends[i])
	}
	for i := range ofIngresses {
		from = append(from, &ofIngresses[i])
	}
	reserve(to, from, allow)
}

// reserve has backends remove headers that others of the same Service set.
func reserve(backends, by []*routing.Backend, allow []string) {
	allowed := map[string]bool{}
	for _, name := range allow {
		allowed[strings.ToLower(name)] = true
	}
	reserved := map[types.NamespacedName]map[string]bool{} // names in lower case, by Service
	for _, b := range by {
		for name := range answerHeaders(b.Filters) {
			if clientsHeaders[name] || allowed[name] {
				continue
			}
			for _, target := range b.Targets {
				if reserved[serviceOf(target)] == nil {
					reserved[serviceOf(target)] = map[string]bool{}
				}
				reserved[serviceOf(target)][name] = true
			}
		}
	}
	if len(reserved) == 0 {
		return // as mostly
	}
	for _, b := range backends {
		names := map[string]bool{}
		for _, target := range b.Targets {
			maps.Copy(names, reserved[serviceOf(target)])
		}
		for own := range answerHeaders(b.Filters) {
			delete(names, own) // its filter removes them itself
		}
		if len(names) > 0 {
			b.Filters = append([]policy.Filter{policy.ReservedHeaders{Names: slices.Sorted(maps.Keys(names))}}, b.Filters...)
		}
	}
}
