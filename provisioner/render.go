package provisioner

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/hapsnap/hapsnap/charts"
)

// manager is the field manager of what is applied, and the value of app.kubernetes.io/managed-by.
const manager = "hapsnap-provisioner"

// The labels of an object that say to which fleet of which provisioner it belongs.
const (
	provisionerLabel = "hapsnap.dev/provisioner"
	fleetLabel       = "hapsnap.dev/fleet"
	namespaceLabel   = "hapsnap.dev/fleet-namespace"
)

// keepAnnotation is Helm's: an object with it stays when a release is uninstalled.
const keepAnnotation = "helm.sh/resource-policy"

// Chart is the chart that fleets are made of.
type Chart struct{ chart *chartv2.Chart }

// LoadChart returns the chart that the program carries. Its images have the tag appVersion, unless values set
// another one. If appVersion is empty, it is that of the chart.
func LoadChart(appVersion string) (*Chart, error) {
	const root = "hapsnap"
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Hapsnap, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(charts.Hapsnap, name)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(name, root+"/"), Data: text})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	chart.Metadata.AppVersion = cmp.Or(appVersion, chart.Metadata.AppVersion)
	return &Chart{chart}, nil
}

// Merged returns values on top of the chart's own.
func (c *Chart) Merged(values map[string]any) (map[string]any, error) {
	merged, err := commonutil.CoalesceValues(c.chart, values)
	if err != nil {
		return nil, fmt.Errorf("merge values: %w", err)
	}
	return merged, nil
}

// Render returns the objects of a release, in the order in which they can be applied.
func (c *Chart) Render(namespace, release string, values map[string]any) ([]*unstructured.Unstructured, error) {
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := commonutil.ToRenderValues(c.chart, values, options, nil)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	all["Release"].(map[string]any)["Service"] = manager //nolint:forcetypeassert // it is what ToRenderValues makes
	texts, err := engine.Render(c.chart, all)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	var out []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if extension := path.Ext(name); extension != ".yaml" {
			continue // notes, and templates that others include
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(texts[name])), 4096); ; {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("render the chart: %s: %w", name, err)
			}
			if len(o.Object) > 0 {
				out = append(out, o)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return cmp.Compare(rank(a.GetKind()), rank(b.GetKind())) })
	return out, nil
}

// order is the order in which kinds are applied. Objects that run pods come last, and are deleted first.
var order = []string{"Namespace", "ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy", "Service", "PodDisruptionBudget"}

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

// Objects renders a fleet, and marks the objects as the fleet's.
func (c *Chart) Objects(f Fleet, r Record, provisioner string, values map[string]any) ([]*unstructured.Unstructured, error) {
	objects, err := c.Render(f.Name.Namespace, r.Name, values)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		labels, annotations := map[string]string{}, map[string]string{}
		if o.GetNamespace() == f.Name.Namespace {
			maps.Copy(labels, f.Labels)
			maps.Copy(annotations, f.Annotations)
		}
		// The chart overrides what a Gateway adds, and the marks override both.
		maps.Copy(labels, o.GetLabels())
		maps.Copy(annotations, o.GetAnnotations())
		maps.Copy(labels, r.marks(provisioner))
		o.SetLabels(labels)
		if len(annotations) > 0 {
			o.SetAnnotations(annotations)
		}
	}
	return objects, nil
}

// own are values that differ for each fleet, and so cannot be set for all of them.
var own = []string{
	"nameOverride", "fullnameOverride", "gatewayAPI.fleet", "gatewayAPI.class", "gatewayAPI.provisioner", "store.url", "store.name", "store.namespace",
	"compiler.config.gatewayAPI.fleet", "compiler.config.gatewayAPI.controllerName",
}

// ReadValues reads files of values, where later files override earlier ones, as in Helm. It checks that they
// can be the values of all fleets.
func ReadValues(files []string) (map[string]any, error) {
	out := map[string]any{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		values, err := loader.LoadValues(strings.NewReader(string(text)))
		if err != nil {
			return nil, fmt.Errorf("read values: %s: %w", path, err)
		}
		out = loader.MergeMaps(out, values)
	}
	for _, path := range own {
		switch value := at(out, path).(type) {
		case nil:
		case string:
			if value != "" {
				return nil, fmt.Errorf("values: %s is each fleet's own and cannot be set for all of them", path)
			}
		default:
			return nil, fmt.Errorf("values: %s is each fleet's own and cannot be set for all of them", path)
		}
	}
	return out, nil
}

// at returns a value by its path, nil if there is none.
func at(values map[string]any, path string) any {
	var value any = values
	for name := range strings.SplitSeq(path, ".") {
		table, _ := value.(map[string]any)
		value = table[name]
	}
	return value
}

// Values returns the values for the chart of a fleet: the operator's, overridden by the fleet's own. Unless the
// operator says otherwise, the fleet reads only its own namespace, since people who may run pods there may use
// its accounts.
func Values(operators map[string]any, f Fleet, r Record, controller string) map[string]any {
	ports, _ := at(operators, "gatewayAPI.ports").([]any)
	ports = slices.Clone(ports)
	for _, port := range f.Ports {
		if !slices.ContainsFunc(ports, func(p any) bool { return fmt.Sprint(p) == fmt.Sprint(port) }) {
			ports = append(ports, port)
		}
	}
	fleets := map[string]any{
		"fullnameOverride": r.Name,
		"gatewayAPI": map[string]any{
			"enabled": true, "fleet": f.Name.Name, "ports": ports,
			"class": map[string]any{"create": false, "name": f.Class, "controllerName": controller},
		},
		"store": map[string]any{"namespace": r.Store, "createNamespace": true},
	}
	if scope, _ := at(operators, "rbac.scope").(string); scope != "cluster" {
		if scope == "" {
			scope = "namespaces"
		}
		namespaces, _ := at(operators, "rbac.namespaces").([]any)
		namespaces = append([]any{f.Name.Namespace}, slices.DeleteFunc(slices.Clone(namespaces), func(n any) bool { return n == f.Name.Namespace })...)
		fleets["rbac"] = map[string]any{"scope": scope, "namespaces": namespaces}
	}
	return loader.MergeMaps(maps.Clone(operators), fleets)
}

// Reserved returns the ports that the pods of a fleet open themselves, given all values.
func Reserved(values map[string]any) map[int]string {
	out := map[int]string{}
	for path, usual := range map[string]int{
		"haproxy.dataplane.port": 5555, "compiler.config.status.port": 8404, "waf.port": 0, "compiler.config.http.port": 0, "compiler.config.https.port": 0,
	} {
		if path == "waf.port" && at(values, "waf.enabled") != true {
			continue
		}
		port := usual
		switch value := at(values, path).(type) {
		case float64:
			port = int(value)
		case int:
			port = value
		case int64:
			port = int(value)
		}
		if port > 0 {
			out[port] = path
		}
	}
	return out
}

// inside refuses objects outside the namespaces of the fleet, except permissions that the operator grants it
// there.
func inside(f Fleet, r Record, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		switch namespace := o.GetNamespace(); {
		case namespace == "" || namespace == f.Name.Namespace || namespace == r.Store:
		case o.GetKind() == "Role" || o.GetKind() == "RoleBinding":
		default:
			return fmt.Errorf("the values have a fleet make %s, which is in another namespace", refOf(o))
		}
	}
	return nil
}
