// Package fleet reads the file that lists the instances of a fleet and says how
// snapshots are rolled out over it:
//
//	apiVersion: hapsnap.dev/v1alpha1
//	kind: Fleet
//	metadata:
//	  name: edge
//	spec:
//	  rollout:
//	    waves: ["1", "25%", "100%"]
//	    soak: 30s
//	  instances:
//	  - name: edge-1
//	    url: https://10.0.0.11:5555
//	    username: hapsnap
//	    passwordFile: edge-1.password
//	    zone: a
//
// Instead of a list, the file can select pods of a cluster ([Pods]). The package is strict: an unknown
// field is an error with its place in the file, since it may be what its author cared about most.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Kind is the KRM kind of the file.
const Kind = "Fleet"

// The directories of a Dataplane API that was not told others.
const (
	DefaultMaps         = "/etc/haproxy/maps"
	DefaultCertificates = "/etc/haproxy/ssl"
	DefaultGeneral      = "/etc/haproxy/general"
)

// DefaultName is the name of a fleet whose file gives none.
const DefaultName = "default"

// Fleet is the instances that run one configuration.
type Fleet struct {
	// Name tells it from other fleets with the same store, for which its rejections do not count.
	Name      string
	Rollout   Rollout
	Instances []Instance // by name
	// Pods says which pods are instances as well, nil for none.
	Pods *Pods
	// Files are those that it was read from: the file itself and those with
	// passwords, certificates and keys, which have to be watched.
	Files []string
}

// Instance is one HAProxy and its Dataplane API.
type Instance struct {
	Name     string
	URL      string
	Username string
	Password string
	TLS      dataplane.TLS
	// Unknown says why the password or what TLS takes is not known, and is "" if it is. The instance belongs to the
	// fleet, and is not contacted.
	Unknown string
	Zone    string
	// UID is that of the pod, "" for an instance of the file. Another pod of the same
	// name is another instance.
	UID    string
	Layout bind.Layout
	// Draining is set for a pod that terminates. It still serves its connections, and no longer belongs
	// to the fleet.
	Draining bool
	// Also is what else leads to a pod, separated by spaces: its other addresses, and ports of its node such as
	// "192.0.2.1:80". It is a text so that instances can be compared.
	Also string
}

// Access returns the options of a client for the instance.
func (i Instance) Access() dataplane.Options {
	return dataplane.Options{URL: i.URL, Username: i.Username, Password: i.Password, TLS: i.TLS, Unknown: i.Unknown}
}

// The keys of Secrets where the file names none: those of the types
// kubernetes.io/basic-auth and kubernetes.io/tls.
const (
	DefaultUsernameKey = "username"
	DefaultPasswordKey = "password"
	CAKey              = "ca.crt"
)

// DefaultZoneLabel is the label of pods that says their zone: the API server copies
// it from the node.
const DefaultZoneLabel = "topology.kubernetes.io/zone"

// Pods says which pods of a cluster are instances, and how they are reached. Secrets
// are in the namespace of the pods.
type Pods struct {
	Namespace string
	Selector  string // of labels, as the API writes it
	Port      intstr.IntOrString
	Scheme    string
	// Secret has the user name and the password, each under its key.
	Secret, UsernameKey, PasswordKey string
	// CASecret has the authorities, ClientSecret the client certificate; "" is none.
	CASecret, ClientSecret, ServerName string
	// ZoneLabel is a label of pods, NodeZoneLabel one of their nodes, "" for the
	// pods' own.
	ZoneLabel, NodeZoneLabel string
	Layout                   bind.Layout
}

