package provisioner

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
