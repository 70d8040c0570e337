package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

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

// Read reads a fleet from a file. The error is [InvalidError] where the file is what
// is wrong.
func Read(file string) (Fleet, error) {
	set, err := manifests.Read(file)
	if err != nil {
		return Fleet{}, err
	}
	object, faults := only(set, file)
	if len(faults) > 0 {
		return Fleet{}, faults
	}
	var d document
	for _, e := range object.Decode(&d) {
		faults = append(faults, Fault{e.Position, e.Error(), e.Hint})
	}
	if len(faults) > 0 {
		return Fleet{}, faults
	}
	r := reader{object: object, dir: filepath.Dir(file)}
	fleet := Fleet{Name: cmp.Or(d.Name, DefaultName), Files: []string{file}}
	fleet.Rollout = r.rollout(d.Spec.Rollout)
	for n, i := range d.Spec.Instances {
		fleet.Instances = append(fleet.Instances, r.instance(n, i))
	}
	seen := make(map[string]bool)
	for n, i := range d.Spec.Instances {
		switch {
		case i.Name == "":
			r.fault("", "an instance has no name", "spec", "instances", n)
		case seen[i.Name]:
			r.fault("", fmt.Sprintf("instance %s is there twice", i.Name), "spec", "instances", n, "name")
		}
		seen[i.Name] = true
	}
	fleet.Pods = r.pods(d.Spec.Pods)
	if len(d.Spec.Instances) == 0 && d.Spec.Pods == nil {
		r.fault("list them under spec.instances, or select pods with spec.pods", "there are no instances", "spec")
	}
	fleet.Files = append(fleet.Files, r.files...)
	slices.SortFunc(fleet.Instances, func(a, b Instance) int { return cmp.Compare(a.Name, b.Name) })
	if len(r.faults) > 0 {
		return Fleet{Files: fleet.Files}, r.faults
	}
	return fleet, nil
}

// only returns the single object of the file.
func only(set manifests.Set, file string) (manifests.Object, InvalidError) {
	var faults InvalidError
	for _, p := range set.Problems {
		faults = append(faults, Fault{p.Position, p.Message, p.Hint})
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
	object manifests.Object
	dir    string
	faults InvalidError
	files  []string
}

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
	out.TLS = r.tls(i, at("tls"))
	switch {
	case i.Password != "" && i.PasswordFile != "":
		r.fault("", fmt.Sprintf("instance %s has both password and passwordFile", i.Name), at("passwordFile")...)
	case i.PasswordFile != "":
		out.Password = strings.TrimRight(r.file(i.Name, i.PasswordFile, at("passwordFile")), "\r\n")
	}
	return out
}

// tls reads what HTTPS takes. Nothing of it makes sense for plain HTTP.
func (r *reader) tls(i instance, at []any) dataplane.TLS {
	below := func(field string) []any { return append(slices.Clone(at), field) }
	before := len(r.faults)
	out := dataplane.TLS{
		CA:          r.file(i.Name, i.TLS.CAFile, below("caFile")),
		Certificate: r.file(i.Name, i.TLS.CertificateFile, below("certificateFile")),
		Key:         r.file(i.Name, i.TLS.KeyFile, below("keyFile")),
		ServerName:  i.TLS.ServerName,
	}
	switch given := i.TLS; {
	case given == (instance{}.TLS):
	case strings.HasPrefix(i.URL, "http:"):
		r.fault("use an https url", fmt.Sprintf("instance %s has tls, and a url without it", i.Name), at...)
	case (given.CertificateFile == "") != (given.KeyFile == ""):
		r.fault("", fmt.Sprintf("instance %s has only one of certificateFile and keyFile", i.Name), at...)
	case len(r.faults) == before: // else a file is missing, which is said
		if err := out.Check(); err != nil {
			r.fault("", fmt.Sprintf("instance %s: %v", i.Name, err), at...)
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
		r.fault("name the file that holds it; the path is relative to that of the Fleet", fmt.Sprintf("instance %s: read %s: %v", instance, name, err), at...)
	}
	return string(data)
}