type pods struct {
	Namespace         string                `json:"namespace"`
	Selector          *metav1.LabelSelector `json:"selector"`
	Port              intstr.IntOrString    `json:"port"`
	Scheme            string                `json:"scheme,omitempty"`
	CredentialsSecret struct {
		Name        string `json:"name"`
		UsernameKey string `json:"usernameKey,omitempty"`
		PasswordKey string `json:"passwordKey,omitempty"`
	} `json:"credentialsSecret"`
	TLS struct {
		CASecret                string `json:"caSecret,omitempty"`
		ClientCertificateSecret string `json:"clientCertificateSecret,omitempty"`
		ServerName              string `json:"serverName,omitempty"`
	} `json:"tls,omitempty"`
	ZoneFrom struct {
		PodLabel  string `json:"podLabel,omitempty"`
		NodeLabel string `json:"nodeLabel,omitempty"`
	} `json:"zoneFrom,omitempty"`
	Directories directories `json:"directories,omitempty"`
}

// twice finds instances without a name, and names and addresses that two instances have. If a line was copied and its address
// forgotten, the instance that it should name would get nothing, and would be reported as in sync.
func (r *reader) twice(list []instance) {
	names, addresses := make(map[string]bool), make(map[string]string)
	for n, i := range list {
		switch {
		case i.Name == "":
			r.fault("", "an instance has no name", "spec", "instances", n)
		case names[i.Name]:
			r.fault("", fmt.Sprintf("instance %s is there twice", i.Name), "spec", "instances", n, "name")
		}
		names[i.Name] = true
		at := address(i)
		if other, taken := addresses[at]; taken && at != "" {
			r.fault("", fmt.Sprintf("instance %s has the url of instance %s", i.Name, other), "spec", "instances", n, "url")
			continue
		}
		addresses[at] = i.Name
	}
}

// address returns where the API of an instance is, in one form for all ways to write it, and "" if that cannot be used. A proxy
// may tell APIs apart by the path or the server name.
func address(i instance) string {
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port) + strings.TrimRight(u.Path, "/") + " " + i.TLS.ServerName
}

// pods translates the part of the document, which may be missing.
func (r *reader) pods(p *pods) *Pods {
	if p == nil {
		return nil
	}
	at := func(fields ...any) []any { return append([]any{"spec", "pods"}, fields...) }
	for _, needed := range []struct {
		value string
		at    []any
	}{{p.Namespace, at("namespace")}, {p.CredentialsSecret.Name, at("credentialsSecret", "name")}} {
		if needed.value == "" {
			r.fault("", fmt.Sprintf("%s is missing", fieldPath(needed.at)), needed.at...)
		}
	}
	out := &Pods{
		Namespace: p.Namespace, Selector: r.selector(p.Selector, at("selector")), Port: p.Port, Scheme: cmp.Or(p.Scheme, "https"),
		Secret:      p.CredentialsSecret.Name,
		UsernameKey: cmp.Or(p.CredentialsSecret.UsernameKey, DefaultUsernameKey), PasswordKey: cmp.Or(p.CredentialsSecret.PasswordKey, DefaultPasswordKey),
		CASecret: p.TLS.CASecret, ClientSecret: p.TLS.ClientCertificateSecret, ServerName: p.TLS.ServerName,
		ZoneLabel: cmp.Or(p.ZoneFrom.PodLabel, DefaultZoneLabel), NodeZoneLabel: p.ZoneFrom.NodeLabel,
		Layout: r.layout(p.Directories, at("directories")),
	}
	switch {
	case out.Scheme != "http" && out.Scheme != "https":
		r.fault("use https or http", fmt.Sprintf("there is no scheme %q", p.Scheme), at("scheme")...)
	case out.Scheme == "http" && p.TLS != (pods{}.TLS):
		r.fault("leave out scheme, or use https", "pods have tls, and a scheme without it", at("tls")...)
	}
	if p.Port.StrVal == "" && (p.Port.IntVal < 1 || p.Port.IntVal > 65535) {
		r.fault("name a port of the pods' containers, or use its number", "pods have no usable port", at("port")...)
	}
	if p.ZoneFrom.PodLabel != "" && p.ZoneFrom.NodeLabel != "" {
		r.fault("", "zoneFrom has both podLabel and nodeLabel", at("zoneFrom")...)
	}
	return out
}

// selector refuses one that selects every pod of the namespace.
func (r *reader) selector(s *metav1.LabelSelector, at []any) string {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		r.fault("such as {matchLabels: {app: haproxy}}", "pods have no selector", at...)
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		r.fault("", err.Error(), at...)
		return ""
	}
	return selector.String()
}

