package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
)

// clientLabel is on the ConfigMap that says where an installation has its store and its
// state. The chart makes one.
const clientLabel = "hapsnap.dev/client"

// discoverTimeout is how long the cluster may take to say what is installed.
const discoverTimeout = 30 * time.Second

const (
	hintNamed = "name the store with --store or HAPSNAP_STORE, or add a context: hapsnap context add NAME --store STORE"
	hintRole  = "ask for a role that lists ConfigMaps in the namespace of the installation, such as the chart's viewer, and name it with -n; or name the store with --store"
)

// discover asks the cluster which installation there is. More than one is no answer: an
// act would be about a fleet that nobody named.
func discover(ctx context.Context, at cluster) (settings, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	client, err := clientOf(at.access)
	if err != nil {
		return nil, process.WithHint(err, hintNamed)
	}
	all, err := installations(ctx, client, at)
	if err != nil {
		return nil, err
	}
	return chosen(all, at)
}

func clientOf(at kubeconfig.Options) (kubernetes.Interface, error) {
	config, err := at.Load()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return client, nil
}

// chosen returns what the only one of the installations says.
func chosen(all []corev1.ConfigMap, at cluster) (settings, error) {
	switch len(all) {
	case 0:
		return nil, process.WithHint(fmt.Errorf("no ConfigMap of %s has the label %s", where(at), clientLabel), hintNamed)
	case 1:
		return settingsOf(all[0])
	}
	var names []string
	for _, m := range all {
		names = append(names, fmt.Sprintf("%s/%s (%s)", m.Namespace, m.Name, m.Data["store"]))
	}
	slices.Sort(names)
	return nil, process.WithHint(process.Usage("there are %d installations:\n\t%s", len(all), strings.Join(names, "\n\t")),
		"choose one with --installation NAMESPACE/NAME, or with -n if it is alone in its namespace")
}

func where(at cluster) string {
	if at.namespace != "" {
		return "namespace " + at.namespace
	}
	return "the cluster"
}

// settingsOf returns what a ConfigMap says, of what it may say: where things are, and no
// credentials, which are the user's own.
func settingsOf(m corev1.ConfigMap) (settings, error) {
	s := settings{"store": m.Data["store"], "state": m.Data["state"]}
	if place := m.Data[statusSetting]; place != "" {
		s[statusSetting] = place
	}
	if s["store"] == "" {
		return nil, process.WithHint(fmt.Errorf("ConfigMap %s/%s names no store", m.Namespace, m.Name), hintNamed)
	}
	return s, nil
}

// statusSetting names the ConfigMap with the status of the fleet. Verbs that only look take it in the
// place of the state, which is in a Secret.
const statusSetting = "status"

// forVerb returns the settings as a verb takes them.
func (s settings) forVerb(flags *pflag.FlagSet, needsState bool) settings {
	out := maps.Clone(s)
	delete(out, statusSetting)
	state := flags.Lookup("state")
	if place := s[statusSetting]; place != "" && !needsState && state != nil && !state.Changed {
		out["state"] = place
	}
	return out
}

// installations returns the ConfigMaps of the installations that may be meant.
func installations(ctx context.Context, client kubernetes.Interface, at cluster) ([]corev1.ConfigMap, error) {
	if at.installation != "" {
		name, err := objectname.Parse(at.installation)
		if err != nil {
			return nil, process.Usage("--installation: %w", err)
		}
		m, err := client.CoreV1().ConfigMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil {
			return nil, refused(err, "read ConfigMap "+at.installation)
		}
		return []corev1.ConfigMap{*m}, nil
	}
	list := func(namespace string) ([]corev1.ConfigMap, error) {
		found, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: clientLabel})
		if err != nil {
			return nil, err
		}
		return found.Items, nil
	}
	if at.namespace != "" {
		all, err := list(at.namespace)
		return all, refused(err, "look for ConfigMaps in namespace "+at.namespace)
	}
	all, err := list(metav1.NamespaceAll)
	if err != nil && apierrors.IsForbidden(err) {
		own := cmp.Or(at.access.Namespace(), metav1.NamespaceDefault)
		all, err = list(own)
		err = refused(err, "look for ConfigMaps in all namespaces, or in namespace "+own)
	}
	return all, refused(err, "look for ConfigMaps in all namespaces")
}

// refused says what a user may do about an error of the API server.
func refused(err error, doing string) error {
	if err == nil || process.Hint(err) != "" {
		return err
	}
	hint := hintNamed
	if apierrors.IsForbidden(err) {
		hint = hintRole
	}
	return process.WithHint(fmt.Errorf("%s: %w", doing, err), hint)
}
