package compiler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/fair"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// HAProxy has a table of clients for each backend with a rate limit. Who sends made-up addresses or values of headers fills
// it. So the tables of a namespace have a largest size together, and those of all namespaces. The tables of a namespace are
// of the same size, which is halved until they fit: so it seldom changes while backends come and go, and a namespace that
// has few never loses anything to one that has many.

const (
	// leastCounted is how many clients a limit counts even if its namespace has very many: they take about as much memory
	// as a backend with some servers.
	leastCounted = policy.MostCounted >> 9
	// fewCounted is how many clients are few enough to be worth a warning: most applications have fewer at a time.
	fewCounted = 10_000
)

// The limits of the configuration, and what they cost.
const (
	limitOfNamespace = "namespaceCountedClients"
	limitOfAll       = "countedClients"
	memoryOfClients  = "HAProxy takes up to 256 bytes of memory for each client"
)

// counting is the rate limits of a namespace.
type counting struct {
	backends []int // which of the model have one
	each     int   // how many clients each of them counts
	limit    string
	most     int
}

// shrink has each limit count fewer clients until all of them count no more than so many, or as few as they may.
func (c *counting) shrink(all int, limit string, most int) {
	for c.each > leastCounted && c.each*len(c.backends) > all {
		c.each, c.limit, c.most = c.each/2, limit, most
	}
}

// countFewer returns the backends, with rate limits that count fewer clients if those of their namespace, or those of all,
// are too many. It warns a namespace that has so many that they count few, at the youngest object that has one. If all
// namespaces together have too many, it warns once, since only the administrator can change that.
func countFewer(backends []routing.Backend, limits config.Limits, born func() map[diag.Object]time.Time) ([]routing.Backend, []diag.Diagnostic) {
	spaces := map[string]*counting{}
	for i, b := range backends {
		if b.Protection != nil && b.Protection.Rate != nil {
			namespace := payerOf(b.Origins).Object.Namespace
			if spaces[namespace] == nil {
				spaces[namespace] = &counting{each: policy.MostCounted}
			}
			spaces[namespace].backends = append(spaces[namespace].backends, i)
		}
	}
	var sizes []int
	for _, c := range spaces {
		if most := limits.NamespaceCountedClients; most > 0 {
			c.shrink(most, limitOfNamespace, most)
		}
		sizes = append(sizes, c.each*len(c.backends))
	}
	if most := limits.CountedClients; most > 0 {
		share := fair.Allowance(sizes, most)
		for _, c := range spaces {
			c.shrink(share, limitOfAll, most)
		}
	}
	maps.DeleteFunc(spaces, func(_ string, c *counting) bool { return c.limit == "" })
	if len(spaces) == 0 {
		return backends, nil // nearly always
	}
	var found []diag.Diagnostic
	var together counting
	var among []string // the namespaces
	out, ages := slices.Clone(backends), born()
	for _, namespace := range slices.Sorted(maps.Keys(spaces)) {
		c := spaces[namespace]
		var youngest routing.Origin
		for n, i := range c.backends {
			protection, rate := *out[i].Protection, *out[i].Protection.Rate
			rate.Counted, protection.Rate = c.each, &rate
			out[i].Protection = &protection
			if o := payerOf(out[i].Origins); n == 0 || cmp.Or(ages[o.Object].Compare(ages[youngest.Object]), o.Compare(youngest)) > 0 {
				youngest = o
			}
		}
		if c.each >= fewCounted {
			continue
		}
		if c.limit == limitOfAll {
			together.backends = append(together.backends, c.backends...)
			together.each, together.most = min(cmp.Or(together.each, c.each), c.each), c.most
			among = append(among, namespace)
			continue
		}
		found = append(found, diag.Diagnostic{
			Severity: diag.Warning, Position: youngest.Position, Object: youngest.Object,
			Message: fmt.Sprintf("namespace %s has rate limits for %d backends, so each of them counts %d clients at a time instead of %d: those of a namespace may count %d together",
				namespace, len(c.backends), c.each, policy.MostCounted, c.most),
			Hint: "have fewer backends with a limit, or have limits." + limitOfNamespace + " of the configuration raised; " + memoryOfClients,
		})
	}
	if len(among) > 0 {
		found = append(found, diag.Diagnostic{
			Severity: diag.Warning,
			Message: fmt.Sprintf("the rate limits of %d backends count as few as %d clients at a time instead of %d, since those of all namespaces may count %d together: they are in %s",
				len(together.backends), together.each, policy.MostCounted, together.most, printable.Few(among, 3)),
			Hint: "raise limits." + limitOfAll + " of the configuration; " + memoryOfClients,
		})
	}
	return out, found
}