func fieldPath(at []any) string {
	words := make([]string, 0, len(at))
	for _, word := range at {
		words = append(words, fmt.Sprint(word))
	}
	return strings.Join(words, ".")
}

// InvalidError is a file that says something impossible. Its text is one line for
// each fault, with the place first, and an indented hint.
type InvalidError []Fault

// Fault is one thing that is wrong.
type Fault struct {
	Position      manifests.Position
	Message, Hint string
}

// Error returns all faults.
func (f InvalidError) Error() string {
	lines := make([]string, 0, len(f))
	for _, fault := range f {
		line := fmt.Sprintf("%s: Fleet: %s", fault.Position, fault.Message)
		if fault.Hint != "" {
			line += "\n\thint: " + fault.Hint
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// document is the file as it is written.
type document struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              spec `json:"spec"`
}

type spec struct {
	Rollout   rolloutDocument `json:"rollout,omitempty"`
	Instances []instance      `json:"instances,omitempty"`
	Pods      *pods           `json:"pods,omitempty"`
}

type instance struct {
	Name         string `json:"name"`
	URL          string `json:"url"`
	Username     string `json:"username,omitempty"`
	Password     string `json:"password,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
	TLS          struct {
		CAFile          string `json:"caFile,omitempty"`
		CertificateFile string `json:"certificateFile,omitempty"`
		KeyFile         string `json:"keyFile,omitempty"`
		ServerName      string `json:"serverName,omitempty"`
	} `json:"tls,omitempty"`
	Zone        string      `json:"zone,omitempty"`
	Directories directories `json:"directories,omitempty"`
}

type directories struct {
	Maps         string `json:"maps,omitempty"`
	Certificates string `json:"certificates,omitempty"`
	General      string `json:"general,omitempty"`
}

// Read reads a fleet from a file. The error is an [InvalidError] if the file itself is wrong, or a file that it names. In the
// latter case Read returns the fleet, too: only the instances that name such a file cannot be used. A password file may be
// empty, with the same consequence.
func Read(file string) (Fleet, error) {
	fleet, r, err := read(file)
	if err == nil && len(r.unusable) > 0 {
		return fleet, r.unusable
	}
	return fleet, err
}

// ReadAgain is Read for a fleet whose instances are known, none at the start. If files that an instance names are missing,
// unusable, or without a password, the instance keeps what it is known with in place of them, provided that it has the same
// URL: nobody else may get its password. It is not contacted if nothing is known. ReadAgain returns the whole fleet then,
// with an error that names those instances: some programs empty a file before they write it. If files are missing or
// unusable, and it knows no credentials of any instance in the file, it returns no fleet.
func ReadAgain(file string, known []Instance) (Fleet, error) {
	fleet, r, err := read(file)
	if err != nil {
		return fleet, err
	}
	usable := fleet.Pods != nil || len(r.unusable) == 0
	for n := range fleet.Instances {
		i := &fleet.Instances[n]
		same := func(k Instance) bool { return k.Name == i.Name && k.URL == i.URL && k.UID == "" && k.Unknown == "" }
		if at := slices.IndexFunc(known, same); i.Unknown != "" && at >= 0 {
			if r.lacks[i.Name].password {
				i.Username, i.Password = known[at].Username, known[at].Password
			}
			if r.lacks[i.Name].tls {
				i.TLS = known[at].TLS
			}
			i.Unknown = ""
		}
		usable = usable || i.Unknown == ""
	}
	faults := slices.Concat(r.blank, r.unusable)
	if len(faults) == 0 {
		return fleet, nil
	}
	if len(faults) > mostNamed {
		faults = append(faults[:mostNamed:mostNamed], Fault{faults[mostNamed].Position, fmt.Sprintf("%d more files cannot be used", len(faults)-mostNamed), ""})
	}
	if !usable {
		return Fleet{Files: fleet.Files}, faults
	}
	return fleet, faults
}

// mostNamed is how many files that cannot be used an error names.
const mostNamed = 20

// read returns the fleet, and the reader with the faults of files that hold no password, and of files that cannot be used.
// The error is about the fleet's file itself.
func read(file string) (Fleet, *reader, error) {
	set, err := manifests.Read(file)
	if why, ok := errors.AsType[*os.PathError](err); ok {
		return Fleet{}, nil, fmt.Errorf("read the file of the fleet: %w", why)
	}
	if err != nil {
		return Fleet{}, nil, err
	}
	object, faults := only(set, file)
	if len(faults) > 0 {
		return Fleet{}, nil, faults
	}
	var d document
	for _, e := range object.Decode(&d) {
		faults = append(faults, Fault{e.Position, e.Error(), e.Hint})
	}
	if len(faults) > 0 {
		return Fleet{}, nil, faults
	}
	r := &reader{object: object, dir: filepath.Dir(file), lacks: map[string]lacks{}}
	fleet := Fleet{Name: cmp.Or(d.Name, DefaultName), Files: []string{file}}
	fleet.Rollout = r.rollout(d.Spec.Rollout)
	for n, i := range d.Spec.Instances {
		fleet.Instances = append(fleet.Instances, r.instance(n, i))
	}
	r.twice(d.Spec.Instances)
	fleet.Pods = r.pods(d.Spec.Pods)
	if len(d.Spec.Instances) == 0 && d.Spec.Pods == nil {
		r.fault("list them under spec.instances, or select pods with spec.pods", "there are no instances", "spec")
	}
	fleet.Files = append(fleet.Files, r.files...)
	slices.SortFunc(fleet.Instances, func(a, b Instance) int { return cmp.Compare(a.Name, b.Name) })
	if len(r.faults) > 0 {
		return Fleet{Files: fleet.Files}, nil, append(r.faults, r.unusable...)
	}
	return fleet, r, nil
}

// only returns the single object of the file.
func only(set manifests.Set, file string) (manifests.Object, InvalidError) {
	var faults InvalidError
	for _, p := range set.Problems {
		faults = append(faults, Fault{p.Position, p.Message, p.Advice()})
	}
	hint := fmt.Sprintf("the file holds one object: apiVersion: %s, kind: %s", snapshots.APIVersion, Kind)
	if len(faults) == 0 && len(set.Objects) != 1 {
		faults = append(faults, Fault{manifests.Position{File: file}, fmt.Sprintf("there are %d objects", len(set.Objects)), hint})
	}
	if len(faults) > 0 {
		return manifests.Object{}, faults
	}
	o := set.Objects[0]
	if o.APIVersion != snapshots.APIVersion || o.Kind != Kind {
		return o, InvalidError{{o.Position("kind"), fmt.Sprintf("this is %s %s", o.APIVersion, o.Kind), hint}}
	}
	return o, nil
}

// reader translates the document and collects what is wrong with it.
type reader struct {
	object   manifests.Object
	dir      string
	faults   InvalidError
	blank    InvalidError // files without a password
	unusable InvalidError // other files that instances name
	lacks    map[string]lacks
	files    []string
}

// lacks says which credentials of an instance are not known.
type lacks struct{ password, tls bool }

func (r *reader) fault(hint, message string, at ...any) {
	r.faults = append(r.faults, Fault{r.object.Position(at...), message, hint})
}

func (r *reader) instance(n int, i instance) Instance {
	at := func(field string) []any { return []any{"spec", "instances", n, field} }
	if u, err := url.Parse(i.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		r.fault("such as https://10.0.0.11:5555, without user, password or /v3", fmt.Sprintf("instance %s has no usable url", i.Name), at("url")...)
	}
	out := Instance{Name: i.Name, URL: i.URL, Username: i.Username, Password: i.Password, Zone: i.Zone}
	out.Layout = r.layout(i.Directories, at("directories"))
	before := len(r.unusable)
	var lacking lacks
	if out.TLS = r.tls(i, at("tls")); len(r.unusable) > before {
		lacking.tls, out.TLS = true, dataplane.TLS{} // a half of it would be no usable one
	}
	switch {
	case i.Password != "" && i.PasswordFile != "":
		r.fault("", fmt.Sprintf("instance %s has both password and passwordFile", i.Name), at("passwordFile")...)
	case i.PasswordFile != "":
		read := len(r.unusable)
		out.Password = strings.TrimRight(r.file(i.Name, i.PasswordFile, at("passwordFile")), "\r\n")
		lacking.password = strings.TrimSpace(out.Password) == ""
		if lacking.password && len(r.unusable) == read {
			out.Unknown = i.PasswordFile + " holds no password"
			r.blank = append(r.blank, Fault{r.object.Position(at("passwordFile")...), fmt.Sprintf("instance %s: %s", i.Name, out.Unknown), "write the password into it"})
		}
	}
	if len(r.unusable) > before {
		out.Unknown = strings.TrimPrefix(r.unusable[before].Message, fmt.Sprintf("instance %s: ", i.Name))
	}
	r.lacks[i.Name] = lacking
	return out
}

// tls reads what HTTPS takes. Nothing of it makes sense for plain HTTP.
func (r *reader) tls(i instance, at []any) dataplane.TLS {
	below := func(field string) []any { return append(slices.Clone(at), field) }
	before := len(r.unusable)
	out := dataplane.TLS{
		CA:          r.filled(i.Name, i.TLS.CAFile, below("caFile")),
		Certificate: r.filled(i.Name, i.TLS.CertificateFile, below("certificateFile")),
		Key:         r.filled(i.Name, i.TLS.KeyFile, below("keyFile")),
		ServerName:  i.TLS.ServerName,
	}
	switch given := i.TLS; {
	case given == (instance{}.TLS):
	case strings.HasPrefix(i.URL, "http:"):
		r.fault("use an https url", fmt.Sprintf("instance %s has tls, and a url without it", i.Name), at...)
	case (given.CertificateFile == "") != (given.KeyFile == ""):
		r.fault("", fmt.Sprintf("instance %s has only one of certificateFile and keyFile", i.Name), at...)
	case len(r.unusable) == before: // else a file is missing, which is said
		if err := out.Check(); err != nil {
			r.unusable = append(r.unusable, Fault{r.object.Position(at...), fmt.Sprintf("instance %s: %v", i.Name, err), ""})
		}
	}
	return out
}

func (r *reader) layout(d directories, at []any) bind.Layout {
	return bind.Layout{
		Maps:         r.directory(d.Maps, DefaultMaps, at),
		Certificates: r.directory(d.Certificates, DefaultCertificates, at),
		General:      r.directory(d.General, DefaultGeneral, at),
	}
}

func (r *reader) directory(given, usual string, at []any) string {
	dir := cmp.Or(given, usual)
	if !path.IsAbs(dir) {
		r.fault("", fmt.Sprintf("%q is not an absolute directory", dir), at...)
	}
	return path.Clean(dir)
}

// filled reads a file that must not be empty. Without this check, an authority that somebody emptied would be replaced
// by those of the system.
func (r *reader) filled(instance, name string, at []any) string {
	before := len(r.unusable)
	data := r.file(instance, name, at)
	if name != "" && strings.TrimSpace(data) == "" && len(r.unusable) == before {
		r.unusable = append(r.unusable, Fault{r.object.Position(at...), fmt.Sprintf("instance %s: %s is empty", instance, name), "leave it out if there is none"})
	}
	return data
}

// file reads a file, whose path counts from the fleet's file. None is empty.
func (r *reader) file(instance, name string, at []any) string {
	if name == "" {
		return ""
	}
	file := name
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.dir, file)
	}
	if !slices.Contains(r.files, file) {
		r.files = append(r.files, file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		if pathErr := new(os.PathError); errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		r.unusable = append(r.unusable, Fault{
			r.object.Position(at...), fmt.Sprintf("instance %s: read %s: %v", instance, name, err),
			"name the file that holds it; the path is relative to that of the Fleet",
		})
	}
	return string(data)
}
