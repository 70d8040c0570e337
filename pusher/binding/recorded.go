package binding

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// The form of live data in an event log. The log has digests where a Secret has content. A replay uses placeholders
// instead, one for each digest. The log also has the nodes that were bound, so a replay binds nothing.

// Digest returns the digest of a secret in one event log. The same secret has another digest in another log.
type Digest func(secret []byte) string

// RecordedObjects is [Objects] without secrets.
type RecordedObjects struct {
	Slices       int                    `json:"slices"`
	Unsure       bool                   `json:"unsure,omitempty"`
	Problems     []string               `json:"problems,omitempty"`
	Faulty       []SecretFault          `json:"faulty,omitempty"`
	Broken       []snapshots.SecretName `json:"broken,omitempty"`
	Secrets      []snapshots.SecretName `json:"secrets,omitempty"`
	Endpoints    []RecordedEndpoints    `json:"endpoints,omitempty"`
	Certificates []RecordedSecret       `json:"certificates,omitempty"`
	Authorities  []RecordedSecret       `json:"authorities,omitempty"`
	Users        []RecordedSecret       `json:"users,omitempty"`
	Values       []RecordedSecret       `json:"values,omitempty"`
	Faults       []RecordedFaults       `json:"faults,omitempty"`
	// What else the directory says about Services without endpoints.
	Sliced    []types.NamespacedName `json:"sliced,omitempty"`
	Services  []RecordedService      `json:"services,omitempty"`
	Workloads []RecordedWorkload     `json:"workloads,omitempty"`
}

// RecordedEndpoints are the endpoints of a Service port. There are none if all are gone.
type RecordedEndpoints struct {
	Service   snapshots.ServicePort `json:"service"`
	Endpoints []snapshots.Endpoint  `json:"endpoints,omitempty"`
	Unsaid    bool                  `json:"unsaid,omitempty"`
}

