package pusher

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// troubleWithSecrets tells what the snapshots that run take in vain from Secrets,
// and what is wrong with the rest of it.
func (e *engine) troubleWithSecrets(now time.Time) {
	needed := map[bind.Need]bool{} // and whether it is missing
	for _, i := range e.instances {
		id := i.snapshot()
		n, _ := e.bindings.node(id, i.Layout)
		for _, need := range e.bindings.prepared[id].needs {
			needed[need] = needed[need] || slices.Contains(n.missing, need)
		}
	}
	var errs []error
	e.objects.missed = nil
	for _, need := range slices.SortedFunc(maps.Keys(needed), bind.Need.Compare) {
		if err := secretTrouble(need, needed[need], e.bindings.withExpiry(need, e.live.faults[need], now)); err != nil {
			errs = append(errs, err)
			e.objects.missed = append(e.objects.missed, brokenSecret{need.Secret, err.Error()})
		}
	}
	e.trouble("secrets", errors.Join(errs...), now)
}

// secretTrouble says what is wrong with something that a Secret should hold, and
// what comes of it; nil for nothing. The faults are what was found in the Secret.
func secretTrouble(need bind.Need, missing bool, faults []error) error {
	if !missing {
		if len(faults) == 0 {
			return nil
		}
		return fmt.Errorf("%s: %s", need, inShort(faults))
	}
	why := ""
	if len(faults) > 0 {
		why = ": " + inShort(faults)
	}
	switch need.Use {
	case snapshots.UseCA:
		return fmt.Errorf("no certificate is trusted: Secret %s has no usable authorities under %s%s", need.Secret, bind.AuthoritiesKey, why)
	case snapshots.UseUsers:
		return fmt.Errorf("nobody is let in: Secret %s has no usable users under %s%s", need.Secret, bind.UsersKey, why)
	case snapshots.UseValue:
		return fmt.Errorf("a value that nobody knows is used: Secret %s has none under %s that is one line without '%%'", need.Secret, need.Key)
	case snapshots.UseCertificate:
	}
	return fmt.Errorf("the fallback certificate is served: Secret %s has no usable certificate%s", need.Secret, why)
}

// inShort joins the first few faults.
func inShort(faults []error) string {
	const most = 3
	var out []string
	for _, err := range faults[:min(len(faults), most)] {
		out = append(out, err.Error())
	}
	if more := len(faults) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// redacted is an error of which only the text is another.
type redacted struct {
	error
	text string
}

func (r redacted) Error() string { return r.text }

func (r redacted) Unwrap() error { return r.error }

// withoutSecrets keeps what HAProxy quotes of its configuration out of logs and of
// the status.
func withoutSecrets(err error, bound ...bind.Bound) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, b := range bound {
		text = b.Redact(text)
	}
	return redacted{err, text}
}

// secretSet is what was made of each Secret of a cluster, so that one that changes
// costs no look at the others' keys.
type secretSet map[snapshots.SecretName]secretData

// secretData is what was made of one Secret.
type secretData struct {
	uid         types.UID
	certificate []byte // nil for none
	fault       error  // why there is none, or why it is that of before
	more        live.Secrets
}

// follow returns what is made of a newer version of the Secret. The last usable
// certificate stays while it is broken; users, authorities and values do not, for
// who may pass is said by what is there now.
func (d secretData) follow(s corev1.Secret) secretData {
	out := secretData{uid: s.UID, more: live.GatherSecrets([]corev1.Secret{s})}
	certificates, problems := live.Certificates([]corev1.Secret{s})
	for _, certificate := range certificates {
		out.certificate = certificate
	}
	for _, p := range problems {
		out.certificate, out.fault = d.certificate, p
	}
	return out
}

// live returns what the Secrets hold together.
func (set secretSet) live() liveData {
	out := liveData{faults: map[bind.Need][]error{}}
	out.Certificates, out.Authorities = map[snapshots.SecretName][]byte{}, map[snapshots.SecretName][]byte{}
	out.Users, out.Values = map[snapshots.SecretName][]htpasswd.User{}, map[bind.SecretKey]string{}
	for _, name := range slices.SortedFunc(maps.Keys(set), snapshots.SecretName.Compare) {
		d := set[name]
		if d.certificate != nil {
			out.Certificates[name] = d.certificate
		}
		if d.fault != nil {
			out.problems = append(out.problems, d.fault.Error())
			out.faulty = append(out.faulty, brokenSecret{name, d.fault.Error()})
		}
		maps.Copy(out.Authorities, d.more.Authorities)
		maps.Copy(out.Users, d.more.Users)
		maps.Copy(out.Values, d.more.Values)
		maps.Copy(out.faults, d.more.Problems)
	}
	return out
}

