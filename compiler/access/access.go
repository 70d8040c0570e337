// Package access handles the options that decide who may send requests: users of a Secret, networks of a ConfigMap,
// clients of a country, clients that a Service authenticates; and which agents inspect requests.
//
// It has two phases. Finding (demand.go) is pure: it reads options and Services, and names Secrets and ConfigMaps. A
// [Taker] adds the named objects to a model. It reports those that are missing or wrong: then the routes that they
// protect must be closed.
package access

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Config is what the configuration says of all this.
type Config struct {
	// SharedLists are the ConfigMaps, as namespace/name, whose lists of networks every namespace may name.
	SharedLists []string
	// MostListBytes bounds the lists of a namespace; 0 is no limit. Counted are those that others have taken already: they
	// count, and no second time.
	MostListBytes int
	Counted       []routing.NetworkList
	// Countries are the ConfigMaps of the list of countries, each as namespace/name, and
	// CountryHeader says that endpoints get the country in a header. CountryMemo remembers the list, or is nil.
	Countries     []string
	CountryHeader bool
	CountryMemo   *CountryMemo
	// CountryFiles are the files of the list, as they were read.
	CountryFiles []CountryFile
	// SecretsUnseen says that no Secret is looked at, and that none is missing.
	SecretsUnseen bool
	Inspection    Inspection
}

// Taker takes what options name into a model, each once.
type Taker struct {
	users    *userlists
	lists    *networkLists
	policies *policies
}

// NewTaker returns a Taker that looks for objects in the given lists. It passes findings to add.
func NewTaker(secrets inputs.Lookup[corev1.Secret], configMaps inputs.Lookup[corev1.ConfigMap], cfg Config, add func(...diag.Diagnostic)) *Taker {
	lists := &networkLists{
		add: add, configMaps: configMaps, countries: &countries{add: add, cfg: cfg, configMaps: configMaps}, shared: cfg.SharedLists, most: cfg.MostListBytes,
		lists: map[policy.NetworkList]*routing.NetworkList{}, bytes: map[string]int{}, counted: map[policy.NetworkList]bool{},
	}
	// Lists that others have taken count.
	for _, l := range cfg.Counted {
		name := types.NamespacedName{Namespace: l.Namespace, Name: l.ConfigMap}
		if configMap, exists := lists.configMaps.Find(name); exists && !slices.Contains(lists.shared, name.String()) {
			lists.bytes[l.Namespace] += len(configMap.Value.Data[l.Key])
			lists.counted[l.NetworkList] = true
		}
	}
	return &Taker{
		users:    &userlists{add: add, secrets: secrets, secretsUnseen: cfg.SecretsUnseen, lists: map[snapshots.SecretName]*routing.Userlist{}, costs: map[snapshots.SecretName]time.Duration{}, positions: map[snapshots.SecretName]diag.Position{}},
		lists:    lists,
		policies: &policies{add: add, configMaps: configMaps, cfg: cfg.Inspection, read: map[types.NamespacedName]*WAFPolicy{}, named: map[string]int{}, bytes: map[string]int{}},
	}
}

// Lists takes lists, and reports whether all of them can be had.
func (t *Taker) Lists(l Lists) bool { return t.lists.take(l) }

// Users takes a list of users. It is there even if the Secret is not: then nobody gets in.
func (t *Taker) Users(u Users) { t.users.take(u) }

// Model gives a model what was taken.
func (t *Taker) Model(m *routing.Model) {
	m.Userlists, m.NetworkLists, m.Countries = t.users.model(), t.lists.model(), t.lists.countries.model()
}

// NotSeen says that a Secret is not among the inputs, whether or not it could have been.
func NotSeen(name snapshots.SecretName, unseen bool) string {
	if unseen {
		return fmt.Sprintf("whether Secret %s exists and can be used is not checked here", name)
	}
	return fmt.Sprintf("Secret %s does not exist here", name)
}

