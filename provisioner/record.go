package provisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Record says what is known of a fleet that was made: its names, and every object that may exist.
type Record struct {
	Fleet types.NamespacedName `json:"fleet"`
	// Name is the beginning of the names of its objects, and Store the namespace of its snapshots. They stay
	// the same, whichever Gateway is the oldest.
	Name  string `json:"name"`
	Store string `json:"store"`
	// Controller is the controllerName of the classes for whose Gateways it was made. A provisioner that runs
	// with another one, by mistake or not, does not delete fleets whose Gateways exist.
	Controller string `json:"controller"`
	// Objects are recorded before they are made and until they are gone.
	Objects []Ref `json:"objects"`
	// Since is when the provisioner first saw that no Gateway names the fleet; nil while one does.
	Since *time.Time `json:"since,omitempty"`
	// Gone means that only the store is left, which stays.
	Gone bool `json:"gone,omitempty"`
}

// Ref names an object.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// String names the object as people do.
func (r Ref) String() string {
	return r.Kind + " " + strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
}

func refOf(o *unstructured.Unstructured) Ref {
	return Ref{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()}
}

// newRecord returns the record of a fleet of which nothing was made yet.
func newRecord(f Fleet, controller string) Record {
	name := nameOf(f.Name.Name, f.Class)
	return Record{Fleet: f.Name, Name: name, Store: storeOf(f.Name.Namespace, name), Controller: controller}
}

// marks are the labels that all objects of the fleet have, and no others.
func (r Record) marks(provisioner string) map[string]string {
	return map[string]string{provisionerLabel: provisioner, fleetLabel: r.Fleet.Name, namespaceLabel: r.Fleet.Namespace}
}

// owns reports whether an object belongs to the fleet.
func (r Record) owns(o metav1.Object, provisioner string) bool {
	labels := o.GetLabels()
	for key, value := range r.marks(provisioner) {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// with adds objects to a record.
func (r Record) with(refs []Ref) Record {
	all := slices.Clone(r.Objects)
	for _, ref := range refs {
		if !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	r.Objects = all
	return r
}

// Removal says what happens to fleets that no Gateway names.
type Removal struct {
	// Mark are records to save: since when no Gateway names the fleet, or that one does again.
	Mark []Record
	// Remove are the fleets to delete now, and Waiting those whose grace is not over.
	Remove, Waiting []Record
	// Next is when the next grace is over.
	Next time.Time
	// Held says why none is deleted.
	Held string
}

// Removals decides which fleets are deleted. If more than most of them lose their Gateways at once, that is
// probably a mistake: then all stay.
func Removals(made map[types.NamespacedName]Record, named []Fleet, most int, grace time.Duration, now time.Time) Removal {
	var out Removal
	for _, r := range sorted(made) {
		wanted := slices.ContainsFunc(named, func(f Fleet) bool { return f.Name == r.Fleet })
		switch {
		case wanted && r.Since != nil:
			r.Since = nil
			out.Mark = append(out.Mark, r)
		case wanted || r.Gone:
		default:
			if r.Since == nil || r.Since.After(now) {
				r.Since = &now
				out.Mark = append(out.Mark, r)
			}
			if end := r.Since.Add(grace); end.After(now) {
				out.Waiting = append(out.Waiting, r)
				if out.Next.IsZero() || end.Before(out.Next) {
					out.Next = end
				}
			} else {
				out.Remove = append(out.Remove, r)
			}
		}
	}
	if unnamed := len(out.Remove) + len(out.Waiting); unnamed > most {
		out.Held = fmt.Sprintf("%d fleets are named by no Gateway any more, and no more than %d may go at once: all stay", unnamed, most)
		out.Waiting = append(out.Waiting, out.Remove...)
		out.Remove = nil
	}
	return out
}

func sorted(made map[types.NamespacedName]Record) []Record {
	out := make([]Record, 0, len(made))
	for _, r := range made {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int { return strings.Compare(a.Fleet.String(), b.Fleet.String()) })
	return out
}

// recordKey is the key of the record in its ConfigMap.
const recordKey = "record.json"

// records are ConfigMaps beside the Lease.
type records struct {
	client      typedcorev1.ConfigMapInterface
	prefix      string // the Lease's name
	provisioner string
}

// list reads all records. A record that cannot be read is an error: otherwise its fleet would count as one that
// was never made.
func (s records) list(ctx context.Context) (map[types.NamespacedName]Record, error) {
	list, err := s.client.List(ctx, metav1.ListOptions{LabelSelector: provisionerLabel + "=" + s.provisioner})
	if err != nil {
		return nil, fmt.Errorf("list the records of fleets: %w", err)
	}
	out := map[types.NamespacedName]Record{}
	for _, c := range list.Items {
		var r Record
		if err := json.Unmarshal([]byte(c.Data[recordKey]), &r); err != nil {
			return nil, fmt.Errorf("the ConfigMap %s is not the record of a fleet: %w", c.Name, err)
		}
		if s.name(r) != c.Name {
			return nil, fmt.Errorf("the ConfigMap %s is the record of the fleet %s, which has another name", c.Name, r.Fleet)
		}
		out[r.Fleet] = r
	}
	return out, nil
}

func (s records) name(r Record) string {
	return withDigest(s.prefix+"-fleet", r.Fleet.String(), 63)
}

// save writes a record.
func (s records) save(ctx context.Context, r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the record of the fleet: %w", err)
	}
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(r), Labels: r.marks(s.provisioner)},
		Data:       map[string]string{recordKey: string(text)},
	}
	if _, err = s.client.Update(ctx, o, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = s.client.Create(ctx, o, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write the record of the fleet: %w", err)
	}
	return nil
}

// forget deletes a record.
func (s records) forget(ctx context.Context, r Record) error {
	if err := s.client.Delete(ctx, s.name(r), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the record of the fleet: %w", err)
	}
	return nil
}