// versions knows which version of a certificate each Secret holds. Only those that
// are new are read.
type versions struct {
	certificates map[snapshots.SecretName][]byte
	of           map[snapshots.SecretName]string
}

// follow returns what is known of other certificates.
func (v versions) follow(certificates map[snapshots.SecretName][]byte) versions {
	of := make(map[snapshots.SecretName]string, len(certificates))
	for name, data := range certificates {
		if version, known := v.of[name]; known && bytes.Equal(v.certificates[name], data) {
			of[name] = version
		} else if version, err := pem.Version(data); err == nil {
			of[name] = version
		}
	}
	return versions{certificates, of}
}

// versionsOf returns the references of a snapshot to versions that there are.
func versionsOf(s snapshots.Snapshot) []snapshots.CertificateRef {
	return slices.DeleteFunc(slices.Clone(s.Manifest.Spec.Certificates), func(ref snapshots.CertificateRef) bool {
		return ref.Version == ""
	})
}

// addVersions takes certificates that snapshots carry.
func (b *bindings) addVersions(found map[string][]byte, now time.Time) {
	next := maps.Clone(b.live.Versions)
	if next == nil {
		next = map[string][]byte{}
	}
	maps.Copy(next, found)
	b.keepVersions(next, now)
}

// gatherVersions takes from the Secrets the versions that snapshots name exactly, and
// drops those that no snapshot in use names any more. One that is no longer in its
// Secret stays for as long as it is named.
func (b *bindings) gatherVersions(now time.Time) {
	next := map[string][]byte{}
	for _, p := range b.prepared {
		for _, ref := range p.versions {
			if ref.Mode == snapshots.ModeExact {
				b.secrets = b.secrets.follow(b.offered)
			}
			if ref.Mode == snapshots.ModeExact && b.secrets.of[ref.Secret] == ref.Version {
				next[ref.Version] = b.offered[ref.Secret]
			} else if known, ok := b.live.Versions[ref.Version]; ok {
				next[ref.Version] = known
			}
		}
	}
	b.keepVersions(next, now)
}

// keepVersions makes these the versions at hand.
func (b *bindings) keepVersions(next map[string][]byte, now time.Time) {
	if maps.EqualFunc(b.live.Versions, next, slices.Equal[[]byte]) {
		return
	}
	b.live.Versions = next
	b.shapes++
	b.versionExpiry = b.versionExpiry.follow(next)
	b.lookAtExpiry(now)
}

// absent returns the references of a snapshot to versions that are not at hand.
func (b *bindings) absent(id snapshots.ID) []snapshots.CertificateRef {
	return slices.DeleteFunc(slices.Clone(b.prepared[id].versions), func(ref snapshots.CertificateRef) bool {
		return len(b.live.Versions[ref.Version]) > 0
	})
}

// complete reports whether all certificates are at hand that a snapshot names by
// version: it can be given to an instance that does not have them.
func (b *bindings) complete(id snapshots.ID) bool { return len(b.absent(id)) == 0 }

// unopened returns the snapshots that carry certificates which are not at hand.
func (b *bindings) unopened() []snapshots.ID {
	var out []snapshots.ID
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		if slices.ContainsFunc(b.absent(id), func(ref snapshots.CertificateRef) bool { return ref.Mode != snapshots.ModeExact }) {
			out = append(out, id)
		}
	}
	return out
}

// otherVersions says which Secrets do not hold the version that a snapshot names
// exactly, and what comes of it.
func (b *bindings) otherVersions() []error {
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		for _, ref := range b.prepared[id].versions {
			if ref.Mode != snapshots.ModeExact || b.secrets.of[ref.Secret] == ref.Version {
				continue
			}
			holds := "there is no usable certificate in Secret " + ref.Secret.String()
			if other := b.secrets.of[ref.Secret]; other != "" {
				holds = fmt.Sprintf("Secret %s holds version %.10s", ref.Secret, other)
			}
			comes := "it is given to no instance"
			if len(b.live.Versions[ref.Version]) > 0 {
				comes = "that one, which is still known, is served on"
			}
			errs = append(errs, fmt.Errorf("%s, and %s names version %.10s: %s", holds, id, ref.Version, comes))
		}
	}
	return errs
}

// expiredVersion returns when the certificate of a Secret expired that snapshots in use
// carry or name; zero if it did not.
func (b *bindings) expiredVersion(secret snapshots.SecretName) time.Time {
	for _, id := range slices.SortedFunc(maps.Keys(b.prepared), snapshots.ID.Compare) {
		for _, ref := range b.prepared[id].versions {
			if ref.Secret == secret && b.live.ExpiredVersions[ref.Version] {
				return b.versionExpiry.ends[ref.Version]
			}
		}
	}
	return time.Time{}
}

// errAbsent keeps a snapshot from an instance.
var errAbsent = errors.New("a certificate that it names is not at hand")