// RecordedSecret is a value of a Secret, as a digest.
type RecordedSecret struct {
	Secret snapshots.SecretName `json:"secret"`
	Key    string               `json:"key,omitempty"`
	Digest string               `json:"digest"`
	// From and Until are the validity of a certificate that can be parsed.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// RecordedFaults are the faults of a value that a Secret should hold.
type RecordedFaults struct {
	Need   bind.Need `json:"need"`
	Faults []string  `json:"faults"`
}

// RecordedService is a Service with its selector.
type RecordedService struct {
	Service  types.NamespacedName `json:"service"`
	Selector labels.Set           `json:"selector,omitempty"`
}

// RecordedWorkload is a workload, which has pods.
type RecordedWorkload struct {
	Namespace string     `json:"namespace"`
	Labels    labels.Set `json:"labels,omitempty"`
	Pods      int32      `json:"pods"`
}

// Record returns the objects in the form of an event log.
func (o Objects) Record(digest Digest) RecordedObjects {
	out := RecordedObjects{
		Slices: o.Slices, Unsure: o.unsure, Problems: o.problems, Faulty: o.faulty,
		Broken: trueNames(o.broken, snapshots.SecretName.Compare), Secrets: trueNames(o.secrets, snapshots.SecretName.Compare), Endpoints: recordEndpoints(o.Endpoints, nil),
		Certificates: recordSecrets(o.Certificates, digest), Authorities: recordSecrets(o.Authorities, digest),
		Sliced: trueNames(o.evidence.sliced, objectname.Compare),
	}
	for _, name := range slices.SortedFunc(maps.Keys(o.Users), snapshots.SecretName.Compare) {
		var text []byte
		for _, u := range o.Users[name] {
			text = append(text, u.Name+":"+u.Hash+"\n"...)
		}
		out.Users = append(out.Users, RecordedSecret{Secret: name, Digest: digest(text)})
	}
	for key, value := range o.Values {
		out.Values = append(out.Values, RecordedSecret{Secret: key.Secret, Key: key.Key, Digest: digest([]byte(value))})
	}
	slices.SortFunc(out.Values, func(a, b RecordedSecret) int { return cmp.Or(a.Secret.Compare(b.Secret), cmp.Compare(a.Key, b.Key)) })
	for _, need := range slices.SortedFunc(maps.Keys(o.faults), bind.Need.Compare) {
		faults := RecordedFaults{Need: need}
		for _, err := range o.faults[need] {
			faults.Faults = append(faults.Faults, err.Error())
		}
		out.Faults = append(out.Faults, faults)
	}
	if o.evidence.other != nil {
		out.recordOthers(o.evidence.other())
	}
	return out
}

func (r *RecordedObjects) recordOthers(o otherObjects) {
	for _, name := range slices.SortedFunc(maps.Keys(o.services), objectname.Compare) {
		r.Services = append(r.Services, RecordedService{name, o.services[name]})
	}
	for _, namespace := range slices.Sorted(maps.Keys(o.workloads)) {
		for _, w := range o.workloads[namespace] {
			r.Workloads = append(r.Workloads, RecordedWorkload{namespace, w.labels, w.pods})
		}
	}
}

// trueNames returns the names whose value is true, sorted.
func trueNames[N comparable](of map[N]bool, compare func(a, b N) int) []N {
	var out []N
	for _, name := range slices.SortedFunc(maps.Keys(of), compare) {
		if of[name] {
			out = append(out, name)
		}
	}
	return out
}

func recordEndpoints(endpoints map[snapshots.ServicePort][]snapshots.Endpoint, unsaid map[snapshots.ServicePort]bool) []RecordedEndpoints {
	var out []RecordedEndpoints
	for _, port := range slices.SortedFunc(maps.Keys(endpoints), snapshots.ServicePort.Compare) {
		out = append(out, RecordedEndpoints{port, endpoints[port], unsaid[port]})
	}
	return out
}

func recordSecrets(secrets map[snapshots.SecretName][]byte, digest Digest) []RecordedSecret {
	var out []RecordedSecret
	for _, name := range slices.SortedFunc(maps.Keys(secrets), snapshots.SecretName.Compare) {
		out = append(out, recordSecret(name, "", secrets[name], digest))
	}
	return out
}

func recordSecret(name snapshots.SecretName, key string, content []byte, digest Digest) RecordedSecret {
	out := RecordedSecret{Secret: name, Key: key, Digest: digest(content)}
	out.From, out.Until = live.ValidBetween(content)
	return out
}

// RecordedChange is what changed in a cluster, without secrets.
type RecordedChange struct {
	Endpoints []RecordedEndpoints    `json:"endpoints,omitempty"`
	Seen      []types.NamespacedName `json:"seen,omitempty"`
	Secrets   []RecordedObject       `json:"secrets,omitempty"`
	Since     []time.Time            `json:"since,omitempty"`
	Status    *cluster.Status        `json:"status,omitempty"`
}

// RecordedObject is a Secret of a cluster in an event log.
type RecordedObject struct {
	Secret snapshots.SecretName `json:"secret"`
	UID    types.UID            `json:"uid,omitempty"`
	Type   corev1.SecretType    `json:"type,omitempty"`
	// Gone is set if the Secret was deleted, Missing if it was missing in a list.
	Gone    bool             `json:"gone,omitempty"`
	Missing bool             `json:"missing,omitempty"`
	Keys    []RecordedSecret `json:"keys,omitempty"`
	// Certificate is the usable certificate of the Secret, if it has one.
	Certificate *RecordedSecret `json:"certificate,omitempty"`
}

// RecordChange returns a change of a cluster in the form of an event log.
func RecordChange(c cluster.Change, digest Digest) RecordedChange {
	out := RecordedChange{Endpoints: recordEndpoints(c.Endpoints, c.Unsaid), Since: c.Since, Status: c.Status}
	for name, seen := range c.Seen {
		if seen {
			out.Seen = append(out.Seen, name)
		}
	}
	slices.SortFunc(out.Seen, objectname.Compare)
	for _, name := range slices.SortedFunc(maps.Keys(c.Secrets), snapshots.SecretName.Compare) {
		s := c.Secrets[name]
		if s == nil {
			out.Secrets = append(out.Secrets, RecordedObject{Secret: name, Gone: true, Missing: c.Missing[name]})
			continue
		}
		object := RecordedObject{Secret: name, UID: s.UID, Type: s.Type, Missing: c.Missing[name]}
		for _, key := range slices.Sorted(maps.Keys(s.Data)) {
			object.Keys = append(object.Keys, RecordedSecret{Secret: name, Key: key, Digest: digest(s.Data[key])})
		}
		certificates, _ := live.Certificates([]corev1.Secret{*s})
		if content := certificates[name]; content != nil {
			certificate := recordSecret(name, "", content, digest)
			object.Certificate = &certificate
		}
		out.Secrets = append(out.Secrets, object)
	}
	return out
}

// RecordedNode is a node that was bound.
type RecordedNode struct {
	Snapshot     snapshots.ID           `json:"snapshot"`
	Layout       bind.Layout            `json:"layout"`
	Name         string                 `json:"name"`
	Shape        snapshots.Digest       `json:"shape"`
	Entries      snapshots.Digest       `json:"entries,omitempty"`
	Missing      []bind.Need            `json:"missing,omitempty"`
	Certificates push.CertificateHashes `json:"certificates,omitempty"`
	Files        []push.Stored          `json:"files,omitempty"`
	Err          string                 `json:"err,omitempty"`
}

// RecordNodes calls a function with each node that is bound from now on.
func (b *Bindings) RecordNodes(to func(RecordedNode)) { b.record = to }

// Replay has the nodes of a log, and makes placeholders for certificates.
type Replay struct {
	nodes        map[nodeKey][]RecordedNode // nodes that the replay has not used yet
	last         map[nodeKey]RecordedNode   // the node that was used last
	certificates map[string][]byte          // by digest
}

// Replay makes the bindings take their nodes from a log from now on. It returns the replay, which the caller fills.
func (b *Bindings) Replay() *Replay {
	r := &Replay{nodes: map[nodeKey][]RecordedNode{}, last: map[nodeKey]RecordedNode{}, certificates: map[string][]byte{}}
	b.replay = r
	return r
}

// errNotRecorded is the error for a node that the log does not have, because the replay differs from the run.
var errNotRecorded = errors.New("the log does not have this node")

// Give adds a node of the log to the replay.
func (r *Replay) Give(n RecordedNode) {
	key := nodeKey{n.Snapshot, n.Layout}
	r.nodes[key] = append(r.nodes[key], n)
}

func (r *Replay) node(key nodeKey) Node {
	if list := r.nodes[key]; len(list) > 0 {
		r.last[key], r.nodes[key] = list[0], list[1:]
	}
	n, known := r.last[key]
	if !known {
		return Node{Err: errNotRecorded}
	}
	out := Node{Name: n.Name, shape: n.Shape, Entries: n.Entries, Missing: n.Missing, Certificates: n.Certificates, Files: n.Files}
	if n.Err != "" {
		out.Err = errors.New(n.Err)
	}
	return out
}

// Objects returns the objects, with placeholders for what Secrets hold.
func (r *Replay) Objects(o RecordedObjects) Objects {
	out := Objects{
		Slices: o.Slices, unsure: o.Unsure, problems: o.Problems, faulty: o.Faulty, broken: nameSet(o.Broken), secrets: nameSet(o.Secrets),
		faults: map[bind.Need][]error{}, evidence: evidence{sliced: nameSet(o.Sliced)},
	}
	out.Endpoints, _ = replayEndpoints(o.Endpoints)
	out.Certificates, out.Authorities = map[snapshots.SecretName][]byte{}, map[snapshots.SecretName][]byte{}
	out.Users, out.Values = map[snapshots.SecretName][]htpasswd.User{}, map[bind.SecretKey]string{}
	for _, s := range o.Certificates {
		out.Certificates[s.Secret] = r.bundle(s)
	}
	for _, s := range o.Authorities {
		out.Authorities[s.Secret] = []byte(s.Digest)
	}
	for _, s := range o.Users {
		out.Users[s.Secret] = []htpasswd.User{{Name: s.Digest}}
	}
	for _, s := range o.Values {
		out.Values[bind.SecretKey{Secret: s.Secret, Key: s.Key}] = s.Digest
	}
	for _, f := range o.Faults {
		for _, text := range f.Faults {
			out.faults[f.Need] = append(out.faults[f.Need], errors.New(text))
		}
	}
	others := otherObjects{services: map[types.NamespacedName]labels.Set{}, speaksOf: map[string]bool{}, workloads: map[string][]workload{}}
	for _, s := range o.Services {
		others.services[s.Service], others.speaksOf[s.Service.Namespace] = s.Selector, true
	}
	for _, w := range o.Workloads {
		others.workloads[w.Namespace] = append(others.workloads[w.Namespace], workload{w.Labels, w.Pods})
	}
	out.evidence.other = func() otherObjects { return others }
	return out
}

func nameSet[N comparable](names []N) map[N]bool {
	out := map[N]bool{}
	for _, name := range names {
		out[name] = true
	}
	return out
}

func replayEndpoints(list []RecordedEndpoints) (endpoints map[snapshots.ServicePort][]snapshots.Endpoint, unsaid map[snapshots.ServicePort]bool) {
	endpoints, unsaid = map[snapshots.ServicePort][]snapshots.Endpoint{}, map[snapshots.ServicePort]bool{}
	for _, e := range list {
		endpoints[e.Service] = e.Endpoints
		if e.Unsaid {
			unsaid[e.Service] = true
		}
	}
	return endpoints, unsaid
}

// Change returns the change of a cluster, with placeholders for what Secrets hold.
func (r *Replay) Change(c RecordedChange) cluster.Change {
	out := cluster.Change{
		Seen: map[types.NamespacedName]bool{}, Since: c.Since, Status: c.Status,
		Secrets: map[snapshots.SecretName]*corev1.Secret{}, Missing: map[snapshots.SecretName]bool{},
	}
	for _, name := range c.Seen {
		out.Seen[name] = true
	}
	out.Endpoints, out.Unsaid = replayEndpoints(c.Endpoints)
	for _, object := range c.Secrets {
		if object.Missing {
			out.Missing[object.Secret] = true
		}
		if object.Gone {
			out.Secrets[object.Secret] = nil
			continue
		}
		s := &corev1.Secret{Type: object.Type, Data: map[string][]byte{}}
		s.Namespace, s.Name, s.UID = object.Secret.Namespace, object.Secret.Name, object.UID
		for _, key := range object.Keys {
			s.Data[key.Key] = []byte(key.Digest)
		}
		if object.Certificate != nil {
			content := r.certificate(*object.Certificate)
			s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey] = content[0], content[1]
		}
		out.Secrets[object.Secret] = s
	}
	return out
}

// certificate returns a placeholder for a certificate and its key.
func (r *Replay) certificate(s RecordedSecret) [2][]byte {
	if content, ok := r.certificates[s.Digest]; ok {
		return [2][]byte{content, r.certificates["key of "+s.Digest]}
	}
	certificate, key := []byte(s.Digest), []byte(nil)
	if !s.Until.IsZero() {
		certificate, key = placeholder(s.From, s.Until)
	}
	r.certificates[s.Digest], r.certificates["key of "+s.Digest] = certificate, key
	return [2][]byte{certificate, key}
}

// placeholder returns a certificate that is valid for a time, and its key.
func placeholder(from, until time.Time) (certificate, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(from.Unix()), NotBefore: from, NotAfter: until, DNSNames: []string{"placeholder.invalid"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// bundle returns the certificate and its key joined, as in objects.
func (r *Replay) bundle(s RecordedSecret) []byte {
	parts := r.certificate(s)
	return slices.Concat(parts[0], parts[1])
}
