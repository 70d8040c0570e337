package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The kinds that are watched.
const (
	kindSlice  = "EndpointSlice"
	kindSecret = "Secret"
)

// Wanted is what snapshots need of a cluster.
type Wanted struct {
	Namespaces []string // of the Services whose endpoints are joined
	Secrets    []snapshots.SecretName
	// Keys are what they take from Secrets besides certificates, sorted: what a [Memory]
	// remembers.
	Keys []bind.SecretKey
}

// endpointSlices is the query for the EndpointSlices of a namespace, "" for all.
func endpointSlices(namespace string) kubewatch.Query {
	return kubewatch.Query{APIVersion: "discovery.k8s.io/v1", Kind: kindSlice, Namespace: namespace}
}

// secret is the query for one Secret.
func secret(name snapshots.SecretName) kubewatch.Query {
	return kubewatch.Query{APIVersion: "v1", Kind: kindSecret, Namespace: name.Namespace, Name: name.Name}
}

// EndpointRules returns the permissions to watch EndpointSlices, everywhere that a role with them is
// bound.
func EndpointRules() []rbacv1.PolicyRule { return rulesOf(endpointSlices("")) }

// SecretRules is [EndpointRules] for Secrets.
func SecretRules() []rbacv1.PolicyRule { return rulesOf(secret(snapshots.SecretName{})) }

func rulesOf(q kubewatch.Query) []rbacv1.PolicyRule {
	return kubewatch.Rules([]kubewatch.Query{q}, func(kubewatch.Query) string { return "" }, nil)[0].Rules
}

// Plan returns the queries for what is wanted, sorted: EndpointSlices by namespace, or with one watch
// for all, and Secrets by name.
func Plan(w Wanted, allNamespaces bool) []kubewatch.Query {
	var out []kubewatch.Query
	for _, namespace := range w.Namespaces {
		if allNamespaces {
			namespace = ""
		}
		out = append(out, endpointSlices(namespace))
	}
	for _, s := range w.Secrets {
		out = append(out, secret(s))
	}
	slices.SortFunc(out, kubewatch.Query.Compare)
	return slices.Compact(out)
}

// Status is what is known of a cluster, and what is not.
type Status struct {
	all        bool
	namespaces map[string]bool // true: read; false: it may not be
	secrets    map[snapshots.SecretName]bool
	// Slices is how many EndpointSlices are known.
	Slices int
	denied map[kubewatch.Query]bool // may not be read, or not any more
	// Waits is what is not known yet, and why, in the order of the plan.
	Waits []string
	// Refused are those of Waits that may not be read.
	Refused []string
	// Trouble is why the known objects get no updates, nil if they do.
	Trouble error
}

// Read reports whether the endpoints of a namespace are known.
func (s Status) Read(namespace string) bool {
	if s.all {
		namespace = ""
	}
	return s.namespaces[namespace]
}

// Knows reports whether everything wanted is known, as far as it can be: objects that may not be read
// count as missing.
func (s Status) Knows(w Wanted) bool {
	for _, namespace := range w.Namespaces {
		if s.all {
			namespace = ""
		}
		if _, settled := s.namespaces[namespace]; !settled {
			return false
		}
	}
	for _, name := range w.Secrets {
		if !s.secrets[name] {
			return false
		}
	}
	return true
}

// Denied lists what is wanted and may not be read, or no longer. Nobody knows the present objects.
// Those read before are kept. The texts follow "the pusher".
func (s Status) Denied(w Wanted) []string {
	var out []string
	for _, q := range Plan(w, s.all) {
		if s.denied[q] {
			out = append(out, denied(q))
		}
	}
	return out
}

// Unread reports whether the endpoints of a namespace may not be read, or no longer. Then a Service
// without known endpoints may have some.
func (s Status) Unread(namespace string) bool {
	if s.all {
		namespace = ""
	}
	return s.denied[endpointSlices(namespace)]
}

// DeniedSecrets are the Secrets that may not be read, or no longer.
func (s Status) DeniedSecrets() map[snapshots.SecretName]bool {
	out := map[snapshots.SecretName]bool{}
	for q := range s.denied {
		if q.Kind == kindSecret {
			out[snapshots.SecretName{Namespace: q.Namespace, Name: q.Name}] = true
		}
	}
	return out
}