// userlists are the lists of users that backends name.
type userlists struct {
	add           func(...diag.Diagnostic)
	secrets       inputs.Lookup[corev1.Secret]
	secretsUnseen bool
	lists         map[snapshots.SecretName]*routing.Userlist
	costs         map[snapshots.SecretName]time.Duration
	positions     map[snapshots.SecretName]diag.Position
}

// take gives the users of a Secret a list. It is there even if the Secret is not: then it has no
// users, and nobody gets in.
func (u *userlists) take(d Users) {
	list := u.lists[d.secret]
	if list == nil {
		list = &routing.Userlist{Name: userlistName(d.secret), Secret: d.secret}
		u.lists[d.secret] = list
		// Users who cannot be let in, or at a cost, are reported.
		secret, exists := u.secrets.Find(types.NamespacedName(d.secret))
		if exists {
			at := secret.Position("data", bind.UsersKey)
			if plain := secret.Position("stringData", bind.UsersKey); plain.Line > at.Line {
				at = plain // of the two, the one that is there
			}
			report := func(severity diag.Severity, message, hint string) {
				u.add(diag.Diagnostic{Severity: severity, Position: at, Object: secret.Ref, Message: message, Hint: hint})
			}
			users, problems, ok := live.Users(*secret.Value)
			u.costs[d.secret], u.positions[d.secret] = htpasswd.Cost(users), at
			if !ok {
				report(diag.Error, "has no key "+bind.UsersKey+" with users", "nobody gets in until it has: write lines as htpasswd -B does")
			}
			for _, p := range problems {
				severity := diag.Error
				if p.Usable {
					severity = diag.Warning
				}
				report(severity, "key "+bind.UsersKey+", "+p.Error(), p.Hint)
			}
		}
	}
	if _, exists := u.secrets.Find(types.NamespacedName(d.secret)); !exists {
		u.add(d.spot.Finding(diag.Warning, ": "+NotSeen(d.secret, u.secretsUnseen), "nobody gets in until it does where snapshots are pushed"))
	}
	if n := len(list.Origins); n == 0 || list.Origins[n-1] != d.spot.Origin {
		list.Origins = append(list.Origins, d.spot.Origin)
	}
}