// A manifest has a largest size, and a snapshot whose manifest is larger cannot be published. Tenants fill it with
// references to certificates, with the names in these, and with objects that are left out. So each of the three has a
// part of the manifest, and a namespace that takes more than others loses what does not fit.

const (
	// roomForReferences is for references to certificates. 20,000 usual ones fit.
	roomForReferences = 7 << 20
	// roomForLeftOut is for the objects that are left out. roomForNames is for the names in certificates, if references
	// leave so much. What tenants make up hardly compresses, and a store in ConfigMaps needs one more for each 900 KiB.
	roomForLeftOut = 256 << 10
	roomForNames   = 512 << 10
	// roomForOthers is what the rest of the manifest takes at least.
	roomForOthers = 512 << 10
)

// referenceSize returns how many bytes a reference takes in a manifest, without the names in its certificate. A sealed
// certificate also has a file, which the manifest lists.
func referenceSize(r snapshots.CertificateRef, mode snapshots.CertificateMode) int {
	size := 64 + len(r.File) + len(r.Secret.Namespace) + len(r.Secret.Name)
	if r.Use != snapshots.UseCertificate {
		return size + 14
	}
	if r.Observed != nil {
		size += 145
	}
	switch mode {
	case snapshots.ModeSealed:
		size += 100 + 140 + len(r.File)
	case snapshots.ModeExact, snapshots.ModeCompanion:
		size += 100
	case snapshots.ModeReference:
	}
	return size
}

// HAProxy takes as long for so many bytes of authorities as for a certificate: to read them once, and at each host whose
// clients are asked for a certificate of theirs.
const (
	bytesToRead  = 4 << 10
	bytesForHost = 64 << 10
)

// authoritySizes returns how many bytes the authorities of Secrets and ConfigMaps have, by file.
func authoritySizes(secrets []inputs.Object[corev1.Secret], model routing.Model) map[string]int {
	out := map[string]int{}
	for _, authority := range model.Authorities {
		out[authority.File] = len(authority.PEM)
	}
	for _, cert := range model.Certificates {
		if cert.Use == snapshots.UseCA {
			out[cert.File] = 0
		}
	}
	if len(out) == 0 {
		return nil // nearly always
	}
	for _, s := range secrets {
		file := routing.AuthorityFile(snapshots.SecretName{Namespace: s.Ref.Namespace, Name: s.Ref.Name})
		if _, exists := out[file]; exists {
			out[file] = len(s.Value.Data[bind.AuthoritiesKey]) + len(s.Value.StringData[bind.AuthoritiesKey])
		}
	}
	return out
}

// crowded returns a fault for each object that names certificates for which the manifest has no room, or of which its
// namespace has more than it may. In the namespaces that name most, the oldest objects are kept, as far as they fit. So an
// object that has too many alone is left out, and not the younger ones. One that names only what others name stays.
func crowded(in Input, a render.Artifact, model routing.Model) []render.Fault {
	mode, most := in.Config.Certificates.RefMode(), in.Config.Limits.NamespaceCertificates
	total := 0
	for _, ref := range a.Certificates {
		total += referenceSize(ref, mode)
	}
	authorities := authoritySizes(in.Objects.Secrets, model)
	if total <= roomForReferences && (most == 0 || len(model.Certificates) <= most && len(authorities) == 0) {
		return nil // nearly always
	}
	sizes := make(map[string]int, len(a.Certificates)) // by file
	for _, ref := range a.Certificates {
		sizes[ref.File] = referenceSize(ref, mode)
	}
	type user struct {
		origin       routing.Origin
		size, number int
	}
	users, all, numbers := map[diag.Object]*user{}, map[string]int{}, map[string]int{}
	use := func(by routing.Origin, size, number int) {
		object := by.Object
		if object.Namespace == "" || object.Kind == "Secret" { // the configuration names it
			return
		}
		if users[object] == nil {
			users[object] = &user{origin: by}
		}
		users[object].size += size
		users[object].number += number
		all[object.Namespace] += size
		numbers[object.Namespace] += number
	}
	for _, cert := range model.Certificates {
		use(cert.Origin, sizes[cert.File], 1+authorities[cert.File]/bytesToRead)
	}
	ask := func(names []routing.ServerName, clients *routing.ClientCheck) {
		for _, name := range names {
			if check := cmp.Or(name.Clients, clients); check != nil {
				use(name.Origin, 0, authorities[check.Authority]/bytesForHost)
			}
		}
	}
	ask(model.ServerNames, nil)
	for _, b := range model.Binds {
		ask(b.ServerNames, b.Clients)
	}
	for _, l := range model.Listeners {
		ask(l.ServerNames, l.Clients)
	}
	share := fair.Allowance(slices.Collect(maps.Values(all)), roomForReferences)
	ages := born(in.Objects)
	oldest := slices.SortedFunc(maps.Keys(users), func(a, b diag.Object) int {
		return cmp.Or(ages[a].Compare(ages[b]), a.Compare(b))
	})
	clear(all)
	clear(numbers)
	var out []render.Fault
	for _, object := range oldest {
		namespace, u := object.Namespace, users[object]
		size, number := all[namespace]+u.size, numbers[namespace]+u.number
		f := render.Fault{Hint: "name fewer Secrets, or have more hosts in each certificate; the oldest objects of a namespace are kept, as far as they fit"}
		switch {
		case u.size > 0 && size > share:
			f.Message = fmt.Sprintf("is left out: the certificates that namespace %s names do not fit into a snapshot", namespace)
		case most > 0 && u.number > 0 && number > most:
			f.Message = fmt.Sprintf("is left out: with it namespace %s would name %d certificates, and may name %d", namespace, number, most)
			f.Hint += "; or have limits.namespaceCertificates of the configuration raised"
		default:
			all[namespace], numbers[namespace] = size, number
			continue
		}
		f.Origin = render.LineOrigin{Objects: []routing.Origin{u.origin}}
		out = append(out, f)
	}
	return out
}

