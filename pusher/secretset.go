package pusher

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

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