// model returns the lists of users as the model has them.
func (u *userlists) model() []routing.Userlist {
	var out []routing.Userlist
	for _, name := range live.TooCostly(u.costs) {
		secret, _ := u.secrets.Find(types.NamespacedName(name))
		u.add(diag.Diagnostic{
			Severity: diag.Error, Position: u.positions[name], Object: secret.Ref, Message: "key " + bind.UsersKey + ": " + live.ErrHashes.Error(),
			Hint: "nobody gets in by these users: use hashes that are less costly, such as of htpasswd -B -C 5",
		})
	}
	for _, list := range u.lists {
		slices.SortFunc(list.Origins, routing.Origin.Compare)
		list.Origins = slices.Compact(list.Origins)
		out = append(out, *list)
	}
	slices.SortFunc(out, func(a, b routing.Userlist) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// networkLists are the lists of networks that backends name.
type networkLists struct {
	add        func(...diag.Diagnostic)
	configMaps inputs.Lookup[corev1.ConfigMap]
	countries  *countries
	shared     []string                                    // ConfigMaps that every namespace may name
	most       int                                         // bytes of a namespace's; 0 for any number
	lists      map[policy.NetworkList]*routing.NetworkList // those that were read; nil is malformed
	bytes      map[string]int                              // of those that were named, by namespace
	counted    map[policy.NetworkList]bool                 // by others
}

// take takes lists into the model, and reports whether all of them can be had.
func (n *networkLists) take(demands Lists) bool {
	ok := true
	for _, d := range demands.networks {
		if message, hint := n.find(d); message != "" {
			n.add(d.spot.Closes(fmt.Sprintf(": list %s %s", d.list, message), hint))
			ok = false
		}
	}
	return n.countries.take(demands.countries) && ok
}

// find takes a list into the model, or says why it cannot.
func (n *networkLists) find(d listDemand) (message, hint string) {
	list, name := d.list, types.NamespacedName{Namespace: d.list.Namespace, Name: d.list.ConfigMap}
	isShared := slices.Contains(n.shared, name.String())
	if name.Namespace != d.by && !isShared {
		return "is of another namespace, which does not share it", "copy it, or have " + name.String() + " added to shared.networkLists of the configuration"
	}
	configMap, exists := n.configMaps.Find(name)
	if !exists {
		why, hint := n.configMaps.Missing(name)
		return fmt.Sprintf("cannot be read: ConfigMap %s %s", name, why), hint
	}
	text, exists := configMap.Value.Data[list.Key]
	if !exists {
		return fmt.Sprintf("cannot be read: ConfigMap %s has no key %s", name, list.Key), "add it, or correct the name"
	}
	if _, known := n.lists[list]; !known {
		if !isShared && !n.counted[list] {
			if message, hint = n.tooLarge(list.Namespace, len(text)); message != "" {
				return message, hint
			}
		}
		n.lists[list] = n.read(list, configMap, text)
	}
	if n.lists[list] == nil {
		return "is malformed", "see the message on ConfigMap " + name.String()
	}
	return "", ""
}

// tooLarge says that the lists of a namespace are over the limit with one more of so many
// bytes, which counts then or not at all.
func (n *networkLists) tooLarge(namespace string, bytes int) (message, hint string) {
	if all := n.bytes[namespace] + bytes; n.most > 0 && all > n.most {
		return fmt.Sprintf("is too large: with it, the lists that are named of namespace %s would have %d bytes, and may have %d", namespace, all, n.most),
			"make it smaller, or have limits.namespaceListBytes of the configuration raised"
	}
	n.bytes[namespace] += bytes
	return "", ""
}

// read returns a list, or nil if anything of it is wrong, and says so.
func (n *networkLists) read(list policy.NetworkList, configMap inputs.Object[corev1.ConfigMap], text string) *routing.NetworkList {
	networks, wrong := options.ParseNetworks(text)
	if len(wrong) == 0 {
		slices.SortFunc(networks, comparePrefixes)
		return &routing.NetworkList{NetworkList: list, Networks: slices.Compact(networks), Origin: originOf(configMap, "data", list.Key)}
	}
	more := ""
	if n := len(wrong) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more are wrong", n)
	}
	n.add(diag.Diagnostic{
		Severity: diag.Error, Position: configMap.Position("data", list.Key), Object: configMap.Ref, Hint: wrong[0].Hint,
		Message: fmt.Sprintf("key %s, line %d: %s%s; the routes that are protected by this list answer 503", list.Key, wrong[0].Line, wrong[0].Message, more),
	})
	return nil
}

func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// model returns the lists of networks as the model has them.
func (n *networkLists) model() []routing.NetworkList {
	var out []routing.NetworkList
	for _, list := range n.lists {
		if list != nil {
			out = append(out, *list)
		}
	}
	slices.SortFunc(out, func(a, b routing.NetworkList) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// mostNames is how many of the names that a certificate is for a message lists.
const mostNames = 3

// CertificateWarnings returns what is to be said of a certificate that can be used, at a time, or zero for none: that it
// has expired, until when something else happens, and why clients refuse it though HAProxy serves it.
func CertificateWarnings(secret inputs.Object[corev1.Secret], observed snapshots.ObservedCertificate, now time.Time, refused []string, until string) []diag.Diagnostic {
	var out []diag.Diagnostic
	warn := func(message, hint string) {
		out = append(out, diag.Diagnostic{Severity: diag.Warning, Position: secret.Position("data", corev1.TLSCertKey), Object: secret.Ref, Message: message, Hint: hint})
	}
	if !now.IsZero() && now.After(observed.NotAfter) {
		warn("the certificate expired on "+observed.NotAfter.Format("2006-01-02"), "renew it; until then "+until)
	}
	for _, fault := range refused {
		warn(fmt.Sprintf("the certificate for %s %s", cmp.Or(printable.Few(observed.Names, mostNames), "no name"), fault), "it is served, and clients may refuse it; put one there that they accept, with its chain")
	}
	return out
}