// denied says that a query is not allowed.
func denied(q kubewatch.Query) string {
	verb := "list"
	if q.Name != "" {
		verb = "read"
	}
	if q.Name == "" && q.Namespace == "" {
		return "may not list EndpointSlices in all namespaces"
	}
	return "may not " + verb + " " + q.String()
}

// statusOf returns the status of queries, which are in the order of the plan.
//
// A Secret that may not be read holds up nobody: instances keep the certificate that they have of it,
// and its other content is what a [Memory] remembers, or counts as missing. If no Secret at all may be
// read, the roles are taken to be wrong, and the pusher waits: otherwise all hosts would lose their
// certificates.
func statusOf(all bool, list []kubewatch.QueryState) Status {
	out := Status{all: all, namespaces: map[string]bool{}, secrets: map[snapshots.SecretName]bool{}, denied: map[kubewatch.Query]bool{}}
	readable := false
	for _, s := range list {
		readable = readable || s.Query.Kind == kindSecret && s.Synced
	}
	var troubled []kubewatch.QueryState
	for _, s := range list {
		if s.Forbidden() {
			out.denied[s.Query] = true
		}
		settled := s.Synced || s.Forbidden() && (readable || s.Query.Kind == kindSlice)
		switch {
		case !settled:
			out.Waits = append(out.Waits, s.Text())
			if s.Forbidden() {
				out.Refused = append(out.Refused, s.Text())
			}
		case s.Query.Kind == kindSlice:
			out.namespaces[s.Query.Namespace] = s.Synced
		default:
			out.secrets[snapshots.SecretName{Namespace: s.Query.Namespace, Name: s.Query.Name}] = true
		}
		if s.Query.Kind == kindSlice {
			out.Slices += s.Count
		}
		if settled && s.Err != nil {
			troubled = append(troubled, s)
		}
	}
	out.Trouble = troubleOf(troubled)
	return out
}

// troubleOf names the first query in trouble. It leaves out how many others there are, since that
// grows from moment to moment while a connection breaks.
func troubleOf(list []kubewatch.QueryState) error {
	if len(list) == 0 {
		return nil
	}
	first, others := list[0], ""
	if len(list) > 1 {
		others = " and others"
	}
	return fmt.Errorf("nothing new is heard of %s%s, what was known is held: %w", first.Query, others, first.Err)
}

// recordedStatus is a [Status] in the form of an event log.
type recordedStatus struct {
	All        bool                   `json:"all,omitempty"`
	Namespaces map[string]bool        `json:"namespaces,omitempty"`
	Secrets    []snapshots.SecretName `json:"secrets,omitempty"`
	Slices     int                    `json:"slices"`
	Denied     []kubewatch.Query      `json:"denied,omitempty"`
	Waits      []string               `json:"waits,omitempty"`
	Refused    []string               `json:"refused,omitempty"`
	Trouble    string                 `json:"trouble,omitempty"`
}

// MarshalJSON writes the status for an event log. It contains nothing of Secrets.
func (s Status) MarshalJSON() ([]byte, error) {
	r := recordedStatus{All: s.all, Namespaces: s.namespaces, Slices: s.Slices, Waits: s.Waits, Refused: s.Refused}
	for _, name := range slices.SortedFunc(maps.Keys(s.secrets), snapshots.SecretName.Compare) {
		if s.secrets[name] {
			r.Secrets = append(r.Secrets, name)
		}
	}
	for _, q := range slices.SortedFunc(maps.Keys(s.denied), kubewatch.Query.Compare) {
		if s.denied[q] {
			r.Denied = append(r.Denied, q)
		}
	}
	if s.Trouble != nil {
		r.Trouble = s.Trouble.Error()
	}
	return json.Marshal(r)
}

// UnmarshalJSON reads a status from an event log.
func (s *Status) UnmarshalJSON(data []byte) error {
	var r recordedStatus
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read status of a cluster: %w", err)
	}
	*s = Status{
		all: r.All, namespaces: r.Namespaces, Slices: r.Slices, Waits: r.Waits, Refused: r.Refused,
		secrets: map[snapshots.SecretName]bool{}, denied: map[kubewatch.Query]bool{},
	}
	for _, name := range r.Secrets {
		s.secrets[name] = true
	}
	for _, q := range r.Denied {
		s.denied[q] = true
	}
	if r.Trouble != "" {
		s.Trouble = errors.New(r.Trouble)
	}
	return nil
}