// born returns when the objects were created that may name certificates.
func born(objects inputs.Inputs) map[diag.Object]time.Time {
	out := map[diag.Object]time.Time{}
	for _, o := range objects.Ingresses {
		out[o.Ref] = o.Value.CreationTimestamp.Time
	}
	for _, o := range objects.Services {
		out[o.Ref] = o.Value.CreationTimestamp.Time
	}
	for _, o := range objects.Gateway.Each() {
		out[o.Ref] = o.Value.GetCreationTimestamp().Time
	}
	return out
}

// withFewerNames returns references with fewer of the names in their certificates, if not all fit.
func withFewerNames(references []snapshots.CertificateRef, mode snapshots.CertificateMode) []snapshots.CertificateRef {
	sizes, room := make([]int, len(references)), snapshots.MaxManifest-roomForOthers-roomForLeftOut
	for i, r := range references {
		room -= referenceSize(r, mode)
		if r.Observed != nil {
			sizes[i] = sizeOfNames(r.Observed.Names)
		}
	}
	most := fair.Allowance(sizes, max(0, min(room, roomForNames)))
	out := slices.Clone(references)
	for i, r := range out {
		if sizes[i] > most {
			observed := *r.Observed
			for n := range observed.Names {
				if sizeOfNames(observed.Names[:n+1]) > most {
					observed.Names = observed.Names[:n]
					break
				}
			}
			out[i].Observed = &observed
		}
	}
	return out
}

// sizeOfNames returns how many bytes names take in a manifest.
func sizeOfNames(names []string) int {
	size := 0
	for _, name := range names {
		size += 12 + len(name)
	}
	return size
}

// mostReason is how many characters a reason in a manifest may have.
const mostReason = 1 << 10

// withoutSome returns the objects to list in a manifest. If they do not fit, the last ones of the namespaces with most
// are replaced with an entry that says how many there are.
func withoutSome(left []snapshots.Quarantined) []snapshots.Quarantined {
	sizes := map[string]int{}
	sizeOf := func(q snapshots.Quarantined) int {
		return 80 + len(q.Kind) + len(q.Namespace) + len(q.Name) + 2*len(q.Reason)
	}
	out := slices.Clone(left)
	for i, q := range out {
		out[i].Reason = process.Shorten(q.Reason, mostReason)
		sizes[q.Namespace] += sizeOf(out[i])
	}
	most := fair.Allowance(slices.Collect(maps.Values(sizes)), roomForLeftOut)
	used, omitted := map[string]int{}, map[string]int{}
	out = slices.DeleteFunc(out, func(q snapshots.Quarantined) bool {
		used[q.Namespace] += sizeOf(q)
		if used[q.Namespace] > most {
			omitted[q.Namespace]++
			return true
		}
		return false
	})
	for _, namespace := range slices.Sorted(maps.Keys(omitted)) {
		out = append(out, snapshots.Quarantined{
			Kind: "Namespace", Name: namespace,
			Reason: fmt.Sprintf("%d more objects with errors are not listed here; compiler status lists them", omitted[namespace]),
		})
	}
	return out
}
